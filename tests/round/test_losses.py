"""The denominators and the correction of FedSS's losses."""

import numpy as np
import pytest
import tensorflow as tf

from tests.algorithms import numpy_fedaws
from tff_xc import classifier
from tff_xc.data import sparse
from tff_xc.round import losses, request

# The client has six rows. Rows 0 and 3 are its own classes, rows 1, 2 and 4 are negatives, and row
# 5 is padding.
HELD = request.SelectedRows(
  ids=tf.constant([8, 2, 5, 1, 7, 8]),
  mask=tf.constant([True] * 5 + [False]),
  counts=tf.constant([2, 0, 0, 1, 0, 0]),
)
LOGITS = np.array([[1.0, 0.5, -2, 3, 0.1, 50], [0, 2, 1, -1, 0.3, 50]])
TARGETS = [0, 3]


def step(logits=LOGITS):
  return losses.LocalStep(
    logits=tf.constant(logits, tf.float32), targets=tf.constant(TARGETS), held=HELD, embeddings=None
  )


def naive(terms_of, shift):
  each = []
  for logits, target in zip(LOGITS, TARGETS, strict=True):
    terms = [np.exp(logits[j] + (shift if j in (1, 2, 4) else 0)) for j in terms_of(target)]
    each.append(-logits[target] + np.log(sum(terms)))
  return each


SHIFT = np.log((20 - 2) / 3)  # There are n = 20 classes, two own classes and three negatives.


@pytest.mark.parametrize(
  ('denominator', 'terms_of'),
  [
    ('held', lambda t: range(5)),
    ('negatives', lambda t: [t, 1, 2, 4]),
    ('positives', lambda t: [0, 3]),
  ],
)
@pytest.mark.parametrize('correction', ['negatives', 'none'])
def test_losses_equal_naive_loops(denominator, terms_of, correction):
  loss = losses.HeldSoftmax(20, correction, denominator)(step())
  shift = SHIFT if correction == 'negatives' else 0.0
  np.testing.assert_allclose(loss, naive(terms_of, shift), rtol=1e-6)


def test_excluded_logits_have_no_gradient():
  logits = tf.constant(LOGITS, tf.float32)
  with tf.GradientTape() as tape:
    tape.watch(logits)
    loss = losses.HeldSoftmax(20, 'none', 'negatives')(step()._replace(logits=logits))
  gradient = tape.gradient(loss, logits).numpy()
  np.testing.assert_array_equal(gradient[0, [3, 5]], 0)
  np.testing.assert_array_equal(gradient[1, [0, 5]], 0)
  assert (gradient[:, [1, 2, 4]] != 0).all()


def hinge_step(rows, embeddings):
  return step()._replace(
    embeddings=tf.constant(embeddings, tf.float32),
    weights=classifier.ModelWeights({}, {}, {'class': rows}),
  )


def test_the_hinge_is_of_the_targets_cosine_alone():
  """Eq. (23); rows 0 and 3 are the targets of two examples."""
  rows = np.array([[2.0, 0], [9, 9], [9, 9], [1, 1], [9, 9], [9, 9]])
  embeddings = [[3.0, 0], [0, 0.1]]  # The cosines are 1, which is above the margin, and 0.7071.
  rows = tf.constant(rows, tf.float32)
  for margin in (0.9, 0.5):
    with tf.GradientTape() as tape:
      tape.watch(rows)
      loss = losses.PositiveHinge(margin)(hinge_step(rows, embeddings))
    expected = [0.0, max(0.0, margin - 0.5**0.5) ** 2]
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    # Only row 3 may have a gradient.
    moved = np.any(tf.convert_to_tensor(tape.gradient(loss, rows)) != 0, axis=1)
    np.testing.assert_array_equal(moved, np.arange(6) == (3 if margin == 0.9 else -1))


@pytest.mark.parametrize('distance', losses.DISTANCES)
def test_the_contrastive_loss_equals_the_numpy_reference(distance):
  """Eq. (6), (11) and (12), with their gradients; row 5 is padding."""
  random = np.random.default_rng(3)
  rows, embeddings = random.normal(size=[6, 4]), random.normal(size=[2, 4])
  values = 0.5, 2.0, 1.3, distance
  tensor = tf.constant(rows, tf.float32)
  with tf.GradientTape() as tape:
    tape.watch(tensor)
    each = losses.Contrastive(*values)(hinge_step(tensor, embeddings))

  def of(rows):
    return numpy_fedaws.contrastive(embeddings, rows, TARGETS, *values)

  np.testing.assert_allclose(each, of(rows[:5]), rtol=1e-5)
  expected = numpy_fedaws.numeric_gradient(lambda r: of(r).sum(), rows[:5])
  found = tape.gradient(each, tensor).numpy()
  np.testing.assert_allclose(found[:5], expected, atol=1e-5)
  np.testing.assert_array_equal(found[5], 0)


def test_a_row_equal_to_the_embedding_has_a_finite_gradient():
  rows = tf.ones([6, 2])
  with tf.GradientTape() as tape:
    tape.watch(rows)
    loss = losses.Contrastive(distance='euclidean')(hinge_step(rows, [[1, 1], [1, 1]]))
  assert np.isfinite(tf.convert_to_tensor(tape.gradient(loss, rows))).all()
  np.testing.assert_allclose(loss, [4.0, 4.0], rtol=1e-2)


@pytest.mark.parametrize(
  'loss', [losses.HeldSoftmax(20), losses.PositiveHinge(), losses.Contrastive()]
)
def test_sets_of_labels_are_refused(loss):
  sets = sparse.LabelSets(tf.constant([0, 2, 3]), tf.constant([0, 3, 3]))
  rows = tf.zeros([6, 2])
  with pytest.raises(ValueError, match='not a set'):
    loss(hinge_step(rows, [[0, 0]])._replace(targets=sets))


@pytest.mark.parametrize(('scale', 'count'), [(1.0, 5), (300.0, 5), (1e9, 5), (1.0, 0)])
def test_softmax_cross_entropy_is_tensorflows(scale, count):
  random = np.random.default_rng(0)
  logits = (scale * random.normal(size=[count, 7])).astype(np.float32)
  targets = np.array([0, 6, 3, 3, 2], np.int32)[:count]
  upstream = random.normal(size=count).astype(np.float32)
  found = []
  for loss in (
    losses.softmax_cross_entropy,
    lambda logits, targets: tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=targets, logits=logits
    ),
  ):
    x = tf.constant(logits)
    with tf.GradientTape() as tape:
      tape.watch(x)
      each = loss(x, tf.constant(targets))
    found.append((each, tape.gradient(each, x, output_gradients=upstream)))
  for a, b in zip(*found, strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
