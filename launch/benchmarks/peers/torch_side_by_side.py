"""Runs plain PyTorch with one thread per core as a contender.

The command `torch_side_by_side.py ARRAYS.npz` needs an interpreter that has torch. It trains
LEAF's FEMNIST CNN by federated averaging, from the weights in the file.

Each thread has one model, which it trains in place for one client after another, and one
running sum of weights. All clients have equally many examples. PyTorch releases Python's global
lock during its operations.
"""

import concurrent.futures
import os
import sys

import numpy as np
import protocol
import torch
import torch_network


def build(is_bfloat16=False):
  """Builds the contender, in which every client participates in every round."""
  torch.set_num_threads(1)
  arrays = dict(np.load(sys.argv[1]))
  clients, examples = torch_network.clients(arrays), arrays['y'].size
  threads = min(len(os.sched_getaffinity(0)), len(clients))
  pool = concurrent.futures.ThreadPoolExecutor(threads)
  model = [p.detach() for p in torch_network.Network(arrays).parameters()]
  networks, sums = [], []
  for _ in range(threads):
    network = torch_network.Network(arrays).to(memory_format=torch.channels_last)
    networks.append(network)
    sums.append([torch.zeros_like(p) for p in network.parameters()])

  def train(network, total, mine):
    """Trains clients and adds up their weights; returns their share of the mean loss."""
    parameters, loss_sum = [p.detach() for p in network.parameters()], 0.0
    optimizer = torch.optim.SGD(network.parameters(), float(arrays['learning_rate']))
    torch._foreach_zero_(total)
    for x, y in mine:
      torch._foreach_copy_(parameters, model)
      for batch in torch.randperm(len(y)).split(int(arrays['batch_size'])):
        optimizer.zero_grad()
        with torch.autocast('cpu', torch.bfloat16, is_bfloat16, cache_enabled=False):
          loss = torch.nn.functional.cross_entropy(network(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(batch) / examples
      torch._foreach_add_(total, parameters, alpha=len(y) / examples)
    return loss_sum

  def run():
    shares = [clients[first::threads] for first in range(threads)]
    losses = list(pool.map(train, networks, sums, shares))
    torch._foreach_zero_(model)
    for total in sums:
      torch._foreach_add_(model, total)
    loss, moved = sum(losses), torch_network.moved
    return {'check': lambda: {'loss': loss, 'update_norm': moved(arrays, model)}}

  return run


if __name__ == '__main__':
  protocol.serve(build)
