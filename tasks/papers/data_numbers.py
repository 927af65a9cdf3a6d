"""Tables and figures of the papers' data: published statistics, and small forms.

The published number of a statistic stands beside the band in which ours counts as
the same. Numbers of the whole set of LEAF are compared with ours of the training
users, nine tenths of them, and so within a band.
"""

import math
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from tasks.papers import result

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
    half = 0.5001 * 10.0 ** -len(text.partition('.')[2])
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


_derived = lambda text: printed(text, origin='derived')


def _repository(task, examples, test, features, labels, *more, **options):
  """Returns a set of the Extreme Classification Repository; `more` is of labels."""
  numbers = {
    EXAMPLES: printed(examples),
    TEST: printed(test),
    FEATURES: printed(features),
    CLASSES: printed(labels),
    **dict(zip((LABELS, POSITIVES), map(printed, more), strict=False)),
  }
  return Set(task, numbers, options)


_WHOLE = {'validation': 0.0, 'hashed_features': 0}
_FEDAWS = Statistics(
  # 10,000 examples of 1 to 5 labels of 1,000, which follow Zipf's law. A client is a
  # class that an example has kept.
  Set(
    'sparse-words',
    {
      CLASSES: exactly(1_000),
      FEATURES: exactly(50_000),
      EXAMPLES: exactly(10_000),
      TEST: exactly(2_000),
      CLIENTS: between(800, 1_000),
      LABELS: between(2.3, 3.05),
      POSITIVES: between(23, 30.5),
      EMD: between(1.9, 2),
    },
  ),
  (
    _repository(
      *('amazoncat-13k', '1,186,239', '306,782', '203,882', '13,330'),
      *('5.04', '448.57'),
    ),
    _repository(
      *('wikilshtc-325k', '1,778,351', '587,084', '1,617,899', '325,056'),
      *('3.19', '17.46'),
    ),
    _repository(
      *('amazon-670k', '490,449', '153,025', '135,909', '670,091'),
      *('5.45', '3.99'),
    ),
  ),
)
_FEDMLH = Statistics(
  # 15,539 examples of 1 to 9 of 3,993 labels; ten clients of a tenth each.
  Set(
    'sparse-words-eurlex-sets',
    {
      CLASSES: exactly(3_993),
      FEATURES: exactly(5_000),
      EXAMPLES: exactly(15_539),
      TEST: exactly(3_809),
      CLIENTS: exactly(10),
      MEAN: exactly(1_553),
      STD: exactly(0),
      LABELS: between(4.2, 5.05),
      POSITIVES: between(16, 19.7),
    },
    _WHOLE,
  ),
  tuple(
    _repository(*of, **_WHOLE)
    for of in (
      ('eurlex-4k-sets', '15,539', '3,809', '5,000', '3,993'),
      ('wiki10-31k-sets', '14,146', '6,616', '101,938', '30,938'),
      ('amazontitles-131k-sets', '294,805', '134,835', '40,000', '131,073'),
      (
        *('wikiseealsotitles-320k-sets', '693,082', '177,515', '40,000'),
        '312,330',
      ),
    )
  ),
)


def _leaf(task, users, total, mean, std, error):
  """Returns a set of LEAF.

  Args:
    task: its name.
    users: the training users, derived from LEAF's split.
    total: examples of all users; '' if it is known only roughly.
    mean: of a user's examples, over all users.
    std: of a user's examples.
    error: three standard errors of the training users' mean, as a part of it.
  """
  numbers = {
    CLIENTS: _derived(users),
    MEAN: printed(mean, within=error),
    STD: printed(std, within=max(0.05, 2 * error)),
    **({ALL: printed(total)} if total else {}),
  }
  return Set(task, numbers, {'min_examples': 1})


_TURBOSVM = Statistics(
  # Sizes are normal and cut at 1; classes are drawn from the shares of NIST's set.
  Set(
    'glyphs-femnist',
    {
      CLIENTS: exactly(3_195),
      CLASSES: exactly(62),
      MEAN: between(222, 232),
      STD: between(84, 93),
      HELD: between(50, 60),
      EMD: between(0.33, 0.45),
    },
  ),
  (
    _leaf('femnist', '3,195', '805,263', '226.8', '88.9', 0.02),
    _leaf('celeba', '8,408', '200,288', '21.4', '7.6', 0.012),
    _leaf('shakespeare', '1,016', '', '3,743.2', '6,212.3', 0.15),
  ),
)
_USERS = Statistics(
  # Few clients of many classes, 1.6 examples a class.
  Set(
    'glyphs',
    {
      CLIENTS: exactly(9_275),
      CLASSES: exactly(1_203),
      MEAN: between(12.3, 13.7),
      HELD: between(7.5, 8.5),
      MOST_HELD: between(180, 200),
      EMD: between(1.6, 1.99),
    },
    {
      'num_clients': 9_275,
      'num_classes': 1_203,
      'classes_per_client': 8,
      'classes_least': 1,
      'classes_most': 200,
      'examples_per_client': 13,
    },
  ),
  (
    Set(
      'inaturalist-user-120k',
      {
        CLIENTS: printed('9,275'),
        EXAMPLES: printed('120,300'),
        CLASSES: printed('1,203'),
        TEST: printed('35,641', origin="by TFF's text"),
        EMD: printed('1.83', 0.01, 'from memory'),
      },
    ),
    *(
      Set(f'inaturalist-geo-{size}', {CLIENTS: number})
      for size, number in (
        ('30k', printed('11')),
        *(
          (size, _derived(clients))
          for size, clients in (
            *(('10k', '38'), ('3k', '135'), ('1k', '368')),
            ('300', '1,208'),
          )
        ),
        ('100', printed('3,606')),
      )
    ),
  ),
  'clients',
)
_PHOTOGRAPHERS = Statistics(
  # Classes from 21 to 399 a client, 90 on the mean, of 2,028; the share of all
  # examples that are of a client's own classes is 5 to 10 %.
  Set(
    'glyphs-landmarks',
    {
      CLIENTS: exactly(1_262),
      CLASSES: exactly(2_028),
      TEST: exactly(19_526),
      MEAN: between(125, 137),
      HELD: between(87, 93),
      MOST_HELD: between(380, 399),
      EMD: between(1.75, 1.95),
    },
  ),
  (
    Set(
      'landmarks-user-160k',
      {
        CLIENTS: printed('1,262'),
        EXAMPLES: printed('164,172'),
        CLASSES: printed('2,028'),
        TEST: printed('19,526'),
        MEAN: printed('130.1'),
        HELD: printed('90', 0.006),
        MOST_HELD: printed('399'),
        EMD: printed('1.94', 0.01, 'from memory'),
      },
    ),
  ),
  'labels',
)

STATISTICS: Mapping[str, Statistics] = {
  'fedaws/table2': _FEDAWS,
  'turbosvm-fl/table1': _TURBOSVM,
  'turbosvm-fl/fig3': _TURBOSVM._replace(picture='sizes'),
  'fedmlh/table1': _FEDMLH,
  'fedvc/fig2': _USERS,
  'fedvc/fig3': _PHOTOGRAPHERS,
}


def name(task: str, statistic: str) -> str:
  """Returns the study's name of a value."""
  return f'{task}: {statistic}'


def _expected(each: Set) -> tuple[result.Expected, ...]:
  return tuple(
    result.Expected('', name(each.task, statistic), number.least, number.most)
    for statistic, number in each.numbers.items()
  )


def study(
  paper: str, source: str, number: str, caption: str, notes: str = ''
) -> result.Study:
  """Returns the result of these names; `STATISTICS` has its numbers."""
  found = STATISTICS[
    result.Diagram(paper=paper, number=number, source='', caption='').name
  ]
  tasks = [each.task for each in found.sets]
  return result.Study(
    paper=paper,
    number=number,
    source=source,
    caption=caption,
    notes=notes,
    module='data_statistics',
    small=f'Procedural data: task {found.small.task}',
    expected=_expected(found.small),
    published=tuple(e for each in found.sets for e in _expected(each)),
    needs=f'the data of {", ".join(tasks)}; of one with --task',
  )
