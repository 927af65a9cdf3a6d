"""LEAF's sets as TurboSVM-FL uses them: its Table 8 and published code.

Wang, Bian, Zhang, Yang: TurboSVM-FL: boosting federated learning through SVM
aggregation for lazy clients, AAAI 2024. All runs have 201 rounds of 8 clients
with one local epoch, and test on the pooled examples of all test users.
"""

import functools

from tasks import task

METRICS = ('top1', 'macro_f1', 'mcc')
ROUNDS = 201
_OF_DATA = ('min_examples', 'test_examples')


def _load_femnist(data_dir, options):
  from datasets.leaf import femnist

  return with_femnist_network(
    femnist.load(
      data_dir,
      min_examples=options['min_examples'],
      test_examples=options['test_examples'],
      drop_duplicates=options['drop_duplicates'],
    ),
    options,
  )


def with_femnist_network(dataset, options) -> task.Loaded:
  """Returns images float32 [28, 28] with LEAF's CNN and a linear head."""
  from tff_xc.encoders import leaf

  return _with_linear_head(
    dataset, leaf.build_femnist_encoder(embedding_dim=options['embedding_dim'])
  )


def _with_linear_head(dataset, encoder) -> task.Loaded:
  from tff_xc import classifier
  from tff_xc import heads

  model = classifier.EmbeddingClassifier(
    encoder, heads.LinearHead(), dataset.num_classes
  )
  return task.Loaded(dataset, model)


def _find_json(name, data_dir):
  from datasets.leaf import files

  return files.find(name, data_dir)


# TurboSVM-FL, Table 8. Batches of one size train and evaluate.
FEMNIST = {
  'metrics': METRICS,
  'rounds': ROUNDS,
  'clients_per_round': 8,
  'eval_every': 1,
  'defaults': {
    'client_learning_rate': 0.1,
    'batch_size': 64,
    'local_epochs': 1,
  },
  'by_algorithm': {
    name: {'server_learning_rate': 1e-3} for name in ('fedadam', 'fedams')
  }
  | {
    name: {'logits_learning_rate': 1e-2}
    for name in ('fedaws_softmax', 'turbosvm')
  },
}

TASKS = (
  task.Task(
    name='femnist',
    summary='62 digits and letters of 3,550 real writers, 805,263 images',
    load=_load_femnist,
    **FEMNIST,
    num_classes=62,
    options=('embedding_dim', *_OF_DATA, 'drop_duplicates'),
    option_defaults={'embedding_dim': 2048},
    find=functools.partial(_find_json, 'femnist'),
    data="femnist: LEAF's JSON, train/*.json and test/*.json or"
    ' all_data/*.json, in the folder femnist or leaf',
  ),
)
