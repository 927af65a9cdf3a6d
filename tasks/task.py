"""The definition of a task; data, networks and TensorFlow are loaded on demand."""

import dataclasses
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tasks import encoders
from tff_xc import errors, memory
from tff_xc.algorithms import base
from tff_xc.lazy import tf
from tff_xc.measure import catalog
from tff_xc.options import hyperparameters as hp

COSINE, LINEAR = 'cosine', 'linear'
DRAWN = 'none is needed, this program draws them'  # The licence of such data.

# Options of tasks in several files; others are declared where they are used.
EMBEDDING_DIM = hp.Hyperparameter(
  'embedding_dim', 64, 'd, length of an embedding', least=1, most=65_536
)
LOGIT_SCALE = hp.Hyperparameter(
  'logit_scale', 20.0, 'scale of the cosine logits (FedSS: 20)', above=0
)
NUM_CLASSES = hp.Hyperparameter(
  'num_classes', 200, 'n, classes of procedural data (2 to 10^7)', least=2, most=10**7
)
NUM_CLIENTS = hp.Hyperparameter(
  'num_clients', 100, 'number of clients, for data that do not determine it', least=1, most=10**8
)
CLASSES_PER_CLIENT = hp.Hyperparameter(
  'classes_per_client', 10, 'classes of a client, for data that are dealt out by class', least=1
)
NUM_FEATURES = hp.Hyperparameter(
  'num_features',
  50_000,
  'number of features of an example of procedural data; at least 16 for bags of words',
  least=1,
)
CLIENTS_PER_CLASS = hp.Hyperparameter('clients_per_class', 1, 'clients that share a class', least=1)
HIDDEN_DIM = hp.Hyperparameter(
  'hidden_dim', 1024, 'width of the two hidden layers', least=1, most=65_536
)
EXAMPLES_PER_ROUND = hp.Hyperparameter(
  'examples_per_round',
  32,
  'number of examples that a client draws for a round. With sparse text, the client requests'
  ' only the features of these examples. 0: all its examples',
  least=0,
)
TEST_EXAMPLES = hp.Hyperparameter(
  'test_examples',
  0,
  'size of a random sample of the test set, which is the same in every run; 0: the whole test set',
  least=0,
)
CONCENTRATION = hp.Hyperparameter(
  'concentration',
  1.0,
  'total concentration alpha of --split=dirichlet: each of n classes has alpha / n. If a paper'
  ' gives every class the same value a, use n a. 0: clients of one class',
  least=0,
)
DATA_SEED = hp.Hyperparameter(
  'data_seed',
  0,
  'seed of procedural data, of the split into clients and of held-out examples. They do not'
  ' depend on --seed',
  least=0,
  most=2**63 - 1,
)
# Options that say what clients do: they do not apply without clients.
OF_CLIENTS = ('select_features', 'examples_per_round')
# By --split, the options that say how it deals examples to clients.
_OF_SPLIT = {
  'dirichlet': ('concentration', 'num_clients', 'data_seed'),
  'class': ('clients_per_class', 'classes_per_client'),
}

# Hyper-parameters that train the small encoder from scratch within hundreds of
# rounds; the papers start from pretrained encoders, with SGD and momentum.
FROM_SCRATCH: Mapping[str, Any] = {
  'client_learning_rate': 0.1,
  'server_optimizer': 'adam',
  'server_learning_rate': 0.003,
  'spreadout_learning_rate': 0.001,
}


def options(*chosen: hp.Hyperparameter, **defaults) -> tuple[hp.Hyperparameter, ...]:
  """Returns a task's options, some of them with defaults of its own."""
  return tuple(o.with_default(defaults.get(o.name, o.default)) for o in chosen)


def at(name: str, /, *first, **more) -> Callable:
  """Returns the function `datasets.NAME`, imported when it is called."""
  return lambda *given, **named: pkgutil.resolve_name(f'datasets.{name}')(
    *first, *given, **more, **named
  )


class Loaded(NamedTuple):
  """A task's parts that need TensorFlow."""

  dataset: Any  # A `tff_xc.data.client_data.FederatedDataset`.
  model: Any  # A `tff_xc.classifier.EmbeddingClassifier`.


class Draft(NamedTuple):
  """What a run will be, before any data are read; `Task.fit` may change it."""

  algorithm: type[base.Base]
  settings: dict
  options: dict
  values: dict  # Of the algorithm's hyper-parameters.
  given: Mapping  # The user's values of all of these.

  def refuse(self, name: str, why: str, cure: str = 'leave it out') -> None:
    """Raises InputError if the user has given a flag that does not apply."""
    if name in self.given:
      raise errors.InputError(f'--{name} does not apply {why}; {cure}')


@dataclasses.dataclass(frozen=True)
class Task:
  """An experiment for any algorithm: its data, its network and its defaults."""

  name: str
  summary: str  # One line, with the set's size.
  # (data_dir, options) -> a `FederatedDataset`, which does not depend on a run's seed.
  read: Callable[[str, Mapping], Any]
  # (options, `data.description.Description`) -> a `classifier.EmbeddingClassifier`.
  network: Callable[[Mapping, Any], Any]
  # If there are examples for them; the headline first.
  metrics: tuple[str, ...]
  rounds: int
  clients_per_round: int
  eval_every: int
  defaults: Mapping[str, Any]  # Hyper-parameters of all algorithms.
  # Those of single algorithms, which override `defaults`.
  by_algorithm: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
  num_classes: int | None = None  # None: the data or an option say it.
  # (data_dir) -> n, read without TensorFlow, or None where that fails.
  count_classes: Callable[[str], int | None] | None = None
  options: tuple[hp.Hyperparameter, ...] = (EMBEDDING_DIM, LOGIT_SCALE)
  targets: tuple[str, ...] = ()  # Default of --target, such as 'top1:0.7'.
  best_by: str = ''  # Default of --best_by.
  # Raises InputError for options that cannot be right, without a large import.
  check: Callable[[Mapping[str, Any]], None] = lambda options: None
  # Adapts defaults to each other, and refuses values that do not go together.
  fit: Callable[[Draft], None] = lambda draft: None
  # Whether --data_dir is the user's own file or folder, which has no default.
  data_is_named: bool = False
  data: str = ''  # The files that --data_dir must hold; '': none are read.
  licence: str = ''  # Of the data, where it is known.
  lacks: tuple[str, ...] = ()  # Of `base.ONE_LABEL`, `base.COSINES`.
  # (data_dir) -> anything, within seconds, a `Part` if that is known not to be all;
  # raises InputError if `data` are not there. None: it needs no files, or the user
  # names them.
  find: Callable[[str], Any] | None = None
  # As `read`, of data whose examples are not all looked at; None: `read` is quick.
  look: Callable[[str, Mapping], Any] | None = None

  def load(self, data_dir: str, options: Mapping) -> Loaded:
    """Reads the data, and makes the network for them."""
    return self.with_network(self.read(data_dir, options), options)

  def with_network(self, dataset, options: Mapping) -> Loaded:
    """Returns data, which need not be the task's, with the network for them."""
    return Loaded(dataset, self.network(options, dataset.description))

  def option_values(self) -> dict[str, Any]:
    """Returns the default of every option."""
    return {option.name: option.default for option in self.options}

  def checked_options(self, given: Mapping) -> dict[str, Any]:
    """Returns all options: those given, and the defaults of others."""
    known = {option.name: option for option in self.options}
    for name in given:
      if name not in known:
        raise errors.InputError(
          f'--{name} is not an option of task {self.name}, which takes: '
          + (', '.join(f'--{n}' for n in known) or 'none')
        )
    values = self.option_values() | dict(given)
    return {name: known[name].checked(value) for name, value in values.items()}

  def check_data_dir(self, data_dir: str | None) -> None:
    """Refuses data that the user must name and does not."""
    if self.data_is_named and not data_dir:
      raise errors.InputError(f'--data_dir is missing: task {self.name} needs {self.data}')

  def known_classes(self, options: Mapping[str, Any], data_dir: str = '') -> int | None:
    """Returns n without loading the data; None if that is impossible."""
    if self.count_classes and not options.get('classes'):
      return self.count_classes(data_dir)
    return options.get('num_classes', self.num_classes)

  def metrics_of(self, dataset, model, more=()) -> tuple[str, ...]:
    """Returns the metrics, the task's and `more`, that `dataset` and `model` allow."""
    held_out = ('test', 'validation', 'retrieval', 'propensity')
    present = {part for part in held_out if getattr(dataset, part)}
    # A head that scores labels itself has no row for each class.
    if not hasattr(model.head, 'label_scores'):
      present.add('class rows')
    names = dict.fromkeys((*self.metrics, *more))  # Each once.
    return catalog.measurable(names, {*present, 'train'})


def check_split(draft: Draft) -> None:
  """Refuses options of another split than the chosen one."""
  split = draft.options['split'] or 'class'
  for other, names in _OF_SPLIT.items():
    # Only CIFAR's tasks make a Dirichlet distribution.
    is_there = other == 'class' or 'concentration' in draft.options
    for name in names if is_there and other != split else ():
      why = f'with --split={split}, only with --split={other}'
      draft.refuse(name, why, 'leave one of them out')


def image_network(options: Mapping, description, filters: int = 32):
  """Returns the encoder and the head chosen, for images; see `encoders.build`."""
  from tff_xc import heads

  head = heads.LinearHead()
  if options.get('logits', COSINE) == COSINE:
    head = heads.CosineHead(options['logit_scale'])
  return classifier(encoders.build(options, description.shape, filters), description, head)


def classifier(encoder, description, head=None):
  """Returns an encoder with a head for the classes described; None: a linear one."""
  from tff_xc import classifier as classifier_lib, heads

  return classifier_lib.EmbeddingClassifier(
    encoder, head or heads.LinearHead(), description.num_classes
  )


def check_memory(model, what: str, advice: str) -> None:
  """Refuses a model whose weights would not fit the free memory, before it is made."""
  memory.require(bytes_of(model.weight_specs()), what, advice)


def bytes_of(specs) -> int:
  """Returns the bytes of tensors, or of their specs."""
  tensors = [t for t in tf.nest.flatten(specs) if hasattr(t, 'shape')]
  return sum(t.shape.num_elements() * t.dtype.size for t in tensors)


# -- what `Task.find` finds --


class Part(str):
  """What is there of a set that is not whole, for people: '5 of 3,550 users'."""


MISSING = 'missing'
# Between the things that a task's sentence says are missing.
ALSO = '; also '


def state(find: Callable[[str], Any], data_dir: str) -> str:
  """Returns MISSING, which `Part` of a task's data is there, or '' for all."""
  try:
    found = find(data_dir)
  except (errors.InputError, OSError):
    return MISSING
  return found if isinstance(found, Part) else ''


def part(task: Task, data_dir: str) -> str:
  """Returns what is there of a task's set if that is not all; '' otherwise."""
  found = state(task.find, data_dir) if task.find else ''
  return '' if found == MISSING else found
