"""FedNova compared with NumPy."""

import dataclasses

import numpy as np
import pytest

from tests import tiny
from tests.algorithms import numpy_fedavg, test_fedavg
from tff_xc import errors
from tff_xc.algorithms import fednova
from tff_xc.round import local_training, process as process_lib

pytestmark = pytest.mark.usefixtures('in_process')

RATE, SIZE = 0.1, 2
# Batches have two examples and are not shuffled. The clients do one, three, four and no steps per
# epoch.
COHORTS = [
  tiny.cohort([[0, 1], [2, 3, 3, 4, 5], [6, 7, 8, 9, 10, 1, 0], []], seed) for seed in range(3)
]
TRAINING = local_training.LocalTraining(RATE, SIZE, 2, shuffle=False)


def trained(received, client, mu):
  """Returns (a client's weights, its ||a_k||_1, summed step by step)."""
  weights, factors = received, []
  for _ in range(2):
    for start in range(0, len(client.labels), SIZE):
      batch = slice(start, start + SIZE)
      plain, _ = numpy_fedavg.train_client(
        weights, client.x[batch], client.labels[batch], rate=RATE, epochs=1
      )
      each = zip(plain, weights, received, strict=True)
      weights = [p - RATE * mu * (w - r) for p, w, r in each]
      factors = [(1 - RATE * mu) * a for a in factors] + [1.0]
  return weights, sum(factors)


def reference(weights, mu=0.0, rounds=3):
  for cohort in COHORTS[:rounds]:
    cohort = [client for client in cohort if len(client.labels)]
    shares = np.array([len(client.labels) for client in cohort], np.float64)
    shares /= shares.sum()
    made = [trained(weights, client, mu) for client in cohort]
    effective = sum(p * norm for p, (_, norm) in zip(shares, made, strict=True))
    weights = [
      w
      + effective
      * sum(p * (after[i] - w) / norm for p, (after, norm) in zip(shares, made, strict=True))
      for i, w in enumerate(weights)
    ]
  return weights


@pytest.mark.parametrize('mu', [0.0, pytest.param(2.0, marks=pytest.mark.slow)])
def test_three_rounds_equal_the_numpy_reference(mu):
  process = tiny.process('fednova', local_training=TRAINING, prox_mu=mu)
  first = tiny.as_numpy(process.initialize().weights)
  last = tiny.weights_after(process, 3, COHORTS.__getitem__)
  tiny.assert_near(tiny.as_numpy(last), reference(first, mu))


@pytest.mark.slow
@pytest.mark.parametrize('mu', [0.0, 2.0])
def test_of_equal_steps_it_is_fedavg_or_fedprox(mu):
  training = dataclasses.replace(TRAINING, steps=3)
  ends = [
    tiny.run(tiny.process(name, local_training=training, prox_mu=mu), 2, COHORTS.__getitem__)[0]
    for name in ('fednova', 'fedprox')
  ]
  tiny.assert_same_weights(ends[0].weights, ends[1].weights, 2e-6)
  unequal = tiny.process('fedprox', local_training=TRAINING, prox_mu=mu)
  first = tiny.as_numpy(unequal.initialize().weights)
  table = tiny.run(unequal, 1, COHORTS.__getitem__)[0].weights.class_table
  assert np.abs(table - reference(first, mu, 1)[2]).max() > 1e-3


@pytest.mark.slow
def test_batch_statistics_are_averaged_as_in_fedavg():
  model = tiny.model_with_statistics()
  ends = []
  for cls in (fednova.FedNova, test_fedavg.fedavg.FedAvg):
    made = cls.made(model=model, local_training=TRAINING)
    process = process_lib.build_process(made)
    ends.append(process.next(process.initialize(), COHORTS[0]).state.weights)
  (a, b), name = ends, 'mean'
  np.testing.assert_allclose(a.encoder_state[name], b.encoder_state[name])
  assert np.abs(a.encoder['kernel'] - b.encoder['kernel']).max() > 1e-3


def test_a_step_that_turns_round_is_refused():
  with pytest.raises(errors.InputError, match='prox_mu'):
    fednova.FedNova.resolve({'client_learning_rate': 0.5, 'prox_mu': 2.0}, {})
