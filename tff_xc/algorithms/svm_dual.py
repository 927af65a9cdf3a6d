"""Fits many small support vector machines at once.

Each is the machine of a pair of classes with the same number of points M. Its
dual has a signed coefficient b_k for each of the 2 M points, with sum 0:
0 <= b_k <= C for points of the first class, -C <= b_k <= 0 for the second. With
y_k = 1 or -1 it minimises

  1/2 sum_kl b_k b_l K(x_k, x_l) - sum_k y_k b_k.

Each step moves the two coefficients that libsvm would choose (Fan, Chen, Lin:
"Working Set Selection Using Second Order Information for Training Support Vector
Machines", JMLR 6, 2005), in all machines at once. Only differences of gradients
matter, so half of the squared distances of points in feature space is all that
is needed of the kernel. Where two choices are equally good, rounding decides in
libsvm, too.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

# What libsvm takes for a squared distance that is not positive.
_TAU = 1e-12


class Fitted(NamedTuple):
  """Machines of B pairs of classes.

  Attributes:
    coefficients: float32 [2 M, B]; a support vector's is not 0.
    norms: float32 [B], the squared length of the normal in feature space.
    stopped: bool [B], whether the bound on steps ended the fit.
  """

  coefficients: tf.Tensor
  norms: tf.Tensor
  stopped: tf.Tensor


def fit(
  distances: Callable,
  pairs: tf.Tensor,
  bounds: tf.Tensor,
  num_points: tf.Tensor,
  tolerance: float,
  steps: int,
) -> Fitted:
  """Fits the machines of B pairs.

  Args:
    distances: (point int32 [b], pairs [b, ...]) -> float32 [2 M, b], half of
      the squared distances in feature space from a point of each pair to all of
      the pair's points. Points from M on are of the second class.
    pairs: int32 [B, ...], what tells pairs apart.
    bounds: float32 [B], C of each pair; 0 for what is no pair.
    num_points: M.
    tolerance: of the largest violation of optimality, at which a fit ends.
    steps: the most steps.
  """
  points = 2 * num_points
  state = tf.zeros([points, tf.shape(pairs)[0]])
  state = (state, state)
  # Most machines end after about M steps. Columns that are done leave then.
  done, found = 0, []
  for share in (2, 3, 5, None):
    last = (
      steps if share is None else tf.minimum(points * share // 4 + 1, steps)
    )
    machines = _Machines(distances, pairs, bounds, num_points, tolerance)
    done, *state, active = machines.take_steps(done, last, *state)
    going = tf.where(active)
    found.append((*state, going))
    state = [tf.gather(t, going[:, 0], axis=1) for t in state]
    pairs, bounds = (tf.gather(t, going[:, 0]) for t in (pairs, bounds))
  coefficients, moved, still = found.pop()
  stopped = tf.scatter_nd(
    still, tf.ones_like(still[:, 0], tf.bool), tf.shape(moved, tf.int64)[1:]
  )
  for *earlier, going in reversed(found):
    coefficients, moved = (
      _put(old, going, new)
      for old, new in zip(earlier, (coefficients, moved), strict=True)
    )
    stopped = tf.scatter_nd(going, stopped, tf.shape(moved, tf.int64)[1:])
  # The coefficients' sum is 0 but for rounding, so a constant does not count.
  moved -= tf.reduce_mean(moved, axis=0)
  norms = tf.nn.relu(tf.reduce_sum(coefficients * moved, axis=0))
  return Fitted(coefficients, norms, stopped)


def _put(columns, places, new):
  """Returns the columns with new ones at int64 [b, 1] places."""
  turned = tf.tensor_scatter_nd_update(
    tf.transpose(columns), places, tf.transpose(new)
  )
  return tf.transpose(turned)


class _Machines:
  """B machines whose steps are taken together.

  `moved` is the gradient plus y, up to a constant for each machine.
  """

  def __init__(self, distances, pairs, bounds, num_points, tolerance):
    """Args: those of `fit`."""
    self._distances, self._pairs = distances, pairs
    self._bound, self._tolerance = bounds, tolerance
    self._half = num_points
    self._count = tf.shape(pairs)[0]
    self._columns = tf.range(self._count)
    # Of full size, since operations that broadcast take twice as long.
    number = tf.range(2 * self._half)[:, None]
    is_first = tf.cast(number < self._half, tf.float32)
    full = lambda t: tf.broadcast_to(t, [2 * self._half, self._count])
    self._number = full(number)
    self._y = full(2.0 * is_first - 1.0)
    self._upper = full(bounds * is_first)
    self._lower = full(bounds * (is_first - 1.0))
    self._zero, self._infinite = full(0), full(float('inf'))

  def take_steps(self, done, last, coefficients, moved):
    """Takes the steps from `done` on until `last`, or until all have ended.

    Returns (number of steps done, coefficients, moved, bool [B]: not ended).
    """
    square = tf.TensorShape([None, None])
    return tf.while_loop(
      lambda done, coefficients, moved, active: (
        (done < last) & tf.reduce_any(active)
      ),
      self._step,
      (done, coefficients, moved, tf.ones([self._count], tf.bool)),
      shape_invariants=(
        tf.TensorShape([]), square, square, tf.TensorShape([None]),
      ),
    )  # fmt: skip

  def _step(self, done, coefficients, moved, active):
    del active
    i, j, from_i, size, active = self._chosen(coefficients, moved)
    at_i, at_j = self._at(coefficients, i), self._at(coefficients, j)
    end_i = tf.where(i < self._half, self._bound, 0.0)
    end_j = tf.where(j < self._half, 0.0, -self._bound)
    size = tf.minimum(size, tf.minimum(end_i - at_i, at_j - end_j))
    size = tf.where(active, size, 0.0)
    # Exactly the bound, where the step ends there.
    new_i = tf.where(size < end_i - at_i, at_i + size, end_i)
    new_j = tf.where(size < at_j - end_j, at_j - size, end_j)
    new_i, new_j = tf.where(active, new_i, at_i), tf.where(active, new_j, at_j)
    coefficients = tf.where(
      tf.equal(self._number, i),
      new_i,
      tf.where(tf.equal(self._number, j), new_j, coefficients),
    )
    from_j = self._distances(j, self._pairs)
    moved += size * (from_j - from_i)
    return done + 1, coefficients, moved, active

  def _chosen(self, coefficients, moved):
    """Chooses the coefficients i, which grows, and j, which shrinks.

    Returns (i, j, the distances of point i, the size of an unbounded step, bool
    [B]: whether optimality is violated).
    """
    gradient = moved - self._y
    can_grow = coefficients < self._upper
    may_grow = _where(can_grow, gradient, self._infinite)
    least = tf.reduce_min(may_grow, axis=0)
    i = self._last_of(may_grow, least)
    can_shrink = coefficients > self._lower
    may_shrink = _where(can_shrink, gradient, -self._infinite)
    active = tf.reduce_max(may_shrink, axis=0) - least >= self._tolerance
    from_i = self._distances(i, self._pairs)
    gap = tf.nn.relu(may_shrink - least)
    gain = gap * gap / tf.maximum(from_i, _TAU)
    most = tf.reduce_max(gain, axis=0)
    j = self._last_of(gain, most)
    # gap / (2 distance), since gain = gap^2 / distance.
    return i, j, from_i, 0.5 * most / self._at(gap, j), active

  def _last_of(self, values, best):
    """Returns int32 [B], in each column the last row with the best value."""
    places = _where(tf.equal(values, best), self._number, self._zero)
    return tf.reduce_max(places, axis=0)

  def _at(self, values, point):
    flat = tf.reshape(values, [-1])
    return tf.gather(flat, point * self._count + self._columns)


def _where(condition, x, y):
  """`tf.where` of tensors of one shape, in half of its time."""
  return tf.raw_ops.Select(condition=condition, x=x, y=y)
