"""Question 2: what does a client minimise on the rows it holds?

Either softmax cross entropy whose denominator runs over a set T of held
classes: all held classes (FedSS, FullSoftmax), the target and the negatives
(NegOnly), or the client's own classes (PosOnly). FedSS, equations (2) and (5)
to (8).

Or a squared hinge on the target's cosine, which does not push an embedding away
from other classes (FedAwS, equation (23)).
"""

import dataclasses
from typing import NamedTuple
from typing import Protocol

import tensorflow as tf

from tff_xc import classifier
from tff_xc.encoders import encoder as encoder_lib
from tff_xc.round import request

# A float32 softmax gives this logit probability zero, like minus infinity,
# except that its gradient is zero instead of NaN.
_EXCLUDED = -1e9

CORRECTIONS = ('negatives', 'none')


class LocalStep(NamedTuple):
  """The inputs of an objective in one step of local training.

  Attributes:
    logits: float32 [B, N], the batch's logits for the held rows.
    targets: int32 [B], slots of the labels.
    held: the classes held.
    embeddings: float32 [B, d].
    parameters: the current (encoder weights by name, rows [N, row_dim]).
    initial_parameters: the same, as the server sent them this round.
  """

  logits: tf.Tensor
  targets: tf.Tensor
  held: request.HeldClasses
  embeddings: tf.Tensor
  parameters: tuple[encoder_lib.Weights, tf.Tensor]
  initial_parameters: tuple[encoder_lib.Weights, tf.Tensor]


class Objective(Protocol):
  """Scores one step of local training."""

  def __call__(self, step: LocalStep) -> tf.Tensor:
    """Returns the loss, float32 scalar: the mean over the batch."""


def negative_correction(
  held: request.HeldClasses, num_classes: int
) -> tf.Tensor:
  """Returns FedSS's correction, float32 [N], to be added to the logits.

  A negative j is held with probability m / (n - |P_k|); its corrected logit is
  o'_j = o_j - log(m q_j) = o_j + log((n - |P_k|) / m), which makes the sampled
  partition function unbiased. Positives are always held and need no
  correction. (A constant on every term would cancel in the softmax.)
  """
  positive = held.counts > 0
  negative = tf.logical_and(held.mask, tf.logical_not(positive))
  num_positives = tf.reduce_sum(tf.cast(positive, tf.float32))
  drawn = tf.reduce_sum(tf.cast(negative, tf.float32))
  shift = tf.math.log((num_classes - num_positives) / tf.maximum(drawn, 1.0))
  return tf.where(negative, shift, 0.0)


@dataclasses.dataclass(frozen=True)
class HeldSoftmax:
  """Softmax over all held rows, or over some of them.

  Attributes:
    num_classes: n.
    correction: 'negatives' or 'none'.
    denominator: 'held' (FedSS eq. 5/6; FullSoftmax eq. 2 where all n rows are
      held), 'negatives' ({t} and N_k, NegOnly eq. 7) or 'positives' (P_k,
      PosOnly eq. 8).
  """

  num_classes: int
  correction: str = 'none'
  denominator: str = 'held'

  def __post_init__(self):
    if self.correction not in CORRECTIONS:
      raise ValueError(f'unknown correction {self.correction!r}')
    if self.denominator not in ('held', 'negatives', 'positives'):
      raise ValueError(f'unknown denominator {self.denominator!r}')

  def __call__(self, step: LocalStep) -> tf.Tensor:
    logits = step.logits
    if self.correction == 'negatives':
      logits += negative_correction(step.held, self.num_classes)
    logits = tf.where(self._terms(step), logits, _EXCLUDED)
    return tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=step.targets, logits=logits
      )
    )

  def _terms(self, step: LocalStep) -> tf.Tensor:
    """Returns bool [B, N] or [1, N]: the terms of each denominator."""
    held = step.held
    mask = held.mask[None, :]
    if self.denominator == 'held':
      return mask
    positive = held.counts[None, :] > 0
    if self.denominator == 'positives':
      return positive
    target = tf.one_hot(
      step.targets, tf.shape(held.ids)[0], on_value=True, off_value=False
    )
    return tf.logical_and(mask, tf.logical_or(target, tf.logical_not(positive)))


@dataclasses.dataclass(frozen=True)
class PositiveHinge:
  """max(0, margin - cos(g(x), w_y))^2, FedAwS's loss (eq. 23).

  An example whose cosine has reached the margin has no gradient.

  Attributes:
    margin: 0.9 in the paper.
    fixed_rows: no gradient for the rows (the paper's Baseline-2).
  """

  margin: float = 0.9
  fixed_rows: bool = False

  def __call__(self, step: LocalStep) -> tf.Tensor:
    rows = tf.gather(step.parameters.rows, step.targets)
    if self.fixed_rows:
      rows = tf.stop_gradient(rows)
    cosines = tf.reduce_sum(
      classifier.unit_norm(step.embeddings) * classifier.unit_norm(rows), axis=1
    )
    return tf.reduce_mean(tf.square(tf.nn.relu(self.margin - cosines)))
