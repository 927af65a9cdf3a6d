"""Defines LEAF's FEMNIST CNN in PyTorch, with the weights and clients of a benchmark."""

import protocol
import torch


class Network(torch.nn.Module):
  """LEAF's FEMNIST CNN. `arrays` gives its sizes and initial weights."""

  def __init__(self, arrays):
    super().__init__()
    width, classes = arrays['class/kernel'].shape
    self.conv0 = torch.nn.Conv2d(1, 32, 5, padding='same')
    self.conv1 = torch.nn.Conv2d(32, 64, 5, padding='same')
    self.dense = torch.nn.Linear(3136, width)
    self.head = torch.nn.Linear(width, classes)
    for parameter, value in zip(self.parameters(), weights(arrays)):  # noqa: B905
      parameter.data.copy_(torch.from_numpy(value))

  def forward(self, x):
    functional = torch.nn.functional
    h = functional.max_pool2d(functional.relu(self.conv0(x)), 2)
    h = functional.max_pool2d(functional.relu(self.conv1(h)), 2)
    # This is TensorFlow's order. If channels are last in memory, nothing is copied.
    h = h.permute(0, 2, 3, 1).flatten(1)
    return self.head(functional.relu(self.dense(h)))


def weights(arrays):
  """Returns the weights in PyTorch's layouts, in the order of the module's parameters."""
  found = []
  for layer in ('conv0', 'conv1', 'dense', 'class'):
    kernel = arrays[layer + '/kernel']
    axes = (3, 2, 0, 1) if kernel.ndim == 4 else (1, 0)
    found += [kernel.transpose(axes), arrays[layer + '/bias']]
  return found


def clients(arrays):
  """Returns (x float32 [m, 1, 28, 28], y int64 [m]) of each client."""
  x, y = torch.from_numpy(arrays['x']), torch.from_numpy(arrays['y'])
  return list(zip(x[:, :, None], y.long()))  # noqa: B905


def moved(arrays, now):
  """Returns the L2 distance of the weights `now` from the initial weights."""
  return protocol.distance([p.detach().numpy() for p in now], weights(arrays))
