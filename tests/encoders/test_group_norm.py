"""GroupNorm and its gradients equal the layers of Keras and tensorflow-addons."""

import numpy as np
import pytest
import tensorflow as tf

from tff_xc.encoders import layers

RANDOM = np.random.default_rng(0)


def implementations(groups, epsilon, shape):
  import tensorflow_addons as tfa

  for kind in (tf.keras.layers.GroupNormalization, tfa.layers.GroupNormalization):
    layer = kind(groups, epsilon=epsilon)
    layer.build(shape)
    yield layer


@pytest.mark.parametrize(
  ('shape', 'groups', 'epsilon', 'mean'),
  [
    ((4, 6, 5, 16), 8, 1e-3, 0.0),
    ((3, 1, 1, 24), 8, 1e-3, 1.0),  # As in the last blocks for a small image.
    ((2, 7, 7, 8), 1, 1e-5, 20.0),  # The mean is far from zero.
    ((5, 4, 4, 6), 6, 1e-3, -2.0),  # Each group has one channel.
  ],
)
def test_it_equals_two_other_implementations(shape, groups, epsilon, mean):
  x, upstream = RANDOM.normal(size=[2, *shape]).astype(np.float32)
  x = tf.constant(x + np.float32(mean))
  scale, offset = RANDOM.normal(size=[2, shape[-1]]).astype(np.float32)
  given = [x, tf.constant(scale), tf.constant(offset)]
  with tf.GradientTape() as tape:
    tape.watch(given)
    weights = {'n/scale': given[1], 'n/offset': given[2]}
    y = layers.group_norm(x, weights, 'n', groups, epsilon)
    loss = tf.reduce_sum(y * upstream)
  found = y, *tape.gradient(loss, given)
  for layer in implementations(groups, epsilon, shape):
    layer.gamma.assign(scale)
    layer.beta.assign(offset)
    with tf.GradientTape() as tape:
      tape.watch(x)
      y = layer(x)
      loss = tf.reduce_sum(y * upstream)
    expected = y, *tape.gradient(loss, [x, layer.gamma, layer.beta])
    for ours, theirs in zip(found, expected, strict=True):
      size = max(np.abs(theirs).max(), 1.0)
      np.testing.assert_allclose(ours, theirs, atol=1e-5 * size)
