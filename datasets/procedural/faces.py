"""Synthetic portraits, similar to LEAF's CelebA. The label is whether a person smiles.

Nothing is stored or downloaded. The seed determines the looks of each celebrity, and the
pose, light and background of each photograph. The label largely determines how the mouth
curves. An image depends only on its label, the seed, the celebrity and the photograph's
index. It does not depend on the order in which the program loads clients.
"""

from collections.abc import Callable

import numpy as np
import scipy.special
import tensorflow as tf

from datasets.procedural import glyph_strokes
from tff_xc import errors
from tff_xc.data import client_data, partition, pool

SIDE = 84
CELEBRITIES, _TEST_CELEBRITIES = 9_343, 935  # As in LEAF. The last celebrities are for the test.
# The number of photographs per celebrity has a clipped normal distribution, with the mean
# and standard deviation of LEAF's CelebA, 21.4 ± 7.6.
_MEAN, _DEVIATION, _FEWEST, _MOST = 21.5, 8.1, 5, 35
# The mean and the concentration of the Beta distribution of celebrities' shares of smiles.
_SMILING, _ALIKE = 0.482, 4.0
_TEST_EXAMPLES = 1_000
# A key is a hash of the seed, one of these numbers, and the indices of a celebrity and a
# photograph. A random generator has the seed [seed, number].
_PERSON, _PHOTOGRAPH, _SIZES, _LABELS, _SAMPLE = range(5)
_LAYERS, _NUMBERS = 13, 64
_CHUNK = 8  # The temporary arrays of this many images fit into the cache of a processor core.
# The height of a mouth's corners above its middle. The unit is half the height of a face.
_SMILE, _NO_SMILE = (0.02, 0.3), (-0.14, 0.06)
# Colours are red, green and blue in [0, 1].
_SKIN = np.array([[0.36, 0.22, 0.15], [0.98, 0.83, 0.72]], np.float32)
_HAIR = np.array(
  [
    [0.07, 0.06, 0.06],
    [0.22, 0.13, 0.08],
    [0.4, 0.24, 0.12],
    [0.84, 0.68, 0.4],
    [0.52, 0.2, 0.1],
    [0.62, 0.61, 0.6],
  ],
  np.float32,
)
_IRIS = np.array([[0.2, 0.1, 0.05], [0.25, 0.4, 0.6], [0.3, 0.4, 0.2]], np.float32)


def load(*, celebrities: int = CELEBRITIES, seed: int = 0) -> client_data.FederatedDataset:
  """Makes the data set; images, uint8 [84, 84, 3], are drawn when they are used.

  A tenth of the celebrities are for the test. The test set is a random sample of at most
  1,000 photographs of these celebrities. All other celebrities are the clients. Raises
  InputError if there are fewer than 10 celebrities.
  """
  if celebrities < 10:
    raise errors.InputError(
      f'celebrities is {celebrities}; give at least 10, of which 1 is the test'
    )

  def random(stream):
    return np.random.default_rng([seed, stream])

  quantiles = (np.arange(celebrities) + 0.5) / celebrities
  sizes = _MEAN + _DEVIATION * scipy.special.ndtri(quantiles)
  sizes = np.clip(np.rint(sizes), _FEWEST, _MOST).astype(np.int64)
  offsets = np.append(0, np.cumsum(random(_SIZES).permutation(sizes)))
  draw = random(_LABELS)
  shares = draw.beta(_ALIKE * _SMILING, _ALIKE * (1 - _SMILING), celebrities)
  smiling = draw.random(offsets[-1]) < np.repeat(shares, np.diff(offsets))
  labels = smiling.astype(np.int32)

  def read(numbers):
    celebrity = np.searchsorted(offsets, numbers, side='right') - 1
    photograph = numbers - offsets[celebrity]
    return draw_faces(
      glyph_strokes.mix(seed, _PERSON, celebrity),
      glyph_strokes.mix(seed, _PHOTOGRAPH, celebrity, photograph),
      smiling[numbers],
    )

  spec = tf.TensorSpec([SIDE, SIDE, 3], tf.uint8)
  everything = pool.Pool(labels, spec, read)
  clients = celebrities - celebrities * _TEST_CELEBRITIES // CELEBRITIES
  first = offsets[clients]  # The first photograph of the test celebrities.
  rest = len(labels) - first
  sample = random(_SAMPLE).choice(rest, min(rest, _TEST_EXAMPLES), replace=False)
  ids = [f'celebrity{c:04d}' for c in range(clients)]
  return client_data.FederatedDataset(
    name='faces',
    num_classes=2,
    train=client_data.PartitionedClientData(
      # Do not cache images, because few of the thousands of clients participate twice.
      everything.subset(np.arange(first)),
      partition.Partition(ids, offsets[: clients + 1], np.arange(first)),
    ),
    test=pool.cached(everything.subset(first + np.sort(sample))),
    exact=False,  # The rounding of float32 sines and products depends on the machine.
  )


def draw_faces(person: np.ndarray, photograph: np.ndarray, smiling: np.ndarray) -> np.ndarray:
  """Draws a portrait for each person and photograph; returns uint8 [B, 84, 84, 3].

  `person` and `photograph` are keys, uint64 [B], and `smiling` is bool [B].
  """
  images = np.empty([len(person), SIDE, SIDE, 3], np.uint8)
  for start in range(0, len(person), _CHUNK):
    part = slice(start, start + _CHUNK)
    images[part] = _draw(person[part], photograph[part], smiling[part])
  return images


def _ranges(key: np.ndarray) -> Callable:
  """Returns a function that samples a number between two bounds for each key, uint64 [B].

  Each call of the function returns new numbers, [B, 1, 1].
  """
  numbers = iter(glyph_strokes.uniforms(key, _NUMBERS).T[..., None, None])
  return lambda low=0.0, high=1.0: low + (high - low) * next(numbers)


def _colour(draw: Callable, low: float, high: float) -> np.ndarray:
  """Samples a colour for each of B images, [B, 3]."""
  return np.concatenate([draw(low, high)[:, 0] for _ in range(3)], axis=1)


def _muted(draw: Callable) -> np.ndarray:
  """Samples a colour that is close to grey, [B, 3]."""
  colour = _colour(draw, 0.05, 0.95)
  return 0.5 * (colour + colour.mean(axis=1, keepdims=True))


def _chosen(draw: Callable, palette: np.ndarray, most=None) -> np.ndarray:
  """Samples a colour of a palette, [B, 3]. `most` limits the choice to the first colours."""
  most = len(palette) if most is None else most
  return palette[(draw()[:, 0] * most)[:, 0].astype(np.int64)]


def _cut(weight: np.ndarray) -> np.ndarray:
  """Clips weights to [0, 1] in place."""
  np.maximum(weight, 0, out=weight)
  return np.minimum(weight, 1, out=weight)


class _Canvas:
  """The layers of B images. A layer has a colour and opacities, and covers earlier layers."""

  def __init__(self, scale: np.ndarray):
    self._scale = scale  # Pixels per unit, [B, 1, 1].
    self._weights = np.empty([len(scale), _LAYERS, SIDE, SIDE], np.float32)
    self._colours = np.empty([len(scale), 3, _LAYERS], np.float32)
    self._layer = iter(range(_LAYERS))

  def soft(self, depth):
    """Returns the opacities of a shape with an edge of about one pixel.

    `depth` is the distance from the edge, positive inside the shape.
    """
    return _cut(depth * self._scale + 0.5)

  def oval(self, a, b, p, q):
    """Returns the opacities of the ellipse (a / p)² + (b / q)² < 1, with a soft edge."""
    steep = np.minimum(p, q) * (self._scale / 2)
    root = np.sqrt(steep)
    weight, other = a * (root / p), b * (root / q)
    np.square(weight, out=weight)
    np.square(other, out=other)
    weight += other
    return _cut(np.subtract(steep + 0.5, weight, out=weight))

  def add(self, weight, colour):
    layer = next(self._layer)
    self._weights[:, layer] = weight
    self._colours[:, :, layer] = colour

  def image(self, light, tint):
    """Combines the layers to images, uint8 [B, SIDE, SIDE, 3].

    `light` [B, SIDE, SIDE] is the brightness of each pixel, and `tint` [B, 3] is the colour
    of the light.
    """
    left = 1 - self._weights[:, -1]
    for layer in reversed(range(_LAYERS - 1)):
      self._weights[:, layer] *= left
      left -= self._weights[:, layer]
    colours = self._colours * (255 * tint[:, :, None])
    image = colours @ self._weights.reshape(len(light), _LAYERS, -1)
    image *= light.reshape(len(light), 1, -1)
    image += 0.5
    image = np.minimum(image, 255, out=image).astype(np.uint8)
    return image.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)


def _draw(person, photograph, smiling):
  """Draws a portrait for each of B persons and photographs, uint8 [B, SIDE, SIDE, 3]."""
  who, how = _ranges(person), _ranges(photograph)
  line = (np.arange(SIDE, dtype=np.float32) + 0.5) * (2 / SIDE) - 1
  x, y = line[None, None, :], line[None, :, None]
  # u and v are coordinates of the face. u points to the right and v down, and 1 is half the
  # height of the face.
  size = who(0.6, 0.7) * how(0.92, 1.08)
  turn = how(-0.16, 0.16)
  cos, sin = np.cos(turn) / size, np.sin(turn) / size
  left, top = x - how(-0.1, 0.1), y - how(-0.06, 0.1)
  u, v = cos * left + sin * top, cos * top - sin * left
  canvas = _Canvas(size * (SIDE / 2))
  tone = who()[:, 0]
  skin = _SKIN[0] + np.sqrt(tone) * (_SKIN[1] - _SKIN[0])
  skin = skin + _colour(who, -0.03, 0.03)
  # The darkest skins have dark hair.
  shades = np.minimum(2 + tone * 8, len(_HAIR))
  hair = _chosen(who, _HAIR, shades) * who(0.8, 1.2)[:, 0]
  # The background has two colours. One depends on the person, the other on the photograph.
  canvas.add(1, _muted(how))
  angle, slope = how(0, 2 * np.pi), how(0.2, 1.5)
  wave = slope * np.cos(angle) * x + (slope * np.sin(angle) * y + 0.5)
  canvas.add(_cut(wave), _muted(who))
  _add_head(canvas, u, v, who, how, skin, hair)
  # Eyes, brows, nose and mouth move as the head turns away.
  f = u - how(-0.12, 0.12)
  _add_features(canvas, f, v, who, how, skin, hair)
  _add_mouth(canvas, f, v, who, how, skin, smiling)
  # The light comes from one side and has a colour.
  angle, bright = how(0, 2 * np.pi), how(0, 0.3)
  light = bright * np.sin(angle) * y + how(0.65, 1.15)
  light = bright * np.cos(angle) * x + light
  return canvas.image(light, _colour(how, 0.92, 1.08))


def _add_head(canvas, u, v, who, how, skin, hair):
  """Adds hair behind the head, clothes, neck, face, and hair in front of the face."""
  wide, jaw, long = who(0.7, 0.82), who(0, 0.16), np.maximum(who(-1, 1), 0)
  behind = wide + who(0.1, 0.28), 1.06 + 0.5 * long
  canvas.add(canvas.oval(u, v + (0.12 - 0.45 * long), *behind), hair)
  canvas.add(canvas.oval(u, v - 2.25, 1.5, 1.0), _muted(how))
  neck = canvas.soft(np.float32(0.36) - np.abs(u)) * (v > 0) * (v < 1.42)
  canvas.add(neck, skin * 0.82)
  narrow = wide - wide * jaw * np.maximum(v, 0)
  canvas.add(canvas.oval(u, v, narrow, np.float32(1)), skin)
  start, slant, bow = who(-0.68, -0.45), who(-0.35, 0.35), who(-0.1, 0.5)
  fringe = canvas.soft(start - v + u * (slant + bow * u))
  above = canvas.oval(u, v, wide + 0.06, np.float32(1.06))
  canvas.add(above * fringe, hair)


def _add_features(canvas, f, v, who, how, skin, hair):
  """Adds eyes, brows and nose."""
  side = np.abs(f) - who(0.27, 0.35)  # The distance from the middle of an eye.
  up = v - who(-0.2, -0.08)
  closed, tall = how(0.6, 1.1), who(0.055, 0.085)
  iris = _chosen(who, _IRIS)
  canvas.add(canvas.oval(side, up, np.float32(0.15), tall * closed), 0.93)
  canvas.add(canvas.oval(side, up, np.float32(0.065), 0.065 * closed), iris)
  raised = np.abs(up + who(0.15, 0.2) + who(-0.15, 0.15) * side)
  brow = np.minimum(who(0.018, 0.04) - raised, 0.18 - np.abs(side))
  canvas.add(canvas.soft(brow), hair * 0.7)
  nose = who(0.09, 0.15), who(0.04, 0.07)
  canvas.add(canvas.oval(f, v - 0.25, *nose), skin * 0.75)


def _add_mouth(canvas, f, v, who, how, skin, smiling):
  """Adds lips and, between the lips, teeth or darkness.

  A smile bends, widens and opens the mouth.
  """
  bend = np.where(smiling[:, None, None], how(*_SMILE), how(*_NO_SMILE))
  bend = (bend + who(-0.05, 0.05)).astype(np.float32)
  along = np.square(f / (who(0.24, 0.32) * (1 + np.maximum(bend, 0))))
  apart = np.abs(v - who(0.5, 0.58) - bend * (0.5 - along))
  taper = np.sqrt(np.maximum(1 - along, 0))
  gap = np.maximum(how(-0.05, 0.06) + 0.25 * np.maximum(bend, 0), 0)
  lips = canvas.soft((who(0.035, 0.06) + gap) * taper - apart) * (along < 1)
  canvas.add(lips, skin * np.float32([0.85, 0.5, 0.5]))
  teeth = np.where(how() < who(0.2, 1.0), 0.92, 0.12)[:, 0]
  canvas.add(canvas.soft(gap * taper - apart) * (along < 1), teeth)
