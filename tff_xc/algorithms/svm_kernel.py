"""Kernels of TurboSVM-FL's machines, and distances in their feature spaces.

The machines use a kernel only to compute half of the squared distances of points. `at_once` and
`on_demand` return the `distances` argument of `svm.fit_pairs`, for the pairs of a tile of k x k
classes.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

LINEAR = 'linear'
# This constant bounds float32 errors. Consider points of d numbers with |x| <= R, at most r from
# the mean of their class. A distance has two errors: up to 2^-20 R^2 from the norms (as measured),
# and up to 2^-24 d (2 R) r from the products, whose terms are summed one after another. A violation
# is the difference of two gradients. A step with coefficients up to C changes a violation with an
# error of up to 4 C times the error of a distance, which is C R (R + d r / 8) times this constant.
# If the violations of two points differ by less than this error, rounding decides between them.
_SINGLE = 2.0**-18


@dataclasses.dataclass(frozen=True)
class Kernel:
  """A kernel K(x, z), computed from inner products, as scikit-learn defines it.

  `kind` is 'linear'; 'polynomial': (x . z + 1)^degree; 'rbf': exp(-|x - z|^2); or
  'sigmoid': tanh(x . z + 1), which is not positive definite. gamma and coef0 are 1
  (TurboSVM-FL, Table 12). Values are float64.
  """

  kind: str = LINEAR
  degree: int = 2

  def __call__(self, products: tf.Tensor, norms: tf.Tensor, other_norms: tf.Tensor) -> tf.Tensor:
    """Returns the kernel's values for inner products x . z and norms |x|^2, |z|^2."""
    if self.kind == LINEAR:
      return products
    if self.kind == 'polynomial':
      return tf.pow(products + 1.0, float(self.degree))
    if self.kind == 'rbf':
      return tf.exp(-tf.nn.relu(norms + other_norms - 2.0 * products))
    if self.kind == 'sigmoid':
      return tf.tanh(products + 1.0)
    raise ValueError(f'unknown kernel {self.kind!r}')

  def of_itself(self, norms: tf.Tensor) -> tf.Tensor:
    """Returns K(x, x) for points with the norms |x|^2."""
    return self(norms, norms, norms)


def _forms(points, kernel, dtype=tf.float64):
  """Returns the points in two forms, the first and the second argument of `_half_squares`."""
  # Differences of products lose digits. In float64, equal points still have distance 0.
  points = tf.cast(points, dtype)
  if kernel.kind != LINEAR:
    return points, points
  norms = tf.reduce_sum(points * points, -1, keepdims=True)
  ones = tf.ones_like(norms)
  return (
    tf.concat([points, 0.5 * norms, ones], axis=-1),
    tf.concat([-points, ones, 0.5 * norms], axis=-1),
  )


def _half_squares(a, b, kernel):
  """Returns float32 [..., p, q], half the squared feature-space distances between points.

  `a` and `b` are results of `_forms`.
  """
  apart = tf.matmul(a, b, transpose_b=True)
  if kernel.kind != LINEAR:
    norms = tf.reduce_sum(a * a, -1, keepdims=True)
    others = tf.reduce_sum(b * b, -1, keepdims=True)
    others = tf.linalg.matrix_transpose(others)
    values = kernel(apart, norms, others)
    apart = 0.5 * (kernel.of_itself(norms) + kernel.of_itself(others)) - values
  return tf.cast(apart, tf.float32)


def within_classes(points: tf.Tensor, kernel: Kernel, on_demand: tf.Tensor) -> tf.Tensor:
  """Returns float32 [n M, M], the distances from each point to all points of its class.

  `points` are [n, M, d]. With `on_demand`, a bool, the result is empty, [0, M].
  """
  size = tf.shape(points)[1]
  points = points[: tf.where(on_demand, 0, tf.shape(points)[0])]
  apart = _half_squares(*_forms(points, kernel), kernel)
  return tf.reshape(apart, [-1, size])


def at_once(
  points: tf.Tensor, classes: tuple[tf.Tensor, tf.Tensor], within: tf.Tensor, kernel: Kernel
) -> Callable:
  """Returns the function `distances` for a tile of `classes`, each int32 [k].

  A pair is given by its row and column in the tile. All distances between classes are computed
  here. `distances` looks up rows of these distances and of `within`.
  """
  width, count = tf.shape(classes[0])[0], tf.shape(points)[1]
  (from_first, _), (_, to_second) = (_forms(tf.gather(points, c), kernel) for c in classes)

  def flat(t):
    return tf.reshape(t, [-1, tf.shape(t)[-1]])

  halves = _half_squares(flat(from_first), flat(to_second), kernel)
  # Distances from points of the rows' classes to the columns' classes, then the reverse.
  across_classes = tf.concat(
    [tf.reshape(t, [-1, count]) for t in (halves, tf.transpose(halves))], axis=0
  )

  def distances(point, pairs):
    row, column = pairs[:, 0], pairs[:, 1]
    in_first = point < count
    own = point - tf.where(in_first, 0, count)
    of_class = tf.where(in_first, tf.gather(classes[0], row), tf.gather(classes[1], column))
    near = tf.gather(within, of_class * count + own)
    forth = (row * count + own) * width + column
    back = (column * count + own) * width + row + count * width**2
    far = tf.gather(across_classes, tf.where(in_first, forth, back))
    in_first = in_first[:, None]
    halves = tf.where(in_first, near, far), tf.where(in_first, far, near)
    return tf.concat([tf.transpose(half) for half in halves], axis=0)

  return distances


def on_demand(
  points: tf.Tensor, classes: tuple[tf.Tensor, tf.Tensor], kernel: Kernel, dtype: tf.DType
) -> Callable:
  """Returns the function `distances` for a tile of `classes`, each int32 [k].

  Unlike the `distances` of `at_once`, it computes distances only when it is called. The pairs are
  all pairs of the tile, in order. The function computes in `dtype`. For a linear kernel, the
  function subtracts the class mean from the points before it multiplies them, because the clients'
  rows of a class are near each other.
  """
  width, count = tf.shape(classes[0])[0], tf.shape(points)[1]
  both = [tf.cast(tf.gather(points, c), dtype) for c in classes]
  centers = [tf.reduce_mean(t, axis=1, keepdims=True) for t in both]
  if kernel.kind != LINEAR:
    centers = [tf.zeros_like(t) for t in centers]
  to_classes = [
    _forms(t - center, kernel, dtype)[1] for t, center in zip(both, centers, strict=True)
  ]
  left, square = tf.concat(both, axis=0), [width, width]
  numbers = tf.range(width)
  row = tf.broadcast_to(numbers[:, None], square)
  column = tf.broadcast_to(numbers, square)

  def half(chosen, side):
    chosen = _forms(chosen - centers[side], kernel, dtype)[0]
    return _half_squares(chosen, to_classes[side], kernel)

  def distances(point, _):
    point = tf.reshape(point, square)
    in_first = point < count
    of_class = tf.where(in_first, row, width + column)
    own = point - tf.where(in_first, 0, count)
    chosen = tf.gather_nd(left, tf.stack([of_class, own], axis=-1))

    def turn(t):
      return tf.transpose(t, [1, 0, 2])

    halves = half(chosen, 0), turn(half(turn(chosen), 1))
    return tf.concat([tf.transpose(tf.reshape(t, [-1, count])) for t in halves], axis=0)

  return distances


def rounding(points: tf.Tensor) -> tf.Tensor:
  """Returns the rounding error of a violation in one step with C = 1, a float32 scalar.

  The result holds for points float32 [n, M, d], a linear kernel and distances in float32.
  """
  from_mean = points - tf.reduce_mean(points, axis=1, keepdims=True)
  longest, spread = (
    tf.sqrt(tf.reduce_max(tf.reduce_sum(tf.square(t), axis=-1))) for t in (points, from_mean)
  )
  size = tf.cast(tf.shape(points)[2], tf.float32)
  return _SINGLE * longest * (longest + size * spread / 8)
