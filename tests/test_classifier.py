"""Tests heads, and the weights of an embedding classifier."""

import numpy as np
import pytest
import tensorflow as tf

from tests import tiny
from tff_xc import classifier, heads
from tff_xc.encoders import conv, layers

RANDOM = np.random.default_rng(0)
E, W = (RANDOM.normal(size=s).astype(np.float32) for s in ((4, 3), (6, 3)))


def test_logits_are_those_of_the_definitions():
  logits = heads.CosineHead(20.0).logits(E, W, None)
  norms = np.linalg.norm(E, axis=1)[:, None] * np.linalg.norm(W, axis=1)
  np.testing.assert_allclose(logits, 20 * E @ W.T / norms, rtol=1e-5)
  rows = np.concatenate([W, np.arange(6)[:, None]], axis=1).astype(np.float32)
  for head, table, added in (
    (heads.LinearHead(bias=True), rows, np.arange(6)),
    (heads.LinearHead(bias=False), W, 0),
  ):
    found = head.logits(E, table, None)
    np.testing.assert_allclose(found, E @ W.T + added, rtol=1e-5)
  table = heads.CosineHead().init(tf.constant([0, 1]), 2000, 64)
  np.testing.assert_allclose(np.var(table), 1 / 64, rtol=0.02)


@pytest.mark.parametrize(
  'head', [heads.CosineHead(20.0), heads.LinearHead(True), heads.LinearHead(False)]
)
def test_scoring_rows_rank_as_the_logits_do(head):
  table = head.init(tf.constant([1, 2]), 6, 3)
  assert table.shape == [6, head.row_dim(3)]
  rows, bias = head.scoring_rows(table)
  scores = E @ np.asarray(rows).T + (0 if bias is None else np.asarray(bias))
  logits = head.logits(E, table, None)
  np.testing.assert_array_equal(scores.argsort(1), np.argsort(logits, 1))


def test_a_zero_vector_stays_zero_with_a_finite_gradient():
  zero = tf.zeros([2, 3])
  with tf.GradientTape() as tape:
    tape.watch(zero)
    unit = layers.unit_norm(zero)
  assert np.isfinite(tape.gradient(unit, zero)).all()
  np.testing.assert_array_equal(unit, 0)


def test_weights_are_a_function_of_the_seed():
  a, b, c = (tiny.model().init(tf.constant([0, s])) for s in (1, 1, 2))
  tf.nest.map_structure(np.testing.assert_array_equal, a, b)
  assert not np.allclose(a.class_table, c.class_table)
  with pytest.raises(ValueError, match='repeats'):
    classifier.union({'a': 1}, {'a': 2})


def test_specs_have_every_weight():
  model = classifier.EmbeddingClassifier(conv.build_conv_encoder(), heads.CosineHead(), 964)
  specs, weights = model.weight_specs(), model.init(tf.constant([0, 0]))
  for spec, value in zip(tf.nest.flatten(specs), tf.nest.flatten(weights), strict=True):
    assert (spec.shape, spec.dtype) == (value.shape, value.dtype)
  # Convolutions 288 + 3 * 9216, scales and offsets 8 * 32, dense 288 * 64 + 64.
  sizes = [spec.shape.num_elements() for spec in specs.encoder.values()]
  assert sum(sizes) == 288 + 3 * 9216 + 256 + 288 * 64 + 64
