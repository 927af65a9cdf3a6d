"""The perceptron of dense rows, against NumPy."""

import numpy as np
import tensorflow as tf

from tff_xc.encoders import mlp


def test_it_is_two_hidden_layers_and_a_linear_one():
  encoder = mlp.build_dense_mlp_encoder(5, 7, 3)
  weights = encoder.init(tf.constant([1, 2]))
  shapes = {name: tuple(w.shape) for name, w in weights.items()}
  assert shapes == {
    'hidden0/kernel': (7, 5),
    'hidden0/bias': (7,),
    'hidden1/kernel': (7, 7),
    'hidden1/bias': (7,),
    'dense/kernel': (3, 7),
    'dense/bias': (3,),
  }
  x = np.random.default_rng(0).normal(size=[4, 5]).astype(np.float32)
  found, state = encoder.apply(weights, {}, x, True, tf.constant([0, 0]))
  h = x
  for layer in ('hidden0', 'hidden1'):
    h = np.maximum(h @ weights[f'{layer}/kernel'].numpy().T, 0)
  np.testing.assert_allclose(
    found, h @ weights['dense/kernel'].numpy().T, rtol=1e-5, atol=1e-6
  )
  assert not state
  assert encoder.batch_spec() == tf.TensorSpec([None, 5], tf.float32)
  again = encoder.init(tf.constant([1, 2]))
  other = encoder.init(tf.constant([1, 3]))
  for name in ('hidden0/kernel', 'hidden1/kernel', 'dense/kernel'):
    np.testing.assert_array_equal(weights[name], again[name])
    assert (weights[name].numpy() != other[name].numpy()).all()
