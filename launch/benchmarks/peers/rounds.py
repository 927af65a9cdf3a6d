"""Rounds of pfl-research's federated averaging, with either framework."""

import inputs
import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams

WEIGHTS = (
  'conv0/kernel',
  'conv0/bias',
  'conv1/kernel',
  'conv1/bias',
  'dense/kernel',
  'dense/bias',
  'class/kernel',
  'class/bias',
)


class Rounds:
  """A contender of `protocol`: every client takes part in every round."""

  def __init__(self, model, datasets, arrays, before, weights, loss=None):
    """Builds the simulation.

    Args:
      model: pfl's model.
      datasets: pfl's datasets of all clients, by user id.
      arrays: the file's arrays: x, y, batch_size, learning_rate and weights.
      before: the initial weights, in the order and layout of `weights`.
      weights: () -> the current weights.
      loss: () -> the mean training loss so far, if the model keeps it.
    """
    self._model = model
    self._before = [np.array(value) for value in before]
    self._weights, self._loss = weights, loss
    self._clients = len(datasets)
    self._rounds = 0
    self._report = {}
    expected = sum(arrays[name].size for name in WEIGHTS)
    federated = sum(int(np.prod(v.shape)) for v in model.variable_map.values())
    if federated != expected:
      raise ValueError(f'pfl federates {federated} parameters of {expected}')
    self._backend = SimulatedBackend(
      training_data=FederatedDataset(
        datasets.__getitem__, get_user_sampler('minimize_reuse', list(datasets))
      ),
      val_data=None,
      postprocessors=[WeightByDatapoints()],
    )
    self._algorithm = FederatedAveraging()
    self._train_params = NNTrainHyperParams(
      local_num_epochs=1,
      local_learning_rate=float(arrays['learning_rate']),
      local_batch_size=int(arrays['batch_size']),
    )

  def run(self):
    self._rounds += 1
    # The algorithm resumes at its current round and stops before this one. No
    # round is evaluated: only round 0 is a multiple of the frequency, and it
    # has no metrics to compute.
    params = NNAlgorithmParams(
      central_num_iterations=self._rounds,
      evaluation_frequency=10**9,
      train_cohort_size=self._clients,
      val_cohort_size=0,
    )
    self._algorithm.run(params, self._backend, self._model, self._train_params)

  def report(self):
    if not self._report:
      norm = inputs.distance(self._weights(), self._before)
      check = {'update_norm': norm}
      if self._loss:
        check['loss'] = self._loss()
      self._report = {'check': check}
      self._before = None
    return self._report
