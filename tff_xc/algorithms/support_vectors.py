"""TurboSVM-FL's server step: selective aggregation and max-margin spread-out.

Wang, Bodonhelyi, Bozkir, Kasneci: "TurboSVM-FL: Boosting Federated Learning
through SVM Aggregation for Lazy Clients", AAAI 2024, arXiv:2401.12012, and the
code that its authors published.

The class rows of all clients, a bias being a row's last coordinate, are the
points of one-against-one support vector machines (eq. (6)). A class's new row
is the mean of those of its points that are support vectors in any pair,
weighted by their clients' examples (eq. (7)). Then one Adam step, whose state
is kept over rounds, goes down

  sum_{a < b} exp(-((w_a - w_b) . h_ab / |h_ab|)^2 / 2)             (eq. (8))

with the normal h_ab of the pair's machine, held constant.
"""

import dataclasses

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import errors
from tff_xc.algorithms import svm_kernels
from tff_xc.algorithms import svm_pairs
from tff_xc.algorithms import svm_settings
from tff_xc.round import randomness

# The class whose support vectors Table 4 counts.
_COUNTED = 1
# Folded into a round's seed; no client has this number.
_SUBSET = -1
_LINEAR = svm_kernels.Kernel()


@dataclasses.dataclass(frozen=True)
class Bound:
  """C of the machines in round t = 0, 1, ...

  decreasing: (T - t) / T, as published, times `largest`; from round T - 1 on it
  stays. increasing: (t + 1) / T, likewise. constant: `largest`.

  Attributes:
    largest: the largest C.
    schedule: one of `svm_settings.SCHEDULES`.
    rounds: T.
  """

  largest: float = 1.0
  schedule: str = 'decreasing'
  rounds: int = 201

  def __post_init__(self):
    if self.schedule not in svm_settings.SCHEDULES:
      raise ValueError(f'unknown schedule {self.schedule!r}')
    if self.largest <= 0 or self.rounds < 1:
      raise ValueError(f'C is {self.largest} in {self.rounds} rounds')

  def __call__(self, round_number: tf.Tensor) -> tf.Tensor:
    """Returns C in this round, float32 scalar."""
    if self.schedule == 'constant':
      return tf.constant(float(self.largest))
    done = tf.minimum(round_number, self.rounds - 1)
    steps = done + 1 if self.schedule == 'increasing' else self.rounds - done
    return self.largest * tf.cast(steps, tf.float32) / self.rounds


@dataclasses.dataclass(frozen=True)
class SupportVectors:
  """The step, on the rows of all clients side by side (`merge.StackRows`).

  Every client sends all n rows. Classes that are not drawn take the mean of
  their rows; what is left of Adam's momentum moves them, too, as in the
  published code.

  Attributes:
    num_classes: n, at least 2.
    bound: C by round.
    kernel: of the machines.
    subset: the classes that are drawn in each round, see
      `svm_settings.subset_size`.
    tolerance: at which a machine's fit ends.
    steps: the most steps of a fit.
    optimizer: of the spread-out, or None for none.
  """

  num_classes: int
  bound: Bound
  kernel: svm_kernels.Kernel = _LINEAR
  subset: float = 1.0
  tolerance: float = 1e-3
  steps: int = 50
  optimizer: tff.learning.optimizers.Optimizer | None = None

  on_all_rows = False

  def __post_init__(self):
    if self.num_classes < 2:
      raise errors.InputError(
        'turbosvm separates pairs of classes: expected at least 2 classes'
      )
    svm_settings.subset_size(self.subset, self.num_classes)
    if self.tolerance <= 0 or self.steps < 1:
      raise ValueError(f'tolerance {self.tolerance}, {self.steps} steps')

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
    machines = svm_pairs.fit(
      points,
      self.kernel,
      self.bound(context.round_number),
      self.tolerance,
      self.steps,
    )
    supports = weights * tf.cast(machines.supports, tf.float32)
    selected = _mean(supports[:, None], points)[:, 0]
    # A class without a support vector that counts takes the mean of its rows.
    counts = tf.reduce_sum(supports, axis=1, keepdims=True) > 0
    selected = tf.where(counts, selected, tf.gather(mean, classes))
    new = tf.tensor_scatter_nd_update(mean, classes[:, None], selected)
    measured = self._measured(machines, classes)
    if self.optimizer:
      loss, gradient = svm_pairs.similarities(machines, selected, self.kernel)
      gradient = tf.scatter_nd(classes[:, None], gradient, tf.shape(new))
      state, new = self.optimizer.next(state, new, gradient)
      pairs = svm_pairs.pair_count(tf.shape(classes)[0])
      measured['pair_similarity'] = loss / pairs
    # No rows if no client's update is left.
    return state, new[:size], measured

  def _by_client(self, merged):
    """Returns the rows float32 [M, n, row_dim], and weights float32 [M]."""
    shape = [-1, self.num_classes, merged.rows.shape[1]]
    stacked = tf.reshape(merged.rows, shape)
    weights = tf.reshape(merged.weights, shape[:2])[:, 0]
    # Without clients, one of weight 0: no shape here may be 0.
    return tf.cond(
      tf.size(weights) > 0,
      lambda: (stacked, weights),
      lambda: (tf.zeros([1, *shape[1:]]), tf.zeros([1])),
    )

  def drawn(self, seed):
    """Returns int32 [n'], the classes of this round, ascending."""
    count = svm_settings.subset_size(self.subset, self.num_classes)
    everyone = tf.range(self.num_classes)
    if count == self.num_classes:
      return everyone
    seed = randomness.step_seed(seed, _SUBSET)
    order = tf.random.experimental.stateless_shuffle(everyone, seed)
    return tf.sort(order[:count])

  def _measured(self, machines, classes):
    counts = tf.reduce_sum(tf.cast(machines.supports, tf.float32), axis=1)
    of_one = tf.reduce_max(
      tf.where(tf.equal(classes, _COUNTED), counts, float('-inf'))
    )
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
  """Returns [..., 1, d], weighted means over M; 0 where all weights are 0.

  Args:
    weights: float32 [..., 1, M].
    rows: float32 [..., M, d].
  """
  total = tf.reduce_sum(weights, axis=-1, keepdims=True)
  return tf.math.divide_no_nan(tf.matmul(weights, rows), total)
