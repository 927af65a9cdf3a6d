"""Draws glyphs: images of handwritten symbols.

A class is a stroke program, a client has a handwriting ("hand"), and a drawing is one image.
Hashes of 64-bit keys determine all three. So a drawing needs no state, and is the same in
every batch and order. Unused classes and hands cost nothing.

A stroke program is 2 to 4 strokes between points of a 4×4 grid. Most strokes start at an end
of an earlier stroke. A stroke is a straight line, a corner, an arc (quadratic Bézier curve),
a wave (cubic), an ellipse or a line with an eyelet. Classes of a group share all strokes
except the last one. A hand slants, turns, stretches and scales all its drawings. Each hand
also has its own pen width and its own form of each class. All drawings of a hand differ a
little.
"""

import numpy as np

MAX_STROKES = 4
_GRID = 4  # The number of grid points per side.
_SEGMENTS = 48  # Segments per stroke. An even number puts a corner between two segments.
_CHUNK = 64  # The temporary arrays of this many drawings fit into a processor core's cache.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(*parts: int | np.ndarray) -> np.ndarray:
  """Hashes integers, or arrays of integers that can be broadcast together, to uint64 keys."""
  key = np.zeros(1, np.uint64)
  for part in parts:
    key = _splitmix(key ^ _splitmix(np.asarray(part).astype(np.uint64)))
  return key


def _splitmix(x: np.ndarray) -> np.ndarray:
  """Computes one step of SplitMix64 (Steele, Lea, Flood, 2014): uint64 -> uint64."""
  z = np.atleast_1d(x) + _GOLDEN
  z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return z ^ (z >> np.uint64(31))


def uniforms(key: np.ndarray, *shape: int) -> np.ndarray:
  """Makes random numbers in [0, 1) from each key: uint64 [B] -> float32 [B, *shape]."""
  count = int(np.prod(shape))
  steps = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
  bits = _splitmix(key[:, None] + steps) >> np.uint64(40)
  return (bits.astype(np.float32) * np.float32(2**-24)).reshape(-1, *shape)


def draw(
  class_key: np.ndarray,
  hand_key: np.ndarray,
  drawing_key: np.ndarray,
  *,
  image_size: int,
  variation: float,
  group_key: np.ndarray | None = None,
) -> np.ndarray:
  """Draws one glyph for each triple of keys, uint64 [B].

  Returns uint8 [B, image_size, image_size], 255 for ink and 0 for paper. If `variation` is
  0, all drawings of a class are equal.
  """
  images = np.empty([len(class_key), image_size, image_size], np.uint8)
  for start in range(0, len(class_key), _CHUNK):
    part = slice(start, start + _CHUNK)
    keys = class_key[part], hand_key[part], drawing_key[part]
    groups = None if group_key is None else group_key[part]
    edges, present, pen = _place(*keys, variation, groups)
    images[part] = _ink(edges * image_size, present, pen, image_size)
  return images


def _place(class_key, hand_key, drawing_key, variation, group_key=None):
  """Places the strokes of drawings on a page with sides of length 1.

  Returns three arrays: the points (x, y) of strokes, float32 [B, strokes, _SEGMENTS + 1, 2];
  whether each stroke exists, bool [B, strokes]; and the width of each pen, float32 [B]. The
  width is the standard deviation of a Gaussian, in pixels of an image of 28 x 28 pixels.
  """
  control, kind, present = program(class_key, group_key)
  hand = uniforms(hand_key, 6) * 2 - 1
  own = uniforms(mix(class_key, hand_key), MAX_STROKES, 4, 2) * 2 - 1
  once = uniforms(drawing_key, MAX_STROKES, 4, 2) * 2 - 1
  whole = uniforms(mix(drawing_key, 1), 4) * 2 - 1

  basis = _BASES[kind]  # [B, strokes, _SEGMENTS + 1, 4]
  ideal = basis @ control
  seen = present[..., None, None]
  low = np.where(seen, ideal, np.inf).min(axis=(1, 2))[:, None, None]
  high = np.where(seen, ideal, -np.inf).max(axis=(1, 2))[:, None, None]
  extent = (high - low).max(axis=-1, keepdims=True)
  shake = variation * (0.035 + 0.015 * hand[:, :1, None, None])
  moved = (control - (low + high) / 2) / extent + shake * (1.2 * own + 0.8 * once)

  turn = variation * (0.12 * hand[:, 1] + 0.06 * whole[:, 0])
  slant = variation * 0.3 * hand[:, 2]
  stretch = np.exp(variation * 0.16 * hand[:, 3])
  scale = 0.68 * np.exp(variation * (0.13 * hand[:, 4] + 0.05 * whole[:, 1]))
  cos, sin = np.cos(turn) * scale, np.sin(turn) * scale
  # The product of three matrices, for row vectors: stretch, slant, turn.
  matrix = np.stack(
    [
      np.stack([cos * stretch, sin * stretch], axis=-1),
      np.stack([slant * cos - sin, slant * sin + cos], axis=-1) / stretch[:, None],
    ],
    axis=1,
  )
  shift = 0.5 + variation * 0.035 * whole[:, None, None, 2:]
  edges = basis @ (moved @ matrix[:, None]) + shift
  pen = 0.78 * np.exp(variation * 0.25 * hand[:, 5])
  return edges.astype(np.float32), present, pen.astype(np.float32)


def program(
  class_key: np.ndarray, group_key: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Makes the stroke programs of B classes from the keys of classes and groups, uint64 [B].

  Returns three arrays: the control points (x, y) of each stroke, float32 [B, strokes, 4, 2];
  its kind, an index into `_BASES`, int64 [B, strokes]; and whether the stroke exists, bool
  [B, strokes].
  """
  u = uniforms(class_key, MAX_STROKES, 6)
  strokes = 2 + (uniforms(mix(class_key, 1), 1) * 3).astype(np.int64)
  number = np.arange(MAX_STROKES)
  if group_key is not None:
    strokes = 3 + (uniforms(mix(group_key, 1), 1) * 2).astype(np.int64)
    is_shared = number < strokes - 1
    u = np.where(is_shared[..., None], uniforms(group_key, MAX_STROKES, 6), u)
  ends = np.zeros([len(class_key), MAX_STROKES, 2], np.int64)
  rows = np.arange(len(class_key))
  for s in range(MAX_STROKES):
    start = (u[:, s, 0] * _GRID**2).astype(np.int64)
    if s:
      earlier = (u[:, s, 1] * 2 * s).astype(np.int64)
      anchor = ends[rows, earlier // 2, earlier % 2]
      start = np.where(u[:, s, 2] < 0.7, anchor, start)
    step = 1 + (u[:, s, 3] * (_GRID**2 - 1)).astype(np.int64)
    ends[:, s] = np.stack([start, (start + step) % _GRID**2], axis=-1)
  points = np.stack([ends % _GRID, ends // _GRID], axis=-1) / (_GRID - 1)
  first, last = points[:, :, 0], points[:, :, 1]
  kind = _KINDS[(u[:, :, 4] * len(_KINDS)).astype(np.int64)]
  bend = u[:, :, 5] * 2 - 1
  bend = np.sign(bend) * (0.35 + 0.35 * np.abs(bend))
  along = last - first
  across = np.stack([-along[..., 1], along[..., 0]], axis=-1) * bend[..., None]
  # `_INNER` has the shape [kinds, 2 inner points, (along, across)].
  inner = _INNER[kind][..., None, :]
  inner = inner[..., 0] * along[:, :, None] + inner[..., 1] * across[:, :, None]
  control = np.stack([first, first + inner[:, :, 0], first + inner[:, :, 1], last], axis=2)
  return control.astype(np.float32), kind, number < strokes


def _ink(edges, present, pen, size):
  """Draws an antialiased line along each stroke; returns uint8 [B, size, size].

  The points `edges` of strokes are in pixels. A pixel's darkness is the integral of a
  Gaussian along all strokes. The Gaussian is separable, so the integral is a product of two
  small matrices. At distance r from a long stroke the darkness is exp(−r² / 2s²). The last
  step makes the line's edge steeper, so that the edge is about one pixel wide.
  """
  count = len(edges)
  s = pen * np.float32(size / 28)
  middles = ((edges[:, :, 1:] + edges[:, :, :-1]) / 2).reshape(count, -1, 2)
  lengths = np.sqrt(np.square(np.diff(edges, axis=2)).sum(-1))
  weights = (lengths * present[..., None]).reshape(count, -1)
  weights /= np.float32(np.sqrt(2 * np.pi)) * s[:, None]
  scale = np.float32(np.sqrt(0.5)) / s[:, None, None]
  pixels = np.arange(size, dtype=np.float32) + np.float32(0.5)
  gauss = []
  for axis in (1, 0):
    distance = pixels[:, None] - middles[:, None, :, axis]
    distance *= scale
    np.square(distance, out=distance)
    np.negative(distance, out=distance)
    gauss.append(np.exp(distance, out=distance))
  rows, columns = gauss  # Both have the shape [B, size, points].
  rows *= weights[:, None]
  dark = rows @ columns.transpose(0, 2, 1)
  # At half the height, the slope −d/dr exp(−r²/2s²) is 0.59 / s. A factor below 1 would
  # darken the background.
  steepen = np.maximum(s / np.float32(0.59), 1)[:, None, None]
  dark = (dark - 0.5) * steepen + 0.5
  return (np.clip(dark, 0, 1) * 255 + np.float32(0.5)).astype(np.uint8)


def _bases() -> np.ndarray:
  """Returns the weights of a stroke's 4 control points at each of its points.

  The result is float32 [kinds, points, 4].
  """
  t = np.linspace(0, 1, _SEGMENTS + 1)
  r, zero = 1 - t, np.zeros_like(t)
  # `to` is 0 in the first half of the points, and `fro` is 0 in the second half.
  to, fro = np.maximum(2 * t - 1, 0), np.maximum(1 - 2 * t, 0)
  cos, sin = np.cos(2 * np.pi * t), np.sin(2 * np.pi * t)
  # The first half of the points draws an eyelet beyond the start. The second half draws the
  # line.
  turn = np.minimum(2 * t, 1) * 2 * np.pi
  eye_cos, eye_sin = np.cos(turn) - 1, np.sin(turn)
  kinds = (
    (r, zero, zero, t),  # line
    (fro, 1 - to - fro, zero, to),  # corner
    (r * r, 2 * t * r, zero, t * t),  # arc
    (r**3, 3 * r * r * t, 3 * r * t * t, t**3),  # wave
    ((1 + cos - sin) / 2, sin, zero, (1 - cos - sin) / 2),  # ellipse
    (1 - to - 0.25 * eye_cos - 1.25 * eye_sin, eye_sin, zero, to + 0.25 * eye_cos + 0.25 * eye_sin),
  )
  return np.stack([np.stack(k, axis=-1) for k in kinds]).astype(np.float32)


_BASES = _bases()
# The kind of a stroke is a random entry. Lines and arcs are twice as frequent as other kinds.
_KINDS = np.array([0, 0, 1, 2, 2, 3, 4, 5])
# The positions of the two inner control points of each kind: (along, across) the stroke.
_INNER = np.array(
  [
    [[0.3, 0], [0.7, 0]],
    [[0.5, 1], [0.5, 1]],
    [[0.5, 2], [0.5, 2]],
    [[0.3, 2.5], [0.7, -2.5]],
    [[0.5, 1], [0.5, 1]],
    [[-0.25, 0.7], [0.5, 0]],
  ],
  np.float32,
)
