"""pfl-research (PyPI: pfl[pytorch]) with PyTorch, as a contender.

Runs under an interpreter that has pfl: pfl_torch.py ARRAYS.npz [N]. Federated
averaging of LEAF's FEMNIST CNN from the weights in the file, by the library's
own `FederatedAveraging` and `SimulatedBackend`.
"""

import sys

import inputs
import numpy as np
import protocol
import torch
import torch_network
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
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
  """Returns the contender: every client takes part in every round."""
  arrays = inputs.load(*sys.argv[1:])
  network = Network(*arrays['class/kernel'].shape)
  torch_network.started(network, arrays)
  model = PyTorchModel(
    model=network,
    local_optimizer_create=torch.optim.SGD,
    central_optimizer=torch.optim.SGD(network.parameters(), 1.0),
  )
  before = torch_network.weights(arrays)
  expected = sum(value.size for value in before)
  federated = sum(int(np.prod(v.shape)) for v in model.variable_map.values())
  if federated != expected:
    raise ValueError('pfl federates only ' + str(federated) + ' parameters')
  datasets = {
    str(k): PyTorchTensorDataset(tensors, user_id=str(k))
    for k, tensors in enumerate(torch_network.clients(arrays))
  }
  backend = SimulatedBackend(
    training_data=FederatedDataset(
      datasets.__getitem__, get_user_sampler('minimize_reuse', list(datasets))
    ),
    val_data=None,
    postprocessors=[WeightByDatapoints()],
  )
  train_params = NNTrainHyperParams(
    local_num_epochs=1,
    local_learning_rate=float(arrays['learning_rate']),
    local_batch_size=int(arrays['batch_size']),
  )
  algorithm, rounds = FederatedAveraging(), [0]

  def check():
    return {
      'loss': network.loss_sum / network.examples,
      'update_norm': inputs.distance(
        [p.detach().numpy() for p in network.parameters()], before
      ),
    }

  def run():
    rounds[0] += 1
    # The algorithm resumes at its current round and stops before this one. No
    # round is evaluated: only round 0 is a multiple of the frequency, and it
    # has no metrics to compute.
    params = NNAlgorithmParams(
      central_num_iterations=rounds[0],
      evaluation_frequency=10**9,
      train_cohort_size=len(datasets),
      val_cohort_size=0,
    )
    algorithm.run(params, backend, model, train_params)
    return {'check': check}

  return run


protocol.serve(build)
