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

from __future__ import annotations

import dataclasses
from typing import Any

from tff_xc import errors
from tff_xc.lazy import tf
from tff_xc.options import hyperparameters as hp, option

# Values of --calibration.
RESTRICTED, COUNTS, PRIOR = 'restricted', 'counts', 'prior'
KINDS = ('none', RESTRICTED, COUNTS, PRIOR)
# Keeps the logarithm of a class without training examples finite.
_TINY = 1e-12
# The logits' shift from which on exp is 0 in float32.
_NOTHING_LEFT = 80.0
# A logit less this much nearly leaves its class out of a softmax.
_MUCH = 20.0


@hp.declared
class Calibration(option.Option):
  """Logits that know how often a client has each class; a field of `losses.HeldSoftmax`."""

  calibration: str = hp.field(
    'none',
    "change of the logits in the local softmax, but not in evaluation: 'restricted' (FedRS)"
    " multiplies the logits of classes that the client lacks by --calibration_alpha; 'counts'"
    " (FedLC) subtracts --calibration_tau / n^(1/4), where n is the client's number of examples"
    " of the class; 'prior' (logit adjustment) adds --calibration_tau log p, where p is the"
    " class's share of all training examples or from --calibration_probabilities",
    choices=KINDS,
  )
  calibration_alpha: float = hp.field(
    0.5,
    'alpha, the factor of the logits of classes that a client lacks; 1: plain softmax',
    least=0,
    most=1,
    of='calibration',
    only_with=(RESTRICTED,),
  )
  calibration_tau: float = hp.field(
    1.0,
    'tau, factor of the shift of logits; 0: plain softmax',
    least=0,
    of='calibration',
    only_with=(COUNTS, PRIOR),
  )
  calibration_probabilities: str = hp.field(
    '',
    'CSV FILE class,probability of p. Default: the shares of all training examples, which --dp'
    ' refuses because every client would receive them',
    of='calibration',
    only_with=(PRIOR,),
  )
  calibration_absent: float = hp.field(
    1e-8,
    "n of classes that the client lacks, where FedLC's formula is undefined. The default nearly"
    ' removes these classes from the softmax',
    above=0,
    most=1,
    of='calibration',
    only_with=(COUNTS,),
  )

  # tau log p, float32 [n], of prior. It is a part of the clients' program, as frozen
  # weights are, and not sent in a round.
  shift: Any = dataclasses.field(default=None, compare=False)

  @property
  def of_absent(self) -> float:
    """What counts subtracts from the logit of a class that the client lacks."""
    return self.calibration_tau * self.calibration_absent**-0.25

  @property
  def leaves_out(self) -> bool:
    """Whether the softmax nearly leaves out classes that a client lacks."""
    return self.calibration == COUNTS and self.of_absent > _MUCH

  def __call__(self, logits: tf.Tensor, held: Any) -> tf.Tensor:
    """Returns float32 [B, N], of the logits of the class rows `request.SelectedRows`."""
    if self.calibration == RESTRICTED:
      return logits * tf.where(held.counts > 0, 1.0, self.calibration_alpha)
    if self.calibration == COUNTS:
      counts = tf.maximum(tf.cast(held.counts, tf.float32), self.calibration_absent)
      return logits - self.calibration_tau * tf.pow(counts, -0.25)
    return logits + tf.gather(tf.constant(self.shift), held.ids)

  def added(self, algorithm, facts):
    """InputError: there is no softmax, no row for each class, or nothing would change."""
    import numpy as np

    from tff_xc.round import losses

    if self.calibration == 'none':
      return algorithm
    found = self
    if self.calibration == PRIOR:
      if facts.class_probabilities is None:
        raise ValueError("calibration='prior' needs class_probabilities")
      p = np.asarray(facts.class_probabilities, np.float64)
      shift = (self.calibration_tau * np.log(p / p.sum() + _TINY)).astype(np.float32)
      found = dataclasses.replace(self, shift=shift)
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
    if self.calibration == RESTRICTED and loss.denominator == 'positives':
      raise errors.InputError(
        '--calibration=restricted is about classes that a client lacks, which this'
        ' softmax leaves out; leave it out, or give --algorithm=fedss'
      )
    negatives = getattr(algorithm.tables[0].request, 'negatives', 0)
    if negatives and self.calibration == COUNTS and self.of_absent > _NOTHING_LEFT:
      raise errors.InputError(
        f'--calibration=counts with --calibration_absent={self.calibration_absent:g} leaves sampled'
        ' negatives no gradient: give --calibration_absent=1, which counts them like'
        ' classes of one example, or --algorithm=posonly, which requests none'
      )
    return dataclasses.replace(algorithm, loss=dataclasses.replace(loss, calibration=found))
