"""Distances between the points of a tile of pairs of classes, for `svm_dual`.

Where few of the points are chosen in a fit, the distances from these points are
computed when they are chosen. Otherwise all are computed at once, and rows are
looked up.
"""

import tensorflow as tf

from tff_xc.algorithms import svm_kernels


def _left(points: tf.Tensor, kernel: svm_kernels.Kernel) -> tf.Tensor:
  """Returns points in the form that `_half_squares` takes first."""
  if kernel.kind != svm_kernels.LINEAR:
    return points
  norms = tf.reduce_sum(points * points, -1, keepdims=True)
  return tf.concat([points, 0.5 * norms, tf.ones_like(norms)], axis=-1)


def _right(points: tf.Tensor, kernel: svm_kernels.Kernel) -> tf.Tensor:
  """Returns points in the form that `_half_squares` takes second."""
  if kernel.kind != svm_kernels.LINEAR:
    return points
  norms = tf.reduce_sum(points * points, -1, keepdims=True)
  return tf.concat([-points, tf.ones_like(norms), 0.5 * norms], axis=-1)


def _half_squares(a, b, kernel) -> tf.Tensor:
  """Returns float32 [..., p, q], half of squared distances in feature space.

  Args:
    a: points [..., p, d], as `_left` returns them. In float64, since differences
      of products are taken: points that coincide have distance 0.
    b: points [..., q, d], as `_right` returns them.
    kernel: of the feature space.
  """
  apart = tf.matmul(a, b, transpose_b=True)
  if kernel.kind != svm_kernels.LINEAR:
    norms = tf.reduce_sum(a * a, -1, keepdims=True)
    others = tf.reduce_sum(b * b, -1, keepdims=True)
    others = tf.linalg.matrix_transpose(others)
    values = kernel(apart, norms, others)
    apart = 0.5 * (kernel.of_itself(norms) + kernel.of_itself(others)) - values
  return tf.cast(apart, tf.float32)


def within_classes(
  points: tf.Tensor, kernel: svm_kernels.Kernel, on_demand: tf.Tensor
) -> tf.Tensor:
  """Returns float32 [n M, M], from each point to those of its class.

  Args:
    points: float32 [n, M, d].
    kernel: of the feature space.
    on_demand: bool scalar; if True, the result is empty.
  """
  size = tf.shape(points)[1]
  points = points[: tf.where(on_demand, 0, tf.shape(points)[0])]
  points = tf.cast(points, tf.float64)
  apart = _half_squares(_left(points, kernel), _right(points, kernel), kernel)
  return tf.reshape(apart, [-1, size])


class OfTile:
  """Distances from one point of each pair of a tile to all points of the pair."""

  def __init__(self, points, classes, within, kernel, on_demand):
    """Computes them, unless they are computed on demand.

    Args:
      points: float32 [n, M, d] of all classes.
      classes: int32 [k], the classes of the tile's rows, and of its columns.
      within: from `within_classes`.
      kernel: of the feature space.
      on_demand: bool scalar.
    """
    self._classes, self._within = classes, within
    self._kernel, self._on_demand = kernel, on_demand
    first, second = (tf.cast(tf.gather(points, c), tf.float64) for c in classes)
    self._width, self._count = tf.unstack(tf.shape(first)[:2])
    self._left = tf.concat([_left(first, kernel), _left(second, kernel)], 0)
    self._to_first, self._to_second = (
      _right(first, kernel), _right(second, kernel),
    )  # fmt: skip
    some = tf.where(on_demand, 0, self._width)
    flat = lambda t: tf.reshape(t[:some], [-1, tf.shape(t)[-1]])
    across = _half_squares(flat(self._left), flat(self._to_second), kernel)
    # From points of rows to classes of columns, then the other way round.
    self._across = tf.concat(
      [
        tf.reshape(t, [-1, self._count]) for t in (across, tf.transpose(across))
      ],
      axis=0,
    )

  def __call__(self, point: tf.Tensor, pairs: tf.Tensor) -> tf.Tensor:
    """Returns float32 [2 M, B].

    Args:
      point: int32 [B], a point of each pair; from M on it is of the second
        class.
      pairs: int32 [B, 2], the pairs as places in the tile; on demand, all of
        them in order.
    """
    halves = tf.cond(
      self._on_demand,
      lambda: self._computed(point),
      lambda: self._looked_up(point, pairs),
    )
    return tf.concat([tf.transpose(half) for half in halves], axis=0)

  def _looked_up(self, point, pairs):
    row, column = pairs[:, 0], pairs[:, 1]
    in_first = point < self._count
    own = point - tf.where(in_first, 0, self._count)
    of_class = tf.where(
      in_first, *(tf.gather(c, p) for c, p in zip(self._classes, (row, column), strict=True))
    )  # fmt: skip
    within = tf.gather(self._within, of_class * self._count + own)
    forth = (row * self._count + own) * self._width + column
    back = (column * self._count + own) * self._width + row
    back += self._count * self._width**2
    across = tf.gather(self._across, tf.where(in_first, forth, back))
    in_first = in_first[:, None]
    return (
      tf.where(in_first, within, across),
      tf.where(in_first, across, within),
    )

  def _computed(self, point):
    square = [self._width, self._width]
    point = tf.reshape(point, square)
    numbers = tf.range(self._width)
    row = tf.broadcast_to(numbers[:, None], square)
    column = tf.broadcast_to(numbers, square)
    in_first = point < self._count
    of_class = tf.where(in_first, row, self._width + column)
    own = point - tf.where(in_first, 0, self._count)
    chosen = tf.gather_nd(self._left, tf.stack([of_class, own], axis=-1))
    to_first = _half_squares(chosen, self._to_first, self._kernel)
    turned = tf.transpose(chosen, [1, 0, 2])
    to_second = _half_squares(turned, self._to_second, self._kernel)
    to_second = tf.transpose(to_second, [1, 0, 2])
    return tuple(
      tf.reshape(t, [-1, self._count]) for t in (to_first, to_second)
    )
