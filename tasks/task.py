"""The definition of a task. Data, networks and TensorFlow are imported on demand."""

import dataclasses
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from datasets.splits import rules
from tasks import encoders
from tff_xc import errors, memory
from tff_xc.algorithms import base
from tff_xc.lazy import tf
from tff_xc.measure import catalog
from tff_xc.options import hyperparameters as hp

COSINE, LINEAR = 'cosine', 'linear'
DRAWN = 'none is needed, because this program generates the data'  # A value of `Task.licence`.

# Options that tasks in several files share. All others are declared where they are used.
EMBEDDING_DIM = hp.Hyperparameter(
  'embedding_dim', 64, 'length d of an embedding', least=1, most=65_536
)
LOGIT_SCALE = hp.Hyperparameter(
  'logit_scale', 20.0, 'scale of the cosine logits (FedSS: 20)', above=0
)
NUM_CLASSES = hp.Hyperparameter(
  'num_classes', 200, 'number n of classes in generated data (2 to 10^7)', least=2, most=10**7
)
NUM_CLIENTS = hp.Hyperparameter(
  'num_clients',
  100,
  'number of clients, if the data do not determine this number',
  least=1,
  most=10**8,
)
CLASSES_PER_CLIENT = hp.Hyperparameter(
  'classes_per_client',
  10,
  'number of classes of each client, if the data are split by class',
  least=1,
)
NUM_FEATURES = hp.Hyperparameter(
  'num_features',
  50_000,
  'number of features in generated data; at least 16 for bags of words',
  least=1,
)
CLIENTS_PER_CLASS = hp.Hyperparameter(
  'clients_per_class', 1, 'number of clients that share each class', least=1
)
HIDDEN_DIM = hp.Hyperparameter(
  'hidden_dim', 1024, 'width of the two hidden layers', least=1, most=65_536
)
EXAMPLES_PER_ROUND = hp.Hyperparameter(
  'examples_per_round',
  32,
  'number of examples that a client draws for each round. With sparse text, the client requests'
  ' only the features of these examples. 0: all its examples',
  least=0,
)
TEST_EXAMPLES = hp.Hyperparameter(
  'test_examples',
  0,
  'number of test examples to evaluate, a random sample that is the same in every run; 0: the'
  ' whole test set',
  least=0,
)
CONCENTRATION = hp.Hyperparameter(
  'concentration',
  1.0,
  'with --split=dirichlet: total concentration alpha. The class shares of each client are drawn'
  ' from a Dirichlet distribution in which each of the n classes has alpha / n. If a paper gives'
  ' the value a for each class, use n times a. 0: each client has a single class',
  least=0,
)
DATA_SEED = hp.Hyperparameter(
  'data_seed',
  0,
  'seed of generated data, of the split into clients, and of held-out examples. --seed changes'
  ' none of the three',
  least=0,
  most=2**63 - 1,
)
# Options that do not apply to algorithms without clients.
OF_CLIENTS = ('select_features', 'examples_per_round')
# The options of each value of --split.
_OF_SPLIT = {
  'dirichlet': ('concentration', 'num_clients', 'data_seed'),
  'class': ('clients_per_class', 'classes_per_client'),
}

# Hyper-parameters that train the small encoder from scratch within hundreds of
# rounds. The papers start from pretrained encoders and use SGD and momentum.
FROM_SCRATCH: Mapping[str, Any] = {
  'client_learning_rate': 0.1,
  'server_optimizer': 'adam',
  'server_learning_rate': 0.003,
  'spreadout_learning_rate': 0.001,
}


def options(*chosen: hp.Hyperparameter, **defaults) -> tuple[hp.Hyperparameter, ...]:
  """Returns a task's options; `defaults` replaces their defaults by name."""
  return tuple(o.with_default(defaults.get(o.name, o.default)) for o in chosen)


def at(name: str, /, *first, **more) -> Callable:
  """Returns a function that imports `datasets.NAME` when called, and calls it."""
  return lambda *given, **named: pkgutil.resolve_name(f'datasets.{name}')(
    *first, *given, **more, **named
  )


class Loaded(NamedTuple):
  """The parts of a task that need TensorFlow."""

  dataset: Any  # A `tff_xc.data.client_data.FederatedDataset`.
  model: Any  # A `tff_xc.classifier.EmbeddingClassifier`.


class Draft(NamedTuple):
  """A run's configuration before any data are read. `Task.fit` may change it."""

  algorithm: type[base.Base]
  settings: dict
  options: dict
  values: dict  # The algorithm's hyper-parameters.
  given: Mapping  # The settings, options and hyper-parameters that the user gave.

  def refuse(self, name: str, why: str, cure: str = 'leave it out') -> None:
    """Raises InputError if the user gave a flag that does not apply."""
    if name in self.given:
      raise errors.InputError(f'--{name} does not apply {why}; {cure}')


@dataclasses.dataclass(frozen=True)
class Task:
  """Data, a network and defaults, which any algorithm can train on."""

  name: str
  summary: str  # One line, which names the size of the data set.
  # (data_dir, options) -> a `FederatedDataset`, which does not depend on a run's seed.
  read: Callable[[str, Mapping], Any]
  # (options, `data.description.Description`) -> a `classifier.EmbeddingClassifier`.
  network: Callable[[Mapping, Any], Any]
  # The headline metric is first. Metrics whose examples the data lack are left out.
  metrics: tuple[str, ...]
  rounds: int
  clients_per_round: int
  eval_every: int
  defaults: Mapping[str, Any]  # Hyper-parameters for all algorithms.
  # Hyper-parameters for single algorithms, which override `defaults`.
  by_algorithm: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
  num_classes: int | None = None  # None: the data or an option determine it.
  # (data_dir) -> n, read without TensorFlow, or None if that is impossible.
  count_classes: Callable[[str], int | None] | None = None
  options: tuple[hp.Hyperparameter, ...] = (EMBEDDING_DIM, LOGIT_SCALE)
  targets: tuple[str, ...] = ()  # The default of --target, such as 'top1:0.7'.
  best_by: str = ''  # The default of --best_by.
  # Raises InputError for options that are invalid with any data. Imports nothing large.
  check: Callable[[Mapping[str, Any]], None] = lambda options: None
  # Adapts defaults to each other, and refuses values that exclude each other.
  fit: Callable[[Draft], None] = lambda draft: None
  # Whether --data_dir names the user's own file or folder. It then has no default.
  data_is_named: bool = False
  data: str = ''  # The files that --data_dir must hold; '': the task reads no files.
  licence: str = ''  # The licence of the data; '': unknown.
  lacks: tuple[str, ...] = ()  # Which of `base.ONE_LABEL` and `base.COSINES` the task lacks.
  # (data_dir) -> a `Part` if files are known to be incomplete. Takes seconds. Raises InputError
  # if data_dir does not hold `data`. None: the task needs no files, or the user names them.
  find: Callable[[str], Any] | None = None
  # Like `read`, but does not look at every example. None: `read` is quick.
  look: Callable[[str, Mapping], Any] | None = None

  def load(self, data_dir: str, options: Mapping) -> Loaded:
    """Reads the data and builds a network for them."""
    return self.with_network(self.read(data_dir, options), options)

  def with_network(self, dataset, options: Mapping) -> Loaded:
    """Returns `dataset`, which may be from elsewhere, and the task's network for it."""
    return Loaded(dataset, self.network(options, dataset.description))

  def option_values(self) -> dict[str, Any]:
    """Returns the default of every option."""
    return {option.name: option.default for option in self.options}

  def checked_options(self, given: Mapping) -> dict[str, Any]:
    """Returns all options: the given ones, and defaults for the others."""
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
    """Raises InputError if the user must name the data and did not."""
    if self.data_is_named and not data_dir:
      raise errors.InputError(f'--data_dir is missing: task {self.name} needs {self.data}')

  def known_classes(self, options: Mapping[str, Any], data_dir: str = '') -> int | None:
    """Returns the number of classes without loading the data; None if that is impossible."""
    if self.count_classes and not options.get('classes'):
      return self.count_classes(data_dir)
    return options.get('num_classes', self.num_classes)

  def metrics_of(self, dataset, model, more=()) -> tuple[str, ...]:
    """Returns the metrics of the task and of `more` that `dataset` and `model` allow."""
    held_out = ('test', 'validation', 'retrieval', 'propensity')
    present = {part for part in held_out if getattr(dataset, part)}
    # A head that scores labels itself has no row for each class.
    if not hasattr(model.head, 'label_scores'):
      present.add('class rows')
    names = dict.fromkeys((*self.metrics, *more))  # Without repetitions.
    return catalog.measurable(names, {*present, 'train'})


def check_split(draft: Draft) -> None:
  """Refuses options that belong to a different value of --split."""
  split = draft.options['split'] or 'class'
  # --data_seed also decides which examples and clients are held out, and seeds other rules.
  draws = draft.settings['client_test_fraction'] or draft.settings['unseen_clients']
  draws = draws or (split != 'class' and rules.parse(split) is not None)
  for other, names in _OF_SPLIT.items():
    # Only the CIFAR tasks have a Dirichlet split.
    is_there = other == 'class' or 'concentration' in draft.options
    for name in names if is_there and other != split else ():
      if name != 'data_seed' or not draws:
        why = f'with --split={split}, only with --split={other}'
        if name == 'data_seed':
          why += ', a rule such as iid:100, --client_test_fraction or --unseen_clients'
        draft.refuse(name, why, 'leave one of them out')


def image_network(options: Mapping, description, filters: int = 32):
  """Returns the chosen encoder and head for images; see `encoders.build`."""
  from tff_xc import heads

  head = heads.LinearHead()
  if options.get('logits', COSINE) == COSINE:
    head = heads.CosineHead(options['logit_scale'])
  return classifier(encoders.build(options, description.shape, filters), description, head)


def classifier(encoder, description, head=None):
  """Returns a classifier for the described classes. If `head` is None, the head is linear."""
  from tff_xc import classifier as classifier_lib, heads

  return classifier_lib.EmbeddingClassifier(
    encoder, head or heads.LinearHead(), description.num_classes
  )


def check_memory(model, what: str, advice: str) -> None:
  """Refuses a model whose weights would not fit into free memory, before it is built."""
  memory.require(bytes_of(model.weight_specs()), what, advice)


def bytes_of(specs) -> int:
  """Returns the number of bytes of tensors or of their specs."""
  tensors = [t for t in tf.nest.flatten(specs) if hasattr(t, 'shape')]
  return sum(t.shape.num_elements() * t.dtype.size for t in tensors)


# -- results of `Task.find` --


class Part(str):
  """Describes how much of an incomplete data set is there, such as '5 of 3,550 users'."""


MISSING = 'missing'
# Separates the missing things in the error message of `Task.find`.
ALSO = '; also '


def state(find: Callable[[str], Any], data_dir: str) -> str:
  """Returns MISSING, the `Part` of the data that is there, or '' if all of it is there."""
  try:
    found = find(data_dir)
  except (errors.InputError, OSError):
    return MISSING
  return found if isinstance(found, Part) else ''


def part(task: Task, data_dir: str) -> str:
  """Returns the `Part` of a task's data that is there; '' if all or none of it is there."""
  found = state(task.find, data_dir) if task.find else ''
  return '' if found == MISSING else found
