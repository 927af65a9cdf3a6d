"""Calibrated logits: softmax for clients whose classes are few or uneven.

Only the loss of local training sees them; scores of a model are its plain logits. With
o_c the logit of class c, and n_c the client's examples of it, the softmax is over

  restricted  alpha o_c if n_c = 0, else o_c. Li, Zhan: "FedRS: Federated Learning with
              Restricted Softmax for Label Distribution Non-IID Data", KDD 2021.
  counts      o_c - tau n_c^(-1/4). Zhang, Li, Li, Xu, Wu, Ding, Wu: "Federated Learning
              with Label Distribution Skew via Logits Calibration" (FedLC), ICML 2022,
              arXiv:2209.00189.
  prior       o_c + tau log p(c), with p of all training examples. Menon, Jayasumana,
              Rawat, Jain, Veit, Kumar: "Long-tail Learning via Logit Adjustment", ICLR
              2021, arXiv:2007.07314.

A client counts all of its examples, also where it draws some for a round. Sampled
negatives (FedSS) are classes that it lacks; their correction comes after, so that the
sampled sum stays an unbiased estimate of that over all classes.

FedRS's published code differs from the paper: alpha + (1 - alpha) n_c / max n. FedLC
leaves n_c = 0 open: here n_c is at least `absent`. Its formula sums over all classes but
the true one, here over all (docs/rivals.md says why).
"""

import dataclasses
from typing import Protocol

import numpy as np
import tensorflow as tf

from tff_xc import errors
from tff_xc.round import algorithm as algorithm_lib, losses, request

# Keeps the logarithm of a class without training examples finite.
_TINY = 1e-12
# The logits' shift from which on exp is 0 in float32.
_NOTHING_LEFT = 80.0


class Calibration(Protocol):
  """Changes logits within a loss; a field of `losses.HeldSoftmax`."""

  def __call__(self, logits: tf.Tensor, held: request.SelectedRows) -> tf.Tensor:
    """Returns float32 [B, N], of the logits of the class rows held."""


@dataclasses.dataclass(frozen=True)
class Restricted:
  """FedRS: logits of classes that the client lacks are scaled by alpha."""

  alpha: float = 0.5

  def __call__(self, logits, held):
    return logits * tf.where(held.counts > 0, 1.0, self.alpha)


@dataclasses.dataclass(frozen=True)
class Counts:
  """FedLC: the fewer examples of a class, the wider its margin.

  Attributes:
    tau: the margin's factor.
    absent: n_c of a class that the client lacks.
  """

  tau: float = 1.0
  absent: float = 1e-8

  @property
  def of_absent(self) -> float:
    """What is subtracted from the logit of a class that the client lacks."""
    return self.tau * self.absent**-0.25

  def __call__(self, logits, held):
    counts = tf.maximum(tf.cast(held.counts, tf.float32), self.absent)
    return logits - self.tau * tf.pow(counts, -0.25)


@dataclasses.dataclass(frozen=True, eq=False)
class Prior:
  """Logit adjustment by the classes' shares of all training examples.

  `shift` is tau log p, float32 [n]. It is a part of the clients' program, as frozen
  weights are, and not sent in a round.
  """

  shift: np.ndarray

  def __call__(self, logits, held):
    return logits + tf.gather(tf.constant(self.shift), held.ids)


def prior(tau: float, examples: np.ndarray) -> Prior:
  """Returns the adjustment for numbers of training examples [n] of the classes."""
  p = np.asarray(examples, np.float64)
  return Prior((tau * np.log(p / p.sum() + _TINY)).astype(np.float32))


def calibrated(algorithm: algorithm_lib.Algorithm, how: Calibration) -> algorithm_lib.Algorithm:
  """Returns the algorithm with calibrated logits in its softmax.

  InputError: it has no softmax, no row for each class, or nothing would change.
  """
  loss, model = algorithm.loss, algorithm.model
  if model.rows_per_label != 1:
    raise errors.InputError(
      '--calibration needs a row for each class, and this algorithm hashes several'
      ' classes into one row; leave it out'
    )
  if not isinstance(loss, losses.HeldSoftmax):
    raise errors.InputError(
      '--calibration changes the logits of a softmax, and here none is minimized; leave it out'
    )
  if isinstance(how, Restricted) and loss.denominator == 'positives':
    raise errors.InputError(
      '--calibration=restricted is about classes that a client lacks, which this'
      ' softmax leaves out; leave it out, or give --algorithm=fedss'
    )
  negatives = getattr(algorithm.tables[0].request, 'negatives', 0)
  if negatives and isinstance(how, Counts) and how.of_absent > _NOTHING_LEFT:
    raise errors.InputError(
      f'--calibration=counts with --calibration_absent={how.absent:g} leaves sampled'
      ' negatives no gradient: give --calibration_absent=1, which counts them like'
      ' classes of one example, or --algorithm=posonly, which requests none'
    )
  return dataclasses.replace(algorithm, loss=dataclasses.replace(loss, calibration=how))
