"""Clipping, noise on all rows, and noise that is drawn when a row is read."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from tests import registered, tiny
from tff_xc import errors
from tff_xc.algorithms import fedss, registry
from tff_xc.options import hyperparameters as hp
from tff_xc.round import (
  algorithm as algorithm_lib,
  deferred_noise,
  local_training,
  optimizers,
  process as process_lib,
  randomness,
)

pytestmark = pytest.mark.usefixtures('in_process')

N = 12


def test_bits_are_those_of_splitmix():
  # The published first numbers of the generator for state 0.
  step = 0x9E3779B97F4A7C15
  states = tf.constant([step, 2 * step % 2**64, 3 * step % 2**64], tf.uint64)
  assert [int(x) for x in randomness.mixed(states)] == [
    0xE220A8397B1DCDAF,
    0x6E789E6AA1B965F4,
    0x06C45D188009454F,
  ]


@pytest.mark.parametrize(('dtype', 'dim'), [(tf.int32, 8), (tf.int64, 7)])
def test_rows_have_normals_of_their_own(dtype, dim):
  """The seed of a secret is int64."""
  seed, streams = tf.constant([3, -4], dtype), tf.constant([1, 2])

  def draw(ids, seed=seed):
    return np.array(randomness.row_normals(seed, streams, tf.constant(ids), dim))

  pairs = draw(np.arange(3000))
  assert stats.kstest(pairs.ravel(), 'norm').pvalue > 0.01
  # Streams, columns and successive rows are independent.
  of_rows = pairs.transpose(2, 0, 1, 3).reshape(3000, -1)
  size = of_rows.shape[1]
  for other in (of_rows, np.roll(of_rows, 1, axis=0)):
    correlations = np.corrcoef(of_rows, other, rowvar=False)[:size, size:]
    correlations -= np.eye(size) * (other is of_rows)
    assert np.abs(correlations).max() < 5 / np.sqrt(3000)
  # The last digits of a cosine depend on its position in a vector.
  for ids in ([7, 2999], 7):
    np.testing.assert_allclose(draw(ids), pairs[:, :, ids], atol=1e-5)
  other = draw(np.arange(3000), tf.constant([3, -3], dtype))
  assert abs(np.corrcoef(other.ravel(), pairs.ravel())[0, 1]) < 0.01


def test_noise_of_a_secret_depends_on_all_of_its_bits():
  """Seeds that are derived from int32 numbers have 32 bits, and an attacker can try all of them."""
  part = 3

  def seeds(secret):
    pair = tf.constant(randomness.pair(secret))
    of_run = randomness.wide(pair)
    of_round = randomness.wide(randomness.round_seed(pair, tf.constant(4)))
    of_client = randomness.client_seed(of_round, tf.constant(9, tf.int64), -1)
    for seed in (of_run, of_round):
      yield randomness.noise_seed(seed, part)
    yield randomness.step_seed(of_client, 1)

  flipped = [
    [tuple(seed.numpy().tolist()) for seed in seeds(12345 ^ bit)]
    for bit in (0, *(1 << i for i in range(62)))
  ]
  for found in zip(*flipped, strict=True):
    assert len(set(found)) == 63
    assert np.mean([abs(number) > 2**40 for number, _ in found]) > 0.9


def test_the_secret_of_rows_does_not_follow_from_their_noise():
  """Splitmix can be inverted, and Philox cannot. Compares Philox with its published numbers."""
  most = 2**32 - 1
  pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
  for key, counter, expected in (
    (0, [0] * 4, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    (2**64 - 1, [most] * 4, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (0x299F31D0A4093822, pi, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
  ):
    words = randomness.philox(tf.constant(key, tf.uint64), counter)
    assert [int(word) for word in words] == expected
  # For a secret, the random bits of a row are these. Two columns use one number.
  seed = tf.constant([5, 6], tf.int64)
  normals = np.array(randomness.row_normals(seed, tf.constant([7]), tf.constant([2]), 3))
  words = [
    [int(w) for w in randomness.philox(tf.constant(5, tf.uint64), [i, 0, 7, 6])]
    for i in (4, 5)  # Each row uses two counters.
  ]
  upper, lower = np.reshape(words, [-1, 2])[:3].T
  radius = np.sqrt(-2 * np.log((upper + 0.5) / 2**32))
  angle = 2 * np.pi * (lower + 0.5) / 2**32
  expected = radius * np.cos(angle), radius * np.sin(angle)
  np.testing.assert_allclose(normals[:, 0, 0], expected, rtol=1e-4)


@functools.cache
def traced(momentum, rows, dim):
  process = deferred_noise._Process(momentum)
  return tf.function(lambda time, seed: process.at(time, seed, tf.range(rows), dim))


@functools.cache
def noise_at(momentum, time):
  at = traced(momentum, 4000, 2)
  found = at(tf.constant(time), tf.constant([5, 6]))
  return found.numpy().astype(np.float64)


@pytest.mark.parametrize('momentum', [pytest.param(0.0, marks=pytest.mark.slow), 0.9])
def test_deferred_noise_is_a_sum_over_all_steps(momentum):
  """Its increments are independent standard normals, and rows and velocities have equal ones."""
  steps = []
  before = np.zeros_like(noise_at(momentum, 1))
  for time in range(1, 18):
    now = noise_at(momentum, time)
    steps.append(now[0] - before[0])
    if momentum:
      np.testing.assert_allclose(now[1] - momentum * before[1], steps[-1], atol=2e-4)
    before = now
  steps = np.stack([s.ravel() for s in steps])
  for step in steps:
    assert stats.kstest(step, 'norm').pvalue > 0.001
  correlations = np.corrcoef(steps) - np.eye(len(steps))
  assert np.abs(correlations).max() < 5 / np.sqrt(steps.shape[1])


@pytest.mark.parametrize('momentum', [0.9, 0.999])
def test_factors_keep_their_digits(momentum):
  """Compares the increment of the position, whose variance is that of the velocity."""
  combined = np.array([[1.0, -momentum]]) / (1.0 - momentum)
  process = deferred_noise._Process(momentum, combined)
  factors = {}
  for time in (999, 1000):
    times, of_parts = process._draws(tf.constant(time))
    both = np.tensordot(combined, of_parts.numpy(), 1)[0].astype(np.float32)
    for at, pair in zip(times.numpy(), both, strict=True):
      factors.setdefault(at, {})[time] = pair
  nothing = np.zeros(2)
  moved = [f.get(1000, nothing) - f.get(999, nothing) for f in factors.values()]
  # The sum of momentum^(2 l) over 1,000 steps.
  expected = (1 - momentum**2000) / (1 - momentum**2)
  assert np.square(moved).sum() == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
  ('momentum', 'secret'),
  [pytest.param(0.0, False, marks=pytest.mark.slow), (0.9, False), (0.9, True)],
)
def test_rows_are_those_of_noise_in_every_step(momentum, secret):
  """The result does not depend on when rows are read."""
  rate, stddev, rows, dim, steps = 0.5, 0.1, 6, 3, 9
  lazy = deferred_noise.DeferredNoise(
    optimizers.RowMomentum(rate, momentum), stddev, (1, 2), 3, secret
  )
  spec = tf.TensorSpec([rows, dim])
  table = tf.random.stateless_normal([rows, dim], [0, 1])
  state = lazy.initialize(spec)
  at_time = traced(momentum, rows, dim)
  at = [at_time(tf.constant(t), state['noise_seed']).numpy() for t in range(steps + 1)]
  w, v = table.numpy(), np.zeros([rows, dim], np.float32)
  random = np.random.default_rng(0)
  for step in range(steps):
    ids = np.sort(random.choice(rows, 2, replace=False)).astype(np.int32)
    gradients = random.normal(size=[2, dim]).astype(np.float32)
    full = -stddev * (at[step + 1][0] - at[step][0])
    full[ids] += gradients
    v = momentum * v + full
    w = w - rate * v
    state, table, _ = lazy.next(
      state, table, tf.constant(ids), tf.constant(gradients), tf.constant(False)
    )
    if step % 3 == 0:  # Reading changes nothing.
      some = lazy.read(state, table, tf.constant([4, 1]))
      np.testing.assert_allclose(some, w[[4, 1]], atol=1e-5)
  np.testing.assert_allclose(lazy.read_all(state, table), w, atol=1e-5)
  np.testing.assert_allclose(lazy.read(state, table, tf.constant(2)), w[2], atol=1e-5)
  # Here a new noise process begins, and the velocity continues.
  state, caught = lazy.catch_up(state, table)
  np.testing.assert_allclose(caught, w, atol=1e-5)
  again = lazy.read_all(state, caught)
  np.testing.assert_array_equal(again, caught)
  state, moved, _ = lazy.next(
    state, caught, tf.zeros([0], tf.int32), tf.zeros([0, dim]), tf.constant(True)
  )
  drawn = at_time(tf.constant(1), state['noise_seed']).numpy()
  np.testing.assert_allclose(
    lazy.read_all(state, moved), w - rate * (momentum * v - stddev * drawn[0]), atol=1e-5
  )


def made(name, hidden=None, momentum=0.0, **given):
  """Returns the algorithm with one local step."""
  training = local_training.LocalTraining(0.5, 8, 1)
  given = {'max_positives': 5, **given}
  if name in ('fedss', 'negonly'):
    given['negatives'] = 3
  if 'server_momentum' in registry.get(name).names:
    given['server_momentum'] = momentum
  found = registry.get(name).made(model=tiny.model(N), local_training=training, **given)
  return found.with_part(hidden) if hidden else found


@functools.cache
def built(*arguments, **given):
  return process_lib.build_process(made(*arguments, **given), 7)


def cohort(round_number, clients=4):
  random = np.random.default_rng(round_number)
  labels = [random.integers(0, N, 3) for _ in range(clients)]
  return tiny.cohort(labels, round_number)


def after(process, rounds=3, cohort_of=cohort):
  state, metrics = tiny.run(process, rounds, cohort_of)
  return process.get_model_weights(state), metrics


def flat(weights):
  return np.concatenate([np.ravel(t) for t in tf.nest.flatten(weights)])


NOTHING = tiny.hidden(0.0, float('inf'), 4.0)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'clip'), [('fedss', hp.FLOAT32_MAX), ('fullsoftmax', float('inf'))]
)
def test_without_noise_and_bound_it_is_the_plain_run(name, clip):
  """A flag with infinity means the largest finite number."""
  plain = dataclasses.replace(made(name, momentum=0.9), weighting='uniform')
  expected, _ = after(process_lib.build_process(plain, 7))
  hidden = dataclasses.replace(NOTHING, dp_clip=clip)
  found, _ = after(built(name, hidden, momentum=0.9))
  np.testing.assert_array_equal(flat(found), flat(expected))


@pytest.mark.slow
def test_a_sum_of_clipped_changes_over_the_expected_clients():
  """In NumPy: the update of each client is clipped, and the sum is divided by m."""
  start = flat(after(built('fedss', NOTHING), 1, lambda r: [])[0])
  alone = dataclasses.replace(NOTHING, clients_per_round=1.0)
  each = [flat(after(built('fedss', alone), 1, lambda r, c=c: [c])[0]) - start for c in cohort(0)]
  norms = [np.linalg.norm(change) for change in each]
  clip = float(np.median(norms))
  clipped = [c * min(1.0, clip / n) for c, n in zip(each, norms, strict=True)]
  hidden = tiny.hidden(0.0, clip, 10.0)
  found, metrics = after(built('fedss', hidden), 1)
  np.testing.assert_allclose(flat(found) - start, sum(clipped) / 10.0, atol=1e-6)
  assert float(metrics['clients_clipped']) == 2
  assert float(metrics['clipping_norm']) == pytest.approx(clip)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'momentum', 'quantile'),
  [('fedss', 0.0, 0.0), ('fedss', 0.9, 0.0), ('fullsoftmax', 0.9, 0.0), ('fedss', 0.9, 0.5)],
)
def test_every_number_of_the_model_gets_noise(name, momentum, quantile):
  """Trains no client for three rounds, with many seeds."""
  hidden = tiny.hidden(2.0, 0.5, 8.0, quantile)
  process = built(name, hidden, momentum)
  initial = process.initialize()
  start = flat(process.get_model_weights(initial))
  drawn = []
  for seed in range(40):
    state = initial._replace(seed=np.array([seed, 1], np.int32))
    optimizer = state.server.tables['class'].optimizer
    if name == 'fedss' and not quantile:
      optimizer['noise_seed'] = np.array([seed, 2], np.int32)
    for _ in range(3):
      state = process.next(state, []).state
    drawn.append(flat(process.get_model_weights(state)) - start)
  # Without clients, the adaptive norm changes only by the noise of the count.
  step = hidden.value_noise_multiplier * 0.5 / 8.0
  geometric = [1.0, 1.0 + momentum, 1.0 + momentum + momentum**2]
  expected = step * np.sqrt(np.sum(np.square(geometric)))
  drawn = np.stack(drawn)
  tolerance = 0.12 if quantile else 0.05
  assert drawn.std() == pytest.approx(expected, rel=tolerance)
  # Every number of encoder and rows has its own noise.
  each = drawn.std(axis=0) / drawn.std()
  assert each.min() > 0.5 and each.max() < 1.6
  correlations = np.corrcoef(drawn, rowvar=False) - np.eye(drawn.shape[1])
  assert np.abs(correlations).max() < 0.8


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'given'),
  [
    ('fedss', {}),
    *(
      pytest.param(*given, marks=pytest.mark.slow)
      for given in (
        ('fullsoftmax', {'quantile': 0.5}),
        ('fedss', {'dp_rows': 'chosen', 'dp_rows_threshold': 1.0}),
        ('fullsoftmax', {'kind': 'local'}),
        ('fullsoftmax', {'kind': 'distributed'}),
      )
    ),
  ],
)
def test_all_noise_of_a_secret_is_drawn_from_all_of_its_bits(name, given):
  """The noise differs from the noise of 32 bits of the seed in every number of the model."""
  hidden = tiny.hidden(2.0, 0.5, 8.0, **given)
  process = built(name, dataclasses.replace(hidden, dp_noise_seed='secret'))
  # Run only one round, because the noise of rows would change the encoder's updates in round 2.
  found, metrics = after(process, 1)
  other, of_other = after(built(name, hidden), 1)
  if hidden.chooses:
    assert float(metrics['rows_chosen']) > 0
    assert metrics['rows_chosen'] != of_other['rows_chosen']
    assert not np.array_equal(found.class_table, other.class_table)
  else:
    assert (flat(found) != flat(other)).all()
  if hidden.dp_clip_quantile:
    (_, metrics), (_, of_other) = (after(process, 2), after(built(name, hidden), 2))
    assert metrics['clipping_norm'] != of_other['clipping_norm']
  again, _ = after(process, 1)
  np.testing.assert_array_equal(flat(found), flat(again))


@pytest.mark.slow
def test_the_norm_follows_a_private_quantile():
  hidden = tiny.hidden(1e-6, 1e-3, 4.0, 0.5)
  process = built('fedss', hidden)
  state, norms = process.initialize(), []
  for round_number in range(3):
    output = process.next(state, cohort(round_number))
    norms.append(float(output.metrics['clipping_norm']))
    state = output.state
  # All norms are above it, so it grows by exp(0.2 / 2), apart from the noise of the count.
  growth = np.log(np.divide(norms[1:], norms[:-1]))
  np.testing.assert_allclose(growth, 0.1, atol=0.2 * 5 * 0.05)
  assert hidden.value_noise_multiplier > hidden.dp_noise_multiplier


@pytest.mark.slow
def test_replaced_rows_are_sent_as_changes():
  # Each class has one client in these cohorts.
  own = [[0, 1], [2], [3, 4], [5]]

  def of(r):
    return tiny.cohort(own, 0)

  plain, _ = after(built('fedaws', spreadout_classes='all'), 1, of)
  found, _ = after(built('fedaws', NOTHING, spreadout_classes='all'), 1, of)
  np.testing.assert_allclose(flat(found), flat(plain), atol=1e-6)


@pytest.mark.parametrize(
  ('name', 'given', 'told'),
  [
    ('turbosvm', {}, 'turbosvm'),
    ('fedss', {'row_renormalize': True}, 'row_renormalize'),
    ('fedss', {'robust_aggregation': 'zeroing'}, 'robust_aggregation'),
    # Clients also send numbers that have no noise.
    ('scaffold', {'num_clients': 9}, "'scaffold'"),
    ('fednova', {}, "'fednova'"),
  ],
)
def test_what_needs_more_than_sums_is_refused(name, given, told):
  hidden = tiny.hidden(1.0, 1.0, 4.0)
  with pytest.raises(errors.InputError, match=told):
    process_lib.build_process(made(name, hidden, **given))


def model_parts(weights):
  return {
    **weights.encoder,
    **weights.encoder_state,
    **{f'rows of {name}': rows for name, rows in weights.tables.items()},
  }


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['statistics', 'feature rows', 'all rows'])
def test_every_part_has_noise_of_its_own(kind):
  """Tests batch statistics, and feature tables that are sent by rows or as a whole."""
  model, most = tiny.model_with_statistics(), 0
  if kind != 'statistics':
    model, most = registered.SPARSE, 5 if kind == 'feature rows' else 0
  made_ = fedss.FedSS.made(model=model, max_positives=5, negatives=3)
  for table in model.encoder.tables:
    made_ = algorithm_lib.own_rows(made_, table, most)
  hidden = tiny.hidden(2.0, 0.5, 8.0)
  process = process_lib.build_process(made_.with_part(hidden), 7)
  state = process.initialize()
  start = model_parts(process.get_model_weights(state))
  drawn = {name: [] for name in start}
  for seed in range(60):
    state = process.initialize()._replace(seed=np.array([seed, 1], np.int32))
    for table in state.server.tables.values():
      if 'noise_seed' in table.optimizer:
        own = np.array(table.optimizer['noise_seed'])
        table.optimizer['noise_seed'] = own + np.array([seed, 0], np.int32)
    found = process.get_model_weights(process.next(state, []).state)
    for name, value in model_parts(found).items():
      drawn[name].append(np.ravel(value - start[name]))
  for values in drawn.values():
    assert np.std(values) == pytest.approx(2.0 * 0.5 / 8.0, rel=0.15)
  # The noises of different parts are independent.
  few = np.concatenate([np.stack(v)[:, :8] for v in drawn.values()], axis=1)
  correlations = np.corrcoef(few, rowvar=False) - np.eye(few.shape[1])
  assert np.abs(correlations).max() < 0.65


@pytest.mark.slow
def test_local_noise_is_each_clients_own():
  """The encoder and the rows that a client sends have noise, and no other row has noise."""
  hidden = tiny.hidden(0.5, 1.0, 1.0, kind='local')
  process = built('posonly', hidden)
  silent = built('posonly', tiny.hidden(0.0, 1.0, 1.0))
  initial = process.initialize()
  [client] = tiny.cohort([[2, 5, 5]], 0)
  expected = flat(after(silent, 1, lambda r: [client])[0])
  drawn = []
  for seed in range(60):
    state = initial._replace(seed=np.array([seed, 1], np.int32))
    after_ = process.get_model_weights(process.next(state, [client]).state)
    drawn.append(flat(after_) - expected)
  drawn = np.stack(drawn)
  of_rows = drawn[:, -N * tiny.DIM :].reshape(60, N, tiny.DIM)
  assert not of_rows[:, [i for i in range(N) if i not in (2, 5)]].any()
  sent = np.concatenate([drawn[:, : -N * tiny.DIM], of_rows[:, [2, 5]].reshape(60, -1)], 1)
  assert sent.std() == pytest.approx(0.5, rel=0.08)
  assert (sent.std(axis=0) > 0.25).all()
  # Nobody can tell from a client's message that its training failed.
  client.x[:] = 3e38
  before = flat(process.get_model_weights(initial))
  after_ = flat(process.get_model_weights(process.next(initial, [client]).state))
  assert (after_ != before)[: -N * tiny.DIM].all()
