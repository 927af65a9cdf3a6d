"""GroupNorm equals Keras's and tensorflow-addons' layers, gradients included."""

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


def normalised(groups, epsilon):
  return lambda x, scale, offset: layers.group_norm(
    x, {'n/scale': scale, 'n/offset': offset}, 'n', groups, epsilon
  )


@pytest.mark.parametrize(
  ('shape', 'groups', 'epsilon', 'mean'),
  [
    ((4, 6, 5, 16), 8, 1e-3, 0.0),
    ((3, 1, 1, 24), 8, 1e-3, 1.0),  # The last blocks of a small image.
    ((2, 7, 7, 8), 1, 1e-5, 20.0),  # A mean far from zero.
    ((5, 4, 4, 6), 6, 1e-3, -2.0),  # One channel a group.
  ],
)
def test_it_equals_two_other_implementations(shape, groups, epsilon, mean):
  x, upstream = RANDOM.normal(size=[2, *shape]).astype(np.float32)
  x = tf.constant(x + np.float32(mean))
  scale, offset = RANDOM.normal(size=[2, shape[-1]]).astype(np.float32)

  def of(f):
    return _value_and_gradients(f, x, scale, offset, upstream)

  found = of(normalised(groups, epsilon))
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


def _value_and_gradients(function, x, scale, offset, upstream):
  given = [x, tf.constant(scale), tf.constant(offset)]
  with tf.GradientTape() as tape:
    tape.watch(given)
    y = function(*given)
    loss = tf.reduce_sum(y * upstream)
  return y, *tape.gradient(loss, given)


def test_the_gradient_is_that_of_the_formula_in_float64():
  shape, groups = (2, 3, 3, 4), 2
  x, upstream = RANDOM.normal(size=[2, *shape])
  scale, offset = RANDOM.normal(size=[2, 4])

  def loss(x, scale):
    y = np.empty_like(x)
    for image in range(2):
      for g in (slice(0, 2), slice(2, 4)):
        part = x[image, :, :, g]
        y[image, :, :, g] = (part - part.mean()) / np.sqrt(part.var() + 1e-3)
    return np.sum((y * scale + offset) * upstream)

  def single(a):
    return a.astype(np.float32)

  _, of_x, of_scale, of_offset = _value_and_gradients(
    normalised(groups, 1e-3),
    tf.constant(single(x)),
    single(scale),
    single(offset),
    single(upstream),
  )
  d_x, d_scale = RANDOM.normal(size=shape), RANDOM.normal(size=4)

  def slope(f):
    return (f(1e-5) - f(-1e-5)) / 2e-5

  assert np.sum(of_x * d_x) == pytest.approx(slope(lambda t: loss(x + t * d_x, scale)), rel=1e-4)
  assert np.sum(of_scale * d_scale) == pytest.approx(
    slope(lambda t: loss(x, scale + t * d_scale)), rel=1e-4
  )
  np.testing.assert_allclose(of_offset, upstream.sum((0, 1, 2)), rtol=1e-4)
