"""TurboSVM-FL's server step: selective aggregation and max-margin spread-out.

Wang, Bodonhelyi, Bozkir, Kasneci: "TurboSVM-FL: Boosting Federated Learning through SVM Aggregation
for Lazy Clients", AAAI 2024, arXiv:2401.12012, and the code that its authors published.

The class rows of all clients, with the bias as a row's last coordinate, are the points of
one-against-one support vector machines (eq. (6)). The new row of a class is the mean of its points
that are support vectors of at least one machine, weighted by the clients' numbers of examples (eq.
(7)). After that, the server takes one Adam step and keeps Adam's state over rounds. The Adam step
lowers

  sum_{a < b} exp(-((w_a - w_b) . h_ab / |h_ab|)^2 / 2)             (eq. (8))

where h_ab is the normal of the pair's machine, treated as constant.

Each pair of classes, with M points each, has a machine. The machine's dual problem has a signed
coefficient b_k for each of the 2 M points. The coefficients sum to 0, with 0 <= b_k <= C for points
of the first class and -C <= b_k <= 0 for points of the second. With y_k = 1 for the first class and
-1 for the second, the machine minimises

  1/2 sum_kl b_k b_l K(x_k, x_l) - sum_k y_k b_k.

Each step moves the two coefficients that libsvm would choose (Fan, Chen, Lin: "Working Set
Selection Using Second Order Information for Training Support Vector Machines", JMLR 6, 2005), in
all machines at once. The steps depend only on differences of gradients. Therefore they need only
half of the squared distances of points in feature space, not the kernel itself. If two choices are
equally good, rounding decides, as in libsvm.

Pairs are processed in tiles of k x k classes, so that neither the matrix of all inner products nor
the normals of all pairs are ever in memory. Only the 2 M coefficients of each pair are kept: 4 n^2
M bytes for n classes.

If the fit of a machine can choose only few of the points, it computes the distances from a point
when it chooses the point. With a linear kernel, these distances are float32 if the rounding errors
of all steps together stay below the tolerance. If a fit can choose many points, all distances are
computed at once, and each step looks up the distances that it needs.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.algorithms import svm_kernel
from tff_xc.round import randomness

# libsvm uses this value in place of a squared distance that is not positive.
_TAU = 1e-12
# A tile has at most _CLASSES^2 pairs. It has fewer pairs if these pairs would need more than
# _COEFFICIENTS coefficients, _DISTANCES distances or _NUMBERS coordinates of points.
_CLASSES, _COEFFICIENTS, _DISTANCES, _NUMBERS = 64, 2**17, 2**23, 2**20
# The number of tiles computed in parallel, if there are enough threads.
_PARALLEL = 4
# A normal shorter than this, relative to the points and coefficients, counts as zero,
# because float32 points that differ by less are equal.
_ZERO = 1e-6
# The class whose support vectors the paper's Table 4 counts.
_COUNTED = 1
# This number is folded into a round's seed to draw classes. No client has this number.
_SUBSET = -1


def fit_pairs(
  distances: Callable,
  pairs: tf.Tensor,
  bounds: tf.Tensor,
  num_points: tf.Tensor,
  tolerance: float,
  steps: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Fits the machines of B pairs.

  Args:
    distances: (point int32 [b], pairs [b, ...]) -> float32 [2 M, b], half of
      the squared distances in feature space from a point of each pair to all of
      the pair's points. Points from M on are of the second class.
    pairs: int32 [B, ...], identifies each pair for `distances`.
    bounds: float32 [B], C of each pair; 0 for entries that are not pairs.
    num_points: M.
    tolerance: a fit ends when the largest violation of optimality is below it.
    steps: the largest number of steps.

  Returns:
    (coefficients float32 [B, 2 M], nonzero exactly for support vectors; squared
    lengths of the normals float32 [B]; bool [B], whether the fit ended by `steps`).
  """
  count, points = tf.shape(pairs)[0], 2 * num_points
  # Most machines end after about M steps. Therefore the fit runs in phases, and the columns of
  # finished machines are removed after each phase.
  quarters = tf.constant([2, 3, 5])
  phases = quarters.shape[0] + 1

  # All phases run in one loop, because separate graphs take four times as long to trace.
  def phase(number, done, columns, pairs, bounds, *state_and_found):
    *state, found = state_and_found
    is_last = tf.equal(number, phases - 1)
    quarter = quarters[tf.minimum(number, phases - 2)]
    last = tf.minimum(points * quarter // 4 + 1, steps)
    done, coefficients, moved, active = _take_steps(
      distances, pairs, bounds, num_points, tolerance, done,
      tf.where(is_last, steps, last), *state,
    )  # fmt: skip
    # The coefficients sum to 0, except for rounding errors. Subtract the mean, so that these errors
    # hardly change the norms.
    gradient = moved - tf.reduce_mean(moved, axis=0)
    norms = tf.nn.relu(tf.reduce_sum(coefficients * gradient, axis=0))
    # Rows are gathered several times faster than columns.
    by_column = tf.transpose(coefficients)
    leave = tf.where(is_last | ~active)[:, 0]
    found = tuple(
      array.write(number, tf.gather(t, leave))
      for array, t in zip(found, (columns, by_column, norms, active), strict=True)
    )
    stay = tf.where(active & ~is_last)[:, 0]
    columns, pairs, bounds, coefficients, moved = (
      tf.gather(t, stay) for t in (columns, pairs, bounds, by_column, tf.transpose(moved))
    )
    return (
      number + 1, done, columns, pairs, bounds,
      tf.transpose(coefficients), tf.transpose(moved), found,
    )  # fmt: skip

  found = tuple(
    tf.TensorArray(dtype, phases, infer_shape=False)
    for dtype in (tf.int32, tf.float32, tf.float32, tf.bool)
  )
  zero = tf.zeros([points, count])
  vector, square = tf.TensorShape([None]), tf.TensorShape([None, None])
  first = (0, 0, tf.range(count), pairs, bounds, zero, zero, found)
  scalar, arrays = tf.TensorShape([]), (tf.TensorShape(None),) * len(found)
  *_, found = tf.while_loop(
    lambda number, *_: number < phases,
    phase,
    first,
    shape_invariants=(
      scalar, scalar, vector, square, vector, square, square, arrays,
    ),
  )  # fmt: skip
  columns, *found = (array.concat() for array in found)
  places = tf.math.invert_permutation(columns)
  return tuple(tf.gather(t, places) for t in found)


def _take_steps(distances, pairs, bounds, half, tolerance, done, last, coefficients, moved):
  """Returns (`done`, coefficients, moved, active bool [B]) after the steps until `last`.

  `moved` is the gradient plus y, up to a constant for each machine. `active` marks the
  machines whose fits have not ended.
  """
  count = tf.shape(pairs)[0]
  columns = tf.range(count)

  # Tensors have the full size, because operations that broadcast take twice as long.
  def full(t):
    return tf.broadcast_to(t, [2 * half, count])

  number = tf.range(2 * half)[:, None]
  is_first = tf.cast(number < half, tf.float32)
  number, y = full(number), full(2.0 * is_first - 1.0)
  upper, lower = full(bounds * is_first), full(bounds * (is_first - 1.0))
  zero, infinite = full(0), full(float('inf'))

  def last_of(values, best):
    """Returns int32 [B], for each column the last row with the best value."""
    places = _where(tf.equal(values, best), number, zero)
    return tf.reduce_max(places, axis=0)

  def at(values, point):
    return tf.gather(tf.reshape(values, [-1]), point * count + columns)

  def step(done, coefficients, moved, active):
    # Coefficient i grows, and coefficient j shrinks.
    gradient = moved - y
    may_grow = _where(coefficients < upper, gradient, infinite)
    least = tf.reduce_min(may_grow, axis=0)
    i = last_of(may_grow, least)
    may_shrink = _where(coefficients > lower, gradient, -infinite)
    active = tf.reduce_max(may_shrink, axis=0) - least >= tolerance
    from_i = distances(i, pairs)
    gap = tf.nn.relu(may_shrink - least)
    gain = gap * gap / tf.maximum(from_i, _TAU)
    most = tf.reduce_max(gain, axis=0)
    j = last_of(gain, most)
    # gap / (2 distance), since gain = gap^2 / distance.
    size = 0.5 * most / at(gap, j)
    at_i, at_j = at(coefficients, i), at(coefficients, j)
    end_i = tf.where(i < half, bounds, 0.0)
    end_j = tf.where(j < half, 0.0, -bounds)
    size = tf.minimum(size, tf.minimum(end_i - at_i, at_j - end_j))
    size = tf.where(active, size, 0.0)
    # If the step ends at the bound, the coefficient is exactly the bound.
    new_i = tf.where(size < end_i - at_i, at_i + size, end_i)
    new_j = tf.where(size < at_j - end_j, at_j - size, end_j)
    new_i, new_j = tf.where(active, new_i, at_i), tf.where(active, new_j, at_j)
    coefficients = tf.where(
      tf.equal(number, i), new_i, tf.where(tf.equal(number, j), new_j, coefficients)
    )
    moved += size * (distances(j, pairs) - from_i)
    return done + 1, coefficients, moved, active

  square = tf.TensorShape([None, None])
  return tf.while_loop(
    lambda done, coefficients, moved, active: (
      (done < last) & tf.reduce_any(active)
    ),
    step,
    (done, coefficients, moved, tf.ones([count], tf.bool)),
    shape_invariants=(
      tf.TensorShape([]), square, square, tf.TensorShape([None]),
    ),
  )  # fmt: skip


def _where(condition, x, y):
  """Does the same as `tf.where` for tensors of equal shape, in half the time."""
  return tf.raw_ops.Select(condition=condition, x=x, y=y)


class Machines(NamedTuple):
  """The machines of all pairs of n classes, with M points for each class."""

  points: tf.Tensor  # float32 [n, M, d], minus `shift`.
  shift: tf.Tensor  # float32 [d]; 0 for kernels that are not translation-invariant.
  supports: tf.Tensor  # bool [n, M], whether a point is a support vector of any pair.
  # For each tile, float32 [k, k, 2 M]: the coefficients of the first class's points, then those of
  # the second class's points. Entries that are not pairs have 0.
  coefficients: tf.TensorArray
  norms: tf.TensorArray  # For each tile, float32 [k, k], squared lengths of the normals.
  stopped: tf.Tensor  # float32 scalar, the share of fits that ended by the step limit.
  on_demand: tf.Tensor  # Whether distances were computed on demand.


class _Tiles:
  """The pairs of n classes, divided into tiles."""

  def __init__(self, points: tf.Tensor, on_demand: tf.Tensor):
    """Takes the points float32 [n, M, d]. If `on_demand`, all entries of a tile count as pairs."""
    num_classes, num_points, size = tf.unstack(tf.shape(points))

    def root(size):
      return tf.cast(tf.sqrt(tf.cast(size, tf.float32)), tf.int32)

    distances = tf.where(on_demand, _CLASSES, root(_DISTANCES // 2) // num_points)
    width = tf.minimum(root(_COEFFICIENTS // (2 * num_points)), distances)
    width = tf.minimum(width, _NUMBERS // (num_points * size))
    # Make at least three tiles, so that they can run in parallel.
    most = tf.clip_by_value((num_classes + 1) // 2, 2, _CLASSES)
    self.width = tf.clip_by_value(width, 2, most)
    self._classes, self._all = num_classes, on_demand
    self._across = -(-num_classes // self.width)
    numbers = tf.range(self._across)
    self._tiles = tf.cast(tf.where(numbers[:, None] <= numbers), tf.int32)
    self.count = tf.shape(self._tiles)[0]

  def classes(self, tile):
    """Returns (classes of the tile's rows, classes of its columns), each int32 [k].

    A number that exceeds n - 1 becomes n - 1.
    """
    first, second = self._numbers(tile)
    last = self._classes - 1
    return tf.minimum(first, last), tf.minimum(second, last)

  def _numbers(self, tile):
    numbers = tf.range(self.width)
    start = self._tiles[tile] * self.width
    return start[0] + numbers, start[1] + numbers

  def pairs(self, tile):
    """Returns (row and column of each pair in the tile int32 [B, 2], float32 [B]).

    The second result is 1 for real pairs, else 0.
    """
    first, second = self._numbers(tile)
    exists = (first[:, None] < second) & (second < self._classes)
    pairs = tf.where(exists | self._all)
    return tf.cast(pairs, tf.int32), tf.cast(tf.gather_nd(exists, pairs), tf.float32)

  def each(self, function, *state):
    """Applies a function (tile, *state) -> state to every tile and returns the last state."""
    _, *state = tf.while_loop(
      lambda tile, *state: tile < self.count,
      lambda tile, *state: (tile + 1, *function(tile, *state)),
      (0, *state),
      parallel_iterations=_PARALLEL,
    )
    return state


def fit(
  points: tf.Tensor,
  kernel: svm_kernel.Kernel,
  bound: tf.Tensor,
  tolerance: float = 1e-3,
  steps: int = 50,
) -> Machines:
  """Fits the machines of all pairs.

  Args:
    points: float32 [n, M, d].
    kernel: the kernel of the machines.
    bound: C.
    tolerance: see `fit_pairs`.
    steps: the largest number of steps of a machine, scikit-learn's max_iter.
  """
  shift = tf.zeros_like(points[0, 0])
  # Subtract the mean, because distances are more exact if points are short. Machines with a linear
  # or radial kernel do not change if all points move by the same vector.
  if kernel.kind in (svm_kernel.LINEAR, 'rbf'):
    shift = tf.reduce_mean(points, axis=[0, 1])
    points -= shift
  num_points = tf.shape(points)[1]
  # A step chooses two of the 2 M points. If M is at least 2 * steps, at least half of the points
  # are never chosen. M is halved here, because 2 * steps might exceed int32.
  on_demand = num_points // 2 >= steps
  # 0: distances at once; 1: on demand in float64; 2: on demand in float32.
  way = tf.cast(on_demand, tf.int32)
  if kernel.kind == svm_kernel.LINEAR:
    rounding = bound * tf.cast(steps, tf.float32) * svm_kernel.rounding(points)
    way *= 1 + tf.cast(rounding <= tolerance, tf.int32)
  tiles = _Tiles(points, on_demand)
  within = svm_kernel.within_classes(points, kernel, on_demand)

  def of_tile(tile, supports, coefficients, norms, stopped):
    classes = tiles.classes(tile)
    pairs, exists = tiles.pairs(tile)

    def fitted(distances_of, *arguments):
      return fit_pairs(
        distances_of(points, classes, *arguments),
        pairs,
        bound * exists,
        num_points,
        tolerance,
        steps,
      )

    ways = [(svm_kernel.at_once, within, kernel), (svm_kernel.on_demand, kernel, tf.float64)]
    if kernel.kind == svm_kernel.LINEAR:
      ways.append((svm_kernel.on_demand, kernel, tf.float32))
    of_pairs, squares, ended = tf.switch_case(
      way, [functools.partial(fitted, *arguments) for arguments in ways]
    )
    square = [tiles.width, tiles.width]
    shape = [*square, 2 * num_points]
    of_points = tf.scatter_nd(pairs, of_pairs, shape)
    supports = _with_used(supports, classes, of_points)
    return (
      supports,
      coefficients.write(tile, of_points),
      norms.write(tile, tf.scatter_nd(pairs, squares, square)),
      stopped + tf.reduce_sum(tf.cast(ended, tf.float32)),
    )

  def array():
    return tf.TensorArray(tf.float32, tiles.count, infer_shape=False, clear_after_read=False)

  supports = tf.zeros(tf.shape(points)[:2], tf.int32)
  supports, coefficients, norms, stopped = tiles.each(of_tile, supports, array(), array(), 0.0)
  return Machines(
    points,
    shift,
    supports > 0,
    coefficients,
    norms,
    tf.math.divide_no_nan(stopped, pair_count(tf.shape(points)[0])),
    on_demand,
  )


def pair_count(num_classes: tf.Tensor) -> tf.Tensor:
  """Returns the number of pairs of n classes, a float32 scalar."""
  count = tf.cast(num_classes, tf.float32)
  return count * (count - 1.0) / 2.0


def _with_used(supports, classes, coefficients):
  """Returns `supports` int32 [n, M] with 1 also for the support vectors of a tile.

  `coefficients` [k, k, 2 M] are the tile's coefficients.
  """
  used = tf.cast(tf.not_equal(coefficients, 0.0), tf.int32)
  for axis, (of, half) in enumerate(zip(classes, tf.split(used, 2, axis=-1), strict=True)):
    # Each class of the rows forms a pair with every class of the columns.
    any_pair = tf.reduce_max(half, axis=1 - axis)
    supports = tf.tensor_scatter_nd_max(supports, of[:, None], any_pair)
  return supports


def similarities(
  machines: Machines, rows: tf.Tensor, kernel: svm_kernel.Kernel
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns sum_{a < b} exp(-u_ab^2 / 2) for rows float32 [n, d], and its gradient.

  u_ab = (f(w_a) - f(w_b)) . h_ab / |h_ab|, where h_ab is the normal of the pair's machine,
  treated as constant, and f is the kernel's map to feature space. A pair whose normal is 0
  adds nothing.
  """
  tiles = _Tiles(machines.points, machines.on_demand)
  points = machines.points
  rows = tf.cast(rows - machines.shift, tf.float64)
  norms = tf.reduce_sum(tf.square(points), axis=-1)
  norms = kernel.of_itself(tf.cast(norms, tf.float64))
  longest = tf.reduce_max(norms, axis=1)

  def of_tile(tile, total, gradient):
    first, second = tiles.classes(tile)

    def of(t, classes):
      return tf.cast(tf.gather(t, classes), tf.float64)

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
      scale = tf.maximum(tf.gather(longest, first)[:, None], tf.gather(longest, second))
      zero = scale * tf.square(_ZERO * tf.reduce_sum(of_first, axis=-1))
      exists = squares > zero
      squares = tf.where(exists, squares, 1.0)
      terms = tf.exp(-0.5 * tf.square(along) / squares)
      similarity = tf.reduce_sum(tf.where(exists, terms, 0.0))
    for classes, move in zip((first, second), tape.gradient(similarity, (a, b)), strict=True):
      gradient = tf.tensor_scatter_nd_add(gradient, classes[:, None], move)
    return total + similarity, gradient

  zero = tf.constant(0.0, tf.float64)
  total, gradient = tiles.each(of_tile, zero, tf.zeros_like(rows))
  return tf.cast(total, tf.float32), tf.cast(gradient, tf.float32)


def _along_normals(rows, points, coefficients, kernel):
  """Returns float64 [k, k], (f(w_a) - f(w_b)) . h_ab for the pairs of a tile."""
  width, count, size = tf.unstack(tf.shape(points[0]))

  def own(row, points):
    products = tf.matmul(points, row[:, :, None])[..., 0]
    norms = tf.reduce_sum(row * row, -1)[:, None]
    return kernel(products, norms, tf.reduce_sum(points * points, -1))

  def across(row, points):
    flat = tf.reshape(points, [width * count, size])
    norms = tf.reduce_sum(row * row, -1)[:, None]
    values = kernel(tf.matmul(row, flat, transpose_b=True), norms, tf.reduce_sum(flat * flat, -1))
    return tf.reshape(values, [width, width, count])

  (a, b), (of_a, of_b) = rows, points
  from_a = own(a, of_a)[:, None] - tf.transpose(across(b, of_a), [1, 0, 2])
  from_b = across(a, of_b) - own(b, of_b)[None]
  return tf.reduce_sum(coefficients[0] * from_a + coefficients[1] * from_b, axis=-1)


@dataclasses.dataclass(frozen=True)
class Bound:
  """C of the machines in round t = 0, 1, ...

  C is `largest` times a factor. The factor is (T - t) / T for 'decreasing' (as published), (t + 1)
  / T for 'increasing', and 1 for 'constant'. T is `rounds`. After round T - 1, C stays the same.
  """

  largest: float = 1.0
  schedule: str = 'decreasing'
  rounds: int = 201

  def __call__(self, round_number: tf.Tensor) -> tf.Tensor:
    """Returns C in this round, float32 scalar."""
    if self.schedule == 'constant':
      return tf.constant(float(self.largest))
    done = tf.minimum(round_number, self.rounds - 1)
    steps = done + 1 if self.schedule == 'increasing' else self.rounds - done
    return self.largest * tf.cast(steps, tf.float32) / self.rounds


@dataclasses.dataclass(frozen=True)
class SupportVectors:
  """The server's step on the rows of all clients side by side (`merge.StackRows`).

  Every client sends all n rows. If a round does not draw a class, the class gets the mean of its
  rows. Adam's remaining momentum then moves this row, as in the published code.

  Attributes:
    num_classes: n, at least 2.
    bound: a function from a round number to C.
    kernel: the kernel of the machines.
    subset: the number of classes that are drawn in each round; None: all.
    tolerance: see `fit_pairs`.
    steps: the largest number of steps of a fit.
    optimizer: the optimizer of the spread-out step, or None for no such step.
  """

  num_classes: int
  bound: Bound
  kernel: svm_kernel.Kernel = dataclasses.field(default_factory=svm_kernel.Kernel)
  subset: int | None = None
  tolerance: float = 1e-3
  steps: int = 50
  optimizer: tff.learning.optimizers.Optimizer | None = None

  on_all_rows = False

  @property
  def metrics(self) -> tuple[str, ...]:
    names = (
      'support_vectors',
      'support_vectors_least',
      'support_vectors_most',
      f'support_vectors_class_{_COUNTED}',
      'machines_stopped',
    )
    return (*names, 'pair_similarity') if self.optimizer else names

  def initialize(self, table_spec):
    return self.optimizer.initialize(table_spec) if self.optimizer else ()

  def next(self, state, rows, context):
    size = tf.shape(rows)[0]
    stacked, weights = self._by_client(context.merged)
    row_dim = stacked.shape[2]
    flat = tf.reshape(stacked, [-1, self.num_classes * row_dim])
    mean = tf.reshape(_mean(weights[None], flat), [-1, row_dim])
    classes = self.drawn(context.seed)
    if classes.shape[0] != self.num_classes:
      stacked = tf.gather(stacked, classes, axis=1)
    points = tf.transpose(stacked, [1, 0, 2])
    machines = fit(
      points, self.kernel, self.bound(context.round_number), self.tolerance, self.steps
    )
    supports = weights * tf.cast(machines.supports, tf.float32)
    selected = _mean(supports[:, None], points)[:, 0]
    # If no support vector of a class has a positive weight, the class takes the mean of its rows.
    counts = tf.reduce_sum(supports, axis=1, keepdims=True) > 0
    selected = tf.where(counts, selected, tf.gather(mean, classes))
    new = tf.tensor_scatter_nd_update(mean, classes[:, None], selected)
    measured = self._measured(machines, classes)
    if self.optimizer:
      loss, gradient = similarities(machines, selected, self.kernel)
      gradient = tf.scatter_nd(classes[:, None], gradient, tf.shape(new))
      state, new = self.optimizer.next(state, new, gradient)
      pairs = pair_count(tf.shape(classes)[0])
      measured['pair_similarity'] = loss / pairs
    # If no client's update arrived, `rows` is empty.
    return state, new[:size], measured

  def _by_client(self, merged):
    """Returns the rows float32 [M, n, row_dim], and weights float32 [M]."""
    shape = [-1, self.num_classes, merged.rows.shape[1]]
    stacked = tf.reshape(merged.rows, shape)
    weights = tf.reshape(merged.weights, shape[:2])[:, 0]
    # Without clients, use one client of weight 0, because no dimension of a tensor may be 0 here.
    return tf.cond(
      tf.size(weights) > 0,
      lambda: (stacked, weights),
      lambda: (tf.zeros([1, *shape[1:]]), tf.zeros([1])),
    )

  def drawn(self, seed):
    """Returns int32 [n'], the classes of this round, ascending."""
    everyone = tf.range(self.num_classes)
    if self.subset in (None, self.num_classes):
      return everyone
    seed = randomness.step_seed(seed, _SUBSET)
    order = tf.random.experimental.stateless_shuffle(everyone, seed)
    return tf.sort(order[: self.subset])

  def _measured(self, machines, classes):
    counts = tf.reduce_sum(tf.cast(machines.supports, tf.float32), axis=1)
    of_one = tf.reduce_max(tf.where(tf.equal(classes, _COUNTED), counts, float('-inf')))
    of_one = tf.where(tf.math.is_finite(of_one), of_one, float('nan'))
    values = (
      tf.reduce_mean(counts),
      tf.reduce_min(counts),
      tf.reduce_max(counts),
      of_one,
      machines.stopped,
    )
    return dict(zip(self.metrics[:5], values, strict=True))


def _mean(weights, rows):
  """Returns the weighted means [..., 1, d] of rows [..., M, d]; 0 if all weights are 0."""
  total = tf.reduce_sum(weights, axis=-1, keepdims=True)
  return tf.math.divide_no_nan(tf.matmul(weights, rows), total)
