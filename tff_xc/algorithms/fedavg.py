"""FedAvg, and its variants with another server optimizer, a penalty or a contrastive term.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: "Communication-Efficient Learning of Deep Networks
from Decentralized Data", AISTATS 2017, arXiv:1602.05629, Algorithm 1. Clients train on all classes.
The new model is the average of the client models, weighted by number of examples. It equals the
result of a server step of SGD with learning rate 1. `fedss.FullSoftmax` is FedAvg with the server
optimizer of the FedSS paper.
"""

import dataclasses

from tff_xc import errors
from tff_xc.algorithms import base
from tff_xc.options import hyperparameters as hp


@hp.declared
class FedAvg(base.Softmax):
  """Federated averaging: the new model is the average of the client models."""

  name = 'fedavg'
  paper = 'McMahan 2017'

  server_optimizer: str = hp.own('sgd')
  server_learning_rate: float | None = hp.own(None)
  server_momentum: float = hp.own(0.0)


@hp.declared
class FedAvgM(base.Softmax):
  """FedAvg with plain (not Nesterov's) momentum 0.9 on the server.

  Hsu, Qi, Brown: "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
  Classification", 2019, arXiv:1909.06335, and the FedVC / FedIR paper by the same authors. With the
  pseudo-gradient g, gamma = 1 and beta = 0.9, the server's step is v <- beta v + g, theta <- theta
  - gamma v. The effective learning rate is the clients' learning rate divided by 1 - beta.
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
  Optimization", ICLR 2021, arXiv:2003.00295, Algorithm 2. Adam has PyTorch's form (bias
  correction, epsilon added to the root), as in TurboSVM-FL's experiments.
  """

  name = 'fedadam'
  paper = 'Reddi 2021'
  answers = base.Softmax.answers._replace(server='Adam step')

  server_optimizer: str = hp.own('adam')
  frozen_statistics: bool = hp.field(
    False,
    "keep BatchNorm's running statistics at mean 0 and variance 1. TurboSVM-FL's published code"
    ' does this, because its server optimizer updates only parameters',
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
  arXiv:2205.02719. Like TurboSVM-FL, this class uses PyTorch's Adam with `amsgrad`. PyTorch
  corrects the bias of the largest second moment and adds epsilon to its root. (The paper takes the
  maximum with epsilon and does not correct the bias.)
  """

  name = 'fedams'
  paper = 'Wang Y. 2022'
  answers = base.Softmax.answers._replace(server='AMSGrad step')

  server_optimizer: str = hp.own('amsgrad')


@hp.declared
class FedProx(FedAvg):
  """FedAvg with a penalty that keeps clients near the model that they received.

  Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in Heterogeneous Networks",
  MLSys 2020, arXiv:1812.06127. In the paper, slow clients may take fewer local steps. Here, every
  client takes all its local steps. The default mu = 0.02 comes from TurboSVM-FL's code, whose
  penalty is 0.01 times the squared distance, without the factor 1/2.
  """

  name = 'fedprox'
  paper = 'Li T. 2020'
  answers = FedAvg.answers._replace(minimise='softmax, squared distance from the model received')

  prox_mu: float = 0.02


_UNLESS_PUBLISHED = {'of': 'moon_published', 'only_with': (False,)}


@hp.declared
class MOON(FedAvg):
  """FedAvg with a contrastive term between the global model and the client's previous model.

  Li, He, Song: "Model-Contrastive Federated Learning", CVPR 2021, arXiv:2103.16257. Each client
  keeps its model from the last round in which it participated, and the run stores this model with
  the checkpoints (see `tff_xc.options.contrastive`).

  In TurboSVM-FL's published code, MOON has no effect. With one local epoch, the softmax of the
  contrastive term runs over a single column, so the term is zero and has no gradient. The result is
  FedAvg on examples in their stored order (`moon_published`). With more epochs, the published code
  contrasts with features of an earlier epoch, but this class does not.
  """

  name = 'moon'
  paper = 'Li Q. 2021'
  answers = FedAvg.answers._replace(minimise='softmax, contrast with its previous model')

  moon_published: bool = hp.field(
    False,
    "run MOON as TurboSVM-FL's published code does with one local epoch: without a contrastive"
    ' term and without shuffling',
  )
  # With `moon_published`, clients train one epoch in the stored order, and these fields do not
  # apply.
  local_steps: int = hp.again(FedAvg, 'local_steps', **_UNLESS_PUBLISHED)
  local_epochs: int = hp.again(FedAvg, 'local_epochs', **_UNLESS_PUBLISHED)
  shuffle: bool = hp.again(FedAvg, 'shuffle', **_UNLESS_PUBLISHED)
  contrastive_weight: float = hp.again(
    FedAvg, 'contrastive_weight', default=1.0, **_UNLESS_PUBLISHED
  )

  def local_training(self):
    shuffle = self.shuffle and not self.moon_published
    return dataclasses.replace(super().local_training(), shuffle=shuffle)

  def finish(self, made, facts):
    used = dataclasses.replace(self, contrastive_weight=0.0) if self.moon_published else self
    return super(MOON, used).finish(made, facts)


build_fedavg = base.builder(FedAvg)
build_fedavgm = base.builder(FedAvgM)
build_fedadam = base.builder(FedAdam)
build_fedams = base.builder(FedAMS)
build_fedprox = base.builder(FedProx)
build_moon = base.builder(MOON)
