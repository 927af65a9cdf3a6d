"""Noise that clients add within a secure sum: its size, the sum, and epsilon."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from scipy import stats

from tasks import configuration, experiment
from tests import small_data, tiny
from tests.measure import test_privacy_loss
from tests.round import test_privacy, test_secure
from tff_xc import errors
from tff_xc.algorithms import registry
from tff_xc.experiment import epsilon
from tff_xc.measure import communication, privacy_loss
from tff_xc.round import distributed, local_training, process as process_lib

pytestmark = pytest.mark.usefixtures('in_process')

N, CLIENTS = 12, 4
LOCAL = local_training.LocalTraining(0.5, 8, 1)


def made(name='fullsoftmax', model=None, **given):
  found = {'model': model or tiny.model(N), 'local_training': LOCAL}
  return registry.get(name).made(
    **{**found, 'dp': 'distributed', 'clients_per_round': CLIENTS, **given}
  )


def test_a_sum_that_nearly_wraps_is_revealed():
  """Each client's norm is in one number. Random rounding is correct on average."""
  integers = distributed.Integers.of(12, 0.0, 3.0, 5.0)
  change = tf.constant([3.0, -3.0, 0.0, 0.1])
  hidden = tf.function(integers.hidden)
  total, each = 0, []
  for client in range(5):
    found = hidden(change, tf.constant([client, 1]))
    assert (found.numpy() >= 0).all() and (found.numpy() < 2**12).all()
    total += found
  np.testing.assert_allclose(integers.revealed(total), 5 * change, atol=5 / integers.scale)
  # Many numbers lie between two integers.
  many = tf.fill([20_000], 0.3 / integers.scale)
  found = hidden(many, tf.constant([7, 1])).numpy()
  assert set(found) == {0, 1}
  assert found.mean() == pytest.approx(0.3, abs=0.015)
  random = np.random.default_rng(0)
  for seed in range(20):
    change = random.normal(size=200) * random.uniform(0, 1)
    change *= 3.0 / np.linalg.norm(change)
    found = hidden(tf.constant(change, tf.float32), tf.constant([seed, 2]))
    each.append((found.numpy() + 2**11) % 2**12 - 2**11)
  apart = max(np.linalg.norm(a - b) for a in each for b in each)
  assert apart <= integers.distance(3.0, 200)
  # Rounding may increase the distance of two vectors beyond their norm.
  coarse = distributed.Integers(8, 1.0, 0.0)
  halves = tf.constant([[0.5] * 400, [-0.5] * 400])
  one, other = (
    (coarse.hidden(value, tf.constant([seed, 3])).numpy() + 2**7) % 2**8
    for seed, value in enumerate(halves)
  )
  apart, norm = np.linalg.norm(one - other), 0.5 * math.sqrt(400)
  assert 1.1 * 2 * norm < apart <= coarse.distance(norm, 400)


def test_a_clients_noise_is_skellams():
  integers = distributed.Integers.of(16, 4.0, 1.0, 9.0)
  assert integers.stddev == pytest.approx(4.0 / 3.0 * integers.scale)
  drawn = [integers.hidden(tf.zeros([20_000]), tf.constant([seed, 5])) for seed in range(2)]
  drawn = [(d.numpy() + 2**15) % 2**16 - 2**15 for d in drawn]
  rate = integers.stddev**2 / 2
  for found in drawn:
    exact = stats.skellam(rate, rate)
    assert stats.kstest(found + 0.5, exact.cdf).pvalue > 1e-3
  assert abs(np.corrcoef(*drawn)[0, 1]) < 5 / math.sqrt(20_000)
  # For larger variances, TensorFlow's random numbers are wrong.
  large = distributed.Integers.of(32, 100.0, 1.0, 9.0)
  assert large.stddev <= 4.0001e5
  found = large.hidden(tf.zeros([20_000]), tf.constant([1, 5])).numpy()
  found = (found + 2**31) % 2**32 - 2**31
  assert found.std() == pytest.approx(large.stddev, rel=0.03)
  assert abs(found.mean()) < 5 * large.stddev / math.sqrt(20_000)


@pytest.mark.slow
def test_without_noise_it_is_the_plain_sum_and_nothing_else_is_seen():
  plain = process_lib.build_process(dataclasses.replace(made(dp='none'), weighting='uniform'), 7)
  start = test_privacy.flat(plain.get_model_weights(plain.initialize()))
  expected = plain.next(plain.initialize(), test_privacy.cohort(3)).state
  expected = test_privacy.flat(plain.get_model_weights(expected)) - start
  algorithm = made(dp_noise_multiplier=0.0, dp_clip=50.0)
  process = process_lib.build_process(algorithm, 7)
  output = process.next(process.initialize(), test_privacy.cohort(3))
  found = test_privacy.flat(process.get_model_weights(output.state)) - start
  scale = algorithm.part('dp').integers.scale
  assert np.abs(found - expected).max() < 1.01 / scale < 1e-4
  assert np.abs(expected).max() > 0.01
  body = process.next.to_building_block()
  assert {s for s in test_secure.sums(body, False) if s} == set()
  secure = test_secure.sums(body, True)
  for shape in ((N, tiny.DIM), (tiny.FEATURES, tiny.DIM), (tiny.DIM,)):
    assert shape in secure
  assert epsilon.numbers_sent(algorithm) == len(found)
  messages = communication.messages(algorithm)
  assert N * messages.tables['class'].up == 3 * N * tiny.DIM  # Each number has 24 bits.


@pytest.mark.slow
def test_clients_share_the_noise_of_the_sum():
  """Fewer clients add less noise. A client whose training failed also adds its share."""
  process = process_lib.build_process(made(dp_noise_multiplier=2.0, dp_clip=0.5), 7)
  silent = process_lib.build_process(made(dp_noise_multiplier=0.0, dp_clip=0.5), 7)
  initial = process.initialize()
  for number in (4, 2):
    clients = test_privacy.cohort(3, number)
    clients[1].x[:] = 3e38
    expected = silent.next(silent.initialize(), clients).state
    expected = test_privacy.flat(silent.get_model_weights(expected))
    if number == 2:  # Only one client is left, whose change is larger.
      start = test_privacy.flat(silent.get_model_weights(silent.initialize()))
      norm = np.linalg.norm(expected - start)
      assert norm == pytest.approx(0.5 / CLIENTS, rel=1e-3)
    drawn = []
    for seed in range(40):
      state = initial._replace(seed=np.array([seed, 1], np.int32))
      output = process.next(state, clients)
      assert output.metrics['clients_dropped'] == 1
      weights = process.get_model_weights(output.state)
      drawn.append(test_privacy.flat(weights) - expected)
    drawn = np.stack(drawn)
    stddev = 2.0 * 0.5 / CLIENTS * math.sqrt(number / CLIENTS)
    assert drawn.std() == pytest.approx(stddev, rel=0.06)
    each = drawn.std(axis=0) / stddev
    assert each.min() > 0.5 and each.max() < 1.6
    # The noises of encoder and rows are independent.
    own, last = tiny.FEATURES * tiny.DIM, -N * tiny.DIM
    kernel, rows = drawn[:, last - own : last], drawn[:, last : last + own]
    alike = np.corrcoef(kernel.ravel(), rows.ravel())[0, 1]
    assert abs(alike) < 5 / math.sqrt(kernel.size)
    again = process.next(state, clients).state
    np.testing.assert_array_equal(
      test_privacy.flat(process.get_model_weights(again)), test_privacy.flat(weights)
    )


@pytest.mark.parametrize(('change', 'variance'), [(0.7, 4.0), (2.3, 30.0)])
def test_epsilon_is_above_that_of_one_rounded_number_by_definition(change, variance):
  """The client sends a number or its negative, rounded at random, with noise, modulo 2^10."""
  noise = stats.skellam(variance / 2, variance / 2).pmf(np.arange(-512, 512))
  up = change - math.floor(change)

  def outcomes(sign):
    def shifted(by):
      return np.roll(noise, sign * (math.floor(change) + by))

    return (1 - up) * shifted(0) + up * shifted(1)

  worst = test_privacy_loss.exact_epsilon(outcomes(1), outcomes(-1), 1e-5)
  apart = distributed.Integers(10, 1.0, 0.0).distance(change, 1)
  found = privacy_loss.skellam_epsilon(apart, 1, variance, 1e-5, 1)
  assert worst < found < 5 * worst


def test_divergences_are_those_of_the_paper():
  """The paper's bound for one number is alpha / 2 mu plus the smaller of two terms.

  The values are computed by hand for order 2. The exact values are below the Gaussian term.
  """

  def of(*given):
    return privacy_loss.skellam_divergences(np.array([2.0]), *given)

  assert of(1, 1, 10.0) == pytest.approx(0.1 + 9 / 400)
  assert of(1, 1, 1.0) == pytest.approx(1.0 + 3 / 2)
  # For 4 numbers with norm 3, the L1 norm is at most 6, not 9.
  assert of(3, 4, 10.0) == pytest.approx(0.9 + (27 + 36) / 400)


def test_with_much_noise_it_is_gaussian():
  gaussian = privacy_loss.Accountant(3.0, privacy_loss.Sampling(privacy_loss.FIXED, 1.0), 1e-5)
  found = privacy_loss.skellam_epsilon(2e4, 10**6, 9e8, 1e-5, 2)
  assert found == pytest.approx(gaussian._renyi(2), rel=1e-2)
  assert privacy_loss.skellam_epsilon(2.0, 5, 1.0, 1e-5, 0) == 0
  assert privacy_loss.skellam_epsilon(2.0, 5, 0.0, 1e-5, 1) == math.inf
  # Coarser integers reveal more.
  rounded = [distributed.Integers.of(bits, 2.0, 1.0, 32.0) for bits in (10, 16, 24)]
  values = [
    privacy_loss.skellam_epsilon(i.distance(1.0, 10**4), 10**4, 32 * i.stddev**2, 1e-5, 5)
    for i in rounded
  ]
  assert values[0] > values[1] > values[2]


@pytest.mark.slow
def test_a_run_has_its_epsilon(in_process, tmp_path):
  config = configuration.resolve(
    'glyphs',
    'fullsoftmax',
    {
      **{'num_classes': 30, 'num_clients': 20, 'clients_per_round': 5},
      **{'examples_per_client': 10, 'classes_per_client': 3, 'rounds': 4},
      **{'eval_every': 2, 'dp': 'distributed', 'dp_epsilon': 20.0, 'dp_noise_seed': 'public'},
    },
  )
  run = experiment.assemble(config)
  run.run(tmp_path / 'run')
  last = pd.read_csv(tmp_path / 'run' / 'metrics.csv')['epsilon'].iloc[-1]
  assert 19.5 < last <= 20.0
  cohorts = run.algorithm.sampling.cohorts(run.dataset, 0)
  drawn = [cohorts(r).numbers for r in range(4)]
  most = np.bincount(np.concatenate(drawn).astype(int)).max()
  integers = run.algorithm.part('dp').integers
  numbers = epsilon.numbers_sent(run.algorithm)
  expected = privacy_loss.skellam_epsilon(
    integers.distance(run.algorithm.part('dp').dp_clip, numbers),
    numbers,
    5 * integers.stddev**2,
    1e-5,
    int(most),
  )
  assert last == pytest.approx(expected, rel=1e-12)


def test_fewer_clients_hide_less():
  data = small_data.images(40)[0]

  class Leaving:
    def cohorts(self, dataset, seed):
      return lambda r: type('Cohort', (), {'numbers': range(4 - r)})()

  algorithm = made(dp_noise_multiplier=3.0)
  found = [
    epsilon.of_rounds(dataclasses.replace(algorithm, sampling=Leaving()), data, 0)(rounds)
    for rounds in (1, 2)
  ]
  integers, numbers = (algorithm.part('dp').integers, epsilon.numbers_sent(algorithm))

  def of(fewest, rounds):
    return privacy_loss.skellam_epsilon(
      integers.distance(1.0, numbers), numbers, fewest * integers.stddev**2, 1e-5, rounds
    )

  assert found == [of(4, 1), of(3, 2)]


def test_what_is_not_a_secure_sum_is_refused():
  for name in ('fedss', 'fedaws', 'turbosvm'):
    with pytest.raises(errors.InputError, match='--dp'):
      process_lib.build_process(made(name, max_positives=5), 7)
  with pytest.raises(errors.InputError, match='dp_bits'):
    tiny.hidden(1.0, 1.0, 500.0, kind='distributed', dp_bits=8)
