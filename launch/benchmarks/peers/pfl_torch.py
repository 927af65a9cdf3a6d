"""pfl-research (PyPI: pfl[pytorch]) with PyTorch, as a contender of `round`.

Runs under an interpreter that has pfl: pfl_torch.py ARRAYS.npz. Federated
averaging of LEAF's FEMNIST CNN from the weights in the file, by the library's
own `FederatedAveraging` and `SimulatedBackend`.
"""

import sys

import numpy as np
import protocol
import rounds
import torch
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.model.pytorch import PyTorchModel


class Network(torch.nn.Module):
  """LEAF's FEMNIST CNN; also sums its training loss, for the check."""

  def __init__(self, width, classes):
    super().__init__()
    self.conv0 = torch.nn.Conv2d(1, 32, 5, padding='same')
    self.conv1 = torch.nn.Conv2d(32, 64, 5, padding='same')
    self.dense = torch.nn.Linear(3136, width)
    self.head = torch.nn.Linear(width, classes)
    self.loss_sum, self.examples = 0.0, 0

  def forward(self, x):
    functional = torch.nn.functional
    h = functional.max_pool2d(functional.relu(self.conv0(x)), 2)
    h = functional.max_pool2d(functional.relu(self.conv1(h)), 2)
    return self.head(functional.relu(self.dense(h.flatten(1))))

  def loss(self, x, y):
    loss = torch.nn.functional.cross_entropy(self(x), y)
    self.loss_sum += loss.item() * len(y)
    self.examples += len(y)
    return loss

  def metrics(self, x, y):
    return {}


def _torch_weights(arrays):
  """Returns the weights in PyTorch's layouts, in the order of parameters."""
  conv = lambda name: arrays[name].transpose(3, 2, 0, 1)
  dense = arrays['dense/kernel'].reshape(7, 7, 64, -1)
  dense = dense.transpose(3, 2, 0, 1).reshape(dense.shape[-1], 3136)
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


def build():
  """Returns the contender."""
  arrays = dict(np.load(sys.argv[1]))
  network, before = (
    Network(*arrays['class/kernel'].shape),
    _torch_weights(arrays),
  )
  with torch.no_grad():
    for parameter, value in zip(network.parameters(), before):  # noqa: B905
      parameter.copy_(torch.from_numpy(value))
  model = PyTorchModel(
    model=network,
    local_optimizer_create=torch.optim.SGD,
    central_optimizer=torch.optim.SGD(network.parameters(), 1.0),
  )
  datasets = {
    str(k): PyTorchTensorDataset(
      (torch.from_numpy(x[:, None]), torch.from_numpy(y.astype(np.int64))),
      user_id=str(k),
    )
    for k, (x, y) in enumerate(zip(arrays['x'], arrays['y']))  # noqa: B905
  }
  return rounds.Rounds(
    model,
    datasets,
    arrays,
    before=before,
    weights=lambda: [p.detach().numpy() for p in network.parameters()],
    loss=lambda: network.loss_sum / network.examples,
  )


protocol.serve(build)
