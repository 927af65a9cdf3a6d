"""Compares FedAwS and its baselines with NumPy, and tests special cases."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import sameness, tiny
from tests.algorithms import numpy_fedavg, numpy_fedaws, test_fedavg
from tff_xc import errors, heads
from tff_xc.algorithms import fedaws as fedaws_lib, fedss, spreadout
from tff_xc.round import local_training, losses

pytestmark = pytest.mark.usefixtures('in_process')

N = 12
# One class per client; then several clients with the same class; then several classes per client.
COHORTS = (
  tiny.cohort([[0, 0], [3, 3, 3], [5], [7], [8, 8]], seed=1),
  tiny.cohort([[1, 1, 1], [1], [2, 2], [4]], seed=2),
  tiny.cohort([[9, 10, 10], [10, 11], [0]], seed=3),
)
FULL_BATCH = local_training.LocalTraining(0.2, 64, 2)
NEAR = {'spreadout_weight': 0.5, 'spreadout_learning_rate': 0.04}
TWO_NEIGHBOURS = {**NEAR, 'spreadout_neighbors': 2}


def build(name='fedaws', **changes):
  name = name.replace('baseline', 'fedaws_baseline')
  shared = {'max_positives': 3, 'local_training': FULL_BATCH}
  return tiny.process(name, **{**shared, **changes})


def spread(step_size=0.02, k=2, distance='sq_euclidean', margin=0.0):
  """Returns line 14 in NumPy. W has rows of norm 1, so the step starts from unit rows."""

  def step(rows):
    units = numpy_fedaws.normalised(rows)
    gradient = numpy_fedaws.spread_gradient(units, k, distance, margin)
    return units - step_size * gradient

  return step


def check_three_rounds(process, rate=0.2, fixed_rows=False, **server):
  """Asserts that three rounds equal NumPy's rounds."""
  weights = tiny.as_numpy(process.get_model_weights(process.initialize()))
  np.testing.assert_allclose(np.linalg.norm(weights[2], axis=1), 1, atol=1e-6)
  for cohort in COHORTS:
    clients = []
    for client in cohort:
      held = np.unique(client.labels)
      deltas = numpy_fedaws.train_client(
        weights, held, client.x, client.labels, rate=rate, fixed_rows=fixed_rows
      )
      clients.append((held, deltas, len(client.labels)))
    weights = numpy_fedaws.server_round(weights, clients, **server)
  tiny.assert_near(
    tiny.as_numpy(tiny.weights_after(process, 3, COHORTS.__getitem__)), weights, 3e-5
  )


# -- Complete rounds. --


def _settings():
  cosine = {'spreadout_distance': 'cosine'}
  yield {'spreadout_margin': 0.8, **cosine}, spread(0.02, 0, 'cosine', 0.8)
  # `test_line_14_steps_from_normalised_rows` uses two neighbours.
  for given, step in (
    ({'spreadout_neighbors': 2, **cosine}, spread(distance='cosine')),
    ({'spreadout_neighbors': 0}, spread(k=0)),
    ({'spreadout_neighbors': 100}, spread(k=0)),
    ({'spreadout_margin': 1.2}, spread(k=0, margin=1.2)),
  ):
    yield pytest.param(given, step, marks=pytest.mark.slow)


@pytest.mark.parametrize(('settings', 'step'), _settings())
def test_three_rounds_equal_the_numpy_reference(settings, step):
  check_three_rounds(build(**NEAR, **settings), spread=step)


@pytest.mark.slow
def test_rows_that_follow_the_mean_equal_the_numpy_reference():
  """Rows move like the encoder: the server adds n_i / n times the change of each client."""
  given = {'client_weighting': 'examples', 'row_update': 'mean'}
  process = build(**given, **TWO_NEIGHBOURS)
  check_three_rounds(process, spread=spread(), average=True)


@pytest.mark.slow
@pytest.mark.parametrize('margin', [0.0, pytest.param(1.2, marks=pytest.mark.slow)])
def test_line_14_steps_from_normalised_rows(margin):
  """With this learning rate, the clients' rows have norms far from 1."""
  process = build(
    spreadout_weight=0.5,
    spreadout_learning_rate=0.1,
    **({'spreadout_margin': margin} if margin else {'spreadout_neighbors': 2}),
    local_training=dataclasses.replace(FULL_BATCH, learning_rate=2.0),
  )
  step, norms = spread(0.05, 0 if margin else 2, margin=margin), []

  def spread_and_note(rows):
    norms.extend(np.linalg.norm(rows, axis=1))
    return step(rows)

  check_three_rounds(process, rate=2.0, spread=spread_and_note)
  assert max(norms) > 1.2


def test_baseline_1_is_fedaws_whose_server_only_normalises_rows():
  given = {'model': tiny.model(), 'max_positives': 3}
  spreads, baseline = (c.made(**given) for c in (fedaws_lib.FedAwS, fedaws_lib.Baseline1))
  [table] = spreads.tables
  assert len(table.steps) == 2
  without = spreads.with_table(dataclasses.replace(table, steps=table.steps[1:]))
  assert sameness.same(without, baseline)


@pytest.mark.slow
def test_baseline_1_equals_the_numpy_reference():
  check_three_rounds(build('baseline1'))


def test_baseline_2_equals_the_numpy_reference():
  process = build('baseline2')
  check_three_rounds(process, fixed_rows=True, normalise=False)
  before = process.get_model_weights(process.initialize()).class_table
  after = tiny.weights_after(process, 3, COHORTS.__getitem__).class_table
  np.testing.assert_array_equal(before, after)  # The algorithm never moves a row.


@pytest.mark.slow
def test_without_weight_fedaws_is_baseline_1():
  tiny.assert_same_weights(
    tiny.weights_after(build(spreadout_weight=0.0), 3, COHORTS.__getitem__),
    tiny.weights_after(build('baseline1'), 3, COHORTS.__getitem__),
    1e-6,
  )


def test_a_spreadout_rate_of_0_is_that_of_the_clients():
  given = {'spreadout_learning_rate': 0.0, 'client_learning_rate': 0.2}

  def of(**given):
    return fedaws_lib.FedAwS(**given)._spread()

  expected = of(spreadout_weight=1.0, spreadout_learning_rate=0.02).step_size
  assert of(spreadout_weight=0.1, **given).step_size == pytest.approx(expected)


@pytest.mark.slow
def test_absent_classes_move_only_where_all_are_spread():
  absent = [6]
  for changes, moves in (
    (TWO_NEIGHBOURS, False),  # By default, only the classes of the round move.
    ({'spreadout_classes': 'all'}, True),
  ):
    process = build(**changes)
    before = process.get_model_weights(process.initialize()).class_table
    after = tiny.weights_after(process, 3, COHORTS.__getitem__).class_table
    moved = np.abs(tf.gather(after, absent) - tf.gather(before, absent)).max()
    assert (moved > 1e-3) == moves
    np.testing.assert_allclose(np.linalg.norm(after, axis=1), 1, atol=1e-5)


# -- FedAwS as FedSS compares with it. --


@pytest.mark.slow
def test_the_fedss_variant_is_posonly_with_a_spreadout_step():
  def weights_of(name, rounds, **given):
    return tiny.weights_after(
      tiny.process(name, max_positives=3, **given), rounds, COHORTS.__getitem__
    )

  without = weights_of('fedaws_posonly', 3, spreadout_weight=0.0)
  tiny.assert_same_weights(weights_of('posonly', 3), without, 1e-6)
  after = weights_of('posonly', 1).class_table.numpy()
  given = {'spreadout_weight': 0.05, 'spreadout_neighbors': 2}
  moved = weights_of('fedaws_posonly', 1, **given).class_table.numpy()

  # The step changes all rows. It starts from the rows themselves, not from rows of norm 1.
  near = numpy_fedaws.neighbours(numpy_fedaws.normalised(after), 2)
  pairs = [(c, y) for c in range(N) for y in near[c]]
  gradient = numpy_fedaws.numeric_gradient(
    lambda rows: numpy_fedaws.regulariser(numpy_fedaws.normalised(rows), pairs, 'sq_euclidean'),
    after.astype(np.float64),
  )
  np.testing.assert_allclose(moved, after - 0.05 * gradient, atol=1e-5)


def test_a_head_without_cosines_is_refused():
  with pytest.raises(errors.InputError, match='cosine'):
    fedaws_lib.build_fedaws(model=tiny.model(N, heads.LinearHead()), max_positives=3)


# -- FedAwS as TurboSVM-FL compares with it. --


def penalty(rows):
  """Computes sum_{i < j} max(0, cos(w_i, w_j)) by loops."""
  total = 0.0
  for i in range(len(rows)):
    for j in range(i):
      norms = np.linalg.norm(rows[i]) * np.linalg.norm(rows[j])
      total += max(0.0, rows[i] @ rows[j] / norms)
  return total


def test_the_gradient_is_that_of_turbosvms_penalty():
  rows = np.random.default_rng(0).normal(size=[7, 4])
  cosines = spreadout.Spreadout(1.0, nearest=0, distance=spreadout.POSITIVE_COSINE, tangent=True)
  found = cosines.gradient(tf.constant(rows, tf.float32))
  np.testing.assert_allclose(found, numpy_fedaws.numeric_gradient(penalty, rows), atol=1e-5)


def test_turbosvms_form_equals_the_numpy_reference():
  """The algorithm is FedAvg and an Adam step whose state is kept between rounds."""
  process = tiny.process(
    'fedaws_softmax',
    local_training=test_fedavg.FULL_BATCH,
    logits_learning_rate=0.05,
    logits_epsilon=1e-2,
  )
  adam = numpy_fedavg.Server('adam', 0.05, epsilon=1e-2)

  def server(weights, gradients):
    kernel, bias, table = (w - g for w, g in zip(weights, gradients, strict=True))
    [table] = adam([table], [numpy_fedaws.numeric_gradient(penalty, table)])
    return [kernel, bias, table]

  test_fedavg.check_three_rounds(process, server)


# -- The contrastive loss, which the paper analyzes. --


def test_centralized_training_takes_the_contrastive_loss():
  def made(head=None, **given):
    return fedss.Centralized.made(model=tiny.model(N, head), **given)

  given = {'loss': 'contrastive', 'push_weight': 0.5, 'loss_margin': 1.2}
  expected = losses.Contrastive(1.0, 0.5, 1.2, 'cosine')
  assert made(**given).loss == expected
  assert isinstance(made().loss, losses.HeldSoftmax)
  with pytest.raises(errors.InputError, match='--loss_margin'):
    made(loss_margin=1.2)
  with pytest.raises(errors.InputError, match='needs cosine logits'):
    made(heads.LinearHead(), **given)
