"""Compares FedMLH's lemmas and theorem with the labels of a task."""

import functools
import json
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

from launch.reproduction import rows as rows_lib
from launch.reproduction import studies
from tasks import experiment
from tasks import registry as tasks
from tasks import task as found_lib
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


def resolve(name: str, request) -> tuple[dict[str, Any], ...]:
  """Returns a task's settings, or those of the paper's; see `studies`."""
  scale, task, given = request.scale, request.task, request.given
  rows_lib.refuse(name, set(given) - _FLAGS)
  if task is None and scale == 'paper':
    wanted = [each.task for each in fedmlh.CONFIGURATIONS]
  else:
    wanted = [task or _SMALL]
  fitting = [
    task.name for task in tasks.TASKS.values() if base.ONE_LABEL in task.lacks
  ]
  if not set(wanted) <= set(fitting):
    told = f'--task={task}: {name} is of tasks whose examples keep all labels:'
    raise rows_lib.Unused('task', f'{told} {", ".join(fitting)}')
  return tuple(experiment.resolve(each, 'fedmlh', given) for each in wanted)


def measure(
  config: Sequence[Mapping[str, Any]], folder: pathlib.Path
) -> list[dict[str, Any]]:
  """Returns the comparison on the tasks that are there, with a picture for each."""
  why = {each['task']: studies.lacks(each) for each in config}
  if len(config) > 1 and all(why.values()):
    raise errors.InputError(
      f'{found_lib.error(why)}\n  or give another task whose examples keep all'
      ' labels, such as --task=sparse-words-sets'
    )
  found_lib.tell(why if len(config) > 1 else {})
  lines = []
  for each in config:
    task = each['task']
    name = f'{task}.png' if len(config) > 1 else 'result.png'
    if len(config) > 1 and why[task]:
      lines.append(studies.missing(task))
    else:
      lines += _one(each, folder / name)
  return lines


def _one(
  config: Mapping[str, Any], picture: pathlib.Path
) -> list[dict[str, Any]]:
  """Returns the comparison on one task, and draws it."""
  from tff_xc.report import split_pictures

  found = _theory(json.dumps(config, sort_keys=True))
  title = (
    f'FedMLH on {config["task"]}: {len(found.label_counts):,} labels,'
    f' {found.num_tables} tables of {found.num_buckets:,} buckets'
  )
  split_pictures.plot_theory(found, title, picture)
  return [
    studies.value(name, value, task=config['task'])
    for name, value in _values(found).items()
  ]


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
  """Returns what is shown of a task; the last two have bounds."""
  from tff_xc.measure import hashed_labels

  sizes = len(found.label_counts), found.num_tables
  rare = ~found.is_frequent
  of_labels, of_buckets = found.pairs
  mean = lambda values: float(values.mean()) if values.size else 0.0
  positives, expected = found.label_counts[rare], found.expected[rare]
  observed = found.observed[:, rare]
  least = hashed_labels.least_buckets(*sizes, _FAILURE)
  collisions = hashed_labels.total_collisions(*sizes, found.num_buckets)
  return {
    'labels': sizes[0],
    'tables': sizes[1],
    'buckets of a table': found.num_buckets,
    'least buckets that tell all labels apart with probability'
    f' {1 - _FAILURE:g} (Lemma 2)': least,
    'labels that share all buckets with an earlier one': collisions,
    'infrequent labels, of less than 1 % of the training examples': rare.sum(),
    'positive examples of an infrequent label, mean': mean(positives),
    'of its buckets, mean, expected (Lemma 1, a bound)': mean(expected),
    'of its buckets, mean': mean(observed),
    'KL divergence of two clients over labels, mean': mean(of_labels),
    'over the buckets of a table, mean': mean(of_buckets),
    'pairs of clients and tables': len(of_labels),
    'pairs whose divergence grew': (of_buckets > of_labels + 1e-9).sum(),
    'of its buckets over the bound of Lemma 1': mean(observed)
    / (mean(expected) or 1),
  }
