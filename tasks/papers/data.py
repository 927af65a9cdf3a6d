"""Tables and figures about the papers' data, from data.csv.

data.csv has published statistics, and the ranges expected for procedural data of the same
shape. A printed number is reproduced if ours differs by at most half a unit of its last digit.
LEAF's numbers are for all users, but ours are for the training users. Therefore ours may differ
by three standard errors. `origin` is empty for a number from the paper itself.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from tasks.papers import table

# Names of statistics, which `launch.reproduction.studies.data_statistics` measures.
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
  """A statistic of a data set: printed number (None: not printed), range and source."""

  printed: table.Number | None
  least: float
  most: float
  origin: str


class Set(NamedTuple):
  """A data set: its task, the statistics to compare, and options of the task."""

  task: str
  numbers: dict[str, Statistic]
  options: Mapping[str, Any]


# For each result: its name in the column `sets` of data.csv, and what its diagram shows.
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
  """Returns the data sets of a result of `STATISTICS`. The small scale has one data set."""
  found: dict[str, Set] = {}
  for line in table.lines_of('data'):
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
  """Returns a study of data statistics. `words` are its paper, number, source and so on."""
  name = table.Result(**words).name
  of = {scale: sets(name, scale) for scale in ('small', 'paper')}
  # Only the paper's own numbers decide whether its result is reproduced.
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
