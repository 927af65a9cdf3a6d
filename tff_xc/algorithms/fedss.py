"""FedSS, federated sampled softmax, and its baselines.

Waghmare, Qi, Chen, Sirotenko, Meron: "Efficient Image Representation Learning with Federated
Sampled Softmax", 2022, arXiv:2203.04888.

A client requests the rows of its own classes P_k and of m sampled negatives N_k, trains a sampled
softmax on these rows, and sends the changes of the rows back. The server adds changes by class and
takes a momentum step. The baselines differ in the requested rows and in the softmax's denominator.
This table shows the classes in the denominator, where t is the example's class:

  FedSS         P_k and N_k         eq. (5), (6)
  NegOnly       {t} and N_k         eq. (7)
  PosOnly       P_k                 eq. (8)
  FullSoftmax   all n               eq. (2)
  Centralized   all n, IID minibatches, no clients

The paper's Algorithm 1 defines a change as weights after training minus weights before, and the
server subtracts it. Here the server adds the change, because subtracting would diverge.

The paper uses cosine logits with scale 20, batches of 32, one local epoch and a client learning
rate of 0.01. The server's step is the paper's step: dense SGD with learning rate 1 and momentum
0.9. If clients select rows, the server computes the step only for requested rows. The results are
the same.
"""

import dataclasses

from tff_xc import errors
from tff_xc.algorithms import base
from tff_xc.options import hyperparameters as hp


@hp.declared
class Sampled(base.Server, base.Federated):
  """Base class of algorithms with a softmax over the class rows that a client requests."""

  needs = (base.ONE_LABEL,)

  server_adam_rows: str = hp.field(
    'all',
    "rows that the server's Adam updates. 'all': all rows; 'requested' (lazy Adam): only the rows"
    ' that clients requested in the round. Lazy Adam is faster with many classes, but differs from'
    ' Adam',
    choices=('all', 'requested'),
    of='server_optimizer',
    only_with=('adam', 'amsgrad'),
  )
  row_renormalize: bool = hp.field(
    False,
    "divide the sum of a row's updates by the number of examples of the clients that requested"
    ' the row. false: divide it by the number of examples of all clients in the round, as in the'
    ' FedSS paper',
  )

  def softmax(self, model, facts, denominator, negatives=0, correction='none', **more):
    """Returns an algorithm that trains a client's own rows and m = `negatives` sampled rows.

    `losses.HeldSoftmax` explains the denominator and the correction. `more` are arguments of
    `request.OwnAndSampled`.
    """
    from tff_xc import classifier
    from tff_xc.round import algorithm, losses, merge, tables

    requested = base.own_and_sampled(model, facts, negatives, **more)
    merged = merge.SumRows(self.row_renormalize)
    return algorithm.Algorithm(
      model,
      (tables.Table(classifier.CLASS, requested, merged),),
      losses.HeldSoftmax(model.num_rows, correction, denominator),
      local_training=self.local_training(),
    )


@hp.declared
class FedSS(Sampled):
  """Federated sampled softmax: own classes and m sampled negatives (Algorithm 1).

  FedSS equals FullSoftmax if m = n - |P_k|, and PosOnly if m = 0. The correction adds
  log((n - |P_k|) / m) to the negatives' logits (eq. 6). The paper does not say whether
  its experiments used the correction.
  """

  name = 'fedss'
  paper = 'FedSS'
  answers = base.Answers(
    'own classes, m negatives', 'sampled softmax', 'deltas added by class', 'optimizer step'
  )

  negatives: int = hp.field(
    80, 'm, the number of negatives that a client samples in a round', least=0
  )
  negatives_schedule: str = hp.field(
    'fresh',
    "how a client's negatives change from round to round. 'fresh': new negatives in every round,"
    " as in the paper; 'sticky': always the same negatives; 'partial': every round replaces a share"
    " of the negatives; 'randomized': the client requests each class at random, its own classes"
    ' with a higher probability. Fewer new negatives reveal less over several requests; see'
    ' docs/privacy.md',
    choices=('fresh', 'sticky', 'partial', 'randomized'),
  )
  negatives_renewed: float = hp.field(
    0.1,
    "with 'partial': share of a client's negatives that is replaced in every round of training,"
    " including rounds in which the client does not participate. With 'randomized': each client"
    ' draws once a fixed random set of classes, which has most of its own classes and some'
    ' others. A request replaces on average this share of the set by classes outside it',
    least=0,
    most=1,
    of='negatives_schedule',
    only_with=('partial', 'randomized'),
  )
  request_epsilon: float = hp.field(
    3.0,
    'with --negatives_schedule=randomized: epsilon of the differential privacy of all requests of'
    " a client together. The requests hide whether a single class is the client's own; for k"
    ' classes together, the bound is k epsilon. With a smaller epsilon, requests reveal less, but'
    " they miss more of the client's own classes. The client cannot train on the examples of the"
    ' missed classes',
    above=0,
    most=30,
    of='negatives_schedule',
    only_with=('randomized',),
  )
  request_randomness: str = hp.field(
    'reproducible',
    "source of the randomness of the negatives and of their order. 'reproducible': the seed of"
    " the run, which the server knows; 'private': the operating system. With 'private', a second"
    ' run with the same seed gives different results, and so does a run that was stopped and'
    ' resumed, which only fresh negatives allow',
    choices=('reproducible', 'private'),
  )
  softmax_correction: str = hp.field(
    'negatives',
    "logits to which clients add the sampled-softmax correction. 'negatives': the logits of the"
    " negatives; 'none': no logits",
    choices=('negatives', 'none'),
  )

  def make(self, model, facts):
    return self.softmax(
      model, facts, 'held', self.negatives, self.softmax_correction, **self._of_requests()
    )

  def _of_requests(self) -> dict:
    """Returns the arguments of `base.own_and_sampled` for schedule and randomness."""
    from tff_xc.round import request

    found = {'schedule': self.negatives_schedule}
    if self.negatives_schedule in ('partial', 'randomized'):
      found['renewed'] = self.negatives_renewed
    if self.negatives_schedule == 'randomized':
      found['epsilon'] = self.request_epsilon
    if self.request_randomness == 'private':
      found['secret'] = request.Secret.drawn()
    return found

  def warnings(self, num_classes, max_positives):
    found = super().warnings(num_classes, max_positives)
    if not self.negatives and self._has_one_logit(max_positives):
      found.append(
        'with --negatives=0, the softmax has only the target: its loss is 0 and nothing is'
        ' learned; give more negatives'
      )
    if self.negatives_schedule != 'randomized':
      return found
    from tff_xc.round import randomized

    bits = randomized.response(
      self.request_epsilon, self.negatives, num_classes, self.negatives_renewed
    )
    if (share := bits.in_request(bits.own)) < 0.5:
      found.append(
        f'a client requests {share:.1%} of its own classes, and leaves the examples'
        f' of the others out: --request_epsilon={self.request_epsilon:g} allows no'
        f' more with --negatives={self.negatives} of {num_classes:,} classes; raise'
        ' one of them'
      )
    return found

  def _has_one_logit(self, max_positives) -> bool:
    return max_positives == 1

  @classmethod
  def fit(cls, values, given, num_classes):
    super().fit(values, given, num_classes)
    if num_classes is None:
      return
    if 'negatives' not in given:
      values['negatives'] = min(values['negatives'], max(num_classes - 1, 1))
    base.check_negatives(values['negatives'], num_classes)


@hp.declared
class NegOnly(FedSS):
  """FedSS's NegOnly: softmax over the target and the sampled negatives (eq. 7)."""

  name = 'negonly'
  answers = FedSS.answers._replace(minimise='softmax of the target and the negatives')

  equal_negatives: bool = hp.field(
    False,
    "let NegOnly sample m + |P_k| - 1 negatives, where m is --negatives and |P_k| is the client's"
    ' number of own classes. The softmax of each example then has as many other classes as in'
    ' FedSS with m negatives (FedSS, fig. 6)',
  )

  def make(self, model, facts):
    return self.softmax(
      model,
      facts,
      'negatives',
      self.negatives,
      self.softmax_correction,
      equal_negatives=self.equal_negatives,
      **self._of_requests(),
    )

  def _has_one_logit(self, max_positives) -> bool:
    return max_positives == 1 or not self.equal_negatives


@hp.declared
class PosOnly(Sampled):
  """FedSS's PosOnly: softmax over the client's own classes (eq. 8)."""

  name = 'posonly'
  paper = 'FedSS'
  answers = base.Answers(
    'own classes', 'softmax over own classes', 'deltas added by class', 'optimizer step'
  )

  def make(self, model, facts):
    return self.softmax(model, facts, 'positives')

  def warnings(self, num_classes, max_positives):
    if max_positives > 1:
      return []
    return [
      f"{self.name} trains a softmax over a client's own classes, and no client"
      ' has more than one: its loss is 0 and nothing is learned; use'
      ' --algorithm=fedaws'
    ]


@hp.declared
class FullSoftmax(base.Softmax):
  """Softmax over all classes: FedAvg with a server optimizer (eq. 2).

  Every client receives and sends all rows. If examples have sets of labels, the loss is the binary
  cross entropy of every label.
  """

  name = 'fullsoftmax'
  paper = 'FedSS'


_CONTRASTIVE = {'of': 'loss', 'only_with': ('contrastive',)}


@hp.declared
class Centralized(base.Server):
  """Softmax on IID minibatches of all data, without clients (the oracle).

  A round has one virtual client, whose examples are IID minibatches of all data. By default the
  server adopts the virtual client's weights, so training is SGD. With one minibatch per round and a
  local learning rate of 1, the server's optimizer receives the gradient itself. Any server
  optimizer then works as in centralized training.
  """

  name = 'centralized'
  paper = '–'
  answers = base.Answers('all classes, no clients', 'softmax', 'nothing', 'optimizer step')

  steps_per_round: int = hp.field(
    0,
    'number of minibatches in a round of centralized training. 0: the number of minibatches of an'
    ' average client, ceil(mean n_k / batch_size), where client k has n_k examples',
    least=0,
  )
  # The server adopts the client's weights, even if a task has another default optimizer.
  server_optimizer: str = hp.own('sgd')
  server_learning_rate: float | None = hp.own(None)
  server_momentum: float = hp.own(0.0)
  loss: str = hp.field(
    'softmax',
    "loss of the training. 'softmax': the softmax cross-entropy; 'contrastive': the contrastive"
    ' loss (eq. 6), to which the theory in the FedAwS paper compares its method',
    choices=('softmax', 'contrastive'),
  )
  pull_weight: float = hp.field(
    1.0,
    'alpha of the contrastive loss, the factor of the term that pulls an embedding towards the'
    ' row of its class',
    least=0,
    **_CONTRASTIVE,
  )
  push_weight: float = hp.field(
    1.0,
    'beta of the contrastive loss, the factor of the terms that push embeddings away from other'
    ' class rows',
    least=0,
    **_CONTRASTIVE,
  )
  loss_margin: float = hp.field(
    1.0,
    'nu of the contrastive loss, a distance. Another class adds nothing to the loss if its row is'
    ' farther than nu from the embedding',
    above=0,
    most=2,
    **_CONTRASTIVE,
  )
  loss_distance: str = hp.field(
    'cosine',
    "distance d in the contrastive loss. 'cosine': 1 - s, where s is the cosine between an"
    " embedding and a class row (FedAwS, eq. 11 and 12); 'euclidean': the square root of 2 - 2 s",
    choices=('cosine', 'euclidean'),
    **_CONTRASTIVE,
  )

  def make(self, model, facts):
    from tff_xc import heads
    from tff_xc.round import cohort, losses

    made = base.softmax(model, self.local_training())
    if self.loss == 'contrastive':
      if not isinstance(model.head, heads.CosineHead):
        raise errors.InputError(
          f'--loss=contrastive needs {base.COSINES}, which this task does not have; leave it out'
        )
      loss = losses.Contrastive(
        self.pull_weight, self.push_weight, self.loss_margin, self.loss_distance
      )
      made = dataclasses.replace(made, loss=loss)
    batches = cohort.IidBatches(self.batch_size, self.steps_per_round)
    return dataclasses.replace(made, sampling=batches)


build_fedss = base.builder(FedSS)
build_negonly = base.builder(NegOnly)
build_posonly = base.builder(PosOnly)
build_fullsoftmax = base.builder(FullSoftmax)
build_centralized = base.builder(Centralized)
