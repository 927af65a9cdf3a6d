"""What tasks of one's own data share: their clients and their test part.

Importing this imports nothing large, so that flags are checked at once.
"""

import os
from collections.abc import Mapping

from datasets.splits import rules
from datasets.splits import split_path
from tasks import task
from tff_xc import errors
from tff_xc import memory
from tff_xc import wording

# Options of tasks whose data have one label an example.
SPLIT = ('split', 'test_file', 'test_fraction', 'data_seed')
TEST = SPLIT[1:]
SPARSE_TEXT = (
  'a text file in the form of the Extreme Classification Repository, perhaps .gz:'
  ' line 1 `N D L`, then N lines `l1,l2 f:v f:v`, numbers from 0'
)
_WARNING = '; warning: '
METRICS = ('top1', 'macro_f1', 'mcc', 'map@10', 'map@r', 'train_top1')


def check(options: Mapping) -> None:
  """Refuses options that cannot be right, whatever the data are.

  Raises:
    errors.InputError: `--split` is none, a file is missing, or two test parts
      are asked for.
  """
  check_test(options)
  if rules.parse(options['split']) is None:
    check_split(options['split'], 'class, iid:100, RULE:SETTING=VALUE,..., ')


def check_split(split: str, others: str = '') -> None:
  """Refuses a split that is not there.

  Args:
    split: as `split_path.parse` takes it.
    others: what else may be given, each followed by a comma.
  """
  if not split_path.parse(split).exists():
    raise errors.InputError(
      f'--split={split} does not exist; give {others}a CSV user_id,image_id,class,'
      ' FILE.csv:COLUMN, or a folder of `python -m launch.make_splits`'
    )


def check_test(options: Mapping) -> None:
  """Refuses a test file that is not there, or a fraction beside it."""
  test_file = options['test_file']
  if test_file and options['test_fraction']:
    raise errors.InputError(
      '--test_file and --test_fraction both name the test; leave one of them out'
    )
  if test_file and not os.path.exists(test_file):
    raise errors.InputError(
      f'--test_file={test_file} does not exist; name the file of the test'
      ' examples'
    )


def choice(options: Mapping):
  """Returns the `datasets.splits.own.Choice` of a task's options."""
  from datasets.splits import own

  return own.Choice(
    *(options[name] for name in SPLIT), options.get('test_examples', 0)
  )


def small_task(**attributes) -> task.Task:
  """Returns a task for any algorithm, whose network learns from scratch."""
  return task.Task(
    metrics=METRICS,
    rounds=300,
    clients_per_round=16,
    eval_every=20,
    defaults=task.FROM_SCRATCH,
    data_is_named=True,
    **attributes,
  )


def is_arrays(path: str) -> bool:
  """Whether a file is a .npz, by its name in upper or lower case."""
  return path.lower().endswith('.npz')


def count_classes(path: str) -> int | None:
  """Returns n of a .npz: the largest label plus one; None of other data.

  Loading says what is wrong with a file that cannot be read.
  """
  if not is_arrays(path):
    return None
  from datasets import npz

  try:
    return int(npz.read(path, ('y',))['y'].max()) + 1
  except Exception:  # It may be anything.
    return None


def count_labels(path: str) -> int | None:
  """Returns L of a file of sparse text; None if its first line has none."""
  from datasets.xc import headers

  try:
    return headers.read_header(path).num_labels
  except errors.InputError:
    return None


def check_memory(path: str, header, model) -> None:
  """Refuses text whose first line names more than a model can have."""
  task.check_memory(
    model,
    f'{path}, line 1 names {header.num_labels:,} labels and'
    f' {header.num_features:,} features: a model of these',
    'check line 1, or give a smaller network',
  )


def sparse_text(data_dir: str, options: Mapping):
  """Returns the training and the test part of a file of sparse text."""
  from datasets.xc import own

  return own.read(data_dir, *(options[name] for name in TEST))


def described(dataset, noun: str) -> str:
  """Describes a data set; `noun` is what one of its examples is."""
  from datasets.splits import own

  clients = dataset.train.partition
  tests = 0 if dataset.test is None else len(dataset.test)
  names = dataset.class_names or range(dataset.num_classes)
  size = len(clients.numbers) + tests
  return own.described(size, noun, names, tests, len(clients))


def examined(dataset, noun: str, options: Mapping) -> str:
  """Describes a data set, and tells or refuses what training would.

  Args:
    dataset: a `client_data.FederatedDataset`.
    noun: as of `described`.
    options: of the task.
  """
  memory.require(
    4 * dataset.num_classes * options['embedding_dim'],
    f'a table of {dataset.num_classes:,} classes',
    'lower --embedding_dim, or give data of fewer classes',
  )
  return _WARNING.join([described(dataset, noun), *dataset.warnings()])


def find_arrays(found: Mapping) -> str:
  """Describes arrays by their examples, classes, test part and clients.

  Args:
    found: of a .npz, as its task checks them.
  """
  from datasets.splits import own
  from tff_xc.data import client_data

  y, test_y = found['y'], found.get('test_y', ())
  classes = range(int(y.max()) + 1)
  clients = len(set(found['client'].tolist())) if 'client' in found else 0
  told = own.described(
    len(y) + len(test_y), 'example', classes, len(test_y), clients
  )
  return _WARNING.join([told, *client_data.class_warnings(y, test_y, classes)])


def find_sparse_text(path: str) -> str:
  """Describes a file of sparse text, which it reads."""
  from datasets.xc import own

  header = own.check(path)
  own.read(path)
  nouns = ('example', 'feature', 'label')
  return ', '.join(map(wording.count, header, nouns))


def stem(path: str) -> str:
  """Returns the name of a file without folders and suffixes."""
  return os.path.basename(os.path.normpath(path)).partition('.')[0]
