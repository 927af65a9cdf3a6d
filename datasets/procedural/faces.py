"""Procedural portraits in the shape of LEAF's CelebA: who smiles.

An embedded data set: nothing is stored or downloaded. A celebrity is a seeded
identity, and each photograph has a seeded pose, light and background; the label decides
how the mouth curves, more or less. An image depends only on (seed, celebrity, number of
the photograph), not on the order in which clients are loaded.
"""

from collections.abc import Callable

import numpy as np
import scipy.special
import tensorflow as tf

from datasets.procedural import glyph_strokes
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import partition
from tff_xc.data import pool

SIDE = 84
CELEBRITIES, _TEST_CELEBRITIES = 9_343, 935  # LEAF's; the last are the test.
# Normal and cut, numbers of photographs are 21.4 ± 7.6 in the mean, as LEAF's.
_MEAN, _DEVIATION, _FEWEST, _MOST = 21.5, 8.1, 5, 35
# Celebrities differ in how often they smile, by a Beta distribution.
_SMILING, _ALIKE = 0.482, 4.0
_TEST_EXAMPLES = 1_000
# Of keys, the first part after the seed, and of numpy generators.
_PERSON, _PHOTOGRAPH, _SIZES, _LABELS, _SAMPLE = range(5)
_LAYERS, _NUMBERS = 13, 64
_CHUNK = 8  # images whose work arrays stay in a core's cache
# How far a mouth's corners are above its middle, in half heights of a face.
_SMILE, _NO_SMILE = (0.02, 0.3), (-0.14, 0.06)
# Red, green, blue in [0, 1].
_SKIN = np.array([[0.36, 0.22, 0.15], [0.98, 0.83, 0.72]], np.float32)
_HAIR = np.array(
  [
    *([0.07, 0.06, 0.06], [0.22, 0.13, 0.08], [0.4, 0.24, 0.12]),
    *([0.84, 0.68, 0.4], [0.52, 0.2, 0.1], [0.62, 0.61, 0.6]),
  ],
  np.float32,
)
_IRIS = np.array(
  [[0.2, 0.1, 0.05], [0.25, 0.4, 0.6], [0.3, 0.4, 0.2]], np.float32
)


def load(
  *, celebrities: int = CELEBRITIES, seed: int = 0
) -> client_data.FederatedDataset:
  """Makes the data set; images are drawn on demand, uint8 [84, 84, 3].

  A tenth of the celebrities, and a seeded sample of at most 1,000 of their photographs,
  are the test; the others are the clients. InputError for fewer than 10 celebrities.
  """
  if celebrities < 10:
    raise errors.InputError(
      f'celebrities is {celebrities}; give at least 10, of which 1 is the test'
    )
  random = lambda stream: np.random.default_rng([seed, stream])
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
  first = offsets[clients]  # Of the test.
  rest = len(labels) - first
  sample = random(_SAMPLE).choice(
    rest, min(rest, _TEST_EXAMPLES), replace=False
  )
  ids = [f'celebrity{c:04d}' for c in range(clients)]
  return client_data.FederatedDataset(
    name='faces',
    num_classes=2,
    train=client_data.PartitionedClientData(
      # Not kept: with so many clients few take part twice.
      everything.subset(np.arange(first)),
      partition.Partition(ids, offsets[: clients + 1], np.arange(first)),
    ),
    test=pool.cached(everything.subset(first + np.sort(sample))),
    exact=False,  # The machine's sines and products draw, in float32.
  )


def draw_faces(
  person: np.ndarray, photograph: np.ndarray, smiling: np.ndarray
) -> np.ndarray:
  """Draws a portrait for each key of a person and a photograph, uint64 [B], and bool [B].

  Returns uint8 [B, 84, 84, 3].
  """
  images = np.empty([len(person), SIDE, SIDE, 3], np.uint8)
  for start in range(0, len(person), _CHUNK):
    part = slice(start, start + _CHUNK)
    images[part] = _draw(person[part], photograph[part], smiling[part])
  return images


def _ranges(key: np.ndarray) -> Callable:
  """Returns a function that draws further numbers between bounds, [B, 1, 1]."""
  numbers = iter(glyph_strokes.uniforms(key, _NUMBERS).T[..., None, None])
  return lambda low=0.0, high=1.0: low + (high - low) * next(numbers)


def _colour(draw, low, high):
  """Draws a colour, [B, 3]."""
  return np.concatenate([draw(low, high)[:, 0] for _ in range(3)], axis=1)


def _cut(weight):
  """Cuts at 0 and 1, in place."""
  np.maximum(weight, 0, out=weight)
  return np.minimum(weight, 1, out=weight)


def _draw(person, photograph, smiling):
  """Returns uint8 [B, 84, 84, 3]: the mean of colours, by the weights of layers."""
  who, how = _ranges(person), _ranges(photograph)
  line = (np.arange(SIDE, dtype=np.float32) + 0.5) * (2 / SIDE) - 1
  x, y = line[None, None, :], line[None, :, None]
  # Coordinates of the face: its half height is 1, u grows to the right, v downward.
  size = who(0.6, 0.7) * how(0.92, 1.08)
  turn = how(-0.16, 0.16)
  cos, sin = np.cos(turn) / size, np.sin(turn) / size
  left, top = x - how(-0.1, 0.1), y - how(-0.06, 0.1)
  u, v = cos * left + sin * top, cos * top - sin * left
  scale = size * (SIDE / 2)  # Pixels of a unit of u and v.
  # Signed depth, in units -> weights, whose edges are a pixel wide.
  soft = lambda depth: _cut(depth * scale + 0.5)

  def oval(a, b, p, q):
    # The depth's linear form at the edge.
    steep = np.minimum(p, q) * (scale / 2)
    root = np.sqrt(steep)
    weight, other = a * (root / p), b * (root / q)
    np.square(weight, out=weight)
    np.square(other, out=other)
    weight += other
    return _cut(np.subtract(steep + 0.5, weight, out=weight))

  weights = np.empty([len(u), _LAYERS, SIDE, SIDE], np.float32)
  colours = np.empty([len(u), 3, _LAYERS], np.float32)
  layer = iter(range(_LAYERS))

  def add(weight, colour):
    number = next(layer)
    weights[:, number] = weight
    colours[:, :, number] = colour

  tone = who()[:, 0]
  skin = _SKIN[0] + np.sqrt(tone) * (_SKIN[1] - _SKIN[0])
  skin = skin + _colour(who, -0.03, 0.03)
  # The darkest skins have dark hair.
  shades = np.minimum(2 + tone * 8, len(_HAIR))
  hair = (
    _HAIR[(who()[:, 0] * shades)[:, 0].astype(np.int64)] * who(0.8, 1.2)[:, 0]
  )
  # The background has two colours, the person's and the photograph's.
  add(1, _muted(_colour(how, 0.05, 0.95)))
  angle = how(0, 2 * np.pi)
  slope = how(0.2, 1.5)
  wave = slope * np.cos(angle) * x + (slope * np.sin(angle) * y + 0.5)
  add(_cut(wave), _muted(_colour(who, 0.05, 0.95)))
  # Hair behind the head, clothes, neck, face, hair before it.
  wide, jaw, long = who(0.7, 0.82), who(0, 0.16), np.maximum(who(-1, 1), 0)
  behind = wide + who(0.1, 0.28), 1.06 + 0.5 * long
  add(oval(u, v + (0.12 - 0.45 * long), *behind), hair)
  add(oval(u, v - 2.25, 1.5, np.float32(1)), _muted(_colour(how, 0.05, 0.95)))
  neck = soft(np.float32(0.36) - np.abs(u)) * (v > 0) * (v < 1.42)
  add(neck, skin * 0.82)
  narrow = wide - wide * jaw * np.maximum(v, 0)
  add(oval(u, v, narrow, np.float32(1)), skin)
  fringe = soft(
    who(-0.68, -0.45) - v + u * (who(-0.35, 0.35) + who(-0.1, 0.5) * u)
  )
  add(oval(u, v, wide + 0.06, np.float32(1.06)) * fringe, hair)
  # Eyes, brows, nose and mouth move as the head turns away.
  f = u - how(-0.12, 0.12)
  side = np.abs(f) - who(0.27, 0.35)  # Of the middle of an eye.
  up = v - who(-0.2, -0.08)
  closed, tall = how(0.6, 1.1), who(0.055, 0.085)
  iris = _IRIS[(who()[:, 0, 0] * len(_IRIS)).astype(np.int64)]
  add(oval(side, up, np.float32(0.15), tall * closed), 0.93)
  add(oval(side, up, np.float32(0.065), 0.065 * closed), iris)
  raised = np.abs(up + who(0.15, 0.2) + who(-0.15, 0.15) * side)
  add(
    soft(np.minimum(who(0.018, 0.04) - raised, 0.18 - np.abs(side))), hair * 0.7
  )
  add(oval(f, v - 0.25, who(0.09, 0.15), who(0.04, 0.07)), skin * 0.75)
  # The label bends and widens the mouth, and opens it.
  bend = np.where(smiling[:, None, None], how(*_SMILE), how(*_NO_SMILE))
  bend = (bend + who(-0.05, 0.05)).astype(np.float32)
  along = np.square(f / (who(0.24, 0.32) * (1 + np.maximum(bend, 0))))
  apart = np.abs(v - who(0.5, 0.58) - bend * (0.5 - along))
  taper = np.sqrt(np.maximum(1 - along, 0))
  gap = np.maximum(how(-0.05, 0.06) + 0.25 * np.maximum(bend, 0), 0)
  lips = skin * np.float32([0.85, 0.5, 0.5])
  add(soft((who(0.035, 0.06) + gap) * taper - apart) * (along < 1), lips)
  teeth = np.where(how() < who(0.2, 1.0), 0.92, 0.12)[:, 0]
  add(soft(gap * taper - apart) * (along < 1), teeth)
  left = 1 - weights[:, -1]
  for number in reversed(range(_LAYERS - 1)):
    weights[:, number] *= left
    left -= weights[:, number]
  # Light from one side, of some colour.
  angle, bright = how(0, 2 * np.pi), how(0, 0.3)
  light = bright * np.cos(angle) * x + (
    bright * np.sin(angle) * y + how(0.65, 1.15)
  )
  colours *= 255 * _colour(how, 0.92, 1.08)[:, :, None]
  image = colours @ weights.reshape(len(u), _LAYERS, -1)
  image *= light.reshape(len(u), 1, -1)
  image += 0.5
  image = np.minimum(image, 255, out=image).astype(np.uint8)
  return image.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)


def _muted(colour):
  """Returns a colour nearer to its grey."""
  return 0.5 * (colour + colour.mean(axis=1, keepdims=True))
