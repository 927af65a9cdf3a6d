"""Learning rates by round, compared with NumPy: on clients, server and delayed rows."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiny
from tests.algorithms import numpy_fedavg, test_fedavg
from tests.round import test_optimizers
from tff_xc import errors
from tff_xc.algorithms import registry
from tff_xc.options import schedules
from tff_xc.round import local_training, optimizers, randomness

pytestmark = pytest.mark.usefixtures('tff_worker')

COSINE = schedules.Schedule('cosine', 6, 0.1, warmup=3)
STEPS = schedules.Schedule('step', 2, 0.5)
WARM = schedules.Schedule(warmup=4)
# This schedule changes nothing, but uses the same code as other schedules.
FLAT = schedules.Schedule('step', 1, 1.0)


def factor(schedule, t):
  if t < schedule.warmup:
    return (t + 1) / schedule.warmup
  s, f = t - schedule.warmup, schedule.factor
  if schedule.shape == 'cosine':
    s = min(s, schedule.rounds)
    return f + (1 - f) * (1 + math.cos(math.pi * s / schedule.rounds)) / 2
  return f ** (s // schedule.rounds) if schedule.shape == 'step' else 1.0


@pytest.mark.parametrize('schedule', [COSINE, STEPS, WARM, FLAT])
def test_factors_are_those_of_the_formula(schedule):
  expected = [factor(schedule, t) for t in range(14)]
  np.testing.assert_allclose(schedule(tf.range(14)), expected, atol=1e-6)
  assert schedule(tf.constant(5)).shape == ()


class Momentum(test_optimizers.NumpyMomentum):
  """Dense momentum whose learning rate follows a schedule over its steps."""

  def __init__(self, rate, momentum, schedule):
    super().__init__(rate, momentum)
    self.first, self.schedule, self.taken = rate, schedule, 0

  def next(self, ids, gradients, counts):
    self.rate = self.first * factor(self.schedule, self.taken)
    super().next(ids, gradients, counts)
    self.taken += bool(counts)


@pytest.mark.parametrize(
  ('schedule', 'momentum'),
  [
    (COSINE, 0.9),
    (STEPS, 0.999),
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in ((COSINE, 0.0), (COSINE, 0.999), (STEPS, 0.0), (STEPS, 0.9))
    ),
  ],
)
def test_pending_momentum_has_the_rates_of_its_steps(schedule, momentum):
  lazy = optimizers.RowMomentum(0.5, momentum, schedule)
  dense = optimizers.Dense(
    optimizers.Scheduled(lambda rate: optimizers.build_sgd(rate, momentum), 0.5, schedule)
  )
  reference = Momentum(0.5, momentum, schedule)
  state, table = test_optimizers.initial(lazy)
  moved = test_optimizers.initial(dense)
  for index, step in enumerate(test_optimizers.steps()):
    state, table = test_optimizers.step(lazy, state, table, *step)
    moved = test_optimizers.step(dense, *moved, *step)
    reference.next(*step)
    caught_up = test_optimizers.assert_reads(lazy, state, table, reference.table)
    np.testing.assert_allclose(moved[1], reference.table, atol=2e-5)
    if index == 6:
      state, table = caught_up


@pytest.mark.parametrize(
  'make',
  [
    lambda rate: optimizers.TorchAdam(rate, amsgrad=True),
    lambda rate: tff.learning.optimizers.build_adagrad(rate),
  ],
)
def test_adam_and_adagrad_take_the_rate_of_the_step(make):
  scheduled = optimizers.Scheduled(make, 0.5, STEPS)
  state, weights = test_optimizers.initial(scheduled)
  expected = tf.constant(weights)
  plain = make(0.5).initialize(tf.TensorSpec(weights.shape))
  for t in range(5):
    gradient = tf.constant(np.full(weights.shape, 1.0 + t, np.float32))
    state, weights = scheduled.next(state, weights, gradient)
    plain, moved = make(0.5).next(plain, expected, gradient)
    # The steps of both optimizers are proportional to the learning rate.
    expected = expected + factor(STEPS, t) * (moved - expected)
    np.testing.assert_allclose(weights, expected, atol=1e-5)


def test_three_rounds_equal_the_numpy_reference():
  """Clients and server follow different schedules."""
  given = {
    'client_schedule': 'step',
    'client_schedule_rounds': 1,
    'client_schedule_factor': 0.5,
    'server_schedule': 'cosine',
    'server_schedule_rounds': 4,
    'server_warmup_rounds': 1,
  }
  made = registry.get('fedavg').made(
    model=tiny.model(), client_learning_rate=0.1, batch_size=64, local_epochs=2, **given
  )
  process = tiny.process('fedavg', local_training=made.local_training, **given)
  of_server = schedules.Schedule('cosine', 4, 0.0, warmup=1)
  state = process.initialize()
  weights = tiny.as_numpy(state.weights)
  for t, cohort in enumerate(test_fedavg.COHORTS):
    trained = [
      numpy_fedavg.train_client(weights, c.x, c.labels, rate=0.1 * 0.5**t)[0] for c in cohort
    ]
    average = numpy_fedavg.mean(trained, [len(c.labels) for c in cohort])
    rate = factor(of_server, t)
    weights = [w + rate * (a - w) for w, a in zip(weights, average, strict=True)]
    state = process.next(state, cohort).state
  tiny.assert_near(tiny.as_numpy(process.get_model_weights(state)), weights)


def test_weight_decay_and_adam_follow_the_clients_schedule():
  for name in ('sgd', 'adam'):
    training = local_training.LocalTraining(
      0.2, optimizer_name=name, weight_decay=0.3, schedule=STEPS
    )
    seed = randomness.round_seed(tf.constant([0, 0]), 2)
    rate = training.rate(seed)
    found = test_optimizers.trajectory(training.optimizer(rate), training.loss_scale(rate))
    expected = test_optimizers.moved_by(name, 0.1, decay=0.3)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_what_makes_no_sense_is_refused():
  resolve = registry.get('fedss').resolve
  with pytest.raises(errors.InputError, match='only applies'):
    resolve({'server_schedule_rounds': 4}, {})
  assert 'client_schedule_rounds' not in resolve({}, {})
  given = {'server_schedule': 'step', 'server_schedule_rounds': 3}
  assert resolve(given, {})['server_schedule_factor'] == 0.1
  with pytest.raises(errors.InputError, match='noise on rows'):
    tiny.process(
      'fedss',
      max_positives=4,
      negatives=3,
      server_warmup_rounds=2,
      dp='central',
      dp_noise_multiplier=1.0,
      num_clients=9,
    )
