"""CCVR: statistics equal those of all examples, and virtual features train the class rows."""

import numpy as np
import pytest

from tests.algorithms import numpy_fedss
from tff_xc import errors, heads
from tff_xc.experiment import ccvr

CLASSES, DIM = 5, 3
RANDOM = np.random.default_rng(0)
# Class 3 has one example, and class 4 has none.
of_examples = np.array([*RANDOM.integers(0, 3, 40), 3])
EMBEDDINGS = RANDOM.normal(size=(41, DIM)) + of_examples[:, None]


def _joined():
  parts = np.split(np.arange(41), [5, 6, 20, 33])
  messages = [ccvr.of_client(EMBEDDINGS[p], of_examples[p]) for p in parts]
  return ccvr.joined(messages, CLASSES, DIM)


def test_joined_statistics_are_those_of_all_examples():
  found = _joined()
  for label in range(CLASSES):
    own = EMBEDDINGS[of_examples == label]
    assert found.counts[label] == len(own)
    mean = own.mean(0) if len(own) else np.zeros(DIM)
    np.testing.assert_allclose(found.means[label], mean)
    expected = np.zeros([DIM, DIM])
    if len(own) > 1:
      expected = np.cov(own, rowvar=False)
    np.testing.assert_allclose(found.covariances[label], expected, atol=1e-12)


def test_virtual_features_have_these_statistics():
  gaussians = _joined()
  features, labels = ccvr.virtual(gaussians, 20_000, 1)
  assert np.unique(labels).tolist() == [0, 1, 2, 3]
  for label in range(3):
    own = features[labels == label]
    np.testing.assert_allclose(own.mean(0), gaussians.means[label], atol=0.05)
    np.testing.assert_allclose(np.cov(own, rowvar=False), gaussians.covariances[label], atol=0.1)
  alone = features[labels == 3]
  np.testing.assert_allclose(alone, np.tile(EMBEDDINGS[-1], [20_000, 1]))
  np.testing.assert_array_equal(features, ccvr.virtual(gaussians, 20_000, 1)[0])


def test_training_equals_the_numpy_reference():
  features, labels = ccvr.virtual(_joined(), 5, 0)  # All features are in one batch.
  table = RANDOM.normal(size=(CLASSES, DIM)).astype(np.float32)
  how = ccvr.Calibration(5, epochs=3, learning_rate=0.1)
  found = ccvr.trained(heads.CosineHead(4.0), table, features, labels, how, 0)
  rows, identity = table.astype(np.float64), np.eye(DIM)
  for _ in range(3):
    *_, gradient = numpy_fedss.loss_and_gradients(
      identity,
      np.zeros(DIM),
      rows,
      features.astype(np.float64),
      labels,
      np.ones([len(labels), CLASSES], bool),
      np.zeros(CLASSES),
      4.0,
    )
    rows = rows - 0.1 * gradient
  np.testing.assert_allclose(found, rows, atol=1e-5)
  assert not np.allclose(found, table, atol=1e-2)


def test_a_class_without_a_prototype_stays_so_and_pushes_nobody():
  table = np.zeros([CLASSES, DIM + 1], np.float32)
  table[[0, 2, 4]] = np.c_[RANDOM.normal(size=(3, DIM)), np.ones(3)]
  head, gaussians = heads.PrototypeHead(4.0, unit=True), _joined()
  features, labels = ccvr.virtual(ccvr.with_rows(gaussians, head, table), 8, 0)
  assert np.unique(labels).tolist() == [0, 2]
  how = ccvr.Calibration(8, epochs=2, learning_rate=0.1)
  found = np.asarray(ccvr.trained(head, table, features, labels, how, 0))
  np.testing.assert_array_equal(found[[1, 3]], table[[1, 3]])
  np.testing.assert_array_equal(found[:, -1], table[:, -1])
  assert np.abs(found - table)[[0, 2]].max() > 1e-2
  for other in (heads.CosineHead(4.0), heads.LinearHead()):
    same = ccvr.with_rows(gaussians, other, table)
    np.testing.assert_array_equal(same.counts, gaussians.counts)


def test_what_is_too_large_is_refused():
  with pytest.raises(errors.InputError, match='embedding_dim'):
    ccvr.joined([], 10**6, 512)
  with pytest.raises(errors.InputError, match='--calibrate='):
    ccvr.virtual(_joined(), 2**30, 0)
