"""One's own rows of features: a table or .npz, with a small perceptron.

`datasets.features` says how they are read.
"""

from tasks import own_data
from tasks import task
from tff_xc import wording

_COLUMNS = ('label_column', 'user_column', 'id_column', 'test_column')


def _columns(options):
  from datasets import features

  given = options['feature_columns']
  return features.Columns(
    *(options[name] for name in _COLUMNS),
    tuple(name.strip() for name in given.split(',') if name.strip()),
  )


def _dataset(data_dir, options):
  from datasets import features

  return features.load(
    data_dir,
    own_data.choice(options),
    _columns(options),
    standardise=options['standardise'],
  )


def _load(data_dir, options):
  from tff_xc import classifier
  from tff_xc import heads
  from tff_xc.encoders import dense_mlp

  dataset = _dataset(data_dir, options)
  [features] = dataset.train.pool.spec.shape
  model = classifier.EmbeddingClassifier(
    dense_mlp.build_dense_mlp_encoder(
      features, options['hidden_dim'], options['embedding_dim']
    ),
    heads.CosineHead(options['logit_scale']),
    dataset.num_classes,
  )
  return task.Loaded(dataset, model)


def _find(data_dir, options=None):
  if options is not None:
    return own_data.examined(_dataset(data_dir, options), 'row', options)
  from datasets import features

  if own_data.is_arrays(data_dir):
    return own_data.find_arrays(features.read_arrays(data_dir))
  names = features.header(data_dir)
  if features.DEFAULT.label in names:  # Flags need not say which column it is.
    features.read(data_dir, features.DEFAULT)
  return f'the columns {", ".join(map(wording.shown, names))}'


TASKS = (
  own_data.small_task(
    name='table',
    summary='your own rows of numbers: --data_dir is a .csv, .jsonl, .parquet or'
    ' .npz; features are standardised by the training rows',
    load=_load,
    options=(
      'embedding_dim',
      'logit_scale',
      'hidden_dim',
      'feature_columns',
      'standardise',
      *_COLUMNS,
      *own_data.SPLIT,
    ),
    option_defaults={'hidden_dim': 128},
    check=own_data.check,
    count_classes=own_data.count_classes,
    find=_find,
    data='a .csv, .tsv, .jsonl or .parquet with a row an example: a class'
    ' (--label_column), a user (--user_column), numbers; or a .npz with x [N, D],'
    ' y [N], client [N], and optionally test_x, test_y, retrieval_x, retrieval_y',
  ),
)
