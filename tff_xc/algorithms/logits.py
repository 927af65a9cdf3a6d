"""Options of what local training does to logits, see `tff_xc.round.calibration`.

Importing this does not import TensorFlow; its functions do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc.options import hyperparameters as hp

if TYPE_CHECKING:
  import numpy as np

# Values of --calibration.
RESTRICTED, COUNTS, PRIOR = 'restricted', 'counts', 'prior'
KINDS = ('none', RESTRICTED, COUNTS, PRIOR)
# A logit less this much all but leaves its class out of a softmax.
_MUCH = 20.0


@hp.declared
class Calibration:
  """A part of `base.Base`: logits that know how often a client has each class."""

  calibration: str = hp.field(
    'none',
    'logits in the softmax of local training: of classes that the client lacks times'
    " --calibration_alpha ('restricted', FedRS); less --calibration_tau / n^(1/4), with"
    " n the client's examples of the class ('counts', FedLC); plus"
    " --calibration_tau log p, with p the class's share of all training examples, or"
    " that of --calibration_probabilities ('prior', logit adjustment)",
    choices=KINDS,
  )
  calibration_alpha: float = hp.field(
    0.5,
    'alpha, factor of the logits of classes that a client lacks; 1: plain softmax',
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
    'CSV FILE class,probability of p; default: the shares of all training examples,'
    ' which --dp refuses because every client would receive them',
    of='calibration',
    only_with=(PRIOR,),
  )
  calibration_absent: float = hp.field(
    1e-8,
    'n of a class that the client lacks, for which FedLC has no formula; the default'
    ' all but leaves these classes out of the softmax',
    above=0,
    most=1,
    of='calibration',
    only_with=(COUNTS,),
  )

  @property
  def leaves_out(self) -> bool:
    """Whether the softmax all but leaves out classes that a client lacks."""
    if self.calibration != COUNTS:
      return False
    return self.calibration_tau * self.calibration_absent**-0.25 > _MUCH

  def calibrated(self, made, class_probabilities: np.ndarray | None):
    """Returns the algorithm with these logits; `class_probabilities` as in `base.Facts`."""
    from tff_xc.round import calibration

    if self.calibration == 'none':
      return made
    if self.calibration == RESTRICTED:
      how = calibration.Restricted(self.calibration_alpha)
    elif self.calibration == COUNTS:
      how = calibration.Counts(self.calibration_tau, self.calibration_absent)
    elif class_probabilities is None:
      raise ValueError("calibration='prior' needs class_probabilities")
    else:
      how = calibration.prior(self.calibration_tau, class_probabilities)
    return calibration.calibrated(made, how)
