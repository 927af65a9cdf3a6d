"""Compares the bag-of-features encoder with TensorFlow's lookup and with NumPy."""

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from tests import tiny_sparse
from tff_xc.data import sparse
from tff_xc.encoders import bag, encoder

LISTS = [[0, 3, 8], [], [5], [2, 3]]


def lookup(table, x):
  """Returns the weighted means in the paper, which are zero for examples without features."""
  values = tf.RaggedTensor.from_row_splits(x.values, x.row_splits).to_sparse()
  ids = tf.RaggedTensor.from_row_splits(x.ids, x.row_splits).to_sparse()
  return tf.nn.safe_embedding_lookup_sparse(table, ids, values, combiner='mean')


def draw(seed=0):
  table = np.random.default_rng(seed).normal(size=[9, 6]).astype(np.float32)
  return tf.constant(table)


def tensors(x):
  return sparse.SparseFeatures(*map(tf.constant, x))


def test_features_without_a_positive_value_do_not_count():
  table, x = draw(), tiny_sparse.features([[0, 3, 8], [4]])
  x = tensors(x._replace(values=np.float32([1.0, -2.0, 3.0, 0.0])))
  expected = np.stack([0.25 * table[0] + 0.75 * table[8], np.zeros(6)])
  np.testing.assert_allclose(bag.weighted_mean(table, x), expected, atol=1e-6)


def test_the_mean_and_its_gradient_are_those_of_tensorflows_lookup():
  table, x = draw(), tensors(tiny_sparse.features(LISTS))
  towards = draw(1)[:4]
  found = []
  for function in (bag.weighted_mean, lookup):
    with tf.GradientTape() as tape:
      tape.watch(table)
      mean = function(table, x)
      loss = tf.reduce_sum(mean * towards)
    gradient = tf.convert_to_tensor(tape.gradient(loss, table))
    found.append(np.concatenate([mean, gradient]))
  np.testing.assert_allclose(*found, atol=1e-6)
  np.testing.assert_array_equal(found[0][1], np.zeros(6))


def test_the_encoder_is_layers_and_unit_norm():
  model = tiny_sparse.model()
  weights = model.init(tf.constant([1, 2]))
  x = tensors(tiny_sparse.features(LISTS))
  h = lookup(weights.tables['feature'], x).numpy()
  for i in range(3):
    kernel, bias = (weights.encoder[f'dense{i}/{part}'].numpy() for part in ('kernel', 'bias'))
    h = h @ kernel.T + bias
    h = np.maximum(h, 0) if i < 2 else h
  norms = np.linalg.norm(h, axis=1, keepdims=True)
  expected = np.divide(h, norms, out=np.zeros_like(h), where=norms > 0)
  np.testing.assert_allclose(model.embed(weights, x), expected, atol=1e-5)


@pytest.mark.parametrize('places', [[], [2], [3, 0, 0, 1]])
def test_taking_examples_is_the_same_in_tensorflow_and_numpy(places):
  x = tiny_sparse.features(LISTS)
  places = np.array(places, np.int32)
  found = tf.function(encoder.take)(tensors(x), tf.constant(places))
  matrix = scipy.sparse.csr_matrix((x.values, x.ids, x.row_splits))
  expected = sparse.as_tensors(matrix[places])
  for a, b in zip(found, expected, strict=True):
    np.testing.assert_array_equal(a, b)
    assert a.dtype == b.dtype
