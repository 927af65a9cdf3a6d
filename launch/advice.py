"""Rules that recommend an algorithm to start with, and the measurements behind them.

`launch.plan` applies `RULES`, and `docs/choosing.md` shows them as a table. A setting in
`MEASURED` is evidence for the first rule that applies to it.
`tests/launch/test_advice.py` compares every rule with its evidence in `docs/results`.
"""

import csv
import functools
import math
import pathlib
from collections.abc import Callable
from typing import NamedTuple

from tff_xc import wording
from tff_xc.algorithms import registry as algorithms
from tff_xc.measure import catalog

RESULTS = pathlib.Path(__file__).resolve().parents[1] / 'docs' / 'results'
# The smallest and the largest number of rounds in which a client should participate, on average.
VISITS = 5, 10
# A measured setting is similar to a planned run if no size differs by more than this factor.
NEAR = 4.0


class Facts(NamedTuple):
  """Facts about a run that are known before it starts."""

  num_classes: int
  clients: int
  classes_per_client: float  # The mean number of classes of a client.
  table_share: float  # The class table's share of the model's weights.
  visits: float  # The mean number of rounds in which a client participates.
  fits_all: bool = True  # Whether a client can receive and send all class rows.
  label_sets: bool = False
  is_items: bool = False

  def distance(self, other: 'Facts') -> float:
    """Returns the largest factor between two sizes of the runs, at least 1.

    The sizes are the numbers of classes, of clients, and of classes per client.
    """
    return max(max(a / b, b / a) for a, b in zip(self[:3], other[:3], strict=True))


class Measured(NamedTuple):
  """A setting in which we compared algorithms, and the file that has their scores."""

  name: str
  facts: Facts
  page: str  # A page in docs.
  file: str  # A file in `RESULTS`.
  column: str = 'top1'
  # The largest number of bytes that a client may receive in a round. Algorithms that send more are
  # ignored.
  most_bytes: float = math.inf

  def scores(self) -> dict[str, tuple[float, float]]:
    """Returns the mean score in percent and its standard deviation, by federated algorithm.

    If an algorithm has several rows in the file, the row with the highest score counts. The
    result is empty if the file is missing, as in an installed package.
    """
    found: dict[str, tuple[float, float]] = {}
    for row in _rows(self.file):
      if 'setting' in row:  # `measured/methods.csv` has rows of six settings.
        name, down = row['method'], 1e6 * float(row['MB to a client'] or 0)
        mean, std, scale = row['top1 %, rounds'], row['std, rounds'], 1
        if row['setting'] != self.name.partition(' ')[0]:
          continue
      else:
        name, down = row['algorithm'].split()[0], float(row['bytes_down_mean'])
        mean, std = row[f'{self.column}_mean'], row.get(f'{self.column}_std')
        scale = 100
      if down <= self.most_bytes and algorithms.get(name).has_clients:
        score = scale * float(mean), scale * float(std or 0)
        found[name] = max(score, found.get(name, score))
    return found

  def sentence(self, name: str) -> str:
    """Returns a sentence with the setting, the score of the algorithm, and the highest score."""
    scores, of = self.scores(), self.facts
    best, (mean, std) = max(scores, key=scores.get), scores[name]
    rank = f'; {best} scores {scores[best][0]:.1f} %, the highest'
    if name == best:
      rank = f', the highest of {wording.count(len(scores), "algorithm")}'
    if len(scores) == 1:
      rank = '; others were not run'
    metric = catalog.METRICS[self.column.removeprefix('best.')].heading
    deviation = f' ± {std:.1f}' if std else ''
    return (
      f'{self.name} ({of.num_classes:,} classes, {of.clients:,} clients with'
      f' {of.classes_per_client:,} classes each, {of.visits:g} visits): {name} scores'
      f' {mean:.1f}{deviation} % {metric}{rank}'
    )


@functools.cache
def _rows(file: str) -> list[dict[str, str]]:
  try:
    with open(RESULTS / file, newline='', encoding='utf-8') as opened:
      return list(csv.DictReader(opened))
  except FileNotFoundError:
    return []


class Rule(NamedTuple):
  """A condition, and the algorithms that we recommend if it is true, the best one first."""

  when: str  # The condition in words.
  applies: Callable[[Facts], bool]
  use: tuple[str, ...]
  why: str  # The reason for the recommendation, as a sentence.
  avoid: str = ''  # Algorithms to avoid. Only docs/choosing.md shows them.


# The first rule that applies is used.
RULES = (
  Rule(
    'examples are the item lists of users',
    lambda f: f.is_items,
    ('fedss', 'fullsoftmax'),
    'On item lists, FedSS scores as high as FullSoftmax with a quarter of the bytes.',
  ),
  Rule(
    'an example has several labels, out of at least 2,000 classes',
    lambda f: f.label_sets and f.num_classes >= 2000,
    ('fedmlh',),
    'With about 4,000 labels, hashed tables learn rare labels better than a full class table'
    ' and send less.',
  ),
  Rule(
    'an example has several labels, out of fewer than 2,000 classes',
    lambda f: f.label_sets,
    ('fedavg',),
    'With up to 1,000 labels, hashed tables score no higher than a full class table and send more.',
    '`fedmlh`',
  ),
  Rule(
    'a client has a single class',
    lambda f: f.classes_per_client < 1.5,
    ('fedaws',),
    'A client with one class cannot push other classes away, so the server does.',
    '`posonly`, `fedaws_baseline1`',
  ),
  Rule(
    'a client has at least half of all classes',
    lambda f: f.classes_per_client >= f.num_classes / 2 and f.fits_all,
    ('fedavgm',),
    'When clients have most classes, all class rows and server momentum score highest, or less'
    ' than a point below.',
    'methods that request only some rows, which save nothing here',
  ),
  Rule(
    f'you can run fewer than {VISITS[0]} rounds per client',
    lambda f: f.visits < VISITS[0],
    ('fedproto', 'fedvc'),
    'Prototypes need only a few rounds. Methods that train class rows overtake them later.',
    '`fedss`, `fedadam`, `posonly`, `negonly`, `fedlc`',
  ),
  Rule(
    'a client cannot receive or send all class rows in a round',
    lambda f: not f.fits_all,
    ('fedss',),
    'After many rounds, FedSS scores highest among the methods that request only some rows.'
    ' More negatives score higher.',
    '`negonly`, `posonly`',
  ),
  Rule(
    'the class table is less than a fifth of the model',
    lambda f: f.table_share < 0.2,
    ('fedadam', 'fedavgm'),
    'Selecting rows of a small class table saves little. Server Adam or momentum scores highest.',
    '`posonly`, `fedlc`, `fedrs`',
  ),
  Rule(
    'the class table is a fifth of the model or more',
    lambda f: True,
    ('fedadam',),
    'After many rounds, all class rows with server Adam score highest.',
    '`fedavg`, `fedavgm`, `negonly`',
  ),
)

_METHODS = 'measured/methods.csv'
_FOOTING = 'choosing.md#all-methods-on-one-footing'
_LONGER = 'choosing.md#longer-runs'
_OMNIGLOT = Facts(964, 480, 32, 0.57, 3.3)
_LANDMARKS = Facts(2028, 1262, 90, 0.74, 0.63)
MEASURED = (
  Measured('within', Facts(60, 100, 9, 0.077, 6), _FOOTING, _METHODS),
  Measured('sizes', Facts(60, 100, 34, 0.077, 6), _FOOTING, _METHODS),
  Measured('few', Facts(60, 100, 3, 0.077, 6), _FOOTING, _METHODS),
  Measured('cifar10', Facts(10, 100, 3, 0.001, 2), _FOOTING, _METHODS),
  Measured('omniglot', _OMNIGLOT, _FOOTING, _METHODS),
  Measured('landmarks', _LANDMARKS, _FOOTING, _METHODS),
  # Settings in which a client cannot receive all rows.
  Measured(
    'omniglot within 300 kB a round',
    _OMNIGLOT._replace(fits_all=False),
    _FOOTING,
    _METHODS,
    most_bytes=3e5,
  ),
  Measured(
    'landmarks within 500 kB a round',
    _LANDMARKS._replace(fits_all=False),
    _FOOTING,
    _METHODS,
    most_bytes=5e5,
  ),
  Measured(
    'landmarks, 1,000 rounds', _LANDMARKS._replace(visits=6.3), _LONGER, 'landmarks-rounds.csv'
  ),
  Measured(
    'omniglot, 400 rounds',
    _OMNIGLOT._replace(visits=6.7),
    'choosing.md#which-server-optimizer',
    'omniglot.csv',
  ),
  Measured(
    'landmarks within 500 kB a round, 1,000 rounds',
    _LANDMARKS._replace(visits=6.3, fits_all=False),
    _LONGER,
    'landmarks-rounds.csv',
    most_bytes=5e5,
  ),
  Measured(
    'features within 5 MB a round, 1,875 rounds',
    Facts(50_000, 3000, 20, 0.62, 10, fits_all=False),
    'choosing.md#plan-a-run',
    'features-50000.csv',
    'client_top1_mean',
  ),
  Measured(
    'omniglot within 300 kB a round, 300 rounds',
    _OMNIGLOT._replace(visits=20, fits_all=False),
    'choosing.md#how-many-negatives',
    'omniglot-negatives.csv',
    most_bytes=3e5,
  ),
  Measured(
    'glyphs-femnist',
    Facts(62, 3195, 54, 0.019, 0.25),
    'turbosvm.md#glyphs-femnist',
    'glyphs-femnist.csv',
  ),
  Measured(
    'cifar10, one class a client', Facts(10, 10, 1, 0.001, 500), 'fedaws.md#cifar-10', 'cifar10.csv'
  ),
  Measured(
    'delicious, one class a client',
    Facts(983, 946, 1, 0.39, 54),
    'fedaws.md#bibtex-and-delicious',
    'delicious.csv',
    'p@1',
  ),
  Measured(
    'bibtex, one class a client',
    Facts(159, 159, 1, 0.053, 161),
    'fedaws.md#bibtex-and-delicious',
    'bibtex.csv',
    'p@1',
  ),
  Measured(
    'sparse-words-eurlex-sets',
    Facts(3993, 10, 2600, 0.9, 28, label_sets=True),
    'fedmlh.md#results',
    'sparse-words-eurlex-sets.csv',
    'best.pc@1',
  ),
  Measured(
    'delicious-sets',
    Facts(983, 10, 831, 0.6, 28, label_sets=True),
    'fedmlh.md#results',
    'delicious-sets.csv',
    'best.pc@1',
  ),
  Measured(
    'bibtex-sets',
    Facts(159, 10, 142, 0.26, 28, label_sets=True),
    'fedmlh.md#results',
    'bibtex-sets.csv',
    'best.pc@1',
  ),
  Measured(
    'items-demo',
    Facts(1682, 943, 49, 0.43, 6.8, is_items=True),
    'items.md',
    'items-demo.csv',
    'best.ndcg@10',
  ),
)


def rule_for(facts: Facts) -> Rule:
  """Returns the first rule that applies."""
  return next(rule for rule in RULES if rule.applies(facts))


def evidence(facts: Facts, name: str = '') -> Measured | None:
  """Returns the measured setting that is most similar to the facts of a run.

  The function considers only settings with the same kind of labels. If `name` is given, the
  setting must also have a score of this algorithm. Settings with sizes within a factor of `NEAR`
  have priority, and then settings with the same rule. Returns None if no setting is left.
  """
  kinds = facts.label_sets, facts.is_items
  known = [m for m in MEASURED if (m.facts.label_sets, m.facts.is_items) == kinds]
  known = [m for m in known if not name or name in m.scores()]
  rule = rule_for(facts)

  def order(measured):
    distance = facts.distance(measured.facts)
    return distance > NEAR, rule_for(measured.facts) is not rule, distance

  return min(known, key=order, default=None)


def table() -> list[list[str]]:
  """Returns the cells of the table of rules in docs/choosing.md, with Markdown links."""
  heading = ['your case', 'start with', 'because', 'avoid', 'measured on']
  lines = [heading, ['---'] * len(heading)]
  for rule in RULES:
    # The table links each page once, under the name of the first data set that refers to it.
    pages: dict[str, str] = {}
    for measured in MEASURED:
      if rule_for(measured.facts) is rule:
        pages.setdefault(measured.page, measured.name.partition(' ')[0].rstrip(','))
    shown = [f'[{name}]({page})' for page, name in pages.items()]
    use = ', then '.join(f'`{name}`' for name in rule.use)
    lines.append([rule.when, use, rule.why, rule.avoid, '; '.join(shown)])
  return lines
