"""Tasks of extreme multi-label classification on sparse text.

The data are sets of the Extreme Classification Repository, procedural text of any size,
or the user's own text. With one class per client (FedAwS, Table 3), each training example
keeps one of its labels, and each test example keeps all. Tasks whose names end in -sets keep
all labels (FedMLH, Tables 1 to 3). They split the examples by frequent labels into ten clients,
and most of them hash the features.
"""

import functools
import os
from collections.abc import Callable

from datasets.xc import sets as xc_sets
from tasks import own_data, task
from tff_xc import errors
from tff_xc.algorithms import base
from tff_xc.measure import catalog
from tff_xc.options import hyperparameters as hp

# `Task.data` of the user's own text.
_FILE = (
  'a text file, or .gz, in the format of the Extreme Classification Repository:'
  ' line 1 `N D L`, then N lines `l1,l2 f:v f:v`, numbers from 0'
)
_FILES = "the repository's train and test files, in a folder named like the set or in xc"


def _count_labels(path: str) -> int | None:
  """Returns the number of labels L of a sparse text file; None if line 1 is invalid."""
  try:
    return xc_sets.read_header(path).num_labels
  except errors.InputError:
    return None


def _check_file(path: str, make: Callable, few_labels: int | None = None):
  """Refuses a file if the model that `make` builds for its line 1 does not fit into memory."""
  from datasets.xc import federated

  header = federated.check(path)
  task.check_memory(
    make(few_labels or header.num_labels, header.num_features),
    f'{path}, line 1 names {header.num_labels:,} labels and'
    f' {header.num_features:,} features: a model with these sizes',
    'check line 1, or give a smaller network',
  )


_METRICS = (
  *(f'p@{k}' for k in catalog.AT),
  *(f'ndcg@{k}' for k in (3, 5)),
  *(f'psp@{k}' for k in catalog.AT),
  *catalog.DISTANCES,
)
_CLIENTS = (task.CLASSES_PER_CLIENT, task.CLIENTS_PER_CLASS)
# Options of tasks on bags of features, and of their network.
BAGS = (
  task.EMBEDDING_DIM,
  task.LOGIT_SCALE,
  hp.Hyperparameter(
    'feature_dim',
    512,
    'length of a row of the feature table. The table has one row for each sparse feature',
    least=1,
    most=65_536,
  ),
  task.HIDDEN_DIM,
  hp.Hyperparameter(
    'select_features',
    True,
    'let clients receive and send only the feature rows that their examples use',
  ),
  task.EXAMPLES_PER_ROUND,
  hp.Hyperparameter(
    'feature_learning_rate', 1.0, "learning rate of the server's SGD on the feature table", above=0
  ),
)
_OPTIONS = (*BAGS, *_CLIENTS)
_LABEL_GROUP_SIZE = hp.Hyperparameter(
  'label_group_size',
  0,
  'in the sparse-words task: number of labels in a group. All labels of an example come from the'
  ' same group. 0: no groups, labels are independent',
  least=0,
  most=10**7,
)
# Options of tasks: `_PAPER` has the paper's encoder. `_SMALL` and `_SMALL_SETS` have a smaller
# encoder, for data sets with a few thousand examples.
_CLIENTS_OF_ONE = {'classes_per_client': 1, 'feature_learning_rate': 10.0}
_PAPER = {**_CLIENTS_OF_ONE, 'embedding_dim': 512}
_SMALL = {**_CLIENTS_OF_ONE, 'embedding_dim': 128, 'feature_dim': 128, 'hidden_dim': 256}
_SMALL_SETS = {**_SMALL, 'feature_learning_rate': 1.0, 'examples_per_round': 0}

# Each client takes one minibatch, so the average update is a gradient times the client's
# learning rate. Adagrad does not depend on this factor. The FedAwS paper (section 5) uses Adagrad,
# and SGD with a large rate for the feature table. It does not state the rates.
_ADAGRAD = {
  'client_learning_rate': 0.1,
  'batch_size': 32,
  'server_optimizer': 'adagrad',
  'server_learning_rate': 0.03,
  'server_initial_accumulator': 1e-8,
}
_DEFAULTS = {**_ADAGRAD, 'local_steps': 1}
_ORACLE = {**_ADAGRAD, 'batch_size': 128, 'steps_per_round': 1}

# Every client takes one step on all its examples. The server averages the updates of the encoder
# and of the rows, weighted by number of examples. A round is therefore one step on the loss of all
# its examples. A row of a label with n_i of the n examples moves by 10 n_i / n times its gradient.
# This factor is 0.8 for the commonest label of Delicious (271 of a round's 3,500 examples), and
# 0.003 for a label with one example. With equal weights and replaced rows, rows of rare labels move
# as close to the embeddings as rows of common labels, and P@1 is low.
_BY_EXAMPLES = {
  **_ADAGRAD,
  'client_learning_rate': 10.0,
  'batch_size': 512,
  'local_steps': 1,
  'server_learning_rate': 0.01,
  'client_weighting': 'examples',
  'row_update': 'mean',
}


def fit(draft: task.Draft) -> None:
  """Refuses options that exclude each other.

  Clients that keep their models (as in MOON) and clients of FedMLH receive all feature rows.
  """
  options, values, algorithm = draft.options, draft.values, draft.algorithm
  if 'split' in options:
    task.check_split(draft)
  if not issubclass(algorithm, base.Server):
    why = f'to {algorithm.name}, which has its own server optimizers'
    draft.refuse('feature_learning_rate', why)
    del options['feature_learning_rate']
  if 'hash_tables' in values:
    for name in ('select_features', 'feature_learning_rate'):
      draft.refuse(name, 'to fedmlh, whose networks have no feature table')
    options['select_features'] = False
    return
  moons = 'clients that keep their models (as in MOON, or with --contrastive_weight)'
  keeps_models = algorithm.keeps_models or bool(values.get('contrastive_weight'))
  if values['trainable'] != 'all' and (keeps_models or not options['select_features']):
    other = f'{moons} on sparse text' if keeps_models else '--select_features=false'
    raise errors.InputError(
      f'--trainable={values["trainable"]} does not go with {other}: clients would'
      ' receive the whole frozen feature table in every round; leave one of them out'
    )
  if keeps_models:
    if draft.given.get('select_features'):
      draft.refuse('select_features', f'to {moons}, because these hold whole models')
    options['select_features'] = False


def network(options, description):
  """Returns the bag encoder and a cosine head for sparse text."""
  return _model(options, description.num_classes, *description.shape)


def _model(options, num_classes: int, num_features: int):
  from tff_xc import classifier, heads
  from tff_xc.encoders import bag

  return classifier.EmbeddingClassifier(
    encoder=bag.build_bag_encoder(
      num_features=num_features,
      feature_dim=options['feature_dim'],
      hidden_dims=(options['hidden_dim'],) * 2,
      embedding_dim=options['embedding_dim'],
    ),
    head=heads.CosineHead(options['logit_scale']),
    num_classes=num_classes,
  )


def _clients(options):
  return {option.name: options[option.name] for option in _CLIENTS}


def _read(name, data_dir, options):
  return task.at('xc.federated:load')(name, data_dir, **_clients(options))


def _read_own(data_dir, options):
  from datasets.xc import federated

  _check_file(data_dir, functools.partial(_model, options))
  return federated.load_own(data_dir, own_data.choice(options), **_clients(options))


def _read_words(data_dir, options):
  del data_dir
  from datasets.procedural import words

  shape = {n: options[n] for n in ('num_classes', 'num_features')}
  model = _model(options, *shape.values())
  shape |= {'label_group_size': options['label_group_size']}
  task.check_memory(model, 'a model with this many features', 'lower --num_features')
  return words.load(**shape, **_clients(options), seed=options['data_seed'])


def _spreadout(k: int) -> dict:
  """Returns k and eta. With lambda = 10, lambda eta is a fifth of the bound 1 / (2 k)."""
  return {'spreadout_neighbors': k, 'spreadout_learning_rate': 0.01 / k}


def _task(name, summary, read, **more) -> task.Task:
  """Returns a task whose training examples have one label each."""
  usual = {
    'network': network,
    'metrics': _METRICS,
    'rounds': 500,
    'clients_per_round': 256,
    'eval_every': 50,
    'defaults': _DEFAULTS,
    'by_algorithm': {'centralized': _ORACLE},
    'fit': fit,
  }
  return task.Task(name=name, summary=summary, read=read, **{**usual, **more})


def _set(name, summary, k=10, sizes=_PAPER, oracle=_ORACLE, **more) -> task.Task:
  """Returns the task of a data set of the Extreme Classification Repository."""
  usual = {'rounds': 5000, 'clients_per_round': 4096, 'eval_every': 100}
  return _task(
    name,
    summary,
    functools.partial(_read, name),
    by_algorithm={'centralized': oracle, 'fedaws': _spreadout(k)},
    num_classes=xc_sets.SETS[name].counts.labels,
    options=task.options(*_OPTIONS, **sizes),
    find=task.at('xc.sets:find', name),
    data=_FILES,
    **{**usual, **more},
  )


def _small_set(name, summary, clients_per_round) -> task.Task:
  return _set(
    name,
    summary,
    sizes=_SMALL_SETS,
    defaults=_BY_EXAMPLES,
    oracle={**_ORACLE, 'client_learning_rate': 1.0},
    rounds=200,
    clients_per_round=clients_per_round,
    eval_every=25,
  )


_OWN_OPTIONS = task.options(*_OPTIONS, *own_data.CLIENTS, **_SMALL)
_ONE_LABEL = (
  _small_set('delicious', 'bookmarks: 983 labels, 500 features, 12,920 points', 256),
  _small_set('bibtex', 'publications: 159 labels, 1,836 features, 4,880 points', 128),
  _set('eurlex-4k', 'laws: 3,993 labels, 5,000 features', clients_per_round=1024),
  _set('wiki10-31k', 'Wikipedia tags: 30,938 labels, 101,938 features'),
  _set('amazoncat-13k', 'product categories: 13,330 labels, 203,882 features', 100),
  _set('amazon-670k', 'related products: 670,091 labels, 135,909 features'),
  _set('wikilshtc-325k', 'Wikipedia: 325,056 labels, 1,617,899 features'),
  _set('lf-amazontitles-131k', 'product titles: 131,073 labels'),
  _set('lf-wikiseealsotitles-320k', 'Wikipedia titles: 312,330 labels'),
  _task(
    'sparse-words',
    'procedural bags of words of any size, power-law labels',
    _read_words,
    licence=task.DRAWN,
    options=task.options(
      *_OPTIONS,
      task.NUM_CLASSES,
      task.NUM_FEATURES,
      _LABEL_GROUP_SIZE,
      task.DATA_SEED,
      **{**_SMALL, 'num_classes': 1000},
    ),
  ),
  _task(
    'sparse-text',
    'your own sparse text: --data_dir is a file `N D L`, `l1,l2 f:v f:v`, and --test_file a'
    ' second one; one label per example; one class per client, or the clients of --split',
    _read_own,
    options=_OWN_OPTIONS,
    check=own_data.check,
    count_classes=_count_labels,
    data=_FILE,
    data_is_named=True,
  ),
)


# -- tasks that keep all labels --

_SETS_METRICS = (
  *(f'p@{k}' for k in catalog.AT),
  *(f'pc@{k}' for k in catalog.AT),
  'pc_mean',
  'pc_mean_validation',
  *(f'pc@{k}_{part}' for part in ('frequent', 'infrequent') for k in catalog.AT),
  *(f'psp@{k}' for k in catalog.AT),
)
_SETS_OPTIONS = (
  hp.Hyperparameter(
    'hashed_features', 0, 'number of features after feature hashing; 0: no hashing', least=0
  ),
  task.HIDDEN_DIM,
  task.NUM_CLIENTS,
  hp.Hyperparameter(
    'partition_rule',
    'code',
    "rule that splits the examples into FedMLH's clients. 'code': all clients have equally many"
    " examples, and each client has one frequent label; 'paper': each client has all examples of"
    ' some frequent labels',
    choices=('code', 'paper'),
  ),
  hp.Hyperparameter(
    'validation',
    0.1,
    'share of the training examples to hold out as a validation set, whose score chooses the best'
    ' round; 0: none',
    least=0,
    below=1,
  ),
  hp.Hyperparameter(
    'published_reading',
    False,
    "read files as FedMLH's published code does. Examples without labels get label 0. If the"
    ' number of test examples is not a multiple of 100, the last ones are left out',
  ),
  task.DATA_SEED,
)
_SETS_DEFAULTS = {
  'client_optimizer': 'adam',
  'client_learning_rate': 1e-3,
  'batch_size': 100,
  'local_epochs': 5,
}


def fit_best(draft: task.Draft, flag: str) -> None:
  """Handles a --best_by that needs validation examples when none are held out.

  Drops a default --best_by, and refuses one that the user gave. `flag` is the option that
  holds out validation examples.
  """
  best_by = draft.settings['best_by']
  if draft.options[flag] or not best_by:
    return
  if 'validation' not in catalog.SCORES[best_by].needs:
    return
  if 'best_by' in draft.given or draft.settings['early_stopping_patience']:
    raise errors.InputError(
      f'--best_by={best_by} is measured on validation examples, but'
      f' --{flag}={str(draft.options[flag]).lower()} holds out none; give another --best_by'
    )
  draft.settings['best_by'] = ''


def _sets_model(options, num_classes: int, features: int):
  from tff_xc import classifier, heads
  from tff_xc.encoders import mlp

  return classifier.EmbeddingClassifier(
    mlp.build_mlp_encoder(options['hashed_features'] or features, options['hidden_dim']),
    heads.LinearHead(),
    num_classes,
    label_sets=True,
  )


def _options_of_sets(options):
  from datasets.xc import federated

  given = {name: options[name] for name in options if name in federated.Options._fields}
  return federated.Options(**given, seed=options['data_seed'])


def _read_sets(name, data_dir, options):
  return task.at('xc.federated:load_sets')(name, data_dir, _options_of_sets(options))


# The sizes of EURLex-4K.
_EURLEX = {
  'num_classes': 3993,
  'num_features': 5000,
  'examples_per_class': 15_539 / 3993,
  'test_examples': 3809,
  'labels_per_example': 5,
  'words_per_example': 236,
  'skew': 0.7,
}


def _read_sets_of_words(name, shape, data_dir, options):
  del data_dir  # The examples are generated.
  from datasets.procedural import words
  from datasets.xc import federated

  sizes = {k: options[k] for k in ('num_classes', 'num_features') if k in options}
  made = words.Words(words.Options(**shape, **sizes, seed=options['data_seed']))
  parts = (federated.Part(*made.everything(part)) for part in (words.TRAIN, words.TEST))
  return federated.of_sets(name, *parts, _options_of_sets(options))


def _read_own_sets(data_dir, options):
  from datasets.xc import federated

  # FedMLH has buckets instead of a row for each label. The check therefore uses the smallest model,
  # with two labels.
  _check_file(data_dir, functools.partial(_sets_model, options), 2)
  names = ('test_file', 'test_fraction', 'data_seed')
  parts = federated.read_own(data_dir, *(options[name] for name in names))
  name = os.path.basename(os.path.normpath(data_dir)).partition('.')[0]
  return federated.of_sets(name, *parts, _options_of_sets(options))


def _sets(name, summary, read, sizes, options=(), **more) -> task.Task:
  """Returns a task; `sizes` are hashed features, hidden units, hash tables and buckets."""
  hashed, hidden, tables, buckets = sizes
  return task.Task(
    name=name,
    summary=summary,
    read=read,
    network=lambda options, of: _sets_model(options, of.num_classes, *of.shape),
    metrics=_SETS_METRICS,
    rounds=70,
    clients_per_round=4,
    eval_every=1,
    best_by='pc_mean_validation',
    lacks=(base.ONE_LABEL, base.COSINES),
    defaults=_SETS_DEFAULTS,
    by_algorithm={
      'fedmlh': {'hash_tables': tables, 'hash_buckets': buckets},
      # Clients of these algorithms use SGD, here with Adam's learning rate.
      'scaffold': {'client_learning_rate': 1e-3},
      'fednova': {'client_learning_rate': 1e-3},
    },
    options=task.options(
      *_SETS_OPTIONS, *options, hashed_features=hashed, hidden_dim=hidden, num_clients=10
    ),
    fit=lambda draft: fit_best(draft, 'validation'),
    **more,
  )


# Summaries and sizes (features after hashing, hidden units, hash tables, buckets). The sizes
# are those of the paper, except for delicious and bibtex, where they are ours.
_SIZES = {
  'delicious': ('bookmarks with all labels: 983 labels, 500 features', (0, 150, 4, 150)),
  'bibtex': ('publications with all labels: 159 labels, 1,836 features', (300, 150, 4, 40)),
  'eurlex-4k': (
    'laws with all labels: 3,993 labels, 5,000 features hashed to 300',
    (300, 150, 4, 250),
  ),
  'wiki10-31k': (
    'Wikipedia tags with all labels: 30,938 labels, 101,938 features hashed to 5,000',
    (5_000, 500, 4, 1_000),
  ),
  'lf-amazontitles-131k': (
    'product titles with all labels: 131,073 labels, features hashed to 5,000',
    (5_000, 1_000, 4, 4_000),
  ),
  'lf-wikiseealsotitles-320k': (
    'Wikipedia titles with all labels: 312,330 labels, features hashed to 10,000',
    (10_000, 1_000, 8, 5_000),
  ),
}

TASKS = (
  *_ONE_LABEL,
  *(
    _sets(
      f'{name.removeprefix("lf-")}-sets',
      summary,
      functools.partial(_read_sets, name),
      sizes,
      num_classes=xc_sets.SETS[name].counts.labels,
      find=task.at('xc.sets:find', name),
      data=_FILES,
    )
    for name, (summary, sizes) in _SIZES.items()
  ),
  _sets(
    'sparse-words-sets',
    'procedural bags of words with all labels, of any size',
    functools.partial(_read_sets_of_words, 'sparse-words-sets', {}),
    (300, 150, 4, 250),
    licence=task.DRAWN,
    options=task.options(task.NUM_CLASSES, task.NUM_FEATURES, num_classes=1000, num_features=5000),
  ),
  _sets(
    'sparse-words-eurlex-sets',
    'procedural bags of words with all labels, of the size of EURLex-4K',
    functools.partial(_read_sets_of_words, 'sparse-words-eurlex-sets', _EURLEX),
    (300, 150, 4, 250),
    licence=task.DRAWN,
    num_classes=_EURLEX['num_classes'],
  ),
  _sets(
    'sparse-text-sets',
    'your own sparse text with all labels: --data_dir is a file `N D L`,'
    ' `l1,l2 f:v f:v`, and --test_file a second one',
    _read_own_sets,
    # The paper hashes features, but users would not expect this with their own files.
    (0, 150, 4, 250),
    options=(own_data.TEST_FILE, own_data.TEST_FRACTION),
    check=own_data.check_test,
    count_classes=_count_labels,
    data=_FILE,
    data_is_named=True,
  ),
)
