"""Zeroing and clipping of poisoned updates, for encoder and rows together."""

import collections
import dataclasses
import functools
import math
import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import registered, tiny, tiny_sparse
from tff_xc import errors
from tff_xc.algorithms import registry
from tff_xc.options import robust
from tff_xc.round import (
  algorithm as algorithm_lib,
  client_update,
  local_training,
  losses,
  optimizers,
  process as process_lib,
  randomness,
  tables as tables_lib,
)

# The first number of each example of a poisoned client.
MARK = 7.0


@dataclasses.dataclass(frozen=True)
class Poisoned:
  """A loss that is a million times as large for marked examples."""

  loss: losses.Loss

  def __call__(self, step):
    marked = tf.equal(step.x[:, 0], MARK)
    return self.loss(step) * tf.where(marked, 1e6, 1.0)


def cohort(bad=(3,), clients=8, seed=1):
  """Returns clients with two to five examples of 12 classes. Some clients are marked."""
  random = np.random.default_rng(seed)
  labels = [random.integers(0, 12, 2 + i % 4) for i in range(clients)]
  made = tiny.cohort(labels, seed)
  for i in bad:
    made[i].x[:, 0] = MARK
  return made


class Sent:
  """Computes what clients would send without bounds, only with TensorFlow."""

  def __init__(self, algorithm: algorithm_lib.Algorithm):
    self._algorithm = tiny.without_part(algorithm, 'bounds')
    # Trace like TFF, and only once for clients of all sizes.
    train = client_update.build(self._algorithm)
    self._train = tf.function(train, autograph=False, reduce_retracing=True)

  def of(self, state, client):
    """Returns (the client's `ClientUpdate`, its `SelectedRows` by table)."""
    seed = randomness.round_seed(state.seed, state.round_number)
    client = tf.nest.map_structure(tf.constant, client)
    held, rows = collections.OrderedDict(), collections.OrderedDict()
    for table in self._algorithm.tables:
      keys = tables_lib.keys(self._algorithm.model, table.name, client)
      held[table.name] = table.request.held_rows(
        keys, randomness.client_seed(seed, client.client_id, randomness.Purpose.NEGATIVES)
      )
      rows[table.name] = tf.gather(
        tf.constant(state.weights.tables[table.name]), held[table.name].ids
      )
    weights = tf.nest.map_structure(tf.constant, state.weights)
    return self._train(weights._replace(tables=rows), held, client, seed), held

  def changes(self, state, client):
    """Returns (changes of the whole model by name, as dense arrays; the weight)."""
    update, held = self.of(state, client)
    found = {k: v.numpy() for k, v in update.encoder_delta.items()}
    table = self._algorithm.tables[0]
    mask, ids = held['class'].mask.numpy(), held['class'].ids.numpy()
    sent = update.rows['class'].numpy()
    before = np.asarray(state.weights.tables['class'])
    dense = np.zeros_like(before)
    if table.merge.sends_deltas:
      dense[ids[mask]] = sent[mask]
    else:
      dense[ids[mask]] = sent[mask] - before[ids[mask]]
    return found | {'class': dense}, float(update.weight)


def first_state(algorithm):
  """Returns what `Sent` reads of a server's state before round 0."""
  seed = tf.constant([0, 0])
  return types.SimpleNamespace(seed=seed, round_number=0, weights=algorithm.model.init(seed))


pytestmark = pytest.mark.usefixtures('in_process')

BOTH = robust.Bounds(robust.Quantile(3.0, 0.9, 0.5, 2.0, 0.1), robust.Quantile(3.0, 0.8, 0.2))
OWN = {'fedss': {'max_positives': 5, 'negatives': 3}, 'fedaws': {'max_positives': 5}}


def made(name, bounds=None, rate=1.0):
  """Returns the algorithm with one local step and SGD on the server."""
  training = local_training.LocalTraining(rate, 8, 1)
  found = registry.get(name).made(model=tiny.model(), local_training=training, **OWN.get(name, {}))
  table = found.tables[0]
  if table.merge.takes_optimizer:
    plain = optimizers.RowMomentum(1.0, 0.0)
    found = found.with_table(dataclasses.replace(table, optimizer=plain))
  found = dataclasses.replace(
    found, loss=Poisoned(found.loss), encoder_optimizer=optimizers.build_sgd(1.0)
  )
  return found.with_part(bounds) if bounds else found


@functools.cache
def built(name, bounds=None, rate=1.0):
  """Returns the learning process of `made`, which is built once for all tests."""
  return process_lib.build_process(made(name, bounds, rate))


def cohort_of(round_number, bad=(3,)):
  return cohort(bad, seed=round_number)


def bounded(change, bound_zero, bound_clip):
  """Returns (the change, its norms) after zeroing and clipping in NumPy."""
  parts = {k: np.array(v, np.float64) for k, v in change.items()}
  largest = max(np.abs(v).max() for v in parts.values())
  if largest > bound_zero:
    parts = {k: 0 * v for k, v in parts.items()}
  norm = math.sqrt(sum((v**2).sum() for v in parts.values()))
  if norm > bound_clip:
    parts = {k: v * bound_clip / norm for k, v in parts.items()}
  return parts, (largest, norm)


def followed(estimate, quantile, norms):
  """Returns the estimate after a round with these norms (Andrew et al., eq. 2)."""
  share = np.mean([norm <= estimate for norm in norms])
  return estimate * math.exp(-quantile.rate * (share - quantile.quantile))


@pytest.mark.parametrize('name', ['fedss', pytest.param('fullsoftmax', marks=pytest.mark.slow)])
def test_three_rounds_are_those_of_numpy(name):
  """Computes the mean of the changes of whole models, each zeroed or clipped."""
  algorithm, process = made(name, BOTH), built(name, BOTH)
  sent = Sent(algorithm)
  state = process.initialize()
  zero, clip = BOTH.zeroing.initial, BOTH.clipping.initial
  counted = collections.Counter()
  for round_number in range(3):
    cohort = cohort_of(round_number)
    of_zero = 2.0 * zero + 0.1
    each = [sent.changes(state, client) for client in cohort]
    results = [bounded(change, of_zero, clip) for change, _ in each]
    weights = np.array([weight for _, weight in each])
    output = process.next(state, cohort)
    measured = {k: float(v) for k, v in output.metrics.items()}
    before, after = tiny.as_numpy(state.weights), tiny.as_numpy(output.state.weights)
    for key, old, new in zip(('kernel', 'bias', 'class'), before, after, strict=True):
      mean = sum(weight * parts[key] for weight, (parts, _) in zip(weights, results, strict=True))
      np.testing.assert_allclose(new, old + mean / weights.sum(), atol=2e-6)
    largest, norms = zip(*(n for _, n in results), strict=True)
    assert measured['zeroing_norm'] == pytest.approx(of_zero, rel=1e-5)
    assert measured['clipping_norm'] == pytest.approx(clip, rel=1e-5)
    assert measured['clients_zeroed'] == sum(n > of_zero for n in largest)
    assert measured['clients_clipped'] == sum(n > clip for n in norms)
    counted.update(zeroed=measured['clients_zeroed'], clipped=measured['clients_clipped'])
    zero = followed(zero, BOTH.zeroing, largest)
    clip = followed(clip, BOTH.clipping, norms)
    state = output.state
  # Some updates are zeroed, and some are clipped.
  assert counted['zeroed'] == 3
  assert 3 <= counted['clipped'] < 21


@pytest.mark.slow
def test_with_all_rows_it_is_tffs_robust_aggregator():
  algorithm = made('fullsoftmax', robust.Bounds())
  process = process_lib.build_process(algorithm)
  sent = Sent(algorithm)
  state = process.initialize()
  # TFF's aggregator divides by the weight, which may be zero here.
  shapes = {'kernel': [5, 3], 'bias': [3], 'class': [12, 3]}
  types = {n: tff.TensorType(np.float32, shape) for n, shape in shapes.items()}
  aggregator = tff.learning.robust_aggregator(zeroing=True, clipping=True)
  aggregator = aggregator.create(
    tff.to_type(collections.OrderedDict(types)), tff.TensorType(np.float32)
  )
  theirs = aggregator.initialize()
  for round_number in range(3):
    cohort = cohort_of(round_number)
    each = [sent.changes(state, client) for client in cohort]
    changes = [collections.OrderedDict(change) for change, _ in each]
    expected = aggregator.next(theirs, changes, [np.float32(weight) for _, weight in each])
    output = process.next(state, cohort)

    of_round = [tiny.as_numpy(s.weights) for s in (state, output.state)]
    for before, after, mean in zip(*of_round, expected.result.values(), strict=True):
      # Digits are equal, except where weights are added in another order.
      np.testing.assert_allclose(after, before + mean, atol=1e-7, rtol=1e-6)
    told = expected.measurements
    numbers = {k: float(output.metrics[k]) for k in robust.Bounds().metrics}
    assert numbers == {
      'clients_zeroed': float(told['zeroed_count']),
      'zeroing_norm': float(told['zeroing_norm']),
      'clients_clipped': float(told['zeroing']['clipped_count']),
      'clipping_norm': float(told['zeroing']['clipping_norm']),
    }
    assert numbers['clients_zeroed'] == 1
    assert 1 <= numbers['clients_clipped'] <= 7
    state, theirs = output.state, expected.state


@pytest.mark.slow
@pytest.mark.parametrize('name', ['fedss', 'fedaws'])
def test_a_client_within_the_bounds_is_as_without_them_to_the_last_digit(name):
  wide = robust.Bounds(robust.Quantile(1e9, 0.5, 1e-3), robust.Quantile(1e9, 0.5, 1e-3))
  ends = [
    tiny.run(built(name, bounds), 2, lambda r: cohort_of(r, ()))[0] for bounds in (wide, None)
  ]
  tiny.assert_same_weights(ends[0].weights, ends[1].weights, 0)


@pytest.mark.slow
def test_rows_that_are_sent_whole_stay_near_those_received():
  """FedAwS replaces rows. A zeroed client sends the rows that it received."""
  nothing = robust.Bounds(robust.Quantile(1e-9, 0.5, 0.1), None)
  algorithm = made('fedaws', nothing)
  table = dataclasses.replace(algorithm.tables[0], steps=())
  algorithm = algorithm.with_table(table)
  process = process_lib.build_process(algorithm)
  state = process.initialize()
  output = process.next(state, cohort_of(0))
  assert output.metrics['clients_zeroed'] == 8
  tiny.assert_same_weights(output.state.weights, state.weights, 1e-7)


@pytest.mark.slow
def test_feature_rows_are_within_the_same_norm():
  cohort = tiny_sparse.cohort([[(0, [[1, 2], [3]]), (5, [[2, 8]])], [(7, [[4], [0, 1]])]])
  given = {
    'robust_aggregation': 'clipping',
    'clipping_norm': 1e-3,
    'server_momentum': 0.0,
    'client_learning_rate': 1.0,
  }
  process = registered.process('fedss', registered.SPARSE, 6, **given)
  state = process.initialize()
  output = process.next(state, cohort)
  assert output.metrics['clients_clipped'] == 2
  moved = tf.nest.map_structure(
    lambda a, b: np.asarray(a, np.float64) - np.asarray(b), output.state.weights, state.weights
  )
  assert np.abs(moved.tables['feature']).max() > 1e-6
  norm = math.sqrt(sum((m**2).sum() for m in tf.nest.flatten(moved)))
  # The bound is the norm of a mean of two changes with norm 0.001 each.
  assert 5e-4 < norm < 1.001e-3


def test_updates_that_are_not_finite_are_dropped_and_bounds_stay_finite():
  process = built('fedss', BOTH)
  cohort = cohort_of(0)
  cohort[3] = cohort[3]._replace(x=np.full_like(cohort[3].x, np.nan))
  state = process.initialize()
  output = process.next(state, cohort)
  assert output.metrics['clients_dropped'] == 1
  assert output.metrics['clients_zeroed'] == 0
  [*numbers] = tf.nest.flatten(output.state.parts)
  for number in numbers:
    assert np.isfinite(number).all()
  # Without valid clients, the estimates do not change.
  for nobody in (tiny.cohort([[]]), [cohort[3]]):
    after = process.next(output.state, nobody).state
    tiny.assert_same_weights(after.parts, output.state.parts, 0)
    tiny.assert_same_weights(after.weights, output.state.weights, 0)


def test_options_make_the_bounds():
  def bounds(**given):
    return registry.get('fedavg').made(model=tiny.model(), **given).part('bounds')

  assert bounds() is None
  assert bounds(robust_aggregation='zeroing+clipping') == robust.Bounds()
  assert bounds(robust_aggregation='zeroing') == robust.Bounds(clipping=None)
  assert bounds(
    robust_aggregation='clipping', clipping_norm=0.1, clipping_quantile=0.5
  ) == robust.Bounds(None, robust.Quantile(0.1, 0.5, 0.2))
  with pytest.raises(errors.InputError, match='clipping_norm'):
    bounds(robust_aggregation='zeroing', clipping_norm=0.1)
