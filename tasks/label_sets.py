"""Multi-label sets whose examples keep all labels: FedMLH, Tables 1 to 3.

Ten clients, made by frequent labels, with hashed features. `tasks.xc` has the
same sets with one label an example and one class a client.
"""

import functools

from datasets.xc import sets as xc_sets
from tasks import own_data
from tasks import task
from tff_xc import wording
from tff_xc.algorithms import entry
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
  'hashed_features',
  'hidden_dim',
  'num_clients',
  'partition_rule',
  'validation',
  'published_reading',
  'data_seed',
)
_DEFAULTS = {
  'client_optimizer': 'adam',
  'client_learning_rate': 1e-3,
  'batch_size': 100,
  'local_epochs': 5,
}


def _options(options):
  from datasets.xc import label_sets

  return label_sets.Options(
    options['hashed_features'],
    options['num_clients'],
    options['partition_rule'],
    options['published_reading'],
    options['validation'],
    options['data_seed'],
  )


def _with_mlp(dataset, features: int, options) -> task.Loaded:
  """Returns a set with the multilayer perceptron and a row for each label."""
  return task.Loaded(dataset, _model(dataset.num_classes, features, options))


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
  return _with_mlp(dataset, xc_sets.SETS[name].counts.features, options)


def _find(name, data_dir):
  return xc_sets.find(name, data_dir)


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
  from datasets.xc import clients as xc
  from datasets.xc import label_sets

  sizes = {
    k: options[k] for k in ('num_classes', 'num_features') if k in options
  }
  made = words.Words(words.Options(**shape, **sizes, seed=options['data_seed']))
  features = made.options.num_features
  parts = [
    xc.Part(*made.everything(part)) for part in (words.TRAIN, words.TEST)
  ]
  dataset = label_sets.federated(name, *parts, _options(options))
  return _with_mlp(dataset, features, options)


def _own_model(data_dir, options):
  """Returns the model of one's own text, unless it is too large to load."""
  from datasets.xc import own

  header = own.check(data_dir)
  # FedMLH has buckets in place of a row for each label.
  few = _model(2, header.num_features, options)
  own_data.check_memory(data_dir, header, few)
  return _model(header.num_labels, header.num_features, options)


def _load_own(data_dir, options):
  from datasets.xc import label_sets

  model = _own_model(data_dir, options)
  parts = own_data.sparse_text(data_dir, options)
  name = own_data.stem(data_dir)
  dataset = label_sets.federated(name, *parts, _options(options))
  return task.Loaded(dataset, model)


def _find_own(data_dir, options=None):
  _own_model(data_dir, options or TASKS[-1].option_values())
  found = own_data.find_sparse_text(data_dir)
  if options is None:
    return found
  _, test = own_data.sparse_text(data_dir, options)
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
    lacks=(entry.ONE_LABEL, entry.COSINES),
    defaults=_DEFAULTS,
    by_algorithm={'fedmlh': {'hash_tables': tables, 'hash_buckets': buckets}},
    options=(*_OPTIONS, *options),
    option_defaults={
      'hashed_features': hashed,
      'hidden_dim': hidden,
      'num_clients': 10,
      **more.pop('option_defaults', {}),
    },
    **more,
  )


def _set(name, summary, **sizes) -> task.Task:
  return _task(
    f'{name.removeprefix("lf-")}-sets',
    summary,
    functools.partial(_load, name),
    num_classes=xc_sets.SETS[name].counts.labels,
    find=functools.partial(_find, name),
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
    options=('num_classes', 'num_features'),
    option_defaults={'num_classes': 1000, 'num_features': 5000},
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
    options=('test_file', 'test_fraction'),
    check=own_data.check_test,
    count_classes=own_data.count_labels,
    find=_find_own,
    data=own_data.SPARSE_TEXT,
    data_is_named=True,
  ),
)  # fmt: skip
