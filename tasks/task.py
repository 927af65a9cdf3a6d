"""The definition of a task. Importing this does not import TensorFlow.

Data and networks are loaded on demand.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from tasks import encoders
from tasks import own_options
from tff_xc import errors
from tff_xc import memory
from tff_xc.algorithms import entry as entry_lib
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import settings
from tff_xc.measure import catalog

COSINE, LINEAR = 'cosine', 'linear'

OPTIONS: Mapping[str, hp.Hyperparameter] = {
  option.name: option
  for option in (
    hp.Hyperparameter(
      'embedding_dim', 64, 'd, length of an embedding', least=1, most=65_536
    ),
    hp.Hyperparameter(
      'logit_scale', 20.0, 'scale of the cosine logits (FedSS: 20)', above=0
    ),
    hp.Hyperparameter(
      'logits',
      COSINE,
      "class scores: 'cosine', times --logit_scale (FedSS); 'linear', with a bias"
      ' (FedVC)',
      choices=(COSINE, LINEAR),
    ),
    hp.Hyperparameter(
      'num_classes',
      200,
      'n, classes of procedural data (2 to 10^7)',
      least=2,
      most=10**7,
    ),
    hp.Hyperparameter(
      'num_clients',
      100,
      'clients, of data that do not determine their number',
      least=1,
      most=10**8,
    ),
    hp.Hyperparameter(
      'classes_per_client',
      10,
      'classes of a client, for data that are dealt out by class',
      least=1,
    ),
    hp.Hyperparameter(
      'classes_least',
      0,
      'classes of the smallest client of the glyphs task; examples are in'
      ' proportion; 0: all have --classes_per_client',
      least=0,
    ),
    hp.Hyperparameter(
      'classes_most',
      0,
      'classes of the largest client of the glyphs task; with --classes_least',
      least=0,
    ),
    hp.Hyperparameter(
      'examples_per_client',
      60,
      'examples of a client of the glyphs task',
      least=1,
      most=10**7,
    ),
    hp.Hyperparameter(
      'retrieval_classes',
      200,
      'further classes, which nobody trains on, and whose images are retrieved',
      least=1,
      most=10**7,
    ),
    hp.Hyperparameter(
      'depth',
      8,
      'layers of the residual network, 6n + 2 (8, 32, 56)',
      least=8,
      most=1202,
    ),
    hp.Hyperparameter(
      'concentration',
      1.0,
      'alpha of --split=dirichlet, for all classes together; 0: clients of one'
      ' class',
      least=0,
    ),
    hp.Hyperparameter(
      'augment', True, 'mirror and shift training images at random'
    ),
    hp.Hyperparameter(
      'clients_per_class', 1, 'clients that share a class', least=1
    ),
    hp.Hyperparameter(
      'feature_dim',
      512,
      "length of a sparse feature's row in the feature table",
      least=1,
      most=65_536,
    ),
    hp.Hyperparameter(
      'num_features',
      50_000,
      'features of the sparse-words task',
      least=16,
    ),
    hp.Hyperparameter(
      'hidden_dim',
      1024,
      'width of the two hidden layers',
      least=1,
      most=65_536,
    ),
    hp.Hyperparameter(
      'select_features',
      True,
      'clients download and upload only the feature rows that their examples'
      ' use',
    ),
    hp.Hyperparameter(
      'examples_per_round',
      32,
      'examples that a client draws for a round; of sparse text it requests'
      ' only their features; 0: all its examples',
      least=0,
    ),
    hp.Hyperparameter(
      'feature_learning_rate',
      1.0,
      "learning rate of the server's SGD on the feature table",
      above=0,
    ),
    hp.Hyperparameter(
      'min_examples',
      64,
      'training and test users with fewer examples are left out',
      least=1,
    ),
    hp.Hyperparameter(
      'test_examples',
      0,
      'size of a random sample of the test, the same in every run; 0: all of it',
      least=0,
    ),
    hp.Hyperparameter(
      'drop_duplicates',
      False,
      "leave out the second copy of a writer's first image, which LEAF's scripts"
      ' write twice',
    ),
    hp.Hyperparameter(
      'hashed_features',
      0,
      'features after hashing; 0: they are not hashed',
      least=0,
    ),
    hp.Hyperparameter(
      'partition_rule',
      'code',
      "FedMLH's clients: 'code', as many examples of one frequent label each, or"
      " 'paper', all examples of some frequent labels",
      choices=('code', 'paper'),
    ),
    hp.Hyperparameter(
      'validation',
      0.1,
      'share of the training examples that no client has, by whose score the best'
      ' round is chosen; 0: none',
      least=0,
      below=1,
    ),
    hp.Hyperparameter(
      'published_reading',
      False,
      "read files as FedMLH's published code does: examples without labels have"
      ' label 0, and the last test examples of an incomplete hundred are left out',
    ),
    *own_options.OPTIONS,
    *encoders.OPTIONS,
    hp.Hyperparameter(
      'data_seed',
      0,
      'seed of procedural data, of clients and of examples held out, which do not'
      ' depend on --seed',
      least=0,
      most=2**63 - 1,
    ),
  )
}

# Hyper-parameters that train the small encoder from scratch within hundreds of
# rounds; the papers start from pretrained encoders, with SGD and momentum.
FROM_SCRATCH: Mapping[str, Any] = {
  'client_learning_rate': 0.1,
  'server_optimizer': 'adam',
  'server_learning_rate': 0.003,
  'spreadout_learning_rate': 0.001,
}


# Options that say what clients do: they do not apply without clients.
OF_CLIENTS = ('select_features', 'examples_per_round')


class Loaded(NamedTuple):
  """A task's parts that need TensorFlow.

  Attributes:
    dataset: a `tff_xc.data.client_data.FederatedDataset`.
    model: a `tff_xc.classifier.EmbeddingClassifier`.
  """

  dataset: Any
  model: Any


@dataclasses.dataclass(frozen=True)
class Task:
  """An experiment for any algorithm.

  Attributes:
    name: for `--task`.
    summary: one line for people, with the set's size.
    load: (data_dir, options by name) -> `Loaded`. The data do not depend on
      a run's seed.
    metrics: the metrics to compute if the data set has examples for them, the
      headline metric first.
    rounds: default number of rounds.
    clients_per_round: default K.
    eval_every: default rounds between evaluations.
    defaults: hyper-parameters of all algorithms on this task, by name.
    by_algorithm: hyper-parameters of single algorithms; they override
      `defaults`.
    num_classes: n; None if the data or an option determine it.
    count_classes: (data_dir) -> n, read from the data without TensorFlow, or
      None where that fails; None if the data do not determine n.
    options: names of the `OPTIONS` that it takes.
    option_defaults: their defaults where they differ from the general ones.
    targets: default of --target: scores to which a run counts its rounds, such
      as 'top1:0.7'.
    best_by: default of --best_by: the score by which the best round is chosen.
    check: (options) -> None; raises `errors.InputError` for options that cannot
      be right, without a large import.
    data_is_named: whether --data_dir is the user's own file or folder, which has
      no default, and not the directory of all data sets.
    data: the files that --data_dir must hold; empty if the data are generated.
    lacks: what algorithms may need that it does not have: `entry.ONE_LABEL`,
      `entry.COSINES`.
    find: (data_dir) -> anything, within seconds, a `found.Part` if that is known
      not to be all; raises `errors.InputError` if the files of `data` are not
      there. None if it needs no files. Of data that are named also (data_dir, all
      options) -> str, what a run with these options would find.
  """

  name: str
  summary: str
  load: Callable[[str, Mapping], Loaded]
  metrics: tuple[str, ...]
  rounds: int
  clients_per_round: int
  eval_every: int
  defaults: Mapping[str, Any]
  by_algorithm: Mapping[str, Mapping[str, Any]] = dataclasses.field(
    default_factory=dict
  )
  num_classes: int | None = None
  count_classes: Callable[[str], int | None] | None = None
  options: tuple[str, ...] = ('embedding_dim', 'logit_scale')
  option_defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  targets: tuple[str, ...] = ()
  best_by: str = ''
  check: Callable[[Mapping[str, Any]], None] = lambda options: None
  data_is_named: bool = False
  data: str = ''
  lacks: tuple[str, ...] = ()
  find: Callable[[str], Any] | None = None

  def option_values(self) -> dict[str, Any]:
    """Returns the default of every option."""
    general = {n: OPTIONS[n].default for n in self.options}
    return general | dict(self.option_defaults)

  def check_data_dir(self, data_dir: str | None) -> None:
    """Raises `errors.InputError` if the user must name the data and does not."""
    if self.data_is_named and not data_dir:
      raise errors.InputError(
        f'--data_dir is missing: task {self.name} needs {self.data}'
      )

  def known_classes(
    self, options: Mapping[str, Any], data_dir: str = ''
  ) -> int | None:
    """Returns n without loading the data; None if that is impossible."""
    if self.count_classes:
      return self.count_classes(data_dir)
    return options.get('num_classes', self.num_classes)

  def metrics_of(self, dataset, model) -> tuple[str, ...]:
    """Returns the metrics that `dataset` and `model` allow."""
    held_out = ('test', 'validation', 'retrieval', 'propensity')
    present = {part for part in held_out if getattr(dataset, part)}
    # A head that scores labels itself has no row for each class.
    if not hasattr(model.head, 'label_scores'):
      present.add('class rows')
    return catalog.measurable(self.metrics, {*present, 'train'})

  def hyperparameters(self, entry: entry_lib.Entry) -> dict[str, Any]:
    """Returns this task's defaults for an algorithm.

    The defaults for a server do not apply to algorithms without clients, or
    with another optimizer of their own.
    """
    shared = {**self.defaults, 'clients_per_round': self.clients_per_round}
    optimizer = shared.get('server_optimizer', 'sgd')
    own = entry.own.get('server_optimizer', optimizer)
    if not entry.has_clients or own != optimizer:
      of_server = {h.name for h in settings.SERVER}
      shared = {k: v for k, v in shared.items() if k not in of_server}
    return {**shared, **entry.own, **self.by_algorithm.get(entry.name, {})}


def with_encoder(dataset, options: Mapping) -> Loaded:
  """Returns a set of images with the encoder and the head chosen."""
  from tff_xc import classifier
  from tff_xc import heads

  if options.get('logits', COSINE) == LINEAR:
    head = heads.LinearHead()
  else:
    head = heads.CosineHead(options['logit_scale'])

  spec = dataset.train.element_type_structure['x']
  model = classifier.EmbeddingClassifier(
    encoder=encoders.build(options, tuple(spec.shape)),
    head=head,
    num_classes=dataset.num_classes,
  )
  return Loaded(dataset, model)


def check_memory(model, what: str, advice: str) -> None:
  """Refuses a model whose weights would not fit the free memory.

  Call it before anything of the number of classes or features is made.

  Args:
    model: a `tff_xc.classifier.EmbeddingClassifier`.
    what: whose model it is, which begins the sentence.
    advice: what to do, which ends it.

  Raises:
    errors.InputError: the weights alone are larger than that.
  """
  import tensorflow as tf

  size = sum(
    spec.shape.num_elements() * spec.dtype.size
    for spec in tf.nest.flatten(model.weight_specs())
  )
  memory.require(size, what, advice)
