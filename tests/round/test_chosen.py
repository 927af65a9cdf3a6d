"""Differential privacy that chooses rows: the chosen rows, their noise, and the other rows."""

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
from dp_accounting.rdp import rdp_privacy_accountant
from scipy import stats

from tasks import configuration
from tests import registered, tiny, tiny_sparse
from tests.round import test_privacy
from tff_xc import errors
from tff_xc.algorithms import registry
from tff_xc.measure import privacy_loss
from tff_xc.round import (
  algorithm as algorithm_lib,
  chosen,
  folding,
  local_training,
  parts,
  process as process_lib,
)

pytestmark = pytest.mark.usefixtures('in_process')

N, CLIENTS, PLAIN = 12, 4.0, float('inf')
# This noise is too small to have an effect. With ratio 2, the noise of counts is sqrt(5) times as
# large.
TINY = 1e-6
LOCAL = local_training.LocalTraining(0.05, 8, 1)


def made(name, hidden=None, model=None, features=0, momentum=0.0):
  given = {'max_positives': 5, 'local_training': LOCAL}
  given['model'] = model or tiny.model(N)
  if name in ('fedss', 'negonly'):
    given['negatives'] = 3
  if name == 'fedaws':
    given['spreadout_classes'] = 'all'
  if 'server_momentum' in registry.get(name).names:
    given['server_momentum'] = momentum
  found = registry.get(name).made(**given)
  if features:
    found = algorithm_lib.own_rows(found, 'feature', features, found.tables[0].optimizer)
  found = found.with_part(hidden) if hidden else found
  return dataclasses.replace(found, weighting='uniform')


def hidden(noise=0.0, clip=PLAIN, threshold=0.0, counts=1.0, ratio=2.0):
  return tiny.hidden(
    noise,
    clip,
    CLIENTS,
    dp_rows='chosen',
    dp_rows_noise_ratio=ratio,
    dp_rows_clip=counts,
    dp_rows_threshold=threshold,
  )


def rows(weights):
  return np.array(weights.tables['class'])


def test_each_number_by_itself():
  draw = tf.function(lambda seed: chosen.each_by_itself(0.03, 500, tf.stack([seed, 1])))
  drawn = [draw(tf.constant(seed)).numpy() for seed in range(1000)]
  assert all((np.diff(d) > 0).all() for d in drawn)
  counts = np.bincount(np.concatenate(drawn), minlength=500)
  assert len(counts) == 500
  expected = 1000 * 0.03
  spread = np.square(counts - expected).sum() / (expected * 0.97)
  assert 1e-3 < stats.chi2.cdf(spread, 500) < 1 - 1e-3
  sizes = np.array([len(d) for d in drawn])
  assert sizes.mean() == pytest.approx(15, abs=0.4)
  assert sizes.var() == pytest.approx(15 * 0.97, rel=0.15)
  every = chosen.each_by_itself(1.0, 300, tf.constant([1, 2]))
  np.testing.assert_array_equal(every, np.arange(300))
  for rate in (0.0, 1e-300, 1e-12):
    assert not len(chosen.each_by_itself(rate, 300, tf.constant([1, 2])))


@pytest.mark.slow
def test_rows_are_chosen_as_if_every_count_had_noise():
  """The probabilities follow the normal distribution, also for rows that no client sent."""
  ids = np.array([1, 4, 5, 9])
  counts = np.array([0.5, 2.0, 3.0, 1.0], np.float32)
  counted = folding.RowSums(
    tf.constant(ids, tf.int32), tf.constant(np.eye(4, dtype=np.float32)), tf.constant(counts)
  )
  stddev, threshold, seeds = 1.5, 2.0, 4000
  draw = tf.function(
    lambda seed: chosen.chosen(counted, N, stddev, threshold / stddev, tf.stack([seed, 3]))
  )
  seen = np.zeros([seeds, N])
  for seed in range(seeds):
    found = draw(tf.constant(seed))
    seen[seed, found.ids.numpy()] = 1
    assert (np.diff(found.ids) > 0).all()
    sums = np.zeros([N, 4])
    sums[ids] = np.eye(4)
    np.testing.assert_array_equal(found.rows, sums[found.ids])
  dense = np.zeros(N)
  dense[ids] = counts
  expected = stats.norm.sf((threshold - dense) / stddev)
  error = np.sqrt(expected * (1 - expected) / seeds)
  assert (np.abs(seen.mean(axis=0) - expected) < 4.5 * error).all()
  assert np.abs(np.corrcoef(seen.T) - np.eye(N)).max() < 5 / np.sqrt(seeds)


@pytest.mark.slow
def test_a_round_is_that_of_numpy():
  """Clips the change of each client, chooses rows by counts, and divides by m."""
  clients = test_privacy.cohort(0)
  clients[3] = clients[3]._replace(labels=clients[0].labels, all_labels=clients[0].all_labels)
  alone = process_lib.build_process(made('posonly', tiny.hidden(0.0, PLAIN, 1.0)), 7)
  start = alone.initialize()
  before = alone.get_model_weights(start)
  encoders, tables = [], []
  for client in clients:
    after = alone.get_model_weights(alone.next(start, [client]).state)
    encoders.append(test_privacy.flat(after.encoder) - test_privacy.flat(before.encoder))
    tables.append(rows(after) - rows(before))
  norms = [
    np.sqrt(np.square(e).sum() + np.square(t).sum()) for e, t in zip(encoders, tables, strict=True)
  ]
  clip, norm_of_counts, threshold = float(np.median(norms)), 1.2, 0.9
  counts, total, encoder = np.zeros(N), np.zeros([N, tiny.DIM]), 0.0
  for client, norm, e, t in zip(clients, norms, encoders, tables, strict=True):
    held = np.unique(client.labels)
    counts[held] += min(1.0, norm_of_counts / np.sqrt(len(held)))
    factor = min(1.0, clip / norm)
    total, encoder = total + factor * t, encoder + factor * e
  of_noise = threshold / (TINY * math.sqrt(5.0) * norm_of_counts)
  above = counts > threshold
  assert 0 < above.sum() < (counts > 0).sum()
  process = process_lib.build_process(
    made('posonly', hidden(TINY, clip, of_noise, norm_of_counts)), 7
  )
  output = process.next(process.initialize(), clients)
  after = process.get_model_weights(output.state)
  np.testing.assert_allclose(
    rows(after) - rows(before), above[:, None] * total / CLIENTS, atol=1e-6
  )
  np.testing.assert_allclose(
    test_privacy.flat(after.encoder) - test_privacy.flat(before.encoder),
    encoder / CLIENTS,
    atol=1e-6,
  )
  assert output.metrics['rows_chosen'] == above.sum()


@pytest.mark.slow
@pytest.mark.parametrize(('name', 'features'), [('fedss', 0), ('negonly', 0), ('posonly', 4)])
def test_without_noise_and_threshold_it_is_the_plain_run(name, features):
  model = registered.SPARSE if features else None
  of = test_privacy.cohort
  if features:
    # Without features, an embedding is nearly 0, and the norm's gradient is infinite.
    data = [[(3, [[0, 1], [2]]), (5, [[4]])], [(7, [[8, 1, 0]])]]

    def of(r):
      return tiny_sparse.cohort(data + data, r)

  def build(h):
    return process_lib.build_process(made(name, h, model, features, 0.9), 7)

  expected, _ = test_privacy.after(build(None), cohort_of=of)
  found, _ = test_privacy.after(build(hidden()), cohort_of=of)
  np.testing.assert_array_equal(test_privacy.flat(found), test_privacy.flat(expected))
  everything, metrics = test_privacy.after(build(hidden(threshold=-1e9)), cohort_of=of)
  np.testing.assert_allclose(test_privacy.flat(everything), test_privacy.flat(expected), atol=1e-6)
  assert metrics['rows_chosen'] == sum(map(len, expected.tables.values()))


@pytest.mark.parametrize('momentum', [pytest.param(0.0, marks=pytest.mark.slow), 0.9])
def test_noise_is_on_chosen_rows_alone(momentum):
  """For rows that no client has: how many are chosen and how far they move, over many seeds."""
  protected = hidden(1.0, 0.5, 1.3, ratio=0.5)
  process = process_lib.build_process(made('fedss', protected, momentum=momentum), 7)
  initial = process.initialize()
  start = rows(process.get_model_weights(initial))
  moved, encoders = [], []
  for seed in range(60):
    state = initial._replace(seed=np.array([seed, 1], np.int32))
    output = process.next(state, [])
    weights = process.get_model_weights(output.state)
    change = rows(weights) - start
    assert output.metrics['rows_chosen'] == change.any(axis=1).sum()
    moved.append(change)
    encoders.append(test_privacy.flat(weights.encoder))
    # A row that moved continues with its velocity, and gets no more noise.
    again = process.next(output.state, [])
    further = rows(process.get_model_weights(again.state)) - rows(weights)
    if not again.metrics['rows_chosen']:
      np.testing.assert_allclose(further, momentum * change, atol=1e-6)
  moved = np.stack(moved)
  above = moved.any(axis=2)
  rate = stats.norm.sf(1.3)
  error = math.sqrt(rate * (1 - rate) / above.size)
  assert above.mean() == pytest.approx(rate, abs=4 * error)
  stddev = math.sqrt(1.0 + 4.0) * 0.5 / CLIENTS
  values = moved[above] / stddev
  assert stats.kstest(values.ravel(), 'norm').pvalue > 1e-3
  assert np.std(np.stack(encoders), axis=0).mean() == pytest.approx(stddev, rel=0.1)


@pytest.mark.slow
def test_spreadout_moves_rows_that_were_not_chosen():
  process = process_lib.build_process(made('fedaws', hidden(TINY, 1e3, 1e9)), 7)
  state = process.initialize()
  output = process.next(state, test_privacy.cohort(0))
  assert output.metrics['rows_chosen'] == 0
  change = rows(process.get_model_weights(output.state))
  change -= rows(process.get_model_weights(state))
  assert change.any()


@pytest.mark.parametrize('quantile', [pytest.param(0.0, marks=pytest.mark.slow), 0.5])
@pytest.mark.parametrize('kind', [privacy_loss.POISSON, privacy_loss.FIXED])
def test_epsilon_is_that_of_all_mechanisms_together(kind, quantile):
  """Compares with dp-accounting's Renyi divergences, with the noise of each mechanism."""
  rate, rounds, delta = 0.1, 30, 1e-5
  protected = dataclasses.replace(hidden(1.4, 1.0, ratio=1.7), dp_clip_quantile=quantile)
  accountant = privacy_loss.Accountant(
    protected.dp_noise_multiplier, privacy_loss.Sampling(kind, rate), delta
  )
  noises = [
    protected.value_noise_multiplier,
    protected.rows_noise_multiplier,
    *([2 * protected.count_noise] if quantile else []),
  ]
  assert noises[1] == pytest.approx(1.7 * noises[0])
  apart = 1.0 if kind == privacy_loss.POISSON else 2.0
  event = dp_accounting.ComposedDpEvent(
    [dp_accounting.GaussianDpEvent(noise / apart) for noise in noises]
  )
  relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
  if kind == privacy_loss.POISSON:
    event = dp_accounting.PoissonSampledDpEvent(rate, event)
  else:
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    size = int(rate * 10**9)
    event = dp_accounting.SampledWithoutReplacementDpEvent(10**9, size, event)
  theirs = rdp_privacy_accountant.RdpAccountant(neighboring_relation=relation)
  theirs.compose(event, rounds)
  expected = theirs.get_epsilon(delta)
  assert accountant._renyi(rounds) == pytest.approx(expected, rel=1e-9)
  assert 0.8 * expected < accountant.epsilon(rounds) <= expected * (1 + 1e-9)


@pytest.mark.slow
def test_the_norm_of_counts_is_over_all_tables():
  """All k rows of a client, of both tables, are chosen if the threshold is at most C1 / sqrt(k)."""
  cohort = tiny_sparse.cohort([[(3, [[0, 1], [2]]), (5, [[]])]], 0)
  each = 1.2 / math.sqrt(5)
  for threshold, count in ((0.99 * each, 5), (1.01 * each, 0)):
    of_noise = threshold / (TINY * math.sqrt(5.0) * 1.2)
    protected = hidden(TINY, 1e3, of_noise, 1.2)
    process = process_lib.build_process(made('posonly', protected, registered.SPARSE, 4), 7)
    output = process.next(process.initialize(), cohort)
    assert output.metrics['rows_chosen'] == count


def test_noise_of_changes_is_not_that_of_counts():
  """If the noises were equal, the chosen rows would reveal the noise of the changes."""
  protected = hidden(1.0, 0.5)
  stddev = 0.5 * protected.value_noise_multiplier
  algorithm = protected.of_run(made('fedss', protected), [7, 0])
  counted = folding.RowSums(tf.range(N), tf.zeros([N, tiny.DIM]), tf.zeros([N]))

  @tf.function
  def drawn(seed):
    total = tf.constant(float(CLIENTS))
    merged = parts.Merged({}, {'class': counted}, total, total, (), tf.stack([seed, 1]))
    merged, _ = algorithm.part('dp').noised(tf.constant(0.5), merged)
    return merged.tables['class'].ids, merged.tables['class'].rows

  products = []
  for seed in range(100):
    ids, noise = (t.numpy() for t in drawn(tf.constant(seed)))
    first = noise.ravel()[:N]
    signs = np.where(np.isin(np.arange(N), ids), 1.0, -1.0)[: len(first)]
    products.extend(signs * first / stddev)
  assert abs(np.mean(products)) < 5 / math.sqrt(len(products))


def test_what_has_nothing_to_choose_is_refused():
  with pytest.raises(errors.InputError, match='dp_rows=all'):
    process_lib.build_process(made('fullsoftmax', hidden()), 7)
  for algorithm, changes, told in (
    ('fedss', {'dp': 'local', 'dp_rows': 'chosen'}, 'central'),
    ('fedss', {'dp': 'central', 'dp_rows_clip': 2.0}, 'chosen'),
  ):
    with pytest.raises(errors.InputError, match=told):
      configuration.resolve('glyphs', algorithm, changes)
  with pytest.raises(ValueError, match='server'):
    tiny.hidden(1.0, 1.0, 1.0, 0.5, kind='local')
