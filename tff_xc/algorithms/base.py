"""Base classes of the algorithms, with the hyperparameters of clients and server.

An algorithm is a class whose fields are its hyperparameters. The method `make` answers the four
questions of a round (see `tff_xc.round`). The method `algorithm` calls `make` and adds the options
of the base classes. Importing this module does not import TensorFlow. The module's functions import
TensorFlow when they are called.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tff_xc import errors, wording
from tff_xc.lazy import np, tff
from tff_xc.options import calibration, conflicts, hyperparameters as hp, importance, schedules

if TYPE_CHECKING:
  from tff_xc import classifier as classifier_lib
  from tff_xc.round import algorithm as algorithm_lib, local_training as local_training_lib

# What an algorithm may require of a task (`Base.needs`).
ONE_LABEL = 'examples with one label each'
COSINES = 'cosine logits'


class Answers(NamedTuple):
  """An algorithm's answers to the four questions of a round, as text."""

  request: str  # The class rows that a client receives.
  minimise: str  # The loss that the client minimises.
  merge: str  # How the server merges the clients' rows.
  server: str  # What the server does last.


@dataclasses.dataclass(frozen=True)
class Facts:
  """Facts about the clients' data that an algorithm may need.

  Attributes:
    max_positives: the largest number of class rows that belong to the labels of one client.
    num_clients: the number of clients in the data set.
    class_probabilities: [n], the class distribution p, up to a factor. FedIR needs it, except with
      --importance_weights=uniform. --calibration=prior also needs it.
    examples_per_round: the number of examples that a client draws for a round; 0: all.
  """

  max_positives: int | None = None
  num_clients: int | None = None
  class_probabilities: np.ndarray | None = None
  examples_per_round: int = 0

  def all_clients(self) -> int:
    """Returns `num_clients`. Raises TypeError if the number is not known."""
    if not self.num_clients or self.num_clients < 1:
      raise TypeError('num_clients is missing: the number of all clients')
    return self.num_clients


@hp.declared
class Base:
  """Hyperparameters that every algorithm has.

  `hp.declared` adds class attributes. The other class attributes are:

    options: the classes of options whose fields are also hyperparameters.
    name: the value of `--algorithm`.
    paper: the paper that introduced the algorithm.
    answers: the answers to the four questions.
    needs: what the algorithm requires of the task: `ONE_LABEL`, `COSINES`, both or nothing.
    has_clients: whether clients receive and send messages.
    keeps_models: whether a client keeps a model, or a state of the same size, and so must receive
      the whole model.

  `tff_xc.options.conflicts` lists the options that exclude each other.
  """

  options = (calibration.Calibration, schedules.OfClients)
  name = ''
  paper = ''
  answers = Answers('', '', '', '')
  needs: ClassVar[tuple[str, ...]] = ()
  has_clients = False
  keeps_models = False

  client_optimizer: str = hp.field(
    'sgd',
    'optimizer of the clients. adam starts every round with moments of zero',
    choices=('sgd', 'adam'),
  )
  client_learning_rate: float | None = hp.field(
    0.01,
    "learning rate of the clients' optimizer; default with adam: 0.001",
    above=0,
    of='client_optimizer',
    defaults={'adam': 1e-3},
  )
  batch_size: int = hp.field(32, 'number of examples in a minibatch', least=1)
  weight_decay: float = hp.field(
    0.0,
    'L2 penalty on all weights that clients train. The penalty adds this factor times the weight'
    " to the gradient of the weight, as in PyTorch's SGD and Adam",
    least=0,
  )
  trainable: str = hp.field(
    'all',
    "weights that clients train. 'all': all weights; 'head': the class table; 'bottleneck': the"
    " class table and the encoder's last layer; 'body': everything except the class table"
    ' (FedBABU). All other weights keep their initial values, and clients do not send them',
    choices=('all', 'head', 'bottleneck', 'body'),
  )

  def __post_init__(self):
    hp.complete(self)

  def algorithm(
    self, model: classifier_lib.EmbeddingClassifier, **facts
  ) -> algorithm_lib.Algorithm:
    """Returns the `Algorithm` for a model, with the options and the client sampling.

    `facts` are attributes of `Facts`. Raises InputError if the model does not meet the algorithm's
    needs, or if values that apply exclude each other.
    """
    from tff_xc import heads

    given = {n: getattr(self, n) for n in self.names if getattr(self, n) != self.defaults[n]}
    if given.get('local_steps'):
      given.pop('local_epochs', None)  # Epochs do not apply with steps.
    values = self.resolve(given, num_classes=model.num_classes)
    # A default that would yield to another value is refused, because this object has the default.
    conflicts.check(type(self), values, {n: getattr(self, n) for n in values})
    if ONE_LABEL in self.needs and model.label_sets:
      raise errors.InputError(f'{self.name} needs {ONE_LABEL}; choose another algorithm')
    if COSINES in self.needs and not isinstance(model.head, heads.CosineHead):
      raise errors.InputError(f'{self.name} needs {COSINES}; choose another algorithm')
    known = Facts(**facts)
    made = self.finish(self.make(model, known), known)
    if made.model is model:
      return made
    return dataclasses.replace(made, task_model=model)

  @classmethod
  def made(
    cls, *, model: classifier_lib.EmbeddingClassifier, **arguments
  ) -> algorithm_lib.Algorithm:
    """Returns the `Algorithm` that keyword arguments describe.

    There are three kinds of arguments: hyperparameters, which are checked like flags; attributes of
    `Facts`; and attributes of `tff_xc.round.algorithm.Algorithm`, such as `local_training`, which
    replace the algorithm's own attributes.
    """
    from tff_xc.round import algorithm

    facts = [f.name for f in dataclasses.fields(Facts)]
    own = [f.name for f in dataclasses.fields(algorithm.Algorithm)]

    def of(names):
      return {n: arguments.pop(n) for n in names if n in arguments}

    given, known = of(cls.names), of(facts)
    for name in set(arguments) - set(own):
      hint = wording.meant(name, [*cls.names, *facts, *own])
      raise TypeError(f'{cls.name} takes no argument {name!r}{hint}')
    chosen = given.get('calibration', cls.defaults['calibration'])
    if known.get('class_probabilities') is not None and chosen != calibration.PRIOR:
      if 'importance_weights' not in cls.names:
        raise TypeError("class_probabilities go with calibration='prior'")
      weights = given.setdefault('importance_weights', 'train')
      if weights in (importance.NONE, importance.UNIFORM):
        raise TypeError(
          "class_probabilities go with importance_weights='train', or calibration='prior'"
        )
    values = cls.resolve(given, num_classes=model.num_classes)
    made = cls(**values).algorithm(model, **known)
    return dataclasses.replace(made, **arguments)

  def make(
    self, model: classifier_lib.EmbeddingClassifier, facts: Facts
  ) -> algorithm_lib.Algorithm:
    """Returns the `Algorithm` without the options, which `finish` adds."""
    raise NotImplementedError

  def finish(self, made: algorithm_lib.Algorithm, facts: Facts) -> algorithm_lib.Algorithm:
    """Returns the algorithm with the options that the fields of this class set."""
    from tff_xc.round import frozen

    made = calibration.Calibration.of(self).added(made, facts)
    return frozen.train_only(made, self.trainable)

  def local_training(self) -> local_training_lib.LocalTraining:
    """Returns the local training that the fields describe."""
    from tff_xc.round import local_training as local_training_lib

    return local_training_lib.LocalTraining(
      self.client_learning_rate,
      self.batch_size,
      optimizer_name=self.client_optimizer,
      weight_decay=self.weight_decay,
      schedule=schedules.of(self, 'client'),
    )

  def warnings(self, num_classes: int, max_positives: int) -> list[str]:
    """Returns sentences that warn of values that are allowed but likely to fail."""
    if calibration.Calibration.of(self).leaves_out and max_positives == 1:
      return [
        "--calibration=counts all but leaves out a client's missing classes, and no"
        ' client has more than one class: nothing is learned; use'
        ' --calibration=restricted'
      ]
    return []

  @classmethod
  def resolve(
    cls,
    given: Mapping,
    task_defaults: Mapping = {},
    of_algorithm: Mapping = {},
    others: tuple[dict, ...] = (),
    num_classes: int | None = None,
  ) -> dict[str, Any]:
    """Returns the values of the hyperparameters that apply, see `hp.resolve`.

    `others` are dictionaries of the run's settings that are not hyperparameters. These settings may
    exclude some values. `num_classes` is the number of classes of the data, or None if it is not
    known.
    """
    if given.get('local_steps') and 'local_epochs' in given:
      raise errors.InputError('--local_epochs does not apply with --local_steps; give one of them')
    if 'local_epochs' in given and 'local_steps' not in given:
      # The user's number of epochs replaces the task's number of steps.
      of_algorithm = {**of_algorithm, 'local_steps': 0}
    own = {n: v for n, v in given.items() if not any(n in group for group in others)}
    values = hp.resolve(cls, own, task_defaults, of_algorithm)
    for name in ('local_steps', 'steps_per_round'):
      steps, size = values.get(name, 0), values['batch_size']
      if steps * size > hp.INT32_MAX:
        raise errors.InputError(
          f'--{name}={steps} and --batch_size={size}: expected a product of at'
          f' most {hp.INT32_MAX} examples in a round; lower one of them'
        )
    conflicts.check(cls, given, values, *others)
    cls.check(values)
    cls.fit(values, given, num_classes)
    return values

  @classmethod
  def check(cls, values: Mapping) -> None:
    """Refuses invalid values; `conflicts` refuses pairs that exclude each other."""
    for each in cls.__mro__:
      for option in vars(each).get('options', ()):
        option.check(values)

  @classmethod
  def fit(cls, values: dict, given: Collection[str], num_classes: int | None) -> None:
    """Lowers defaults that exceed the number of classes. Refuses given values that exceed it.

    If `num_classes` is None, this method changes and refuses nothing.
    """


@hp.declared
class Federated(Base):
  """Base class of algorithms with clients, and the options that they all take."""

  options = conflicts.OF_CLIENTS
  has_clients = True

  largest_loss: bool = hp.field(
    False,
    'also measure loss_largest, the largest mean loss of any client in the round. This value'
    ' shows when training diverges on a few clients',
  )
  local_steps: int = hp.field(
    0,
    'number of minibatches that a client trains on in a round; 0: train for --local_epochs instead',
    least=0,
  )
  local_epochs: int = hp.field(
    1,
    "number of passes over a client's examples in a round, if --local_steps is 0",
    least=1,
    most=1000,
  )
  shuffle: bool = hp.field(True, "shuffle a client's examples before each local epoch")
  replace_nonfinite: bool = hp.field(
    False,
    "after every local step, set weights that are not finite to 0.00001, as TurboSVM-FL's"
    ' published code does. false: the update of a client with such weights is dropped',
    of='client_optimizer',
    only_with=('sgd',),
  )
  prox_mu: float = hp.field(
    0.0,
    'mu of FedProx. The proximal term is mu / 2 times the squared distance from the weights that'
    ' the client received',
    least=0,
  )

  def local_training(self):
    return dataclasses.replace(
      super().local_training(),
      epochs=self.local_epochs,
      steps=self.local_steps,
      shuffle=self.shuffle,
      replace_nonfinite=self.replace_nonfinite,
    )

  def finish(self, made, facts):
    from tff_xc.round import losses

    made = super().finish(made, facts)
    if self.largest_loss:
      made = dataclasses.replace(made, measures_largest_loss=True)
    if self.prox_mu:
      penalty = losses.Proximal(self.prox_mu / 2)
      made = dataclasses.replace(made, penalties=(*made.penalties, penalty))
    for option in conflicts.OF_CLIENTS:
      made = option.of(self).added(made, facts)
    return made


_ADAM = {'of': 'server_optimizer', 'only_with': ('adam', 'amsgrad')}


@hp.declared
class Server(Base):
  """Options of the server's optimizer, for algorithms that do not fix this optimizer."""

  options = (schedules.OfServer,)

  server_optimizer: str = hp.field(
    'sgd',
    'optimizer of the server, for the encoder and the class table. In FedAwS, FedProto and'
    ' TurboSVM-FL, it updates only the encoder',
    choices=('sgd', 'adam', 'amsgrad', 'adagrad'),
  )
  server_learning_rate: float | None = hp.field(
    1.0,
    'learning rate of the server; default with adam and amsgrad: 0.001, with adagrad: 0.01',
    above=0,
    of='server_optimizer',
    defaults={'adam': 1e-3, 'amsgrad': 1e-3, 'adagrad': 1e-2},
  )
  server_momentum: float = hp.field(
    0.9, "momentum of the server's SGD", least=0, below=1, of='server_optimizer', only_with=('sgd',)
  )
  server_beta_1: float = hp.field(
    0.9, "beta_1 of the server's Adam: decay of the average gradient", least=0, below=1, **_ADAM
  )
  server_beta_2: float = hp.field(
    0.999,
    "beta_2 of the server's Adam: decay of the average squared gradient",
    least=0,
    below=1,
    **_ADAM,
  )
  server_epsilon: float = hp.field(
    1e-8, "epsilon of the server's Adam, added to the square root as in PyTorch", above=0, **_ADAM
  )
  server_initial_accumulator: float = hp.field(
    0.1,
    "initial sum of squares in the server's Adagrad",
    least=0,
    of='server_optimizer',
    only_with=('adagrad',),
  )

  def finish(self, made, facts):
    made = super().finish(made, facts)
    optimizer, of_rows = self._optimizers()
    table = made.tables[0]
    if table.merge.takes_optimizer:
      chosen = of_rows if table.request.selects else optimizer
      made = made.with_table(dataclasses.replace(table, optimizer=chosen))
    return dataclasses.replace(made, encoder_optimizer=optimizer)

  def _optimizers(self):
    """Returns (the server's optimizer of all weights, its optimizer of selected rows)."""
    # The two optimizers give the same result, except if Adam updates only requested rows. With
    # Adagrad, a row without a gradient does not move. With SGD, `RowMomentum` also moves a row that
    # has no gradient.
    from tff_xc.round import optimizers

    rate, kind = self.server_learning_rate, self.server_optimizer
    schedule = schedules.of(self, 'server')

    def make(rate):
      if kind == 'sgd':
        return optimizers.build_sgd(rate, self.server_momentum)
      if kind == 'adagrad':
        return tff.learning.optimizers.build_adagrad(rate, self.server_initial_accumulator)
      return optimizers.TorchAdam(
        rate, self.server_beta_1, self.server_beta_2, self.server_epsilon, amsgrad=kind == 'amsgrad'
      )

    optimizer = make(rate)
    if schedule:
      optimizer = optimizers.Scheduled(make, rate, schedule)
    if kind == 'sgd':
      momentum = self.server_momentum
      return optimizer, optimizers.RowMomentum(rate, momentum, schedule)
    lazy = getattr(self, 'server_adam_rows', 'all') == 'requested'
    if lazy or kind == 'adagrad':
      return optimizer, optimizers.LazyRows(optimizer)
    return optimizer, optimizer


@hp.declared
class Softmax(Server, Federated):
  """Clients train all class rows, with softmax cross entropy.

  If examples have sets of labels, the loss is the binary cross entropy.
  """

  answers = Answers('all classes', 'softmax', 'mean delta of the table', 'optimizer step')

  def make(self, model, facts):
    return softmax(model, self.local_training())


def softmax(model, local_training) -> algorithm_lib.Algorithm:
  """Returns an algorithm that trains all class rows and averages the clients' updates."""
  from tff_xc import classifier
  from tff_xc.round import algorithm, losses, request, tables

  loss = losses.HeldSoftmax(model.num_rows)
  if model.label_sets:
    loss = losses.BinaryCrossEntropy()
  table = tables.Table(classifier.CLASS, request.AllRows(model.num_rows))
  return algorithm.Algorithm(model, (table,), loss, local_training=local_training)


def own_and_sampled(model, facts: Facts, negatives: int = 0, **more):
  """Returns the request for a client's own class rows and sampled negatives.

  `more` are arguments of `request.OwnAndSampled`, or of `randomized.Randomized` if the schedule is
  'randomized'.
  """
  from tff_xc.round import randomized, request

  if facts.max_positives is None:
    raise TypeError(
      'max_positives is missing: the largest number of class rows that a client'
      ' holds, such as dataset.train.largest_label_set'
    )
  check_negatives(negatives, model.num_rows)
  kind = request.OwnAndSampled
  if more.get('schedule') == request.RANDOMIZED:
    kind = randomized.Randomized
  return kind(model.num_rows, facts.max_positives, negatives, **more)


def check_negatives(negatives: int, num_classes: int) -> None:
  """Raises `errors.InputError` if there are at least as many negatives as classes."""
  if negatives >= num_classes:
    raise errors.InputError(
      f'--negatives={negatives}: expected fewer than the {num_classes}'
      ' classes; use --algorithm=fullsoftmax to train on all of them'
    )


def with_steps(made: algorithm_lib.Algorithm, *steps) -> algorithm_lib.Algorithm:
  """Returns the algorithm with these server steps on class rows."""
  return made.with_table(dataclasses.replace(made.tables[0], steps=steps))


# Arguments of `build_<algorithm>` besides hyperparameters. All except `model` have defaults.
_ARGUMENTS = {
  'model': 'the embedding classifier.',
  'max_positives': 'the largest number of class rows that belong to the labels of'
  ' one client; needed if clients select rows.',
  'num_clients': 'the number of clients in the data set.',
  'class_probabilities': '[n], the class distribution p, up to a factor. FedIR weights examples'
  " by p. With calibration='prior', p is the prior of the classes.",
  'seed': 'the seed of all random draws.',
  'table_optimizer': "the server's optimizer of class rows, in place of the one"
  ' that the server_* arguments describe.',
}


def builder(cls: type[Base]) -> Callable:
  """Returns `build_<algorithm>`, for users of TFF's own `build_*` functions.

  `build_<algorithm>` takes the hyperparameters, the attributes of `Facts`, `seed`,
  `table_optimizer` and any attribute of `tff_xc.round.algorithm.Algorithm`, such as
  `model_aggregator`. The function returns a `tff.learning.templates.LearningProcess`.
  """

  def build(*, seed=0, table_optimizer=None, **arguments):
    from tff_xc.round import process

    build.__signature__.bind(**arguments)
    for name in ('client_failure_rate', 'virtual_client_replace', 'attack'):
      if arguments.get(name) and (name != 'attack' or arguments[name] == 'flip_labels'):
        raise TypeError(
          f'{name}={arguments[name]!r} acts when clients are drawn, and the caller of a'
          f' LearningProcess draws them; use the sampling of {cls.__name__}.made'
        )
    made = cls.made(**arguments)
    if table_optimizer is not None:
      made = made.with_table(dataclasses.replace(made.tables[0], optimizer=table_optimizer))
    return process.build_process(made, seed)

  kind, usual = inspect.Parameter, cls()
  defaults = {**dict.fromkeys(_ARGUMENTS), 'model': kind.empty, 'seed': 0}
  told = dict(_ARGUMENTS)
  for h in cls.hyperparameters:
    defaults[h.name] = getattr(usual, h.name)
    bounds = f', {h.bounds}' if h.bounds else ''
    told[h.name] = f'{h.help} (default {defaults[h.name]!r}{bounds}).'
  told['**attributes'] = 'attributes of `tff_xc.round.algorithm.Algorithm` to replace.'
  types = {h.name: type(defaults[h.name]) for h in cls.hyperparameters}
  build.__signature__ = inspect.Signature(
    [
      *(
        kind(n, kind.KEYWORD_ONLY, default=d, annotation=types.get(n, kind.empty))
        for n, d in defaults.items()
      ),
      kind('attributes', kind.VAR_KEYWORD),
    ],
    return_annotation='tff.learning.templates.LearningProcess',
  )
  # `help` of a module shows only functions whose `__module__` is that module.
  build.__module__ = cls.__module__
  build.__name__ = build.__qualname__ = f'build_{cls.name}'
  build.__doc__ = (
    f'Builds the learning process of {cls.name}.\n\n{inspect.getdoc(cls)}\n\n'
    + '\n  '.join(['Args:', *(f'{n}: {text}' for n, text in told.items())])
  )
  return build
