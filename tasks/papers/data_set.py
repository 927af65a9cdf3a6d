"""Statistics of a data set, and their published or expected numbers."""

import math
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

# Statistics; `launch.reproduction.studies.data_statistics` measures them.
CLIENTS = 'clients'
CLASSES = 'classes'
FEATURES = 'features'
EXAMPLES = 'training examples'
TEST = 'test examples'
ALL = 'training and test examples'
MEAN, STD = 'examples a client, mean', 'examples a client, std'
HELD, MOST_HELD = 'classes a client, mean', 'classes a client, most'
LABELS = 'labels an example, mean'
POSITIVES = 'examples a label, mean'
EMD = 'EMD of the clients'


class Number(NamedTuple):
  """A number beside a measured one.

  Attributes:
    printed: as the paper prints it; '' if it prints none.
    least: of the band, included.
    most: of the band, included.
    origin: '' for a number of the paper; 'derived', 'from memory', or by whom.
  """

  printed: str
  least: float
  most: float
  origin: str = ''


def printed(text: str, within: float = 0.0, origin: str = '') -> Number:
  """Returns a published number.

  Args:
    text: as printed, such as '1,262' or '448.57'.
    within: half the band as a part of the number; 0: half of its last digit.
    origin: as in `Number`.
  """
  value = float(text.replace(',', ''))
  half = within * value
  if not within and '.' in text:
    half = 0.5 * 10.0 ** -len(text.partition('.')[2])
  return Number(text, value - half, value + half, origin)


def exactly(value: float) -> Number:
  """Returns what a procedural set has by its definition."""
  return Number('', value, value)


def between(least: float, most: float = math.inf) -> Number:
  """Returns a band that the shape of a procedural set gives."""
  return Number('', least, most)


class Set(NamedTuple):
  """A data set of a table.

  Attributes:
    task: that has it.
    numbers: statistics that are compared, by name; others are only shown.
    options: of the task, which differ from its defaults.
  """

  task: str
  numbers: Mapping[str, Number]
  options: Mapping[str, Any] = {}

  @property
  def published(self) -> dict[str, Number]:
    """The numbers that the paper itself has."""
    return {
      name: number for name, number in self.numbers.items() if not number.origin
    }


class Statistics(NamedTuple):
  """What a result shows.

  Attributes:
    small: procedural, in the shape of `sets`.
    sets: the published ones.
    picture: 'clients', 'sizes' or 'labels', see the study; '': none.
  """

  small: Set
  sets: tuple[Set, ...]
  picture: str = ''


def name(task: str, statistic: str) -> str:
  """Returns the study's name of a value."""
  return f'{task}: {statistic}'
