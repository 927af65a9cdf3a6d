"""FedAwS, federated averaging with spreadout, its baselines and its variants.

Yu, Rawat, Menon, Kumar: "Federated Learning with Only Positive Labels", ICML 2020,
arXiv:2004.10342.

A client has examples of one class (or of a few) and receives only the rows of its own classes. The
loss pulls each embedding and the row of its class together (eq. 23). It does not push classes
apart. The server pushes classes apart (Algorithm 1). The server averages the encoder, writes the
clients' rows into the table, takes a spreadout step on the rows of the round's classes (eq. 7 or 8)
and normalises these rows.

  FedAwS            positive hinge, spreadout
  Baseline-1        positive hinge, no spreadout: all classes collapse
  Baseline-2        positive hinge, the initial random table never changes
  FedAwS (FedSS)    PosOnly softmax, server momentum, spreadout on all n rows:
                    the method that the FedSS paper calls FedAwS
  FedAwS (TurboSVM-FL)  softmax on all rows, then a penalty on their cosines
  softmax oracle    `tff_xc.algorithms.fedss.Centralized`

A client may have several classes, and several clients may share a class. A client sends the rows of
all its classes. The new row of a class is the mean of the rows that clients sent for it, weighted
by number of examples.

In Algorithm 1, the row of a client replaces the row of its class. Therefore the row of a rare class
moves as fast as the row of a frequent class. If class sizes differ much, the rows of rare classes
end up closest to every embedding. P@1 then drops, because it rewards frequent classes.

With 'row_update' = 'mean', the server averages the changes of rows like the changes of the encoder
(see the paper's footnote). The server multiplies the change of a client's row by the client's share
of the round's examples (by 1 / K with uniform weights). Assume that the weighting is 'examples',
and that each client takes one local step on all its examples. A round is then one gradient step on
the positive loss of the examples of the round's clients. The paper does not have 'mean' for rows.

The paper leaves three choices open:

  'spreadout_classes': the classes of eq. (8), by default the classes of the round's clients.
  'spreadout_distance': the distance in eq. (8), see `tff_xc.algorithms.spreadout`.
  'spreadout_learning_rate': the learning rate of the spreadout step.
"""

import dataclasses

from tff_xc.algorithms import base, fedavg, fedss
from tff_xc.options import hyperparameters as hp


@hp.declared
class Positive(base.Server, base.Federated):
  """Base class of FedAwS algorithms whose clients train on positive labels only.

  The server's optimizer updates only the encoder.
  """

  needs = (base.ONE_LABEL, base.COSINES)
  paper = 'FedAwS'

  server_momentum: float = 0.0
  client_weighting: str = hp.field(
    'uniform',
    "weights of the clients in the average of the encoder. 'uniform': equal weights; 'examples':"
    " weights proportional to the clients' numbers of examples",
    choices=('uniform', 'examples'),
  )
  hinge_margin: float = hp.field(
    0.9,
    'the loss is 0 if the cosine between an embedding and its class row is above this value'
    ' (FedAwS: 0.9)',
    above=0,
  )

  def hinge(self, model, facts, merged):
    """Returns an algorithm with the positive hinge loss; `merged` merges class rows."""
    from tff_xc import classifier, heads
    from tff_xc.round import algorithm as algorithm_lib, losses, tables

    if not isinstance(model.head, heads.CosineHead):
      raise ValueError('FedAwS compares by cosine: give the model a CosineHead')
    unit = dataclasses.replace(model.head, unit_rows=True)
    requested = base.own_and_sampled(model, facts)
    return algorithm_lib.Algorithm(
      dataclasses.replace(model, head=unit),
      (tables.Table(classifier.CLASS, requested, merged),),
      losses.PositiveHinge(self.hinge_margin),
      local_training=self.local_training(),
      weighting=self.client_weighting,
      frozen=frozenset(() if merged.sends_rows else (classifier.CLASS,)),
    )


@hp.declared
class Baseline2(Positive):
  """FedAwS's Baseline-2: class rows keep their initial values."""

  name = 'fedaws_baseline2'
  answers = base.Answers(
    'own classes', 'hinge of the positive cosine', 'no rows are sent', 'rows keep their values'
  )

  def make(self, model, facts):
    from tff_xc.round import merge

    return self.hinge(model, facts, merge.KeepRows())


@hp.declared
class Baseline1(Positive):
  """FedAwS's Baseline-1, without spreadout. All class rows collapse to one."""

  name = 'fedaws_baseline1'
  answers = Baseline2.answers._replace(
    merge='rows replaced, or moved by the mean (--row_update)', server='unit rows'
  )

  row_update: str = hp.field(
    'replace',
    "how the server updates the row of a class. 'replace': set it to the mean of the rows that"
    " clients sent for the class (FedAwS, Algorithm 1); 'mean': move it by the mean delta of all"
    ' clients in the round, like the encoder',
    choices=('replace', 'mean'),
  )

  def make(self, model, facts):
    from tff_xc.encoders import layers
    from tff_xc.round import merge, server

    if self.row_update == 'replace':
      merged = merge.ReplaceRows()
    else:
      merged = merge.SumRows(takes_optimizer=False)
    made = self.hinge(model, facts, merged)
    unit = server.RowStep(layers.unit_norm)
    return base.with_steps(made, unit)


def _warned(spread, flags: str, or_k: str, num_rows: int) -> list[str]:
  """Returns a warning if the step size of a `spreadout.Spreadout` exceeds its bound."""
  step, limit = spread.step_size, spread.step_limit(num_rows)
  if step < limit:
    return []
  return [
    f'the spreadout step {flags} is {step:.3g}, and from {limit:.3g} = 1 / (2 k) on'
    f' class rows may collapse: lower one of them{or_k}'
  ]


@hp.declared
class FedAwS(Baseline1):
  """Clients train on positive labels only; the server pushes class rows apart.

  With a spreadout weight of 0, FedAwS is Baseline-1. If the step size lambda eta is 1 / (2 k) or
  more, class rows may collapse (see `tff_xc.algorithms.spreadout`).
  """

  name = 'fedaws'
  answers = Baseline1.answers._replace(server='spreadout, then unit rows')

  spreadout_weight: float = hp.field(
    10.0, 'lambda, the weight of the spreadout step (FedAwS: 10)', least=0
  )
  spreadout_learning_rate: float = hp.field(
    0.001,
    'eta, the learning rate of the spreadout step. If --spreadout_weight times eta is 1 / (2 k)'
    ' or more, with k of --spreadout_neighbors, class rows may collapse. With 0, eta is'
    ' --client_learning_rate',
    least=0,
  )
  spreadout_margin: float = hp.field(
    0.0,
    'nu, a margin. If it is positive, the spreadout step pushes apart all pairs of classes with a'
    ' distance below nu (eq. 7). If it is 0, the step pushes each class away from its nearest'
    ' classes (eq. 8)',
    least=0,
  )
  spreadout_neighbors: int = hp.field(
    10,
    'k, the number of nearest classes from which the spreadout step pushes a class away; 0: all'
    ' other classes',
    least=0,
    of='spreadout_margin',
    only_with=(0.0,),
  )
  spreadout_distance: str = hp.field(
    'sq_euclidean',
    'distance of two class rows in the spreadout step',
    choices=('sq_euclidean', 'cosine'),
  )
  spreadout_classes: str = hp.field(
    'round',
    "classes that the spreadout step moves. 'round': the classes of the round's clients; 'all':"
    ' all classes',
    choices=('round', 'all'),
  )

  def _spread(self):
    from tff_xc.algorithms import spreadout

    rate = self.spreadout_learning_rate or self.client_learning_rate
    return spreadout.Spreadout(
      self.spreadout_weight * rate,
      self.spreadout_neighbors,
      self.spreadout_distance,
      self.spreadout_margin,
    )

  def make(self, model, facts):
    from tff_xc.round import server

    made, on_all = super().make(model, facts), self.spreadout_classes == 'all'
    functions = (self._spread(), *(s.function for s in made.tables[0].steps))
    return base.with_steps(made, *(server.RowStep(function, on_all) for function in functions))

  def warnings(self, num_classes, max_positives):
    if self.spreadout_classes == 'round':
      num_classes = min(num_classes, self.clients_per_round * max_positives)
    flags = '--spreadout_weight times --spreadout_learning_rate'
    or_k = '' if self.spreadout_margin else ', or --spreadout_neighbors'
    return _warned(self._spread(), flags, or_k, num_classes)


@hp.declared
class FedAwSPosOnly(fedss.PosOnly):
  """FedAwS in FedSS's comparison: PosOnly, then spreadout on all rows.

  Clients train with PosOnly's loss. The server takes its momentum step, then one spreadout step on
  all n rows. The size of the spreadout step is lambda, which includes the learning rate. The paper
  gives no value for lambda, so lambda needs tuning. The spreadout gradient goes through the
  normalisation of the rows, because the logits are cosines.
  """

  name = 'fedaws_posonly'
  answers = fedss.PosOnly.answers._replace(server='optimizer step, spreadout on all rows')

  spreadout_weight: float = hp.again(FedAwS, 'spreadout_weight', default=0.01)
  spreadout_neighbors: int = hp.again(FedAwS, 'spreadout_neighbors')
  spreadout_distance: str = hp.again(FedAwS, 'spreadout_distance')

  def _spread(self):
    from tff_xc.algorithms import spreadout

    return spreadout.Spreadout(
      self.spreadout_weight, self.spreadout_neighbors, self.spreadout_distance, tangent=True
    )

  def make(self, model, facts):
    from tff_xc.round import server

    step = server.RowStep(self._spread(), True)
    return base.with_steps(super().make(model, facts), step)

  def warnings(self, num_classes, max_positives):
    or_k = ', or --spreadout_neighbors'
    return [
      *super().warnings(num_classes, max_positives),
      *_warned(self._spread(), '--spreadout_weight', or_k, num_classes),
    ]


@hp.declared
class FedAwSSoftmax(fedavg.FedAvg):
  """FedAwS in TurboSVM-FL's comparison: softmax, then a cosine penalty on rows.

  Clients train softmax on all classes. After FedAvg, the server takes one Adam step that lowers
  sum_{i < j} max(0, cos(w_i, w_j)) of the class rows. The last coordinate of a row is its bias.
  This variant has no weight lambda, no margin and no selection of nearest classes, and it does not
  train on positive labels only. Adam has PyTorch's form, and the server keeps Adam's state over
  rounds.
  """

  name = 'fedaws_softmax'
  paper = 'TurboSVM-FL'
  answers = fedavg.FedAvg.answers._replace(server='optimizer step, Adam step on positive cosines')

  logits_learning_rate: float = hp.field(
    0.01,
    "learning rate of the server's Adam step on class rows; the default is TurboSVM-FL's value",
    above=0,
  )
  logits_epsilon: float = hp.field(
    1e-5,
    "epsilon of the server's Adam step on class rows; the default is TurboSVM-FL's value",
    above=0,
  )

  def make(self, model, facts):
    from tff_xc.algorithms import spreadout
    from tff_xc.round import optimizers, server

    cosines = spreadout.Spreadout(1.0, nearest=0, distance=spreadout.POSITIVE_COSINE, tangent=True)
    adam = optimizers.TorchAdam(self.logits_learning_rate, epsilon=self.logits_epsilon)
    step = server.DescentStep(cosines.gradient, adam)
    return base.with_steps(super().make(model, facts), step)


build_fedaws = base.builder(FedAwS)
build_fedaws_baseline1 = base.builder(Baseline1)
build_fedaws_baseline2 = base.builder(Baseline2)
build_fedaws_posonly = base.builder(FedAwSPosOnly)
build_fedaws_softmax = base.builder(FedAwSSoftmax)
