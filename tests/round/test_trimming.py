"""Medians and trimmed means over clients, compared with NumPy."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from tests import registered, tiny, tiny_sparse
from tests.round import test_robust
from tff_xc import errors
from tff_xc.algorithms import registry
from tff_xc.round import folding, process as process_lib, trimming

pytestmark = pytest.mark.usefixtures('in_process')


def expected_mean(values, fraction):
  """Returns the trimmed mean of [c, ...] over the first axis, in float64."""
  ascending = np.sort(np.asarray(values, np.float64), axis=0)
  count = len(ascending)
  out = min(int(np.ceil(fraction * count - 1e-9)), (count - 1) // 2)
  return ascending[out : count - out].mean(axis=0)


def test_of_few_values_and_of_half_it_is_the_median():
  random = np.random.default_rng(0)
  for count in (1, 2, 3, 4, 7, 10, 100):
    values = random.normal(size=[count, 3, 2]).astype(np.float32)
    found = trimming.trimmed_mean(tf.constant(values), 0.5)
    np.testing.assert_allclose(found, np.median(values, axis=0), rtol=1e-5)
    for fraction in (0.0, 0.07, 0.1, 0.3):
      found = trimming.trimmed_mean(tf.constant(values), fraction)
      expected = expected_mean(values, fraction)
      np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
  # The number of trimmed clients is exact, even if float64 rounds the product: 7 of 100.
  spread = tf.reshape(tf.range(100.0), [100, 1]) ** 2
  expected = (np.arange(7, 93) ** 2.0).mean()
  assert float(trimming.trimmed_mean(spread, 0.07)[0]) == pytest.approx(expected)
  assert not trimming.trimmed_mean(tf.zeros([0, 3]), 0.5).numpy().any()


@pytest.mark.parametrize('fraction', [0.0, 0.2, 0.5])
def test_rows_are_trimmed_over_those_who_hold_them(fraction):
  random = np.random.default_rng(1)
  ids = random.integers(0, 9, 40).astype(np.int32)
  ids[ids == 4] = 5  # Some rows have many clients, some have one client, and row 4 has none.
  rows = random.normal(size=[40, 3]).astype(np.float32)
  rows[::3] = rows[0]  # These rows tie.
  weights = random.uniform(1, 2, 40).astype(np.float32)
  stacked = folding.StackedRows(*map(tf.constant, (ids, rows, weights)))
  found = trimming.trimmed_rows(stacked, fraction)
  np.testing.assert_array_equal(found.ids, np.unique(ids))
  for place, i in enumerate(np.unique(ids)):
    total = weights[ids == i].sum()
    expected = expected_mean(rows[ids == i], fraction) * total
    np.testing.assert_allclose(found.rows[place], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.weights[place], total, rtol=1e-5)
  nothing = folding.StackedRows(*(t[:0] for t in stacked))
  assert trimming.trimmed_rows(nothing, fraction).rows.shape == (0, 3)


def made(name, fraction, **changes):
  found = dataclasses.replace(test_robust.made(name), **changes)
  return trimming.trimmed(found, fraction)


@functools.cache
def built(name, fraction):
  return process_lib.build_process(made(name, fraction))


@pytest.mark.parametrize(
  ('name', 'fraction'),
  [
    ('fedss', 0.2),
    *(
      pytest.param(name, fraction, marks=pytest.mark.slow)
      for name, fraction in (
        ('fedss', 0.5),
        ('fullsoftmax', 0.2),
        ('fullsoftmax', 0.5),
        ('fedaws', 0.5),
      )
    ),
  ],
)
def test_a_round_is_that_of_numpy(name, fraction):
  """One of eight clients sends updates that are a million times too large."""
  algorithm, process = made(name, fraction), built(name, fraction)
  if name == 'fedaws':  # Leave out the spreadout step.
    table = dataclasses.replace(algorithm.tables[0], steps=())
    algorithm = algorithm.with_table(table)
    process = process_lib.build_process(algorithm)
  sent, state = test_robust.Sent(algorithm), process.initialize()
  cohort = test_robust.cohort_of(0)
  cohort[5] = cohort[5]._replace(x=np.full_like(cohort[5].x, np.nan))
  output = process.next(state, cohort)
  assert output.metrics['clients_dropped'] == 1
  before, after = state.weights, output.state.weights
  left = [client for i, client in enumerate(cohort) if i != 5]
  each = [sent.of(state, client) for client in left]
  for key in ('kernel', 'bias'):
    deltas = [update.encoder_delta[key] for update, _ in each]
    moved = np.asarray(after.encoder[key]) - np.asarray(before.encoder[key])
    np.testing.assert_allclose(moved, expected_mean(deltas, fraction), atol=2e-6)
  table = np.array(before.tables['class'], np.float64)
  for row in range(len(table)):
    held = []
    for update, of in each:
      [slots] = np.nonzero(of['class'].mask & (of['class'].ids == row))
      held += [np.asarray(update.rows['class'])[slot] for slot in slots]
    if held and name == 'fedaws':
      table[row] = expected_mean(held, fraction)
    elif held:  # The mean is over seven clients, and some of them do not have the row.
      table[row] += expected_mean(held, fraction) * len(held) / 7
  np.testing.assert_allclose(after.tables['class'], table, rtol=1e-5, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['fedss', 'fullsoftmax', 'fedaws'])
def test_a_fraction_of_0_is_the_mean_of_clients_that_count_alike(name):
  # FedAwS weights rows by examples. Here, all clients have the same number of examples.
  random = np.random.default_rng(2)
  cohorts = [tiny.cohort(random.integers(0, 12, [6, 3]), r) for r in range(2)]
  usual = process_lib.build_process(test_robust.made(name))
  ends = [
    tiny.run(process, 2, lambda r: cohorts[r])[0].weights for process in (built(name, 0.0), usual)
  ]
  tiny.assert_same_weights(*ends, 1e-5)


def test_of_nobody_nothing_is_learned():
  process = built('fedss', 0.2)
  state = process.initialize()
  after = process.next(state, tiny.cohort([[]])).state
  tiny.assert_same_weights(after.weights, state.weights, 0)


@pytest.mark.slow
def test_feature_rows_are_trimmed_too():
  same = [(5, [[2, 8]])]
  other = [(5, [[2, 3]])]
  cohort = tiny_sparse.cohort([same, same, other])
  given = {'robust_aggregation': 'median', 'server_momentum': 0.0}
  process = registered.process('fedss', registered.SPARSE, 6, **given)
  state = process.initialize()
  output = process.next(state, cohort)
  moved = np.asarray(output.state.weights.tables['feature']) - np.asarray(
    state.weights.tables['feature']
  )
  assert set(np.flatnonzero(np.abs(moved).sum(axis=1))) == {2, 3, 8}
  assert np.isfinite(moved).all()


def test_options_and_what_is_refused():
  def of(name='fedavg', **given):
    return registry.get(name).made(model=tiny.model(), **given, **test_robust.OWN.get(name, {}))

  found = of('fedss', robust_aggregation='median')
  assert found.tables[0].merge.fraction == 0.5
  assert found.model_aggregator == trimming.TrimmedMean(0.5)
  assert found.weighting == 'uniform'
  found = of(robust_aggregation='trimmed_mean', trimmed_fraction=0.2)
  assert found.model_aggregator == trimming.TrimmedMean(0.2)
  # Baseline-2 sends no rows.
  kept = of('fedaws_baseline2', max_positives=5, robust_aggregation='median')
  assert not kept.tables[0].merge.sends_rows
  for given, word in (
    ({'robust_aggregation': 'median', 'trimmed_fraction': 0.2}, 'trimmed_mean'),
    ({'robust_aggregation': 'trimmed_mean', 'trimmed_fraction': 0.6}, '0.5'),
    ({'robust_aggregation': 'median', 'clipping_norm': 1.0}, 'clipping'),
  ):
    with pytest.raises(errors.InputError, match=word):
      registry.get('fedaws').resolve(given, {})
  with pytest.raises(errors.InputError, match='turbosvm'):
    trimming.trimmed(test_robust.made('turbosvm'), 0.1)
