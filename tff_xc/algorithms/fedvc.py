"""FedVC and FedIR: FedAvg for clients that differ in size and in class distribution.

Hsu, Qi, Brown: "Federated Visual Classification with Real-World Data
Distribution", ECCV 2020, arXiv:2003.08082. The options `--virtual_client_size` and
`--importance_weights` work with every algorithm with clients. For example,
`fedavgm --virtual_client_size=256 --importance_weights=uniform` is the paper's FedAvgM
with FedVC and FedIR.
"""

from tff_xc.algorithms import base, fedavg
from tff_xc.options import hyperparameters as hp, importance


@hp.declared
class FedVC(fedavg.FedAvg):
  """FedAvg on virtual clients of equal size, drawn in proportion to their examples.

  See section 5.3 of the paper. FedVC is for users whose numbers of examples differ by orders of
  magnitude. A client's probability to participate is proportional to its n_k examples. In each
  round, the client draws N_VC examples and takes N_VC / B steps. All clients have equal weights.
  The defaults N_VC = 256 and B = 64 are the paper's values for iNaturalist. If all clients have
  N_VC examples and all participate in every round, FedVC differs from FedAvg only in the order of
  the examples.
  """

  name = 'fedvc'
  paper = 'FedVC'
  answers = fedavg.FedAvg.answers._replace(merge='mean delta, clients alike')

  virtual_client_size: int = hp.own(256)
  batch_size: int = hp.own(64)


@hp.declared
class FedIR(fedavg.FedAvg):
  """FedAvg with examples weighted as if all clients had the same class distribution.

  See equations (1) to (4) of the paper. An example of class y at client k has the weight p(y) /
  q_k(y). q_k is the client's class distribution, and p is the target distribution. The loss of a
  minibatch is divided by the sum of its weights (see `tff_xc.options.importance`). If every client
  has only one class, FedIR equals FedAvg.
  """

  name = 'fedir'
  paper = 'FedVC'
  answers = fedavg.FedAvg.answers._replace(minimise='softmax, weighted by p(y) / q_k(y)')
  needs = (base.ONE_LABEL,)

  importance_weights: str = importance.UNIFORM


build_fedvc = base.builder(FedVC)
build_fedir = base.builder(FedIR)
