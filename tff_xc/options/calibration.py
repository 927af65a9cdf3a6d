"""Calibrated logits: softmax for clients that have few classes or uneven classes.

Only the loss of local training uses calibrated logits. Evaluation uses plain logits. Let o_c be the
logit of class c, and n_c the client's number of examples of this class. In the softmax, o_c becomes

  restricted  alpha o_c if n_c = 0, else o_c. Li, Zhan: "FedRS: Federated Learning with
              Restricted Softmax for Label Distribution Non-IID Data", KDD 2021.
  counts      o_c - tau n_c^(-1/4). Zhang, Li, Li, Xu, Wu, Ding, Wu: "Federated Learning
              with Label Distribution Skew via Logits Calibration" (FedLC), ICML 2022,
              arXiv:2209.00189.
  prior       o_c + tau log p(c), where p is the class distribution of all training
              examples. Menon, Jayasumana, Rawat, Jain, Veit, Kumar: "Long-tail Learning
              via Logit Adjustment", ICLR 2021, arXiv:2007.07314.

A client counts all of its examples, even if it draws only some of them for a round. FedSS's sampled
negatives are classes that the client lacks. The correction of their logits is added after the
calibration, so the sampled sum remains an unbiased estimate of the sum over all classes.

In FedRS's published code, the factor is alpha + (1 - alpha) n_c / max n, unlike in the paper. FedLC
does not define the case n_c = 0. Here n_c is at least `calibration_absent`. FedLC's formula sums
over all classes except the true class. Here the sum includes the true class (docs/rivals.md says
why).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tff_xc import errors
from tff_xc.lazy import np, tf
from tff_xc.options import hyperparameters as hp, importance, option

# Values of --calibration.
RESTRICTED, COUNTS, PRIOR = 'restricted', 'counts', 'prior'
KINDS = ('none', RESTRICTED, COUNTS, PRIOR)
# This number is added to p, so that log p is finite for a class without training examples.
_TINY = 1e-12
# If a logit is lowered by more than this number, its exponential is 0 in float32.
_NOTHING_LEFT = 80.0
# If a logit is lowered by more than this number, the softmax nearly leaves its class out.
_MUCH = 20.0


@hp.declared
class Calibration(option.Option):
  """Corrects logits by class counts, as the `calibration` of `losses.HeldSoftmax`."""

  calibration: str = hp.field(
    'none',
    "how clients change the logits of their softmax in training. 'restricted' (FedRS): multiply"
    " the logits of classes that the client lacks by --calibration_alpha; 'counts' (FedLC):"
    " subtract --calibration_tau / n^(1/4), where n is the client's number of examples of the"
    " class; 'prior' (logit adjustment): add --calibration_tau * log p, where p is the class's"
    ' share of all training examples, or the value that --calibration_probabilities gives',
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
    'tau, the factor of the number that --calibration=counts subtracts from a logit, or that'
    ' --calibration=prior adds to it; 0: plain softmax',
    least=0,
    of='calibration',
    only_with=(COUNTS, PRIOR),
  )
  calibration_probabilities: str = hp.field(
    '',
    'with --calibration=prior: CSV file with the columns class,probability, which gives the'
    ' probability p of each class. Default: the shares of the classes in all training examples.'
    ' --dp refuses this default, because every client would receive the shares',
    of='calibration',
    only_with=(PRIOR,),
  )
  calibration_absent: float = hp.field(
    1e-8,
    'with --calibration=counts: value of n, the number of examples, for classes that the client'
    ' lacks. With n = 0, the formula of FedLC would be undefined. The default nearly removes'
    ' these classes from the softmax',
    above=0,
    most=1,
    of='calibration',
    only_with=(COUNTS,),
  )

  # tau log p, float32 [n], for 'prior'. Like frozen weights, it is a constant in the clients'
  # program and is not sent in a round.
  shift: Any = dataclasses.field(default=None, compare=False)

  @property
  def of_absent(self) -> float:
    """The number that 'counts' subtracts from the logit of a class that a client lacks."""
    return self.calibration_tau * self.calibration_absent**-0.25

  @property
  def leaves_out(self) -> bool:
    """Whether the softmax nearly ignores classes that a client lacks."""
    return self.calibration == COUNTS and self.of_absent > _MUCH

  def __call__(self, logits: tf.Tensor, held: Any) -> tf.Tensor:
    """Returns calibrated logits float32 [B, N].

    `held` are the `request.SelectedRows` of the N class rows.
    """
    if self.calibration == RESTRICTED:
      return logits * tf.where(held.counts > 0, 1.0, self.calibration_alpha)
    if self.calibration == COUNTS:
      counts = tf.maximum(tf.cast(held.counts, tf.float32), self.calibration_absent)
      return logits - self.calibration_tau * tf.pow(counts, -0.25)
    return logits + tf.gather(tf.constant(self.shift), held.ids)

  def added(self, algorithm, facts):
    """Returns the algorithm with this calibration.

    Raises InputError if the calibration does not work with the algorithm's loss or class rows.
    """
    from tff_xc.round import losses

    if self.calibration == 'none':
      return algorithm
    found = self
    if self.calibration == PRIOR:
      if facts.class_probabilities is None:
        raise ValueError("calibration='prior' needs class_probabilities")
      p = importance.distribution(facts.class_probabilities, algorithm.model.num_classes)
      shift = (self.calibration_tau * np.log(p + _TINY)).astype(np.float32)
      found = dataclasses.replace(self, shift=shift)
    loss, model = algorithm.loss, algorithm.model
    if model.shares_rows:
      raise errors.InputError(
        '--calibration needs a row for each class, and this algorithm hashes several'
        ' classes into one row; leave it out'
      )
    if not isinstance(loss, losses.HeldSoftmax):
      raise errors.InputError(
        '--calibration changes the logits of a softmax, which this algorithm does not have;'
        ' leave it out'
      )
    if self.calibration == RESTRICTED and loss.denominator == 'positives':
      raise errors.InputError(
        '--calibration=restricted changes logits of classes that a client lacks, and this'
        " algorithm's softmax has none of them; leave it out, or give --algorithm=fedss"
      )
    negatives = getattr(algorithm.tables[0].request, 'negatives', 0)
    if negatives and self.calibration == COUNTS and self.of_absent > _NOTHING_LEFT:
      raise errors.InputError(
        f'--calibration=counts with --calibration_absent={self.calibration_absent:g} gives sampled'
        ' negatives no gradient: give --calibration_absent=1, which treats them like'
        ' classes with one example, or --algorithm=posonly, which requests no negatives'
      )
    return dataclasses.replace(algorithm, loss=dataclasses.replace(loss, calibration=found))
