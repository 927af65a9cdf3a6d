"""FedVC and FedIR: FedAvg for clients that differ in size, and in their classes.

Hsu, Qi, Brown: "Federated Visual Classification with Real-World Data
Distribution", ECCV 2020, arXiv:2003.08082. `--virtual_client_size` and
`--importance_weights` do the same to every algorithm with clients:
`fedavgm --virtual_client_size=256 --importance_weights=uniform` is the paper's FedAvgM
with FedVC and FedIR.
"""

from __future__ import annotations

from tff_xc.algorithms import base, fedavg
from tff_xc.options import hyperparameters as hp, importance


@hp.declared
class FedVC(fedavg.FedAvg):
  """FedAvg on virtual clients of equal size, drawn in proportion to their examples.

  Section 5.3. On users whose numbers of examples differ by orders of magnitude, a
  client takes part with a probability that grows with its n_k examples. It draws
  N_VC of them in every round, takes N_VC / B steps, and counts like any other.
  N_VC = 256 and B = 64 are those of the paper's iNaturalist tables. If all clients
  have N_VC examples and all take part in every round, FedVC is FedAvg but for the
  order of the examples.
  """

  name = 'fedvc'
  paper = 'FedVC'
  answers = fedavg.FedAvg.answers._replace(merge='mean delta, clients alike')

  virtual_client_size: int = hp.own(256)
  batch_size: int = hp.own(64)


@hp.declared
class FedIR(fedavg.FedAvg):
  """FedAvg with examples weighted as if all clients had the same classes.

  Equations (1) to (4). An example of class y at client k weighs p(y) / q_k(y), as
  if the client's classes had the target distribution p, and a minibatch's loss is
  divided by its weights' sum (see `tff_xc.options.importance`). On clients with one
  class each, FedIR is FedAvg.
  """

  name = 'fedir'
  paper = 'FedVC'
  answers = fedavg.FedAvg.answers._replace(minimise='softmax, weighted by p(y) / q_k(y)')
  needs = (base.ONE_LABEL,)

  importance_weights: str = importance.UNIFORM


build_fedvc = base.builder(FedVC)
build_fedir = base.builder(FedIR)
