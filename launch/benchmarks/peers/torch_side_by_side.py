"""Plain PyTorch, one process a core side by side, as a contender.

Runs under an interpreter that has torch: torch_side_by_side.py ARRAYS.npz [N].
Federated averaging of LEAF's FEMNIST CNN from the weights in the file.

Each process has one thread and one model, which it trains in place for one
client after another, and takes the next client that none has taken. Processes
share the global model and a running sum of weights each; nothing is serialized.
"""

import mmap
import multiprocessing
import os
import sys
import traceback

import inputs
import protocol
import torch
import torch_network

# Before the fork: a process cannot inherit PyTorch's threads.
torch.set_num_threads(1)


def _shared_like(parameters):
  """Returns zeros of the parameters' shapes, shared with forked processes.

  `share_memory_` would need room in /dev/shm, of which containers often have
  only 64 MB.
  """
  zeros = []
  for p in parameters:
    memory = mmap.mmap(-1, p.numel() * p.element_size())
    flat = torch.frombuffer(memory, dtype=p.dtype)
    zeros.append(flat.as_strided(p.shape, p.stride()))
  return zeros


class Rounds:
  """A contender of `protocol`: every client takes part in every round."""

  def __init__(self, arrays):
    network = torch_network.Network(*arrays['class/kernel'].shape)
    self._network = torch_network.channels_last(
      torch_network.started(network, arrays)
    )
    self._parameters = list(network.parameters())
    self._optimizer = torch.optim.SGD(
      self._parameters, float(arrays['learning_rate'])
    )
    self._clients = torch_network.clients(arrays)
    self._examples = arrays['y'].size
    self._batch_size = int(arrays['batch_size'])
    self._arrays = arrays
    processes = min(len(os.sched_getaffinity(0)), len(self._clients))
    self._global = _shared_like(self._parameters)
    self._sums = [_shared_like(self._parameters) for _ in range(processes)]
    with torch.no_grad():
      torch._foreach_copy_(self._global, self._parameters)
    self._start(processes)

  def _start(self, processes):
    """Forks all processes but this one, which is the first."""
    context = multiprocessing.get_context('fork')
    self._next = context.Value('i', 0)
    self._pipes = []
    for number in range(1, processes):
      ours, theirs = context.Pipe()
      context.Process(
        target=self._serve, args=(number, theirs, os.getpid()), daemon=True
      ).start()
      theirs.close()  # So that reading ends if the process does.
      self._pipes.append(ours)

  def _serve(self, number, pipe, parent):
    protocol.die_with_parent(parent)
    try:
      while True:
        pipe.recv()
        pipe.send(self._train(number))
    except Exception:
      traceback.print_exc()
      os._exit(1)

  def _train(self, number):
    """Trains the next client until none is left."""
    loss_sum, examples = 0.0, 0
    while True:
      with self._next.get_lock():
        k = self._next.value
        self._next.value += 1
      if k >= len(self._clients):
        return loss_sum, examples
      x, y = self._clients[k]
      with torch.no_grad():
        torch._foreach_copy_(self._parameters, self._global)
      loss_sum += torch_network.train(
        self._network, self._optimizer, x, y, self._batch_size
      )
      with torch.no_grad():
        torch._foreach_add_(
          self._sums[number], self._parameters, alpha=len(y) / self._examples
        )
      examples += len(y)

  def run(self):
    self._next.value = 0
    for pipe in self._pipes:
      pipe.send('round')
    done = [self._train(0)] + [pipe.recv() for pipe in self._pipes]
    losses, examples = zip(*done)  # noqa: B905 old Pythons
    if sum(examples) != self._examples:
      raise ValueError(f'{sum(examples)} of {self._examples} examples trained')
    torch._foreach_zero_(self._global)
    for sums in self._sums:
      torch._foreach_add_(self._global, sums)
      torch._foreach_zero_(sums)
    check = lambda: torch_network.checked(
      self._arrays, sum(losses), self._global
    )
    return {'check': check}


if __name__ == '__main__':
  protocol.serve(lambda: Rounds(inputs.load(*sys.argv[1:])).run)
