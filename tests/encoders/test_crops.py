"""Random crops: their distribution, their pixels, and their dependence on seeds."""

import collections

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tff_xc.encoders import conv, crops

STORED, SIDE, COUNT = 12, 8, 4_000


def places(count=COUNT, stored=STORED):
  """Returns images whose pixel (i, j) is (scale i, scale j, 7)."""
  row, column = np.meshgrid(*[np.arange(stored)] * 2, indexing='ij')
  scale = 255 // stored
  one = np.stack([row * scale, column * scale, np.full_like(row, 7)], -1)
  return tf.constant(np.tile(one.astype(np.uint8), [count, 1, 1, 1]))


def seed(number=0):
  return tf.constant([5, number])


def test_a_random_square_lies_anywhere_alike_often():
  x = crops.anywhere(places(), SIDE, seed()).numpy()
  assert (x.shape, x.dtype) == ((COUNT, SIDE, SIDE, 3), np.uint8)
  scale = 255 // STORED
  starts = x[:, 0, 0, :2] // scale
  naive = places(1).numpy()[0]
  for image, (top, left) in zip(x[:200], starts, strict=False):
    np.testing.assert_array_equal(image, naive[top : top + SIDE, left : left + SIDE])
  found = collections.Counter(map(tuple, starts))
  assert len(found) == 25  # There are (12 - 8 + 1)² positions.
  assert scipy.stats.chisquare(list(found.values())).pvalue > 1e-3


def naive_box(random):
  """Draws boxes by the definition, until one of them lies in the image."""
  while True:
    area = random.uniform(0.08, 1.0)
    aspect = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
    height, width = np.sqrt(area / aspect), np.sqrt(area * aspect)
    if height <= 1 and width <= 1:
      top, left = random.uniform(0, 1 - height), random.uniform(0, 1 - width)
      return top, left, height, width


def test_boxes_have_the_distribution_of_a_naive_sampler():
  boxes = crops.random_boxes(COUNT, seed()).numpy()
  top, left, bottom, right = boxes.T
  assert 0.46 < (left > right).mean() < 0.54
  left, right = np.minimum(left, right), np.maximum(left, right)
  assert boxes.min() >= 0
  assert boxes.max() <= 1 + 1e-6
  found = {
    'area': (bottom - top) * (right - left),
    'aspect': (right - left) / (bottom - top),
    'top': top,
    'left': left,
  }
  random = np.random.default_rng(0)
  naive = np.array([naive_box(random) for _ in range(COUNT)]).T
  expected = {
    'area': naive[2] * naive[3],
    'aspect': naive[3] / naive[2],
    'top': naive[0],
    'left': naive[1],
  }
  for name, values in found.items():
    assert scipy.stats.ks_2samp(values, expected[name]).pvalue > 1e-3, name
  assert found['area'].min() >= 0.0799
  assert found['aspect'].min() >= 0.7499
  assert found['aspect'].max() <= 4 / 3 + 1e-4


def test_a_scaled_part_has_the_pixels_of_its_box():
  count, scale = 50, 255 // STORED
  x = crops.scaled(places(count), SIDE, seed(3)).numpy().astype(float)
  boxes = crops.random_boxes(count, seed(3)).numpy()
  for image, (top, left, bottom, right) in zip(x, boxes, strict=True):

    def line(start, stop):
      return np.linspace(start, stop, SIDE) * (STORED - 1) * scale

    rows = np.repeat(line(top, bottom)[:, None], SIDE, 1)
    columns = np.repeat(line(left, right)[None], SIDE, 0)
    np.testing.assert_allclose(image[..., 0], rows, atol=0.51)
    np.testing.assert_allclose(image[..., 1], columns, atol=0.51)
    assert (image[..., 2] == 7).all()


def test_a_rotation_turns_about_the_middle_and_reflects_the_edge():
  x = places(200, 16)
  turned = crops.rotated(x, 30.0, seed()).numpy().astype(float)
  assert turned.shape == x.shape
  assert (turned[..., 2] == 7).all()  # The corners are not black.
  # In the middle, rows and columns are linear, with the slopes cos and sin of the angle.
  row, column = turned[:, 9, 8, 0] - turned[:, 7, 8, 0], turned[:, 8, 9, 0]
  column = column - turned[:, 8, 7, 0]
  angles = np.degrees(np.arctan2(column, row))
  assert np.abs(angles).max() < 32
  assert np.abs(angles).max() > 25
  assert scipy.stats.kstest(angles / 60 + 0.5, 'uniform').pvalue > 1e-3


@pytest.mark.parametrize('crop', ['random', 'scale', 'middle'])
@pytest.mark.parametrize('channels', [None, 3])
def test_training_crops_by_the_seed_and_a_test_takes_the_middle(crop, channels):
  inner = conv.build_conv_encoder(image_size=SIDE, channels=channels, embedding_dim=4)
  # Test that crops alone, and rotations alone, depend on the seed.
  encoder = crops.cropped(inner, STORED, crop, 10.0 if crop == 'middle' else 0)
  assert encoder.example_spec.shape[:2] == [STORED, STORED]
  weights = encoder.init(seed())
  x = np.random.default_rng(0).integers(0, 256, [6, *encoder.example_spec.shape], np.uint8)

  def embed(training, s):
    return encoder.apply(weights, {}, tf.constant(x), training, seed(s))[0].numpy()

  middle, _ = inner.apply(weights, {}, x[:, 2:10, 2:10], False, seed())
  np.testing.assert_array_equal(embed(False, 1), middle)
  np.testing.assert_array_equal(embed(False, 2), middle)
  np.testing.assert_array_equal(embed(True, 1), embed(True, 1))
  assert not np.array_equal(embed(True, 1), embed(True, 2))
