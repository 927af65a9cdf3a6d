"""Tables and figures of the papers' data, from data.csv: published statistics, and
bands of procedural data of the same shape.

Printed numbers count as reproduced to half of their last digit; those of the whole set
of LEAF, of which ours has the training users, within three standard errors of these.
`origin` is empty for a number of the paper itself.
"""

import csv
import functools
import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from tasks.papers import table

# Statistics; `launch.reproduction.studies.data_statistics` measures them.
CLIENTS = 'clients'
CLASSES = 'classes'
FEATURES = 'features'
EXAMPLES = 'training examples'
TEST = 'test examples'
ALL = 'training and test examples'
TEN_TESTS = 'classes with ten test examples'
MEAN, STD = 'examples a client, mean', 'examples a client, std'
HELD, MOST_HELD = 'classes a client, mean', 'classes a client, most'
LABELS = 'labels an example, mean'
POSITIVES = 'examples a label, mean'
EMD = 'EMD of the clients'


class Statistic(NamedTuple):
  """A statistic of a set: the printed number, if one is, with its band and its origin."""

  printed: table.Number | None
  least: float
  most: float
  origin: str


class Set(NamedTuple):
  """A data set: its task, statistics that are compared, and options of the task."""

  task: str
  numbers: dict[str, Statistic]
  options: Mapping[str, Any]


# The sets of data.csv, and what the study draws: clients, their sizes, or labels.
STATISTICS = {
  'fedaws/table2': ('fedaws', ''),
  'turbosvm-fl/table1': ('turbosvm', ''),
  'turbosvm-fl/fig3': ('turbosvm', 'sizes'),
  'fedmlh/table1': ('fedmlh', ''),
  'fedvc/fig2': ('users', 'clients'),
  'fedvc/fig3': ('photographers', 'labels'),
}


@functools.cache
def sets(name: str, scale: str) -> tuple[Set, ...]:
  """Returns the sets of a result of `STATISTICS`; of the small scale one."""
  found: dict[str, Set] = {}
  with open(pathlib.Path(__file__).with_suffix('.csv'), newline='', encoding='utf-8') as file:
    for line in csv.DictReader(file):
      if (line['sets'], line['scale']) == (STATISTICS[name][0], scale):
        of = found.setdefault(line['task'], Set(line['task'], {}, table.changes(line['options'])))
        of.numbers[line['statistic']] = Statistic(
          table.Number.read(line['printed']),
          float(line['least']),
          float(line['most'] or math.inf),
          line['origin'],
        )
  return tuple(found.values())


def study(**words: str) -> table.Study:
  """Returns the result of this paper, number, source, caption and notes."""
  name = table.Result(**words).name
  of = {scale: sets(name, scale) for scale in ('small', 'paper')}
  # Of what others state, none tells whether the paper's result is reproduced.
  expected, published = (
    {
      f'{each.task}: {statistic}': (number.least, number.most)
      for each in of_scale
      for statistic, number in each.numbers.items()
      if not number.origin
    }
    for of_scale in of.values()
  )
  return table.Study(
    **words,
    measure='data_statistics',
    tasks={scale: {each.task: each.options for each in of[scale]} for scale in of},
    forms={'small': table.Form(f'Procedural data: task {of["small"][0].task}')},
    expected=expected,
    published=published,
    needs=f'the data of {", ".join(s.task for s in of["paper"])}; of one with --task',
  )
