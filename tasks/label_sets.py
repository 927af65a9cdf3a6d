"""Multi-label sets whose examples keep all labels: FedMLH, Tables 1 to 3.

Ten clients, made by frequent labels, with hashed features. `tasks.xc` has the
same sets with one label an example and one class a client.
"""

import functools
import os

from datasets.xc import sets as xc_sets
from tasks import own_data
from tasks import task
from tasks import xc
from tff_xc import errors
from tff_xc import wording
from tff_xc.algorithms import base
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.measure import catalog

_METRICS = (
  *(f'p@{k}' for k in catalog.AT),
  *(f'pc@{k}' for k in catalog.AT),
  'pc_mean',
  'pc_mean_validation',
  *(
    f'pc@{k}_{part}' for part in ('frequent', 'infrequent') for k in catalog.AT
  ),
  *(f'psp@{k}' for k in catalog.AT),
)
_OPTIONS = (
  hp.Hyperparameter(
    'hashed_features',
    0,
    'features after hashing; 0: they are not hashed',
    least=0,
  ),
  task.HIDDEN_DIM,
  task.NUM_CLIENTS,
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
  task.DATA_SEED,
)
_DEFAULTS = {
  'client_optimizer': 'adam',
  'client_learning_rate': 1e-3,
  'batch_size': 100,
  'local_epochs': 5,
}


def _fit(draft: task.Draft) -> None:
  """Drops a default --best_by that needs validation examples, or refuses it."""
  best_by = draft.settings['best_by']
  if draft.options['validation'] or not best_by:
    return
  if 'validation' not in catalog.SCORES[best_by].needs:
    return
  if 'best_by' in draft.given or draft.settings['early_stopping_patience']:
    raise errors.InputError(
      f'--best_by={best_by} is measured on validation examples, and'
      ' --validation=0 holds none out; give another --best_by'
    )
  draft.settings['best_by'] = ''


def _options(options):
  from datasets.xc import label_sets

  names = ('hashed_features', 'num_clients', 'partition_rule')
  names += ('published_reading', 'validation')
  given = {name: options[name] for name in names}
  return label_sets.Options(**given, seed=options['data_seed'])


def _model(num_classes: int, features: int, options):
  from tff_xc import classifier
  from tff_xc import heads
  from tff_xc.encoders import mlp

  return classifier.EmbeddingClassifier(
    mlp.build_mlp_encoder(
      options['hashed_features'] or features, options['hidden_dim']
    ),
    heads.LinearHead(),
    num_classes,
    label_sets=True,
  )


def _load(name, data_dir, options):
  from datasets.xc import label_sets

  dataset = label_sets.load(name, data_dir, _options(options))
  features = xc_sets.SETS[name].counts.features
  return task.Loaded(dataset, _model(dataset.num_classes, features, options))


# Examples, labels and words of EURLex-4K.
_EURLEX = {
  'num_classes': 3993,
  'num_features': 5000,
  'examples_per_class': 15_539 / 3993,
  'test_examples': 3809,
  'labels_per_example': 5,
  'words_per_example': 236,
  'skew': 0.7,
}


def _load_words(name, shape, data_dir, options):
  del data_dir  # The examples are drawn, not read.
  from datasets.procedural import words
  from datasets.xc import clients
  from datasets.xc import label_sets

  sizes = {
    k: options[k] for k in ('num_classes', 'num_features') if k in options
  }
  made = words.Words(words.Options(**shape, **sizes, seed=options['data_seed']))
  features = made.options.num_features
  parts = [
    clients.Part(*made.everything(part)) for part in (words.TRAIN, words.TEST)
  ]
  dataset = label_sets.federated(name, *parts, _options(options))
  return task.Loaded(dataset, _model(dataset.num_classes, features, options))


def _own_model(data_dir, options):
  """Returns the model of one's own text, unless it is too large to load."""
  from datasets.xc import own

  header = own.check(data_dir)
  # FedMLH has buckets in place of a row for each label.
  few = _model(2, header.num_features, options)
  own_data.check_memory(data_dir, header, few)
  return _model(header.num_labels, header.num_features, options)


def _own_parts(data_dir, options):
  from datasets.xc import own

  names = ('test_file', 'test_fraction', 'data_seed')
  return own.read(data_dir, *(options[name] for name in names))


def _load_own(data_dir, options):
  from datasets.xc import label_sets

  model = _own_model(data_dir, options)
  parts = _own_parts(data_dir, options)
  name = os.path.basename(os.path.normpath(data_dir)).partition('.')[0]
  dataset = label_sets.federated(name, *parts, _options(options))
  return task.Loaded(dataset, model)


def _find_own(data_dir, options=None):
  _own_model(data_dir, options or TASKS[-1].option_values())
  found = own_data.find_sparse_text(data_dir)
  if options is None:
    return found
  _, test = _own_parts(data_dir, options)
  tests = 0 if test is None else test.labels.shape[0]
  return f'{found}; {wording.count(tests, "test example")}'


def _task(
  name, summary, load, *, hashed, hidden, tables, buckets, options=(), **more
) -> task.Task:
  """Returns a task with a network's sizes and those of FedMLH's tables."""
  return task.Task(
    name=name,
    summary=summary,
    load=load,
    metrics=_METRICS,
    rounds=70,
    clients_per_round=4,
    eval_every=1,
    best_by='pc_mean_validation',
    lacks=(base.ONE_LABEL, base.COSINES),
    defaults=_DEFAULTS,
    by_algorithm={'fedmlh': {'hash_tables': tables, 'hash_buckets': buckets}},
    options=task.options(
      *_OPTIONS,
      *options,
      hashed_features=hashed,
      hidden_dim=hidden,
      num_clients=10,
    ),
    fit=_fit,
    **more,
  )


def _set(name, summary, **sizes) -> task.Task:
  return _task(
    f'{name.removeprefix("lf-")}-sets',
    summary,
    functools.partial(_load, name),
    num_classes=xc_sets.SETS[name].counts.labels,
    find=functools.partial(xc.find, name),
    data="the repository's train and test files, in a folder of the set's name"
    ' or in xc',
    **sizes,
  )


TASKS = (
  # The papers' sizes; those of delicious and bibtex are ours.
  _set(
    'delicious',
    'bookmarks with all labels: 983 labels, 500 features',
    hashed=0, hidden=150, tables=4, buckets=150,
  ),
  _set(
    'bibtex',
    'publications with all labels: 159 labels, 1,836 features',
    hashed=300, hidden=150, tables=4, buckets=40,
  ),
  _set(
    'eurlex-4k',
    'laws with all labels: 3,993 labels, 5,000 features hashed to 300',
    hashed=300, hidden=150, tables=4, buckets=250,
  ),
  _set(
    'wiki10-31k',
    'Wikipedia tags, all: 30,938 labels, 101,938 features hashed to 5,000',
    hashed=5_000, hidden=500, tables=4, buckets=1_000,
  ),
  _set(
    'lf-amazontitles-131k',
    'product titles, all labels: 131,073, features hashed to 5,000',
    hashed=5_000, hidden=1_000, tables=4, buckets=4_000,
  ),
  _set(
    'lf-wikiseealsotitles-320k',
    'Wikipedia titles, all labels: 312,330, features hashed to 10,000',
    hashed=10_000, hidden=1_000, tables=8, buckets=5_000,
  ),
  _task(
    'sparse-words-sets',
    'procedural bags of words with all labels, of any size',
    functools.partial(_load_words, 'sparse-words-sets', {}),
    hashed=300, hidden=150, tables=4, buckets=250,
    options=task.options(
      task.NUM_CLASSES, xc.NUM_FEATURES, num_classes=1000, num_features=5000
    ),
  ),
  _task(
    'sparse-words-eurlex-sets',
    'procedural bags of words with all labels, as many as in EURLex-4K',
    functools.partial(_load_words, 'sparse-words-eurlex-sets', _EURLEX),
    num_classes=_EURLEX['num_classes'],
    hashed=300, hidden=150, tables=4, buckets=250,
  ),
  _task(
    'sparse-text-sets',
    'your own sparse text with all labels: --data_dir is a file `N D L`,'
    ' `l1,l2 f:v f:v`, --test_file another',
    _load_own,
    # The papers hash; nobody expects that of words in a file of one's own.
    hashed=0, hidden=150, tables=4, buckets=250,
    options=(own_data.TEST_FILE, own_data.TEST_FRACTION),
    check=own_data.check_test,
    count_classes=own_data.count_labels,
    find=_find_own,
    data=own_data.SPARSE_TEXT,
    data_is_named=True,
  ),
)  # fmt: skip
