"""Plain PyTorch that trains part of the class layer, as a contender.

Runs under an interpreter that has torch: torch_submodel.py ARRAYS.npz N. A
client gathers the class rows of its own classes and of sampled negatives,
trains a sampled softmax on them, and its changes are added to their rows
(FedSS). One process trains one client after another, in place on one model.
"""

import math
import sys

import inputs
import protocol
import torch
import torch_network


class Rounds:
  """A contender of `protocol`: every client takes part in every round."""

  def __init__(self, arrays):
    network = torch_network.Network(*arrays['class/kernel'].shape)
    torch_network.started(network, arrays)
    self._rows, self._bias = (p.detach() for p in network.head.parameters())
    del network.head
    self._network = torch_network.channels_last(network)
    self._encoder = [p.detach() for p in network.parameters()]
    self._global = [p.clone() for p in self._encoder]
    self._sums = [torch.zeros_like(p) for p in self._encoder]
    self._clients = torch_network.clients(arrays)
    self._examples = arrays['y'].size
    self._batch_size = int(arrays['batch_size'])
    self._learning_rate = float(arrays['learning_rate'])
    self._negatives = int(arrays['negatives'])
    self._arrays = arrays

  def _sampled(self, own):
    """Returns other classes than `own`, drawn without replacement."""
    others = torch.ones(len(self._rows), dtype=torch.bool)
    others[own] = False
    others = others.nonzero()[:, 0]
    return others[torch.randperm(len(others))[: self._negatives]]

  def _train(self, x, y):
    """Trains a client from the global model."""
    own, targets = torch.unique(y, return_inverse=True)
    negatives = self._sampled(own)
    held = torch.cat([own, negatives])
    # FedSS, eq. (6): a sampled negative stands for several.
    shift = torch.zeros(len(held))
    if len(negatives):
      others = len(self._rows) - len(own)
      shift[len(own) :] = math.log(others / len(negatives))
    rows, bias = self._rows[held], self._bias[held]
    head = torch.nn.Linear(rows.shape[1], len(held), device='meta')
    head.weight = torch.nn.Parameter(rows.clone())
    head.bias = torch.nn.Parameter(bias.clone())
    self._network.head = head
    torch._foreach_copy_(self._encoder, self._global)
    loss_sum = torch_network.train(
      self._network,
      torch.optim.SGD(self._network.parameters(), self._learning_rate),
      x,
      targets,
      self._batch_size,
      shift,
    )
    moved = head.weight.detach() - rows, head.bias.detach() - bias
    return (loss_sum, held, *moved)

  def run(self):
    total, updates = 0.0, []
    for x, y in self._clients:
      part = len(y) / self._examples
      loss_sum, held, *moved = self._train(x, y)
      updates.append((part, held, *moved))
      torch._foreach_add_(self._sums, self._encoder, alpha=part)
      total += loss_sum
    for part, held, rows, bias in updates:
      self._rows.index_add_(0, held, rows, alpha=part)
      self._bias.index_add_(0, held, bias, alpha=part)
    torch._foreach_copy_(self._global, self._sums)
    torch._foreach_zero_(self._sums)
    now = [*self._global, self._rows, self._bias]
    return {'check': lambda: torch_network.checked(self._arrays, total, now)}


protocol.serve(lambda: Rounds(inputs.load(*sys.argv[1:])).run)
