"""FedAvg, and what differs from it in the server, by a penalty or a contrast.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning
of Deep Networks from Decentralized Data", AISTATS 2017, arXiv:1602.05629,
Algorithm 1. Clients train on all classes, and the new model is the mean of the
clients' models, weighted by their numbers of examples: SGD of rate 1 on the server.
`fedss.FullSoftmax` is the same with the server of the FedSS paper.
"""

from __future__ import annotations

import dataclasses

from tff_xc import errors
from tff_xc.algorithms import base
from tff_xc.options import hyperparameters as hp


@hp.declared
class FedAvg(base.Softmax):
  """Federated averaging: the mean of the clients' models."""

  name = 'fedavg'
  paper = 'McMahan 2017'

  server_optimizer: str = hp.own('sgd')
  server_learning_rate: float | None = hp.own(None)
  server_momentum: float = hp.own(0.0)


@hp.declared
class FedAvgM(base.Softmax):
  """FedAvg with plain (not Nesterov's) momentum 0.9 on the server.

  Hsu, Qi, Brown: "Measuring the Effects of Non-Identical Data Distribution for
  Federated Visual Classification", 2019, arXiv:1909.06335; and, by the same authors,
  the FedVC / FedIR paper: v <- beta v + g, theta <- theta - gamma v, with the
  pseudo-gradient g, gamma = 1 and beta = 0.9. The effective learning rate is that
  of the clients over 1 - beta.
  """

  name = 'fedavgm'
  paper = 'Hsu 2019'
  answers = base.Softmax.answers._replace(server='momentum step')

  server_optimizer: str = hp.own('sgd')
  server_momentum: float = hp.own(0.9)


@hp.declared
class FedAdam(base.Softmax):
  """FedAvg with Adam on the server's pseudo-gradient.

  Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar, McMahan: "Adaptive Federated
  Optimization", ICLR 2021, arXiv:2003.00295, Algorithm 2, with Adam in PyTorch's form
  (bias correction, epsilon added to the root), as TurboSVM-FL runs it.
  """

  name = 'fedadam'
  paper = 'Reddi 2021'
  answers = base.Softmax.answers._replace(server='Adam step')

  server_optimizer: str = hp.own('adam')
  frozen_statistics: bool = hp.field(
    False,
    "keep BatchNorm's running statistics at mean 0 and variance 1, as in TurboSVM-FL's"
    ' published code, whose server optimizer updates only parameters',
  )

  def make(self, model, facts):
    if self.frozen_statistics and not model.weight_specs().encoder_state:
      raise errors.InputError(
        '--frozen_statistics: this network has no batch statistics; leave it out'
      )
    return dataclasses.replace(
      super().make(model, facts), moves_encoder_state=not self.frozen_statistics
    )


@hp.declared
class FedAMS(FedAdam):
  """FedAvg with AMSGrad on the server's pseudo-gradient.

  Wang, Lin, Chen: "Communication-Efficient Adaptive Federated Learning", ICML 2022,
  arXiv:2205.02719. TurboSVM-FL runs PyTorch's Adam with `amsgrad`, and so does this:
  the largest second moment, bias-corrected, and epsilon added to its root. (The
  paper's own form takes the maximum with epsilon inside, and corrects no bias.)
  """

  name = 'fedams'
  paper = 'Wang Y. 2022'
  answers = base.Softmax.answers._replace(server='AMSGrad step')

  server_optimizer: str = hp.own('amsgrad')


@hp.declared
class FedProx(FedAvg):
  """FedAvg whose clients stay near the model that they received.

  Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in
  Heterogeneous Networks", MLSys 2020, arXiv:1812.06127; every client does all its
  local work. mu is that of TurboSVM-FL's code: 0.01 times the squared distance,
  without a factor of 1/2, is mu = 0.02.
  """

  name = 'fedprox'
  paper = 'Li T. 2020'
  answers = FedAvg.answers._replace(minimise='softmax, squared distance from the model received')

  prox_mu: float = 0.02


_UNLESS_PUBLISHED = {'of': 'moon_published', 'only_with': (False,)}


@hp.declared
class MOON(FedAvg):
  """FedAvg with a contrast of the global and the client's previous model.

  Li, He, Song: "Model-Contrastive Federated Learning", CVPR 2021, arXiv:2103.16257.
  Each client keeps its own model of the last round in which it took part, and the
  run keeps it with the checkpoints (see `contrast`).

  TurboSVM-FL's published code has MOON without an effect: with one local epoch the
  contrastive term's softmax runs over a single column, so that it is zero and has
  no gradient. What is left is FedAvg on examples in their stored order
  (`moon_published`). With more epochs, the published code contrasts with an epoch's
  earlier features, which is not done here.
  """

  name = 'moon'
  paper = 'Li Q. 2021'
  answers = FedAvg.answers._replace(minimise='softmax, contrast with its previous model')

  moon_published: bool = hp.field(
    False,
    "MOON as TurboSVM-FL's published code runs it with one local epoch: no"
    ' contrastive term, no shuffling',
  )
  # The published form has one epoch, in the stored order, on every task.
  local_steps: int = hp.again(FedAvg, 'local_steps', **_UNLESS_PUBLISHED)
  local_epochs: int = hp.again(FedAvg, 'local_epochs', **_UNLESS_PUBLISHED)
  shuffle: bool = hp.again(FedAvg, 'shuffle', **_UNLESS_PUBLISHED)
  contrastive_weight: float = hp.again(
    FedAvg, 'contrastive_weight', default=1.0, **_UNLESS_PUBLISHED
  )

  def __post_init__(self):
    super().__post_init__()
    if self.moon_published:
      object.__setattr__(self, 'shuffle', False)
      object.__setattr__(self, 'contrastive_weight', 0.0)


build_fedavg = base.builder(FedAvg)
build_fedavgm = base.builder(FedAvgM)
build_fedadam = base.builder(FedAdam)
build_fedams = base.builder(FedAMS)
build_fedprox = base.builder(FedProx)
build_moon = base.builder(MOON)
