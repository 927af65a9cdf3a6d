"""One-against-one support vector machines over all pairs of classes.

The pairs are taken in tiles of k x k classes, so that neither the matrix of all
inner products nor the normals of all pairs are ever in memory. What is kept of
a pair are its 2 M coefficients: 4 n^2 M bytes for n classes.
"""

from typing import NamedTuple

import tensorflow as tf

from tff_xc.algorithms import svm_distances
from tff_xc.algorithms import svm_dual
from tff_xc.algorithms import svm_kernels

# A tile has at most _CLASSES^2 pairs, and fewer if their coefficients, their
# distances or the points would be more numbers than these.
_CLASSES, _COEFFICIENTS, _DISTANCES, _NUMBERS = 64, 2**17, 2**23, 2**20
# Tiles computed in parallel, if there are threads for them.
_PARALLEL = 4
# Normals shorter than this, relative to the points and coefficients, are zero:
# float32 points that differ by less are equal.
_ZERO = 1e-6


class Machines(NamedTuple):
  """The machines of all pairs of n classes, with M points each.

  Attributes:
    points: float32 [n, M, d], moved by -shift.
    shift: float32 [d]; 0 if the kernel does not ignore translations.
    supports: bool [n, M], whether a point is a support vector of any pair.
    coefficients: a TensorArray of float32 [k, k, 2 M] for each tile: of the
      points of the first class, then of the second; 0 for what is no pair.
    norms: a TensorArray of float32 [k, k], squared lengths of the normals, 0
      for what is no pair.
    stopped: float32 scalar, the share of pairs that the bound on steps ended.
    on_demand: bool scalar, whether distances were computed on demand.
  """

  points: tf.Tensor
  shift: tf.Tensor
  supports: tf.Tensor
  coefficients: tf.TensorArray
  norms: tf.TensorArray
  stopped: tf.Tensor
  on_demand: tf.Tensor


class _Tiles:
  """Pairs of n classes by tile."""

  def __init__(self, points: tf.Tensor, on_demand: tf.Tensor):
    """Args: float32 [n, M, d], and whether all pairs of a tile are listed."""
    num_classes, num_points, size = tf.unstack(tf.shape(points))
    root = lambda size: tf.cast(tf.sqrt(tf.cast(size, tf.float32)), tf.int32)
    distances = tf.where(
      on_demand, _CLASSES, root(_DISTANCES // 2) // num_points
    )
    width = tf.minimum(root(_COEFFICIENTS // (2 * num_points)), distances)
    width = tf.minimum(width, _NUMBERS // (num_points * size))
    # At least three tiles, for as many threads.
    most = tf.clip_by_value((num_classes + 1) // 2, 2, _CLASSES)
    self.width = tf.clip_by_value(width, 2, most)
    self._classes, self._all = num_classes, on_demand
    self._across = -(-num_classes // self.width)
    numbers = tf.range(self._across)
    self._tiles = tf.cast(tf.where(numbers[:, None] <= numbers), tf.int32)
    self.count = tf.shape(self._tiles)[0]

  def classes(self, tile):
    """Returns int32 [k], the classes of the tile's rows, and of its columns.

    In place of classes from n on, the last class is returned.
    """
    first, second = self._numbers(tile)
    last = self._classes - 1
    return tf.minimum(first, last), tf.minimum(second, last)

  def _numbers(self, tile):
    numbers = tf.range(self.width)
    start = self._tiles[tile] * self.width
    return start[0] + numbers, start[1] + numbers

  def pairs(self, tile):
    """Returns int32 [B, 2], pairs as places in the tile, and 1 if they exist."""
    first, second = self._numbers(tile)
    exists = (first[:, None] < second) & (second < self._classes)
    pairs = tf.where(exists | self._all)
    return tf.cast(pairs, tf.int32), tf.cast(
      tf.gather_nd(exists, pairs), tf.float32
    )

  def each(self, function, *state):
    """Returns the state after (tile, *state) -> state for every tile."""
    _, *state = tf.while_loop(
      lambda tile, *state: tile < self.count,
      lambda tile, *state: (tile + 1, *function(tile, *state)),
      (0, *state),
      parallel_iterations=_PARALLEL,
    )
    return state


def fit(
  points: tf.Tensor,
  kernel: svm_kernels.Kernel,
  bound: tf.Tensor,
  tolerance: float = 1e-3,
  steps: int = 50,
) -> Machines:
  """Fits the machines of all pairs.

  Args:
    points: float32 [n, M, d], M points of each class.
    kernel: of the machines.
    bound: float32 scalar, C.
    tolerance: see `svm_dual.fit`.
    steps: the most steps of a machine, scikit-learn's max_iter.
  """
  points, shift = _centered(points, kernel)
  num_points = tf.shape(points)[1]
  # A step chooses two points: so many that are never chosen.
  on_demand = num_points >= 2 * steps
  tiles = _Tiles(points, on_demand)
  within = svm_distances.within_classes(points, kernel, on_demand)

  def of_tile(tile, supports, coefficients, norms, stopped):
    first, second = tiles.classes(tile)
    pairs, exists = tiles.pairs(tile)
    distances = svm_distances.OfTile(
      points, (first, second), within, kernel, on_demand
    )
    fitted = svm_dual.fit(
      distances, pairs, bound * exists, num_points, tolerance, steps
    )
    turned = tf.transpose(fitted.coefficients)
    square = [tiles.width, tiles.width]
    of_points = tf.scatter_nd(pairs, turned, [*square, 2 * num_points])
    supports = _with_used(supports, (first, second), of_points)
    return (
      supports,
      coefficients.write(tile, of_points),
      norms.write(tile, tf.scatter_nd(pairs, fitted.norms, square)),
      stopped + tf.reduce_sum(tf.cast(fitted.stopped, tf.float32)),
    )

  array = lambda: tf.TensorArray(
    tf.float32, tiles.count, infer_shape=False, clear_after_read=False
  )
  supports = tf.zeros(tf.shape(points)[:2], tf.int32)
  supports, coefficients, norms, stopped = tiles.each(
    of_tile, supports, array(), array(), 0.0
  )
  return Machines(
    points,
    shift,
    supports > 0,
    coefficients,
    norms,
    tf.math.divide_no_nan(stopped, pair_count(tf.shape(points)[0])),
    on_demand,
  )


def _centered(points, kernel):
  """Returns (points - shift, shift): shorter ones have more exact distances."""
  if not kernel.ignores_translation:
    return points, tf.zeros_like(points[0, 0])
  shift = tf.reduce_mean(points, axis=[0, 1])
  return points - shift, shift


def pair_count(num_classes: tf.Tensor) -> tf.Tensor:
  """Returns the number of pairs of n classes, a float32 scalar."""
  count = tf.cast(num_classes, tf.float32)
  return count * (count - 1.0) / 2.0


def _with_used(supports, classes, coefficients):
  """Returns int32 [n, M], 1 for support vectors, with those of a tile.

  Args:
    supports: the same before.
    classes: int32 [k] of the tile's rows, and of its columns.
    coefficients: float32 [k, k, 2 M].
  """
  used = tf.cast(tf.not_equal(coefficients, 0.0), tf.int32)
  for axis, (of, half) in enumerate(
    zip(classes, tf.split(used, 2, axis=-1), strict=True)
  ):
    # A class of the rows is in a pair with every column.
    any_pair = tf.reduce_max(half, axis=1 - axis)
    supports = tf.tensor_scatter_nd_max(supports, of[:, None], any_pair)
  return supports


def similarities(
  machines: Machines, rows: tf.Tensor, kernel: svm_kernels.Kernel
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns sum_{a < b} exp(-u_ab^2 / 2), and its gradient by the rows.

  u_ab = (f(w_a) - f(w_b)) . h_ab / |h_ab|, with the normal h_ab of the pair's
  machine, a constant, and f the kernel's map to feature space. A pair of which
  the normal is 0 adds nothing.

  Args:
    machines: of all pairs of n classes.
    rows: float32 [n, d], w.
    kernel: of the machines.

  Returns:
    (float32 scalar, float32 [n, d])
  """
  tiles = _Tiles(machines.points, machines.on_demand)
  points = machines.points
  rows = tf.cast(rows - machines.shift, tf.float64)
  norms = tf.reduce_sum(tf.square(points), axis=-1)
  norms = kernel.of_itself(tf.cast(norms, tf.float64))
  longest = tf.reduce_max(norms, axis=1)

  def of_tile(tile, total, gradient):
    first, second = tiles.classes(tile)
    of = lambda t, classes: tf.cast(tf.gather(t, classes), tf.float64)
    a, b = of(rows, first), of(rows, second)
    coefficients = tf.cast(machines.coefficients.read(tile), tf.float64)
    of_first, of_second = tf.split(coefficients, 2, axis=-1)
    with tf.GradientTape() as tape:
      tape.watch((a, b))
      along = _along_normals(
        (a, b), (of(points, first), of(points, second)), (of_first, of_second),
        kernel,
      )  # fmt: skip
      squares = tf.cast(machines.norms.read(tile), tf.float64)
      scale = tf.maximum(
        tf.gather(longest, first)[:, None], tf.gather(longest, second)
      )
      zero = scale * tf.square(_ZERO * tf.reduce_sum(of_first, axis=-1))
      exists = squares > zero
      squares = tf.where(exists, squares, 1.0)
      terms = tf.exp(-0.5 * tf.square(along) / squares)
      similarity = tf.reduce_sum(tf.where(exists, terms, 0.0))
    for classes, move in zip(
      (first, second), tape.gradient(similarity, (a, b)), strict=True
    ):
      gradient = tf.tensor_scatter_nd_add(gradient, classes[:, None], move)
    return total + similarity, gradient

  zero = tf.constant(0.0, tf.float64)
  total, gradient = tiles.each(of_tile, zero, tf.zeros_like(rows))
  return tf.cast(total, tf.float32), tf.cast(gradient, tf.float32)


def _along_normals(rows, points, coefficients, kernel):
  """Returns float64 [k, k], (f(w_a) - f(w_b)) . h_ab for pairs of a tile.

  Args:
    rows: float64 [k, d] of the classes of the tile's rows, and its columns.
    points: float64 [k, M, d], likewise.
    coefficients: float64 [k, k, M], likewise.
    kernel: of the machines.
  """
  width, count, size = tf.unstack(tf.shape(points[0]))

  def own(row, points):
    products = tf.matmul(points, row[:, :, None])[..., 0]
    norms = tf.reduce_sum(row * row, -1)[:, None]
    return kernel(products, norms, tf.reduce_sum(points * points, -1))

  def across(row, points):
    flat = tf.reshape(points, [width * count, size])
    norms = tf.reduce_sum(row * row, -1)[:, None]
    values = kernel(
      tf.matmul(row, flat, transpose_b=True),
      norms,
      tf.reduce_sum(flat * flat, -1),
    )
    return tf.reshape(values, [width, width, count])

  (a, b), (of_a, of_b) = rows, points
  from_a = own(a, of_a)[:, None] - tf.transpose(across(b, of_a), [1, 0, 2])
  from_b = across(a, of_b) - own(b, of_b)[None]
  return tf.reduce_sum(
    coefficients[0] * from_a + coefficients[1] * from_b, axis=-1
  )
