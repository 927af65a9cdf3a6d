"""FedMLH's networks in plain PyTorch, one after the other, as a contender.

Runs under an interpreter that has torch: torch_networks.py ARRAYS.npz. One thread.
"""

import sys

import inputs
import protocol
import torch


def _network(arrays, r):
  """Returns network r with the given weights."""
  prefix = '%d/' % r  # noqa: UP031 old Pythons
  weights = {
    name[len(prefix) :]: torch.from_numpy(w.copy())
    for name, w in arrays.items()
    if name.startswith(prefix)
  }
  linear = lambda i: torch.nn.Linear(*reversed(weights[i].shape))
  network = torch.nn.Sequential(
    linear('0.weight'),
    torch.nn.ReLU(),
    linear('2.weight'),
    torch.nn.ReLU(),
    linear('4.weight'),
  )
  network.load_state_dict(weights)
  return network


class Epochs:
  """A contender of `protocol`: epochs of one client, in order, with fresh Adam."""

  def __init__(self, arrays):
    torch.set_num_threads(1)
    size = int(arrays['batch_size'])
    self._rate = float(arrays['learning_rate'])
    self._x = torch.from_numpy(arrays['x']).split(size)
    self._targets = [
      torch.from_numpy(y).float().split(size) for y in arrays['y']
    ]
    self._networks = [_network(arrays, r) for r in range(len(self._targets))]
    self._before = self._weights()
    self._report = {}

  def _weights(self):
    return [
      w.detach().numpy().copy()
      for network in self._networks
      for w in network.parameters()
    ]

  def run(self):
    total = 0.0
    for network, targets in zip(self._networks, self._targets):  # noqa: B905
      optimizer = torch.optim.Adam(network.parameters(), self._rate)
      for x, y in zip(self._x, targets):  # noqa: B905 old Pythons
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
          network(x), y
        )
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
    self._loss = total / sum(map(len, self._x))

  def report(self):
    if not self._report:
      norm = inputs.distance(self._weights(), self._before)
      self._report = {'check': {'loss': self._loss, 'update_norm': norm}}
    return self._report


protocol.serve(lambda: Epochs(inputs.load(*sys.argv[1:])))
