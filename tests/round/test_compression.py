"""Compression of an update: the decoded numbers, the error, the bytes, and a whole round."""

import collections
import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf
from scipy import linalg

from tasks import configuration
from tests import tiny
from tests.round import test_bfloat16_messages, test_robust
from tff_xc import errors
from tff_xc.algorithms import registry
from tff_xc.measure import communication
from tff_xc.options import compression
from tff_xc.round import process as process_lib, randomness

pytestmark = pytest.mark.usefixtures('in_process')

N = 12
SIGNS, SEED = tf.constant([1, 2]), tf.constant([3, 4])


def decoded(rows, bits, rotate):
  kind = 'rotate_quantize' if rotate else 'quantize'
  used = compression.Compression(compression=kind, compression_bits=bits)
  return used.decoded(tf.constant(rows), SIGNS, SEED).numpy()


def rows_of(count, dim, seed=0):
  return np.random.default_rng(seed).normal(size=[count, dim]).astype('float32')


def reference(rows, bits, rotate):
  """Compresses one number at a time in float64."""
  count, dim = rows.shape
  size = 1
  while rotate and size < dim:
    size *= 2
  width = size if rotate else dim
  uniform = tf.random.stateless_uniform([count, width], SEED).numpy()
  rotation = np.eye(dim)
  if rotate:
    drawn = tf.random.stateless_uniform([size], SIGNS, 0, 2, tf.int32)
    rotation = linalg.hadamard(size) / np.sqrt(size)
    rotation = rotation * (2 * drawn.numpy() - 1)
  found = []
  for row, chances in zip(rows, uniform, strict=True):
    x = rotation @ np.pad(row.astype(float), [0, width - dim])
    levels = np.linspace(x.min(), x.max(), 2**bits)
    for i, chance in enumerate(chances):
      below = max(np.flatnonzero(levels <= x[i] + 1e-12))
      above = min(below + 1, len(levels) - 1)
      share = (x[i] - levels[below]) / (levels[1] - levels[0])
      x[i] = levels[above if chance >= 1 - share else below]
    found.append((rotation.T @ x)[:dim])
  return np.array(found)


@pytest.mark.parametrize('rotate', [False, True])
@pytest.mark.parametrize(('dim', 'bits'), [(1, 3), (5, 1), (8, 3), (19, 8), (200, 2)])
def test_the_round_trip_is_that_of_numpy(rotate, dim, bits):
  rows = rows_of(6, dim)
  if dim > 1:
    expected = reference(rows, bits, rotate)
    assert np.abs(expected - rows).max() > 1e-3
  else:
    expected = rows  # The decoded number is the smallest number, exactly.
  np.testing.assert_allclose(decoded(rows, bits, rotate), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('rotate', [False, True])
def test_many_bits_give_the_numbers_back(rotate):
  """Many bits show that the rotation is orthogonal. Rows of zeros, such as padding, stay zero."""
  rows = np.concatenate([rows_of(3, 37), np.zeros([2, 37], np.float32)])
  found = decoded(rows, 16, rotate)
  np.testing.assert_allclose(found, rows, atol=5e-4)
  assert not decoded(rows, 2, rotate)[3:].any()
  assert decoded(rows[:0], 8, rotate).shape == (0, 37)
  long = rows_of(2, 5000)  # This row is rotated in three steps: 64 * 64 * 2 numbers.
  np.testing.assert_allclose(decoded(long, 16, rotate), long, atol=1e-3)


def test_a_long_rotation_is_hadamards():
  """All steps together are the Hadamard transform, not only some orthogonal matrix."""
  rows = rows_of(2, 8192)
  expected, width = rows.astype(float), 1
  while width < 8192:  # Sylvester's construction.
    a, b = np.moveaxis(expected.reshape(2, -1, 2, width), 2, 0)
    expected, width = np.stack([a + b, a - b], 2), 2 * width
  expected = expected.reshape(rows.shape) / np.sqrt(8192)
  found = compression._hadamard(tf.constant(rows))
  np.testing.assert_allclose(found, expected, atol=1e-5)


def made(name, **given):
  given = {'server_momentum': 0.0, 'negatives': 3, **given}
  given = {n: v for n, v in given.items() if n in registry.get(name).names}
  found = registry.get(name).made(model=tiny.model(N), max_positives=5, **tiny.settings(), **given)
  # FedAwS's server step would change the length of rows.
  plain = dataclasses.replace(found.tables[0], steps=())
  return found.with_table(plain)


CLIENTS = tiny.cohort([[0, 0, 3, 5], [7, 3, 2], [9, 2]])


def sent(name, **given):
  """Returns what the first client sends, without a process."""
  algorithm = made(name, **given)
  state = test_robust.first_state(algorithm)
  changes, weight = test_robust.Sent(algorithm).changes(state, CLIENTS[0])
  assert weight > 0
  return [changes[key] for key in ('kernel', 'bias', 'class')]


@pytest.mark.parametrize('name', ['fedss', 'fedaws'])
def test_a_client_sends_two_levels_of_one_bit(name):
  """Checks each row and tensor, also for clients that send rows instead of changes."""
  plain, found = sent(name), sent(name, compression='quantize', compression_bits=1)

  def vectors(parts):
    return [np.ravel(parts[0]), parts[1], *parts[2]]

  moved = 0
  for was, now in zip(vectors(plain), vectors(found), strict=True):
    levels = np.array([was.min(), was.max()])
    assert np.abs(now[:, None] - levels).min(axis=1).max() < 1e-6
    moved += np.abs(now - was).max() > 1e-3
  assert moved > 3


class Seeds(compression.Compression):
  """Records the seeds, and does not compress."""

  def decoded(self, rows, signs_seed, seed):
    self.seen.append((tuple(signs_seed.numpy()), tuple(seed.numpy())))
    return rows


def test_a_round_shares_signs_and_everything_is_rounded_by_itself():
  delta = collections.OrderedDict(a=tf.ones([2, 3]), b=tf.ones([]))
  changes = collections.OrderedDict(c=tf.ones([4, 3]))
  used, seen = Seeds(compression='quantize'), []
  object.__setattr__(used, 'seen', seen)
  before = types.SimpleNamespace(tables={})
  for number in range(2):
    for client in (5, 7):
      local = types.SimpleNamespace(
        change=(delta, changes),
        round_seed=randomness.round_seed(tf.constant([0, 0]), number),
        client_id=tf.constant(client, tf.int64),
        before=before,
      )
      tiny.assert_same_weights(used.sent(local).change, (delta, changes), 0)
  signs, rounding = (np.reshape(s, [2, 2, 3, 2]) for s in zip(*seen, strict=True))
  # The seeds are the same for both clients.
  np.testing.assert_array_equal(signs[:, 0], signs[:, 1])

  def distinct(seeds):
    return len({*map(tuple, seeds.reshape(-1, 2))})

  assert distinct(signs) == 6
  assert distinct(rounding) == 12
  assert distinct(np.concatenate([signs, rounding])) == 18


@pytest.mark.parametrize(
  ('kind', 'bits', 'of_encoder', 'of_row'),
  [
    # The kernel has 15 numbers, the bias 3, and a row 3. Each also has 8 bytes for two levels.
    ('quantize', 8, 15 + 8 + 3 + 8, 3 + 8),
    ('quantize', 3, 6 + 8 + 2 + 8, 2 + 8),
    ('rotate_quantize', 8, 16 + 8 + 4 + 8, 4 + 8),
    ('rotate_quantize', 16, 32 + 8 + 8 + 8, 8 + 8),
  ],
)
def test_the_bytes_of_a_tiny_model(kind, bits, of_encoder, of_row):
  given = {'compression': kind, 'compression_bits': bits}
  rows, largest = {'class': 5}, {'class': 6}

  def of(name, **given):
    return communication.messages(made(name, **given)).of_round(rows, largest)

  plain, found = of('fedss'), of('fedss', **given)
  assert plain['bytes_up_per_client'] == 18 * 4 + 5 * (4 + 4 + 12) + 4
  sent = of_encoder + 5 * (4 + 4 + of_row) + 4
  assert found['bytes_up_per_client'] == sent
  for name in ('bytes_down_per_client', 'client_parameters_peak'):
    assert found[name] == plain[name]
  # First without ids, then without rows.
  found = of('fullsoftmax', **given)['bytes_up_per_client']
  assert found == of_encoder + 5 * of_row + 4
  found = of('fedaws_baseline2', **given)['bytes_up_per_client']
  assert found == of_encoder + 5 * 4 + 4


@pytest.mark.slow
def test_a_client_whose_levels_are_not_finite_is_dropped():
  """The numbers are finite, but the difference between the largest and the smallest is not."""
  used, seeds = compression.Compression(compression='quantize'), (SIGNS, SEED)
  assert np.isnan(used.decoded(tf.constant([[3e38, -3e38, 0.0]]), *seeds)).all()
  algorithm = made('fedss', compression='quantize')
  large = test_bfloat16_messages.Large(takes_optimizer=False)
  sent = dataclasses.replace(algorithm.tables[0], merge=large)
  dropped = []
  for one in (algorithm, tiny.without_part(algorithm, 'compression')):
    process = process_lib.build_process(one.with_table(sent), 7)
    state = process.initialize()
    output = process.next(state, CLIENTS[:1])
    dropped.append(float(output.metrics['clients_dropped']))
    if one.part('compression'):
      tiny.assert_same_weights(output.state.weights, state.weights, 0)
  assert dropped == [1, 0]


def test_it_does_not_go_with_differential_privacy():
  given = {'compression': 'quantize'}
  with pytest.raises(errors.InputError, match='compression=none'):
    configuration.resolve('glyphs', 'fedss', {'compression_bits': 4})
  used = made('fedss', **given)
  hidden = tiny.hidden(1.0, 1.0, 4.0)
  with pytest.raises(errors.InputError, match='compression'):
    process_lib.build_process(used.with_part(hidden))
