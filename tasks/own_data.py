"""Tasks for the user's own images and tables, and options that all tasks for own data share.

`tasks.xc` has the tasks for sparse text. Importing this module imports nothing large,
so that flags are checked at once.
"""

import functools
import math
import os
import sys
from collections.abc import Mapping

from datasets.readers import record_features, zipped
from datasets.splits import rules, split_path
from tasks import encoders, task
from tff_xc import errors
from tff_xc.options import hyperparameters as hp

SPLIT = hp.Hyperparameter(
  'split',
  '',
  'which client owns each example: a CSV file with the columns user_id,image_id,class;'
  ' FILE.csv:COLUMN, a CSV file with the client in COLUMN; or the folder or zip of'
  ' launch.make_splits. Or a rule: class (one client per class), iid:100 (100 clients with random'
  ' examples), or dirichlet (only for CIFAR, glyphs and features, see --concentration). Default:'
  ' the clients that the data name, or class for sparse text',
)
TEST_FILE = hp.Hyperparameter(
  'test_file',
  '',
  'file with the test examples: a CSV file with the columns image_id,class for images, a second'
  ' table for a table, a second text file for sparse text',
)
TEST_FRACTION = hp.Hyperparameter(
  'test_fraction',
  0.0,
  'share of the training examples to hold out as the test set',
  least=0,
  most=0.5,
)
# Options of tasks whose examples have one label each.
CLIENTS = (SPLIT, TEST_FILE, TEST_FRACTION, task.DATA_SEED)
IMAGE_SIZE = hp.Hyperparameter(
  'image_size',
  0,
  'height and width of an image in pixels. The program scales the shorter side to this size, and'
  ' crops the center. 0: 64, or for a .npz the shorter side of its images',
  least=0,
  most=4096,
)
CORRUPT = hp.Hyperparameter(
  'corrupt',
  'skip',
  "what to do with unreadable images. 'skip': leave them out and count them. To find them, the"
  ' program decodes each image once before its first use, which takes about 10 ms of one core per'
  " image (40 core hours for 14 million images), and keeps the result in the cache. 'fail': do not"
  ' check, and stop at the first unreadable image',
  choices=('skip', 'fail'),
)
_RECORD_FEATURES = hp.Hyperparameter(
  'record_features',
  '',
  'names of the features in TFRecords: image=NAME,class=NAME,user=NAME,id=NAME. Default:'
  " common names, such as TFF's image/encoded_jpeg and class",
)
USER_COLUMN = hp.Hyperparameter(
  'user_column',
  '',
  'column that names the user of each row. Default: user_id, if the table has it; with'
  ' --task=items: user_id, user or userId. The value NA means that the row has no user, except'
  ' with --task=items',
)
_COLUMNS = (
  hp.Hyperparameter('label_column', 'class', 'column that names the class of each row'),
  USER_COLUMN,
  hp.Hyperparameter(
    'id_column',
    '',
    'column with the ids of the rows, to which image_id in the CSV of a split refers. Default:'
    ' image_id if the table has it, otherwise the row numbers from 0',
  ),
  hp.Hyperparameter(
    'test_column',
    '',
    'column that marks test rows by test, true or 1, and training rows by train, false or 0',
  ),
)
_FEATURE_COLUMNS = hp.Hyperparameter(
  'feature_columns',
  '',
  'numeric columns to use as features, separated by commas; default: all numeric columns except'
  ' class, user, id and test column',
)
_STANDARDIZE = hp.Hyperparameter(
  'standardize', True, 'scale features to mean 0 and standard deviation 1 over the training rows'
)

CLASSES = hp.Hyperparameter(
  'classes',
  '',
  'file with the names of all classes, one per line. With --task=items, the classes are the'
  ' items; with .npz data, the labels. The model has these classes in this order. --dp needs this'
  ' file, because class names taken from the data would reveal which classes clients have.'
  ' Default: the classes of the data',
)
_FEATURE_BOUNDS = hp.Hyperparameter(
  'feature_bounds',
  '',
  'bounds LOW:HIGH of all features, or NAME=LOW:HIGH separated by commas. --standardize then'
  ' scales by these bounds instead of by the mean and standard deviation of the training rows',
)

# The height and width of photographs in pixels, unless --image_size is given.
_SIDE = 64


def check(options: Mapping) -> None:
  """Refuses options that are invalid with any data."""
  check_test(options)
  if options.get('feature_bounds') and not options['standardize']:
    raise errors.InputError(
      '--feature_bounds does not apply with --standardize=false; leave one of them out'
    )
  bounds(options)
  if rules.parse(options['split']) is None:
    check_split(options['split'], 'class, iid:100, RULE:SETTING=VALUE,..., ')


def bounds(options: Mapping) -> dict[str, tuple[float, float]]:
  """Parses --feature_bounds into bounds by feature name; '' stands for all other features."""
  found, text = {}, options.get('feature_bounds', '')
  for part in text.split(',') if text else ():
    name, _, pair = part.rpartition('=')
    try:
      low, high = map(float, pair.split(':'))
    except ValueError:
      low = high = math.nan
    # A smaller difference could underflow in float32.
    if not (-1e38 < low < high < 1e38 and high - low > 1e-30) or name.strip() in found:
      raise errors.InputError(
        f'--feature_bounds: {part!r} is not a pair of finite numbers, or its feature appears'
        ' twice; give LOW:HIGH or NAME=LOW:HIGH, such as age=0:120'
      )
    found[name.strip()] = low, high
  return found


def check_split(split: str, others: str = '') -> None:
  """Refuses a missing file of clients. `others` lists further valid values for the message."""
  if not split_path.parse(split).exists():
    raise errors.InputError(
      f'--split={split} does not exist; give {others}a CSV user_id,image_id,class,'
      ' FILE.csv:COLUMN, or a folder of `python -m launch.make_splits`'
    )


def check_test(options: Mapping) -> None:
  """Refuses a missing test file, or a test fraction in addition to a test file."""
  test_file = options['test_file']
  if test_file and options['test_fraction']:
    raise errors.InputError(
      '--test_file and --test_fraction both name the test set; leave one of them out'
    )
  if test_file and not (os.path.isdir(test_file) or zipped.is_file(test_file)):
    raise errors.InputError(
      f'--test_file={test_file} does not exist; name the file of the test examples'
    )


def choice(options: Mapping):
  """Returns the `datasets.splits.deal.Choice` of a task's options."""
  from datasets.splits import deal

  chosen = (options[option.name] for option in CLIENTS)
  return deal.Choice(*chosen, options.get('test_examples', 0), options.get('classes', ''))


def _is_arrays(path: str) -> bool:
  """Whether a file's name ends in .npz, in upper or lower case."""
  return path.lower().endswith('.npz')


def _count_classes(path: str) -> int | None:
  """Returns the number of classes of a .npz, the largest label plus one; None for other data."""
  if not _is_arrays(path):
    return None
  from datasets.readers import arrays

  try:
    return int(arrays.read(path, ('y',))['y'].max()) + 1
  except Exception:  # Loading the file later raises an error that names the problem.
    return None


# -- images --


def _check_images(options) -> None:
  check(options)
  record_features.parse(options['record_features'])
  side = options['image_size']
  if side:
    encoders.check_side(options, side, f'--image_size={side}: images')


def _read_images(data_dir, options, checks=True):
  from datasets.splits import deal

  if _is_arrays(data_dir):
    dataset = _of_arrays(data_dir, options)
  else:
    from datasets import photographs

    side = encoders.stored_side(options, options['image_size'] or _SIDE)
    dataset = photographs.load(
      data_dir,
      choice(options),
      side=side,
      checks=checks,
      corrupt=options['corrupt'],
      features=record_features.parse(options['record_features']),
    )
  side = encoders.seen_side(options, dataset.train.pool.spec.shape[0])
  encoders.check_side(options, side, f'{data_dir}: the images')
  # The printed line lets the user notice a wrong folder or a missing test set at once.
  tests = 0 if dataset.test is None else len(dataset.test)
  told = deal.described(
    len(dataset.train.partition.numbers) + tests,
    'image',
    dataset.class_names or range(dataset.num_classes),
    tests,
    len(dataset.train.partition),
  )
  print(f'{data_dir}: {told}', file=sys.stderr)
  return dataset


def _of_arrays(data_dir, options):
  from datasets import own

  if options['corrupt'] != 'skip' or options['record_features']:
    raise errors.InputError(
      f'{data_dir} has no files of images; leave out --corrupt and --record_features'
    )
  side = options['image_size']
  side = side and encoders.stored_side(options, side)
  return own.load_images(data_dir, choice(options), side=side)


# -- rows of numbers --


def _read_rows(data_dir, options):
  from datasets import own
  from datasets.readers import rows

  named = options['feature_columns'].split(',')
  columns = rows.Columns(
    *(options[column.name] for column in _COLUMNS),
    tuple(name.strip() for name in named if name.strip()),
  )
  return own.load_rows(
    data_dir, choice(options), columns, standardise=options['standardize'], bounds=bounds(options)
  )


def perceptron(options, description):
  """Returns a perceptron with a cosine head, for rows of numbers."""
  from tff_xc import heads
  from tff_xc.encoders import mlp

  encoder = mlp.build_dense_mlp_encoder(
    *description.shape, options['hidden_dim'], options['embedding_dim']
  )
  head = heads.CosineHead(options['logit_scale'])
  return task.classifier(encoder, description, head)


def _task(**attributes) -> task.Task:
  """Returns a task that trains from scratch with any algorithm."""
  return task.Task(
    metrics=('top1', 'macro_f1', 'mcc', 'map@10', 'map@r', 'train_top1'),
    rounds=300,
    clients_per_round=16,
    eval_every=20,
    defaults=task.FROM_SCRATCH,
    data_is_named=True,
    count_classes=_count_classes,
    **attributes,
  )


TASKS = (
  _task(
    name='images',
    summary='your own images: --data_dir is a folder, .tar, .zip,'
    ' .tfrecord or .npz; --split says which client owns each image',
    read=_read_images,
    network=task.image_network,
    options=(
      task.EMBEDDING_DIM,
      task.LOGIT_SCALE,
      IMAGE_SIZE,
      CORRUPT,
      _RECORD_FEATURES,
      *encoders.OPTIONS,
      *CLIENTS,
      CLASSES,
      task.TEST_EXAMPLES,
    ),
    check=_check_images,
    fit=encoders.fit,
    look=functools.partial(_read_images, checks=False),
    data='images (.jpg, .png, .webp, .bmp, .gif, .tif) in a folder, .tar or .zip, which has'
    ' a folder or a .tar for each class unless --split names the classes; TFRecords'
    ' (.tfrecord) in a file or a folder; or a .npz with x uint8 [N, height, width(,'
    ' channels)], y [N], client [N], and optionally test_x, test_y, retrieval_x,'
    ' retrieval_y',
  ),
  _task(
    name='table',
    summary='your own table of numbers: --data_dir is a .csv, .jsonl, .parquet or'
    ' .npz; features are standardized by the training rows',
    read=_read_rows,
    network=perceptron,
    options=task.options(
      task.EMBEDDING_DIM,
      task.LOGIT_SCALE,
      task.HIDDEN_DIM,
      _FEATURE_COLUMNS,
      _STANDARDIZE,
      _FEATURE_BOUNDS,
      *_COLUMNS,
      *CLIENTS,
      CLASSES,
      hidden_dim=128,
    ),
    check=check,
    data='a .csv, .tsv, .jsonl or .parquet in which each row is an example: a class'
    ' (--label_column), a user (--user_column), numbers; or a .npz with x [N, D],'
    ' y [N], client [N], and optionally test_x, test_y, retrieval_x, retrieval_y',
  ),
)
