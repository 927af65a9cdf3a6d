"""Compares FedMLH's lemmas and theorem with the labels of a task."""

import functools
import json
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

from launch.reproduction import outcome
from launch.reproduction.studies import study
from tasks import experiment
from tasks import registry as tasks
from tasks import task as found_lib
from tasks.papers import data_set
from tasks.papers import fedmlh
from tff_xc import errors
from tff_xc.algorithms import base

if TYPE_CHECKING:
  from tff_xc.measure import hashed_labels

_SMALL = 'sparse-words-eurlex-sets'
_FLAGS = {
  *('data_dir', 'hash_tables', 'hash_buckets', 'num_classes'),
  *('num_features', 'num_clients', 'partition_rule', 'validation'),
  *('published_reading', 'data_seed'),
}
# The probability of a total collision that Lemma 2 is asked to allow.
_FAILURE = 0.05


def resolve(
  name: str, scale: str, task: str | None, given: Mapping[str, Any]
) -> tuple[dict[str, Any], ...]:
  """Returns a task's settings, or those of the paper's; see `study.resolve`."""
  study.refuse(name, set(given) - _FLAGS)
  if task is None and scale == 'paper':
    wanted = [each.task for each in fedmlh.CONFIGURATIONS]
  else:
    wanted = [task or _SMALL]
  fitting = [
    task.name for task in tasks.TASKS.values() if base.ONE_LABEL in task.lacks
  ]
  if not set(wanted) <= set(fitting):
    told = f'--task={task}: {name} is of tasks whose examples keep all labels:'
    raise study.Unused('task', f'{told} {", ".join(fitting)}')
  return tuple(experiment.resolve(each, 'fedmlh', given) for each in wanted)


def measure(
  config: Sequence[Mapping[str, Any]],
  folder: pathlib.Path,
  output: pathlib.Path,
  jobs: int = 0,
) -> study.Measured:
  """Returns the comparison on the tasks that are there; see `study.measure`.

  It draws FOLDER/result.png, or, of several tasks, FOLDER/TASK.png.
  """
  del output, jobs
  why = {each['task']: study.lacks(each) for each in config}
  if len(config) > 1 and all(why.values()):
    raise errors.InputError(
      f'{found_lib.error(why)}\n  or give another task whose examples keep all'
      ' labels, such as --task=sparse-words-sets'
    )
  if len(config) == 1:
    return _one(config[0], folder, 'result.png')
  found_lib.tell(why)
  measured = {
    each['task']: _one(each, folder, f'{each["task"]}.png')
    for each in config
    if not why[each['task']]
  }
  missing = [task for task in why if task not in measured]
  return study.Measured(
    {
      data_set.name(task, name): value
      for task, found in measured.items()
      for name, value in found.values.items()
    },
    (
      *(cells for found in measured.values() for cells in found.tables),
      *study.not_measured(missing),
    ),
    tuple(name for found in measured.values() for name in found.pictures),
    len(missing) * len(fedmlh.OF_THEORY),
  )


def _one(
  config: Mapping[str, Any], folder: pathlib.Path, picture: str
) -> study.Measured:
  """Returns the comparison on one task, and draws FOLDER/PICTURE."""
  from tff_xc.report import theory_picture

  found = _theory(json.dumps(config, sort_keys=True))
  title = (
    f'FedMLH on {config["task"]}: {len(found.label_counts):,} labels,'
    f' {found.num_tables} tables of {found.num_buckets:,} buckets'
  )
  theory_picture.plot(found, title, folder / picture)
  rows = _rows(found)
  return study.Measured(
    _values(found),
    (outcome.Cells(title, tuple(rows[0]), tuple(map(tuple, rows[1:]))),),
    (picture,),
  )


@functools.lru_cache(maxsize=len(fedmlh.CONFIGURATIONS))
def _theory(config: str) -> 'hashed_labels.Theory':
  """Measures a configuration, as JSON; once for the results of one command."""
  from tff_xc.measure import hashed_labels

  config = json.loads(config)
  load = tasks.get(config['task']).load
  dataset, _ = load(config['data_dir'], config['options'])
  values = config['hyperparameters']
  return hashed_labels.theory(
    dataset, values['hash_tables'], values['hash_buckets']
  )


def _values(found: 'hashed_labels.Theory') -> dict[str, float]:
  """Returns the values of which something is expected."""
  rare = ~found.is_frequent
  return {
    'positive examples of an infrequent label': float(
      found.label_counts[rare].mean()
    ),
    'positive examples of its buckets': float(found.observed[:, rare].mean()),
    'of its buckets over the bound of Lemma 1': float(
      found.observed[:, rare].mean() / found.expected[rare].mean()
    ),
    'pairs whose divergence grew': float(_grown(found)),
  }


def _grown(found: 'hashed_labels.Theory') -> int:
  """Returns how many divergences over buckets exceed those over labels."""
  of_labels, of_buckets = found.pairs
  return int((of_buckets > of_labels + 1e-9).sum())  # No rounding errors.


def _rows(found: 'hashed_labels.Theory') -> list[list[str]]:
  from tff_xc.measure import hashed_labels

  sizes = len(found.label_counts), found.num_tables
  collisions = hashed_labels.total_collisions(*sizes, found.num_buckets)
  rare = ~found.is_frequent
  mean = lambda values: f'{values.mean():,.2f}' if values.size else '–'
  of_labels, of_buckets = found.pairs
  return [
    ['of', 'value'],
    ['least buckets that tell all labels apart with probability'
     f' {1 - _FAILURE:g} (Lemma 2)',
     f'{hashed_labels.least_buckets(*sizes, _FAILURE):,}'],
    ['labels that share all buckets with an earlier one', f'{collisions:,}'],
    ['infrequent labels, of less than 1 % of the training examples',
     f'{rare.sum():,}'],
    ['positive examples of an infrequent label, mean',
     mean(found.label_counts[rare])],
    ['of its buckets, mean, expected (Lemma 1, a bound)',
     mean(found.expected[rare])],
    ['of its buckets, mean', mean(found.observed[:, rare])],
    ['KL divergence of two clients over labels, mean', mean(of_labels)],
    ['over the buckets of a table, mean', mean(of_buckets)],
    ['pairs of clients and tables whose divergence grew (Theorem 2: none)',
     f'{_grown(found):,} of {len(of_labels):,}'],
  ]  # fmt: skip
