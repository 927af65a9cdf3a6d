"""LEAF's FEMNIST CNN in plain PyTorch, for the contenders that use it."""

import inputs
import numpy as np
import torch

_DENSE_SHAPE = (7, 7, 64)


class Network(torch.nn.Module):
  """LEAF's FEMNIST CNN, `width` wide, with a class layer."""

  def __init__(self, width, classes):
    super().__init__()
    self.conv0 = torch.nn.Conv2d(1, 32, 5, padding='same')
    self.conv1 = torch.nn.Conv2d(32, 64, 5, padding='same')
    self.dense = torch.nn.Linear(3136, width)
    self.head = torch.nn.Linear(width, classes)

  def forward(self, x):
    functional = torch.nn.functional
    h = functional.max_pool2d(functional.relu(self.conv0(x)), 2)
    h = functional.max_pool2d(functional.relu(self.conv1(h)), 2)
    return self.head(functional.relu(self.dense(h.flatten(1))))


def weights(arrays):
  """Returns the weights in PyTorch's layouts, in the order of parameters."""
  conv = lambda name: arrays[name].transpose(3, 2, 0, 1)
  dense = arrays['dense/kernel'].reshape(*_DENSE_SHAPE, -1)
  dense = dense.transpose(3, 2, 0, 1).reshape(dense.shape[-1], -1)
  return [
    np.ascontiguousarray(value)
    for value in (
      conv('conv0/kernel'),
      arrays['conv0/bias'],
      conv('conv1/kernel'),
      arrays['conv1/bias'],
      dense,
      arrays['dense/bias'],
      arrays['class/kernel'].T,
      arrays['class/bias'],
    )
  ]


def started(network, arrays):
  """Returns the network with the weights of the arrays."""
  with torch.no_grad():
    for parameter, value in zip(  # noqa: B905 old Pythons
      network.parameters(), weights(arrays)
    ):
      parameter.copy_(torch.from_numpy(value))
  return network


def clients(arrays):
  """Returns each client's (x float32 [m, 1, 28, 28], y int64 [m])."""
  return [
    (torch.from_numpy(x[:, None]), torch.from_numpy(y.astype(np.int64)))
    for x, y in zip(arrays['x'], arrays['y'])  # noqa: B905 old Pythons
  ]


def channels_last(network):
  """Returns the network in the layout in which a CPU convolves fastest."""
  return network.to(memory_format=torch.channels_last)


def train(network, optimizer, x, y, batch_size, shift=None):
  """Trains one epoch in place, and returns the sum of the examples' losses."""
  total = 0.0
  for batch in torch.randperm(len(y)).split(batch_size):
    optimizer.zero_grad()
    logits = network(x[batch])
    if shift is not None:
      logits = logits + shift
    loss = torch.nn.functional.cross_entropy(logits, y[batch])
    loss.backward()
    optimizer.step()
    total += loss.item() * len(batch)
  return total


def checked(arrays, loss_sum, now):
  """Returns what contenders must agree on, after the first round."""
  norm = inputs.distance([v.detach().numpy() for v in now], weights(arrays))
  return {'loss': loss_sum / arrays['y'].size, 'update_norm': norm}
