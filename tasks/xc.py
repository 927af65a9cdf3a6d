"""Extreme multi-label classification with one class a client: FedAwS, Table 3.

The sets of the Extreme Classification Repository, and procedural text of any
size. A training example keeps one of its labels; a test example keeps all.
"""

import functools

from datasets.xc import sets as xc_sets
from tasks import own_data
from tasks import task
from tff_xc import errors
from tff_xc.algorithms import base
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.measure import catalog

_METRICS = (
  *(f'p@{k}' for k in catalog.AT),
  *(f'ndcg@{k}' for k in (3, 5)),
  *(f'psp@{k}' for k in catalog.AT),
  *catalog.DISTANCES,
)
_CLIENTS = (task.CLASSES_PER_CLIENT, task.CLIENTS_PER_CLASS)
_OPTIONS = (
  task.EMBEDDING_DIM,
  task.LOGIT_SCALE,
  hp.Hyperparameter(
    'feature_dim',
    512,
    "length of a sparse feature's row in the feature table",
    least=1,
    most=65_536,
  ),
  task.HIDDEN_DIM,
  *_CLIENTS,
  hp.Hyperparameter(
    'select_features',
    True,
    'clients download and upload only the feature rows that their examples use',
  ),
  task.EXAMPLES_PER_ROUND,
  hp.Hyperparameter(
    'feature_learning_rate',
    1.0,
    "learning rate of the server's SGD on the feature table",
    above=0,
  ),
)
NUM_FEATURES = hp.Hyperparameter(
  'num_features', 50_000, 'features of the sparse-words task', least=16
)
# The paper's encoder, and a smaller one for sets of some thousand examples.
_CLIENTS_OF_ONE = {'classes_per_client': 1, 'feature_learning_rate': 10.0}
_PAPER = {**_CLIENTS_OF_ONE, 'embedding_dim': 512}
_SMALL = {
  **_CLIENTS_OF_ONE,
  'embedding_dim': 128,
  'feature_dim': 128,
  'hidden_dim': 256,
}
_SMALL_SETS = {**_SMALL, 'feature_learning_rate': 1.0, 'examples_per_round': 0}

# Each client takes one minibatch, so the averaged delta is a gradient times the
# client's rate. Adagrad does not depend on that scale. FedAwS, section 5, names
# Adagrad, and SGD with a large rate for the feature table, without values.
_ADAGRAD = {
  'client_learning_rate': 0.1,
  'batch_size': 32,
  'server_optimizer': 'adagrad',
  'server_learning_rate': 0.03,
  'server_initial_accumulator': 1e-8,
}
_DEFAULTS = {
  **_ADAGRAD,
  'local_steps': 1,
}
_ORACLE = {**_ADAGRAD, 'batch_size': 128, 'steps_per_round': 1}

# Every client takes one step on all its examples, and the deltas of encoder and
# rows are averaged with example counts as weights. A round is therefore one
# step on the loss of all its examples. A row moves by 10 n_i / n times its
# gradient: 0.8 for the commonest label of Delicious (271 of a round's 3,500
# examples), 0.003 for a label with one example. With equal weights and replaced
# rows, the rows of rare labels come as close to the embeddings as those of
# common labels, and P@1 is low.
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
  """Lets clients hold all feature rows for MOON; selects those of a frozen table."""
  options, values, algorithm = draft.options, draft.values, draft.algorithm
  if 'split' in options:
    task.check_split(draft)
  if not issubclass(algorithm, base.Server):
    why = f'to {algorithm.name}, which brings its own server optimizers'
    draft.refuse('feature_learning_rate', why)
    del options['feature_learning_rate']
  if 'hash_tables' in values:
    why = 'to fedmlh, whose networks side by side have no feature table'
    draft.refuse('select_features', why)
    draft.refuse('feature_learning_rate', why)
    options['select_features'] = False
    return
  moons = (
    'clients that keep their models (as in MOON, or with --contrastive_weight)'
  )
  keeps_models = algorithm.has_clients and algorithm.keeps_models(values)
  if values['trainable'] != 'all' and (
    keeps_models or not options['select_features']
  ):
    other = (
      f'{moons} on sparse text' if keeps_models else '--select_features=false'
    )
    raise errors.InputError(
      f'--trainable={values["trainable"]} does not go with {other}: clients would'
      ' receive the whole frozen feature table in every round; leave one of them out'
    )
  if keeps_models:
    if draft.given.get('select_features'):
      draft.refuse('select_features', f'to {moons}, who hold whole models')
    options['select_features'] = False


def with_bag_encoder(dataset, num_features: int, options) -> task.Loaded:
  """Returns a set of sparse text with the bag encoder and a cosine head."""
  return task.Loaded(
    dataset, _model(dataset.num_classes, num_features, options)
  )


def _model(num_classes: int, num_features: int, options):
  from tff_xc import classifier
  from tff_xc import heads
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


def _load(name, data_dir, options):
  from datasets.xc import clients as xc

  dataset = xc.load(name, data_dir, **_clients(options))
  return with_bag_encoder(dataset, xc_sets.SETS[name].counts.features, options)


def _own_model(data_dir, options):
  """Returns the model of one's own text, unless it is too large to load."""
  from datasets.xc import own

  header = own.check(data_dir)
  model = _model(header.num_labels, header.num_features, options)
  own_data.check_memory(data_dir, header, model)
  return model


def _own(data_dir, options):
  from datasets.xc import own

  return own.load(data_dir, own_data.choice(options), **_clients(options))


def _load_own(data_dir, options):
  model = _own_model(data_dir, options)
  return task.Loaded(_own(data_dir, options), model)


def _find_own(data_dir, options=None):
  _own_model(data_dir, options or TASKS[-1].option_values())
  if options is None:
    return own_data.find_sparse_text(data_dir)
  return own_data.examined(_own(data_dir, options), 'example', options)


def find(name, data_dir):
  return xc_sets.find(name, data_dir)


def _load_words(data_dir, options):
  del data_dir  # The examples are drawn, not read.
  from datasets.procedural import words as sparse_words

  shape = {n: options[n] for n in ('num_classes', 'num_features')}
  model = _model(*shape.values(), options)
  task.check_memory(
    model, 'a model of so many features', 'lower --num_features'
  )
  return task.Loaded(
    sparse_words.load(**shape, **_clients(options), seed=options['data_seed']),
    model,
  )


def _spreadout(k: int) -> dict:
  """Returns k and eta; with lambda = 10, lambda eta is 1/5 of 1 / (2 k)."""
  return {'spreadout_neighbors': k, 'spreadout_learning_rate': 0.01 / k}


def _task(
  name,
  summary,
  k=10,
  sizes=_PAPER,
  defaults=_DEFAULTS,
  oracle=_ORACLE,
  **more,
) -> task.Task:
  return task.Task(
    name=name,
    summary=summary,
    load=functools.partial(_load, name),
    metrics=_METRICS,
    defaults=defaults,
    by_algorithm={'centralized': oracle, 'fedaws': _spreadout(k)},
    num_classes=xc_sets.SETS[name].counts.labels,
    options=task.options(*_OPTIONS, **sizes),
    fit=fit,
    find=functools.partial(find, name),
    data="the repository's train and test files, in a folder of the set's name"
    ' or in xc',
    **{
      'rounds': 5000,
      'clients_per_round': 4096,
      'eval_every': 100,
      **more,
    },
  )


def _small_set(name, summary, clients_per_round) -> task.Task:
  return _task(
    name,
    summary,
    sizes=_SMALL_SETS,
    defaults=_BY_EXAMPLES,
    oracle={**_ORACLE, 'client_learning_rate': 1.0},
    rounds=200,
    clients_per_round=clients_per_round,
    eval_every=25,
  )


TASKS = (
  _small_set(
    'delicious', 'bookmarks: 983 labels, 500 features, 12,920 points', 256
  ),
  _small_set(
    'bibtex', 'publications: 159 labels, 1,836 features, 4,880 points', 128
  ),
  _task(
    'eurlex-4k',
    'laws: 3,993 labels, 5,000 features',
    clients_per_round=1024,
  ),
  _task('wiki10-31k', 'Wikipedia tags: 30,938 labels, 101,938 features'),
  _task(
    'amazoncat-13k',
    'product categories: 13,330 labels, 203,882 features',
    100,
  ),
  _task(
    'amazon-670k',
    'related products: 670,091 labels, 135,909 features',
  ),
  _task(
    'wikilshtc-325k',
    'Wikipedia: 325,056 labels, 1,617,899 features',
  ),
  _task('lf-amazontitles-131k', 'product titles: 131,073 labels'),
  _task('lf-wikiseealsotitles-320k', 'Wikipedia titles: 312,330 labels'),
  task.Task(
    name='sparse-words',
    summary='procedural bags of words of any size, power-law labels',
    load=_load_words,
    metrics=_METRICS,
    rounds=500,
    clients_per_round=256,
    eval_every=50,
    defaults=_DEFAULTS,
    by_algorithm={'centralized': _ORACLE},
    options=task.options(
      *_OPTIONS,
      task.NUM_CLASSES,
      NUM_FEATURES,
      task.DATA_SEED,
      **{**_SMALL, 'num_classes': 1000},
    ),
    fit=fit,
  ),
  task.Task(
    name='sparse-text',
    summary='your own sparse text: --data_dir is a file `N D L`, `l1,l2 f:v f:v`,'
    ' --test_file another; one label an example, one class a client or --split',
    load=_load_own,
    metrics=_METRICS,
    rounds=500,
    clients_per_round=256,
    eval_every=50,
    defaults=_DEFAULTS,
    by_algorithm={'centralized': _ORACLE},
    options=task.options(*_OPTIONS, *own_data.CLIENTS, **_SMALL),
    fit=fit,
    check=own_data.check,
    count_classes=own_data.count_labels,
    find=_find_own,
    data=own_data.SPARSE_TEXT,
    data_is_named=True,
  ),
)
