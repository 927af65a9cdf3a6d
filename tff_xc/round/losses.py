"""Question 2: which loss does a client minimise on the rows that it received?

`HeldSoftmax` is softmax cross entropy. The denominator has all received classes (FedSS,
FullSoftmax), the target and the negatives (NegOnly), or the client's own classes (PosOnly). See
FedSS, equations (2) and (5) to (8).

`PositiveHinge` is a squared hinge on the target's cosine, which does not push an embedding away
from other rows (FedAwS, equation (23)). `Contrastive` also pushes an embedding away from other rows
(FedAwS, equation (6)).

`BinaryCrossEntropy` is for examples with sets of labels. Penalties, such as `Proximal`, are added
to the mean loss.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tff_xc import classifier
from tff_xc.data import sparse
from tff_xc.encoders import layers
from tff_xc.round import request

# If this number is added to a logit, the logit has probability zero and no gradient in a float32
# softmax.
_EXCLUDED = -1e9


class LocalStep(NamedTuple):
  """The inputs of losses and penalties in one step of local training."""

  logits: tf.Tensor  # float32 [B, N], the batch's logits for N received rows.
  # int32 [B], for each label the slot (index) of its row among the N received rows. If examples
  # have sets of labels or a label has several rows, `targets` is `LabelSets` of slots.
  targets: tf.Tensor | sparse.LabelSets
  held: request.SelectedRows  # The N received class rows.
  embeddings: tf.Tensor  # float32 [B, ...].
  x: Any = ()  # The batch's examples.
  seed: Any = ()  # int32 [2], the encoder's seed.
  # The current weights, and the weights from which the client started, with only the received rows
  # of each table.
  weights: classifier.ModelWeights | tuple = ()
  initial_weights: classifier.ModelWeights | tuple = ()
  state: Any = ()  # The client's `KeptState`.
  received: Any = ()  # The server's messages by part, see `parts.Part`.


class Loss(Protocol):
  """Computes the loss of each example in one step of local training.

  A loss that does not train class rows has the attribute `trains_rows = False`. If a loss adds a
  term to another loss, its attribute `loss` is the other loss.
  """

  def __call__(self, step: LocalStep) -> tf.Tensor:
    """Returns float32 [B], the loss of each example."""


def trains_rows(loss: Loss) -> bool:
  """Returns whether a loss trains class rows.

  If the loss adds a term to another loss, the other loss decides.
  """
  inner = getattr(loss, 'loss', loss)
  return getattr(inner, 'trains_rows', True)


class Penalty(Protocol):
  """A term of the objective that is not a mean over examples."""

  def __call__(self, step: LocalStep) -> tf.Tensor:
    """Returns a float32 scalar to add to the mean loss. The reported loss excludes it."""


def negative_correction(held: request.SelectedRows, num_rows: int) -> tf.Tensor:
  """Returns FedSS's correction, float32 [N], which is added to the logits.

  A client k receives a negative class j with probability m / (n - |P_k|). With q_j = 1 / (n -
  |P_k|), the corrected logit is o'_j = o_j - log(m q_j) = o_j + log((n - |P_k|) / m). The
  correction makes the sampled partition function unbiased. A client always receives its own classes
  (positives), so they need no correction.
  """
  # If only features name a row, its count is -1. A client always receives this row, like a
  # positive.
  positive = tf.not_equal(held.counts, 0)
  negative = tf.logical_and(held.mask, tf.logical_not(positive))
  num_positives = tf.reduce_sum(tf.cast(positive, tf.float32))
  drawn = tf.reduce_sum(tf.cast(negative, tf.float32))
  shift = tf.math.log((num_rows - num_positives) / tf.maximum(drawn, 1.0))
  return tf.where(negative, shift, 0.0)


@tf.custom_gradient
def softmax_cross_entropy(logits: tf.Tensor, targets: tf.Tensor):
  """Returns float32 [B], -log softmax(logits [B, N])[targets int32 [B]].

  TensorFlow's `sparse_softmax_cross_entropy_with_logits` returns the same, but computes each
  exponential twice and takes two to three times as long on a CPU.
  """
  largest = tf.reduce_max(logits, axis=1, keepdims=True)
  exponentials = tf.exp(logits - largest)
  sums = tf.reduce_sum(exponentials, axis=1)
  at_targets = tf.stack([tf.range(tf.size(targets)), targets], axis=1)
  margin = tf.squeeze(largest, axis=1) - tf.gather_nd(logits, at_targets)

  def gradient(upstream):
    scaled = exponentials * (upstream / sums)[:, None]
    return tf.tensor_scatter_nd_sub(scaled, at_targets, upstream), None

  return tf.math.log(sums) + margin, gradient


def one_each(step: LocalStep) -> tf.Tensor:
  """Returns the targets int32 [B]. Raises ValueError if examples have sets of labels."""
  if isinstance(step.targets, sparse.LabelSets):
    raise ValueError('this loss takes one label for each example, not a set')
  return step.targets


@dataclasses.dataclass(frozen=True)
class HeldSoftmax:
  """Softmax cross entropy over all received class rows, or over some of them.

  Logits must be finite and far below 1e9 in magnitude, because 1e9 is subtracted from the logits of
  rows outside the denominator.

  Attributes:
    num_rows: n.
    correction: 'negatives' adds `negative_correction` to the logits; 'none' does not.
    denominator: the rows in the softmax's denominator. 'held' means all received rows (FedSS, eq. 5
      and 6; FullSoftmax, eq. 2, if the client received all n rows). 'negatives' means the target
      and the negatives N_k (NegOnly, eq. 7). 'positives' means the client's own classes P_k
      (PosOnly, eq. 8).
    calibration: a function (logits [B, N], held) -> logits, or None; see
      `tff_xc.options.calibration`.
  """

  num_rows: int
  correction: str = 'none'
  denominator: str = 'held'
  calibration: Callable | None = None

  def __post_init__(self):
    if self.correction not in ('negatives', 'none'):
      raise ValueError(f'unknown correction {self.correction!r}')
    if self.denominator not in ('held', 'negatives', 'positives'):
      raise ValueError(f'unknown denominator {self.denominator!r}')

  def __call__(self, step: LocalStep) -> tf.Tensor:
    # Add up the shifts of the rows first, because there are many more logits than rows.
    shift = tf.where(self._terms(step), 0.0, _EXCLUDED)
    if self.correction == 'negatives':
      shift += negative_correction(step.held, self.num_rows)
    logits = step.logits
    if self.calibration:
      logits = self.calibration(logits, step.held)
    return softmax_cross_entropy(logits + shift, one_each(step))

  def _terms(self, step: LocalStep) -> tf.Tensor:
    """Returns bool [B, N] or [1, N], the rows in each example's denominator."""
    held = step.held
    mask = held.mask[None, :]
    if self.denominator == 'held':
      return mask
    positive = held.counts[None, :] > 0
    if self.denominator == 'positives':
      return positive
    target = tf.one_hot(one_each(step), tf.shape(held.ids)[0], on_value=True, off_value=False)
    negative = tf.equal(held.counts[None, :], 0)
    return tf.logical_and(mask, tf.logical_or(target, negative))


@dataclasses.dataclass(frozen=True)
class PositiveHinge:
  """max(0, margin - cos(g(x), w_y))^2, FedAwS's loss (eq. 23; margin 0.9).

  If the cosine of an example has reached the margin, the example has no gradient.
  """

  margin: float = 0.9

  def __call__(self, step: LocalStep) -> tf.Tensor:
    rows = tf.gather(step.weights.class_table, one_each(step))
    cosines = tf.reduce_sum(layers.unit_norm(step.embeddings) * layers.unit_norm(rows), axis=1)
    return tf.square(tf.nn.relu(self.margin - cosines))


DISTANCES = ('cosine', 'euclidean')


@dataclasses.dataclass(frozen=True)
class Contrastive:
  """FedAwS's contrastive loss pulls an embedding to its class row and away from other rows.

  s_c is the cosine between the embedding g(x) and the class row w_c. The loss is

    eq. (6)         alpha d(g(x), w_y)^2 + beta sum_{c != y} max(0, nu - d(g(x), w_c))^2
    eq. (11), (12)  (1 - s_y)^2 + sum_{c != y} max(0, nu - 1 + s_c)^2

  Equations (11) and (12) are equation (6) with d = 1 - s and alpha = beta = 1. The sum is over the
  received rows. See Yu et al., ICML 2020, arXiv:2004.10342.

  Attributes:
    pull_weight: alpha.
    push_weight: beta.
    margin: nu.
    distance: 'cosine', d = 1 - s, or 'euclidean', d^2 = 2 - 2 s.
  """

  pull_weight: float = 1.0
  push_weight: float = 1.0
  margin: float = 1.0
  distance: str = 'cosine'

  def __call__(self, step: LocalStep) -> tf.Tensor:
    d = 1.0 - tf.matmul(
      layers.unit_norm(step.embeddings),
      layers.unit_norm(step.weights.class_table),
      transpose_b=True,
    )
    if self.distance == 'euclidean':
      d = tf.sqrt(tf.maximum(2.0 * d, 1e-12))
    own = tf.one_hot(one_each(step), tf.shape(d)[1])
    others = tf.cast(step.held.mask, tf.float32) - own
    pull = tf.reduce_sum(own * tf.square(d), axis=1)
    push = tf.reduce_sum(others * tf.square(tf.nn.relu(self.margin - d)), axis=1)
    return self.pull_weight * pull + self.push_weight * push


@dataclasses.dataclass(frozen=True)
class BinaryCrossEntropy:
  """Binary cross entropy of whether an example has the label of each received row.

  The loss of an example is R times the mean over the received rows, where R is the number of hash
  tables, `tables`. This product equals the sum of the means of the R tables (FedMLH, Algorithm 2).
  If several labels of an example share a row, the row is one target (Algorithm 2, line 6).
  """

  tables: int = 1

  def __call__(self, step: LocalStep) -> tf.Tensor:
    mask = tf.cast(step.held.mask, tf.float32)
    count = tf.maximum(tf.reduce_sum(mask), 1.0)
    of_negatives = tf.reduce_sum(tf.nn.softplus(step.logits) * mask, axis=1)
    # With the logit z, the term of a target is log(1 + e^z) - z.
    of_targets = _sum_of_targets(step.logits, step.targets)
    return self.tables * (of_negatives - of_targets) / count


def _sum_of_targets(logits, targets):
  """Returns float32 [B], the sums of the logits of each example's targets."""
  size, slots = tf.shape(logits)[0], tf.shape(logits)[1]
  if isinstance(targets, sparse.LabelSets):
    example = tf.ragged.row_splits_to_segment_ids(targets.row_splits, out_type=tf.int32)
    # Labels of one example may share a row. The row then counts once.
    places = tf.unique(example * slots + targets.ids).y
  else:
    places = tf.range(size) * slots + targets
  of_targets = tf.gather(tf.reshape(logits, [-1]), places)
  return tf.math.unsorted_segment_sum(of_targets, places // slots, size)


@dataclasses.dataclass(frozen=True)
class Proximal:
  """The penalty weight * |theta - theta_G|^2 over all trained weights (FedProx).

  Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks",
  MLSys 2020, arXiv:1812.06127, eq. (2). The paper's mu is twice the weight.

  theta_G are the weights that the client received: the encoder, and its rows of each table.
  """

  weight: float

  def __call__(self, step: LocalStep) -> tf.Tensor:
    now, received = (
      tf.nest.flatten([weights.encoder, weights.tables])
      for weights in (step.weights, step.initial_weights)
    )
    halves = [tf.nn.l2_loss(a - b) for a, b in zip(now, received, strict=True)]
    return 2.0 * self.weight * tf.add_n(halves)
