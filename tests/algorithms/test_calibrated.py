"""FedRS, FedLC and logit adjustment compared with NumPy, and combined with other options."""

import numpy as np
import pytest
import tensorflow as tf

from tests import registered, tiny
from tests.algorithms import numpy_fedss, test_fedavg
from tff_xc import errors
from tff_xc.algorithms import registry
from tff_xc.options import calibration
from tff_xc.round import losses, request

pytestmark = pytest.mark.usefixtures('tff_worker')

COHORTS, FULL_BATCH = test_fedavg.COHORTS, test_fedavg.FULL_BATCH
RATE, SCALE, CLASSES = 0.1, 4.0, 12
TRAINING_EXAMPLES = np.array([40, 20, 10, 5, 5, 4, 3, 3, 2, 1, 1, 0])


def _logits(name, logits, counts, factor):
  """Returns the logits [B, n] in the papers for a client with `counts` [n] examples per class."""
  found = np.array(logits)
  for c, n in enumerate(counts):
    if name == 'fedrs' and n == 0:
      found[:, c] *= factor
    if name == 'fedlc':
      # A class that the client lacks counts as 1e-8 examples.
      found[:, c] -= factor / (n or 1e-8) ** 0.25
  return found


def _trained(name, weights, x, y, factor, steps):
  """Returns the weights after full-batch steps on the softmax of the calibrated logits."""
  kernel, bias, table = weights
  counts = [np.sum(y == c) for c in range(CLASSES)]
  slope = np.ones(CLASSES)
  if name == 'fedrs':
    slope = np.array([1.0 if n else factor for n in counts])
  for _ in range(steps):
    e = x @ kernel + bias
    u, v = numpy_fedss.normalised(e), numpy_fedss.normalised(table)
    z = _logits(name, SCALE * u @ v.T, counts, factor)
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    of_cosine = SCALE * slope * p / len(y)
    of_e = numpy_fedss.back_through_norm(e, of_cosine @ v)
    of_table = numpy_fedss.back_through_norm(table, of_cosine.T @ u)
    kernel = kernel - RATE * x.T @ of_e
    bias = bias - RATE * of_e.sum(0)
    table = table - RATE * of_table
  return [kernel, bias, table]


def _after(name, **given):
  process = tiny.process(name, local_training=FULL_BATCH, **given)
  return tiny.weights_after(process, 3, COHORTS.__getitem__)


@pytest.mark.parametrize(
  ('name', 'given', 'factor'),
  [
    ('fedrs', {'calibration_alpha': 0.3}, 0.3),
    pytest.param('fedlc', {}, 1.0, marks=pytest.mark.slow),
  ],
)
def test_three_rounds_equal_the_numpy_reference(name, given, factor):
  process = tiny.process(name, local_training=FULL_BATCH, **given)
  weights = tiny.as_numpy(process.initialize().weights)
  for cohort in COHORTS:
    models = [_trained(name, weights, c.x, c.labels, factor, 2) for c in cohort]
    shares = np.array([len(c.labels) for c in cohort])
    weights = [
      np.tensordot(shares / shares.sum(), np.stack(each), 1) for each in zip(*models, strict=True)
    ]
  tiny.assert_near(tiny.as_numpy(_after(name, **given)), weights)


def test_logit_adjustment_equals_the_numpy_reference():
  made = registry.get('logit_adjustment').made(
    model=tiny.model(), class_probabilities=TRAINING_EXAMPLES, calibration_tau=0.7
  )
  random = np.random.default_rng(0)
  logits, targets = random.normal(size=[4, CLASSES]), [0, 3, 10, 2]
  held = request.AllRows(CLASSES).held_rows(tf.constant(targets), None)
  loss = made.loss(losses.LocalStep(
    tf.constant(logits, tf.float32), tf.constant(targets), held, None
  ))  # fmt: skip
  z = logits + 0.7 * np.log(TRAINING_EXAMPLES / TRAINING_EXAMPLES.sum() + 1e-12)
  log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
  np.testing.assert_allclose(loss, -log_p[range(4), targets], rtol=1e-5)


@pytest.mark.parametrize('p', [np.ones(13), np.ones(11), -TRAINING_EXAMPLES, np.zeros(12)])
def test_a_prior_that_is_no_distribution_is_refused(p):
  with pytest.raises(ValueError, match='12 finite numbers'):
    registry.get('logit_adjustment').made(model=tiny.model(), class_probabilities=p)


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'given'), [('fedrs', {'calibration_alpha': 1.0}), ('fedlc', {'calibration_tau': 0.0})]
)
def test_without_an_effect_they_are_fedavg_to_the_last_digit(name, given):
  tiny.assert_same_weights(_after(name, **given), _after('fedavg'), 0.0)


@pytest.mark.slow
def test_a_client_counts_examples_that_it_does_not_draw():
  """A client that has all classes trains with FedRS as with FedAvg, whichever examples it draws."""
  every = [c._replace(all_labels=np.arange(CLASSES, dtype=np.int32)) for c in COHORTS[0]]
  given = {'local_training': FULL_BATCH}
  fedrs = tiny.process('fedrs', calibration_alpha=0.3, **given)
  fedavg = tiny.process('fedavg', **given)
  found = tiny.weights_after(fedrs, 1, lambda _: every)
  plain = tiny.weights_after(fedavg, 1, lambda _: COHORTS[0])
  tiny.assert_same_weights(found, plain, 0.0)
  own = tiny.weights_after(fedrs, 1, COHORTS.__getitem__)
  assert np.abs(own.class_table - plain.class_table).max() > 1e-3


@pytest.mark.slow
def test_fedlc_needs_a_clients_own_rows_only():
  given = {'server_learning_rate': 1.0, 'server_momentum': 0.0}
  own = _after('posonly', calibration='counts', max_positives=4, **given)
  tiny.assert_same_weights(own, _after('fedlc'), 1e-6)


def test_sampled_negatives_estimate_the_sum_over_all_classes():
  """The mean of FedRS's sums over random samples equals the sum of all n terms."""
  logits = np.random.default_rng(0).normal(size=6)
  own, all_terms = [1, 4], np.exp(0.5 * logits)
  all_terms[own] = np.exp(logits[own])
  sums = []
  for negative in (0, 2, 3, 5):
    held = request.SelectedRows(
      tf.constant([*own, negative]), tf.fill([3], True), tf.constant([2, 1, 0])
    )
    scaled = calibration.Calibration(calibration='restricted', calibration_alpha=0.5)(
      logits[[*own, negative]], held
    )
    sums.append(np.exp(scaled + losses.negative_correction(held, 6)).sum())
  np.testing.assert_allclose(np.mean(sums), all_terms.sum(), rtol=1e-6)


@pytest.mark.parametrize(
  ('name', 'given', 'message'),
  [
    ('fedmlh', {'calibration': 'counts'}, 'hashes several classes'),
    ('fedaws', {'calibration': 'restricted'}, 'softmax'),
    ('posonly', {'calibration': 'restricted'}, 'lacks'),
    ('fedss', {'calibration': 'counts'}, 'calibration_absent=1'),
    ('fedlc', {'calibration_alpha': 0.5}, 'only applies with'),
    ('fedavg', {'calibration': 'prior', 'importance_weights': 'p.csv'}, 'different class'),
  ],
)
def test_what_makes_no_sense_is_refused(name, given, message):
  with pytest.raises(errors.InputError, match=message):
    registered.algorithm(name, **given)


def test_nobody_is_warned_of_fedlc_that_leaves_out_nothing():
  for given in ({'calibration_absent': 1.0}, {'calibration_tau': 0.0}):
    assert not registry.get('fedlc')(**given).warnings(9, 1)
