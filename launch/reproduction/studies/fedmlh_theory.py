"""Compares FedMLH's lemmas and theorem with the labels of a task."""

import functools
import json
import os
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import numpy as np

from launch.reproduction import rows as rows_lib
from launch.reproduction import studies
from tasks import experiment
from tasks import registry as tasks
from tasks import task as found_lib
from tasks.papers import fedmlh
from tff_xc import errors
from tff_xc.algorithms import base
from tff_xc.report import pictures

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
# More labels are not told apart in a panel.
_MOST_DOTS = 2000
_MOST_TICKS = 20
_OF_LABELS, _OF_BUCKETS, _LEMMA = (
  colour for (colour, _, _), _ in zip(pictures.styles(), range(3), strict=False)
)


def resolve(
  name: str, scale: str, task: str | None, given: Mapping[str, Any]
) -> tuple[dict[str, Any], ...]:
  """Returns a task's settings, or those of the paper's; see `studies`."""
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
  config: Sequence[Mapping[str, Any]],
  folder: pathlib.Path,
  output: pathlib.Path,
  jobs: int = 0,
) -> list[dict[str, Any]]:
  """Returns the comparison on the tasks that are there; see `studies`.

  It draws FOLDER/result.png, or, of several tasks, FOLDER/TASK.png.
  """
  del output, jobs
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
  found = _theory(json.dumps(config, sort_keys=True))
  title = (
    f'FedMLH on {config["task"]}: {len(found.label_counts):,} labels,'
    f' {found.num_tables} tables of {found.num_buckets:,} buckets'
  )
  _plot(found, title, picture)
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


def _plot(
  found: 'hashed_labels.Theory', title: str, path: str | os.PathLike
) -> None:
  """Draws FedMLH's theory on a data set: the lemma, the theorem, and its figure 2."""
  figure, axes = pictures.panels(4, 2, (11, 8))
  draw = (_positives, _divergences, _frequencies, _clients)
  for ax, draw_panel in zip(axes, draw, strict=True):
    draw_panel(ax, found)
    ax.set_axisbelow(True)
  figure.suptitle(title)
  pictures.save(figure, path)


def _positives(ax, found) -> None:
  order = np.argsort(-found.label_counts, kind='stable')
  rank = np.arange(1, len(order) + 1)
  dots = np.unique(np.geomspace(1, len(order), _MOST_DOTS).astype(int)) - 1
  observed = found.observed.mean(axis=0)[order]
  ax.plot(
    *(rank[dots], observed[dots], '.'),
    color=_OF_BUCKETS,
    markersize=3,
    label='its buckets, mean of the tables',
  )
  ax.plot(
    *(rank, found.expected[order], '--'),
    color=_LEMMA,
    label='its buckets, expected (Lemma 1)',
  )
  alone = np.where(found.label_counts > 0, found.label_counts, np.nan)[order]
  ax.plot(rank, alone, color=_OF_LABELS, label='the label alone')
  ax.set(xscale='log', yscale='log')
  title = 'Positive examples of a label and of its buckets'
  pictures.label(ax, title, 'label, by frequency', 'positive examples')
  ax.legend(frameon=False, fontsize=9)


def _divergences(ax, found) -> None:
  of_labels, of_buckets = found.pairs
  ax.plot(of_labels, of_buckets, '.', color=_OF_BUCKETS, markersize=4)
  most = 1.05 * max(of_labels.max(initial=0), of_buckets.max(initial=0), 1e-3)
  ax.plot([0, most], [0, most], '--', color='0.4')
  ax.annotate(
    'equal', (0.72 * most, 0.72 * most), (-6, 6), textcoords='offset points',
    ha='right', color='0.4',
  )  # fmt: skip
  ax.set(xlim=(0, most), ylim=(0, most))
  title = 'KL divergence of two clients (Theorem 2)'
  y = 'over buckets of a table, nats'
  pictures.label(ax, title, 'over labels, nats', y)


def _frequencies(ax, found) -> None:
  from tff_xc.measure import ranking

  share = np.sort(found.label_counts) / found.num_examples
  upto = np.arange(1, len(share) + 1) / len(share)
  some = share > 0
  ax.step(share[some], 100 * upto[some], where='post', color=_OF_LABELS)
  ax.axvline(ranking.FREQUENT, linestyle='--', color='0.4')
  ax.annotate(
    'frequent', (ranking.FREQUENT, 2), (4, 0), textcoords='offset points',
    color='0.4',
  )  # fmt: skip
  ax.set(xscale='log', ylim=(0, 103))
  x, y = 'share of the training examples', 'labels of at most this share, %'
  pictures.label(ax, 'Frequencies of labels', x, y)


def _clients(ax, found) -> None:
  held, places = found.client_counts > 0, np.arange(1, len(found.of_labels) + 1)
  for name, part, colour, shift in (
    ('frequent', found.is_frequent, _OF_LABELS, -0.2),
    ('infrequent', ~found.is_frequent, _OF_BUCKETS, 0.2),
  ):
    share = held[:, part].sum(axis=1) / max(part.sum(), 1)
    label = f'of the {part.sum():,} {name} labels'
    ax.bar(places + shift, 100 * share, width=0.4, color=colour, label=label)
  if len(held) <= _MOST_TICKS:
    ax.set_xticks(places)
  ax.set(ylim=(0, 120))
  title = 'Labels of which a client has examples'
  pictures.label(ax, title, 'client', 'labels held, %')
  ax.legend(frameon=False, fontsize=9, ncols=2, loc='upper center')
