"""pfl-research (PyPI: pfl[pytorch]) with PyTorch, as a contender.

Runs under an interpreter that has pfl: pfl_torch.py ARRAYS.npz [N]. Federated
averaging of LEAF's FEMNIST CNN from the weights in the file, by the library's
own `FederatedAveraging` and `SimulatedBackend`.
"""

import sys

import inputs
import protocol
import rounds
import torch
import torch_network
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.model.pytorch import PyTorchModel


class Network(torch_network.Network):
  """The network as pfl trains it; also sums its loss, for the check."""

  def __init__(self, width, classes):
    super().__init__(width, classes)
    self.loss_sum, self.examples = 0.0, 0

  def loss(self, x, y):
    loss = torch.nn.functional.cross_entropy(self(x), y)
    self.loss_sum += loss.item() * len(y)
    self.examples += len(y)
    return loss

  def metrics(self, x, y):
    return {}


def build():
  """Returns the contender."""
  arrays = inputs.load(*sys.argv[1:])
  network = Network(*arrays['class/kernel'].shape)
  torch_network.started(network, arrays)
  model = PyTorchModel(
    model=network,
    local_optimizer_create=torch.optim.SGD,
    central_optimizer=torch.optim.SGD(network.parameters(), 1.0),
  )
  datasets = {
    str(k): PyTorchTensorDataset(tensors, user_id=str(k))
    for k, tensors in enumerate(torch_network.clients(arrays))
  }
  return rounds.Rounds(
    model,
    datasets,
    arrays,
    before=torch_network.weights(arrays),
    weights=lambda: [p.detach().numpy() for p in network.parameters()],
    loss=lambda: network.loss_sum / network.examples,
  )


protocol.serve(build)
