"""Runs pfl-research (PyPI: pfl[pytorch]) with PyTorch as a contender.

The command `pfl_torch.py ARRAYS.npz` needs an interpreter that has pfl. It trains LEAF's
FEMNIST CNN by federated averaging, from the weights in the file. It uses the library's
`FederatedAveraging` and `SimulatedBackend`.
"""

import itertools
import sys

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
  """The network, with the methods that pfl needs. `loss_sum` adds up the loss for the check."""

  loss_sum = 0.0

  def loss(self, x, y):
    loss = torch.nn.functional.cross_entropy(self(x), y)
    self.loss_sum += loss.item() * len(y)
    return loss

  def metrics(self, x, y):
    return {}


def build():
  """Builds the contender, in which every client participates in every round."""
  arrays = dict(np.load(sys.argv[1]))
  network = Network(arrays)
  model = PyTorchModel(
    model=network,
    local_optimizer_create=torch.optim.SGD,
    central_optimizer=torch.optim.SGD(network.parameters(), 1.0),
  )
  datasets = {
    str(k): PyTorchTensorDataset(tensors, user_id=str(k))
    for k, tensors in enumerate(torch_network.clients(arrays))
  }
  sampler = get_user_sampler('minimize_reuse', list(datasets))
  backend = SimulatedBackend(
    training_data=FederatedDataset(datasets.__getitem__, sampler),
    val_data=None,
    postprocessors=[WeightByDatapoints()],
  )
  train_params = NNTrainHyperParams(
    local_num_epochs=1,
    local_learning_rate=float(arrays['learning_rate']),
    local_batch_size=int(arrays['batch_size']),
  )
  algorithm, rounds = FederatedAveraging(), itertools.count(1)

  def check():
    moved = torch_network.moved(arrays, network.parameters())
    return {'loss': network.loss_sum / arrays['y'].size, 'update_norm': moved}

  def run():
    # The algorithm resumes at its current round and stops before `central_num_iterations`. No round
    # is evaluated: only round 0 is a multiple of the frequency, and round 0 has no metrics.
    params = NNAlgorithmParams(
      central_num_iterations=next(rounds),
      evaluation_frequency=10**9,
      train_cohort_size=len(datasets),
      val_cohort_size=0,
    )
    algorithm.run(params, backend, model, train_params)
    return {'check': check}

  return run


protocol.serve(build)
