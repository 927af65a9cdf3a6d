"""The residual networks for CIFAR."""

import numpy as np
import pytest
import tensorflow as tf

from tff_xc import errors
from tff_xc.encoders import resnet

RANDOM = np.random.default_rng(0)
SEED = np.int32([3, 4])
IMAGES = RANDOM.integers(0, 256, size=(5, 32, 32, 3), dtype=np.uint8)


def initial(encoder, seed=1):
  return encoder.init(tf.constant([0, seed]))


def embed(encoder, weights, x=IMAGES, training=False, seed=SEED):
  z, _ = encoder.apply(weights, {}, tf.constant(x), training, seed)
  return z.numpy()


# A reference network in NumPy and float64.


def naive_conv(x, kernel, stride):
  side = -(-x.shape[1] // stride)
  before = max((side - 1) * stride + 3 - x.shape[1], 0) // 2
  x = np.pad(x, [[0, 0], [before, 2], [before, 2], [0, 0]])
  out = np.zeros([len(x), side, side, kernel.shape[-1]])
  for i in range(side):
    for j in range(side):
      row, column = i * stride, j * stride
      window = x[:, row : row + 3, column : column + 3]
      out[:, i, j] = np.tensordot(window, kernel, 3)
  return out


def naive_norm(x, scale, offset, groups):
  out = np.empty_like(x)
  width = x.shape[-1] // groups
  for image in range(len(x)):
    for start in range(0, x.shape[-1], width):
      part = x[image, :, :, start : start + width]
      out[image, :, :, start : start + width] = (part - part.mean()) / np.sqrt(part.var() + 1e-5)
  return out * scale + offset


def naive_layer(weights, layer, x, stride, groups):
  x = naive_conv(x, weights[f'{layer}/kernel'], stride)
  scale, offset = weights[f'{layer}/scale'], weights[f'{layer}/offset']
  return naive_norm(x, scale, offset, groups)


def naive_resnet(weights, x, depth, groups):
  mean = np.array([125.3, 123.0, 113.9])
  h = (x - mean) / np.array([63.0, 62.1, 66.7])
  h = np.maximum(naive_layer(weights, 'conv', h, 1, groups), 0)
  for stage in (1, 2, 3):
    for block in range((depth - 2) // 6):
      name, halve = f'stage{stage}/block{block}', stage > 1 and block == 0
      stride = 2 if halve else 1
      inner = naive_layer(weights, f'{name}/conv0', h, stride, groups)
      inner = np.maximum(inner, 0)
      inner = naive_layer(weights, f'{name}/conv1', inner, 1, groups)
      if halve:
        zeros = np.zeros_like(h[:, ::2, ::2])
        h = np.concatenate([h[:, ::2, ::2], zeros], axis=-1)
      h = np.maximum(inner + h, 0)
  return h.mean((1, 2)) @ weights['dense/kernel'].T + weights['dense/bias']


@pytest.mark.parametrize(('depth', 'groups'), [(8, 8), (14, 2)])
def test_the_network_equals_one_in_numpy(depth, groups):
  encoder = resnet.build_resnet_encoder(depth=depth, embedding_dim=7, image_size=8, groups=groups)
  weights = {
    name: w.numpy() + RANDOM.normal(0, 0.1, w.shape) for name, w in initial(encoder).items()
  }
  x = IMAGES[:, :8, :8]
  assert encoder.example_spec == tf.TensorSpec([8, 8, 3], tf.uint8)
  single = {k: w.astype(np.float32) for k, w in weights.items()}
  z, expected = (embed(encoder, single, x), naive_resnet(weights, x, depth, groups))
  np.testing.assert_allclose(z, expected, atol=1e-4)
  assert z.shape == (5, 7)
  assert z.min() < 0 < z.max()


@pytest.mark.parametrize(('depth', 'parameters'), [(8, 78_800), (20, 273_232), (56, 856_528)])
def test_the_number_of_parameters_is_as_counted_by_hand(depth, parameters):
  weights = initial(resnet.build_resnet_encoder(depth=depth))
  assert sum(w.shape.num_elements() for w in weights.values()) == parameters


def test_images_are_augmented_in_training_only_and_by_the_seed():
  encoder = resnet.build_resnet_encoder()
  plain = resnet.build_resnet_encoder(augment=False)
  weights = initial(encoder)
  test = embed(encoder, weights)
  first = embed(encoder, weights, training=True)
  other = embed(encoder, weights, training=True, seed=tf.constant([3, 5]))
  np.testing.assert_array_equal(test, embed(encoder, weights, seed=None))
  np.testing.assert_array_equal(test, embed(plain, weights, training=True))
  np.testing.assert_array_equal(first, embed(encoder, weights, training=True))
  assert np.abs(first - test).max() > 1e-3
  assert np.abs(first - other).max() > 1e-3


def test_a_shift_is_one_of_the_162_crops_and_each_image_has_its_own():
  image = RANDOM.normal(size=(6, 6, 2)).astype(np.float32)
  padded = np.pad(image, [[4, 4], [4, 4], [0, 0]])
  crops = {
    crop[:, ::flip].tobytes(): (i, j, flip)
    for i in range(9)
    for j in range(9)
    for crop in [padded[i : i + 6, j : j + 6]]
    for flip in (1, -1)
  }
  batch = np.repeat(image[None], 4000, axis=0)
  with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
    # TFF traces training in such a graph, where `==` compares the identities of tensors.
    shifted = session.run(resnet.shift(tf.constant(batch), SEED))
  np.testing.assert_array_equal(shifted, resnet.shift(batch, SEED))
  drawn = [crops[x.tobytes()] for x in shifted]
  assert len(set(drawn)) == len(crops) == 162
  # The shifts down and right and the mirroring are uniform and independent.
  down, right, flip = np.array(drawn).T
  for draw in (down, right):
    assert np.bincount(draw) == pytest.approx(np.full(9, 4000 / 9), rel=0.25)
  assert np.mean(flip == 1) == pytest.approx(0.5, abs=0.04)
  assert np.abs(np.corrcoef([down, right, flip]) - np.eye(3)).max() < 0.06


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ({'depth': 10}, '6n'),
    ({'depth': 2}, '6n'),
    ({'groups': 3}, 'divide 16'),
    ({'groups': 0}, 'divide 16'),
    ({'image_size': 3}, 'at least 4'),
  ],
)
def test_bad_arguments_are_refused(argument, message):
  with pytest.raises(errors.InputError, match=message):
    resnet.build_resnet_encoder(**argument)


def test_shifting_pads_with_the_mean_colour():
  encoder = resnet.build_resnet_encoder(image_size=8)
  mean = np.broadcast_to(np.float32([125.3, 123.0, 113.9]), [3, 8, 8, 3])
  weights = initial(encoder)
  np.testing.assert_allclose(
    embed(encoder, weights, mean, training=True), embed(encoder, weights, mean), atol=1e-4
  )
