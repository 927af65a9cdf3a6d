"""FedRS, FedLC and logit adjustment: softmax with logits corrected by class counts.

`tff_xc.options.calibration` describes how each method changes the logits. The flag `--calibration`
does the same in every algorithm with a softmax. FedLC nearly ignores classes that a client does not
have. Therefore `posonly --calibration=counts`, with which clients send only their own class rows,
is nearly FedLC. `fedss --calibration=restricted` is FedRS with sampled negatives.
"""

from tff_xc.algorithms import base, fedavg, fedss
from tff_xc.options import calibration as calibration_lib, hyperparameters as hp


@hp.declared
class FedRS(fedavg.FedAvg):
  """FedAvg with a softmax that multiplies the logits of a client's missing classes by alpha.

  Li, Zhan: "FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID Data",
  KDD 2021. FedRS equals FedAvg if alpha = 1, or if every client has all classes.
  """

  name = 'fedrs'
  paper = 'Li X. 2021'
  answers = fedavg.FedAvg.answers._replace(minimise='softmax, missing classes scaled')
  needs = (base.ONE_LABEL,)

  calibration: str = hp.own(calibration_lib.RESTRICTED)


@hp.declared
class FedLC(fedavg.FedAvg):
  """FedAvg with a softmax that gives a client's rare classes wider margins (tau).

  Zhang, Li, Li, Xu, Wu, Ding, Wu: "Federated Learning with Label Distribution Skew via Logits
  Calibration", ICML 2022, arXiv:2209.00189. FedLC equals FedAvg if tau = 0, or if every client has
  all classes equally often.
  """

  name = 'fedlc'
  paper = 'Zhang J. 2022'
  answers = fedavg.FedAvg.answers._replace(minimise='softmax, logits less tau / n^(1/4)')
  needs = (base.ONE_LABEL,)

  calibration: str = hp.own(calibration_lib.COUNTS)


@hp.declared
class LogitAdjustment(fedss.Centralized):
  """Centralized training that adds tau log p to the logits: FedLC's counterpart.

  p is the class distribution. Menon, Jayasumana, Rawat, Jain, Veit, Kumar: "Long-tail Learning via
  Logit Adjustment", ICLR 2021, arXiv:2007.07314. With tau = 0, or if all classes are equally
  frequent, logit adjustment equals centralized training.
  """

  name = 'logit_adjustment'
  paper = 'Menon 2021'
  answers = fedss.Centralized.answers._replace(minimise='softmax, logits plus tau log p')
  needs = (base.ONE_LABEL,)

  calibration: str = hp.own(calibration_lib.PRIOR)


build_fedrs = base.builder(FedRS)
build_fedlc = base.builder(FedLC)
build_logit_adjustment = base.builder(LogitAdjustment)
