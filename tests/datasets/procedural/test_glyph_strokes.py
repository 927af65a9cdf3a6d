"""Compares strokes, handwritings and pixels with simple references."""

import numpy as np

from datasets.procedural import glyph_strokes


def _splitmix(x):
  """Computes a step of SplitMix64 with Python's integers."""
  word = 2**64 - 1
  z = (x + 0x9E3779B97F4A7C15) & word
  z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & word
  z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & word
  return z ^ (z >> 31)


def _draw(classes, hands, drawings, variation=1.0, image_size=28):
  return glyph_strokes.draw(
    glyph_strokes.mix(1, classes),
    glyph_strokes.mix(2, hands),
    glyph_strokes.mix(3, drawings),
    image_size=image_size,
    variation=variation,
  )


def test_hash_is_splitmix():
  # The published first outputs of the generator from state 0.
  first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
  assert [_splitmix(i * 0x9E3779B97F4A7C15 % 2**64) for i in range(3)] == first
  expected = _splitmix(_splitmix(_splitmix(7)) ^ _splitmix(2**40))
  assert glyph_strokes.mix(7, 2**40)[0] == expected


def test_uniforms_are_uniform_and_of_their_key_alone():
  keys = glyph_strokes.mix(0, np.arange(4000))
  u = glyph_strokes.uniforms(keys, 3, 2)
  assert u.shape == (4000, 3, 2)
  assert u.min() >= 0
  assert u.max() < 1
  counts = np.stack([np.histogram(c, 10, (0, 1))[0] for c in u.reshape(-1, 6).T])
  # Binomial(4000, 0.1) has a standard deviation of 19.
  assert np.abs(counts - 400).max() < 5 * 19
  corr = np.corrcoef(u.reshape(4000, 6).T) - np.eye(6)
  assert np.abs(corr).max() < 5 / np.sqrt(4000)
  np.testing.assert_array_equal(glyph_strokes.uniforms(keys[7:8], 3, 2), u[7:8])


def _naive_line(start, end, pen, size):
  """Draws a long straight line by the distance of each pixel's center to the line."""
  out = np.zeros([size, size])
  along = (end - start) / np.linalg.norm(end - start)
  for row in range(size):
    for column in range(size):
      offset = np.array([column + 0.5, row + 0.5]) - start
      distance = offset[0] * along[1] - offset[1] * along[0]
      dark = np.exp(-(distance**2) / (2 * pen**2))
      out[row, column] = np.clip((dark - 0.5) * pen / 0.59 + 0.5, 0, 1)
  return 255 * out


def test_ink_of_a_line_follows_the_distance_to_it():
  t = np.linspace(0, 1, 97)[:, None]
  for start, end, pen in (([-10.0, 3.0], [40.0, 20.0], 0.8), ([14.0, -20.0], [9.0, 50.0], 1.1)):
    start, end = np.array(start), np.array(end)
    edges = (start + t * (end - start))[None, None].astype(np.float32)

    def ink(present, edges=edges, pen=pen):
      return glyph_strokes._ink(edges, np.array([[present]]), np.array([pen], np.float32), 28)[0]

    expected = _naive_line(start, end, pen, 28)
    assert np.abs(ink(True) - expected).max() < 2
    assert ink(False).max() == 0


def test_an_image_is_the_same_in_any_batch():
  classes, hands = np.arange(200) % 37, np.arange(200) % 11
  whole = _draw(classes, hands, np.arange(200))
  assert whole.dtype == np.uint8
  order = np.random.default_rng(0).permutation(200)
  np.testing.assert_array_equal(_draw(classes[order], hands[order], order), whole[order])
  for i in (0, 63, 64, 199):
    one = _draw(classes[i : i + 1], hands[i : i + 1], np.array([i]))
    np.testing.assert_array_equal(one[0], whole[i])
