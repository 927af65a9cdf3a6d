"""Whether measured values are the published ones, or at least in their order."""

import itertools
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from launch.reproduction import outcome as outcome_lib
from tasks.papers import names
from tasks.papers import table as table_lib

# The band of a published value has this half width where the paper's standard
# deviation, or ours, is smaller: percent points, and a share of rounds and counts.
_POINTS = 2.0
_SHARE = 0.1
MEANING = (
  'A measured value is in the band of a published one if they differ by at most'
  f' {_POINTS:g} percent points (numbers of rounds: by {100 * _SHARE:g} %), or by'
  ' two standard deviations of either, where that is more.'
)


class Pair(NamedTuple):
  """A published value and a measured one.

  Attributes:
    task: of the row.
    metric: the result's name, see `tasks.papers.names`.
    published: as printed.
    mean: measured, in the paper's unit; infinite for rounds to a target that a
      seed did not reach.
    std: over seeds; None with one.
    least: the least that the mean may be; less than it where a seed did not reach
      the target in its rounds, and may have in the next.
  """

  task: str
  metric: str
  published: table_lib.Published
  mean: float
  std: float | None
  least: float

  @property
  def is_rounds(self) -> bool:
    """Whether these are rounds to a target, of which only evaluations tell."""
    parts = names.parse(self.metric)
    return parts.target is not None or parts.relative is not None

  @property
  def published_half_width(self) -> float:
    """Half the band of the published value, whatever was measured."""
    is_percent = names.parse(self.metric).is_percent
    least = _POINTS if is_percent else _SHARE * self.published.mean
    return max(least, 2 * (self.published.std or 0))

  @property
  def half_width(self) -> float:
    """Half the band in which a measured value counts as the published one."""
    return max(self.published_half_width, 2 * (self.std or 0))

  @property
  def in_band(self) -> bool | None:
    """Whether the measured value is the published one; None: it cannot tell."""
    if self.published.is_bound:
      return _is_above(self, self.published.mean)
    if self.least < self.mean:
      is_above = _is_above(self, self.published.mean + self.half_width)
      return False if is_above else None
    return abs(self.mean - self.published.mean) <= self.half_width

  @property
  def difference(self) -> str:
    """Returns the difference for people: '+1.2', '-9.0 *', '*' out of the band."""
    mark = ' *' if self.in_band is False else ''
    if self.published.is_bound or not math.isfinite(self.mean):
      return mark.strip() or '–'
    # No '-0.0'.
    apart = round(self.mean - self.published.mean, 1) + 0.0
    return f'{apart:+.1f}{mark}'


def _is_above(pair: Pair, value: float) -> bool | None:
  """Returns whether a mean is above a value; None: it may be above or below."""
  if pair.least > value:
    return True
  return None if pair.mean > value else False


class Order(NamedTuple):
  """Pairs of rows whose published values have an order.

  Two values have one if they are further apart than the wider of their published
  bands. A bound has one only with a number below it: '>20000' is later than 9005, and
  may be sooner than 39236 or '>50000'.

  Attributes:
    total: how many pairs.
    kept: how many of these are in that order.
    unknown: how many cannot tell: both runs reached the target at the same
      evaluated round, or those that did not may have needed more rounds or fewer.
  """

  total: int
  kept: int
  unknown: int

  @property
  def broken(self) -> int:
    """How many are in the other order."""
    return self.total - self.kept - self.unknown

  def __str__(self) -> str:
    if not self.total:
      return 'no two of them have a published order'
    told = f'{self.kept} of {self.total} pairs are in the published order'
    return told + (f', {self.unknown} cannot tell' if self.unknown else '')


def judged(
  pairs: Sequence[Pair], missing: int, unprinted: int = 0
) -> tuple[outcome_lib.Verdict, str]:
  """Returns the verdict on an experiment at the paper's size, and why.

  Args:
    pairs: all values that were measured.
    missing: how many published values were not.
    unprinted: how many results have no published number. They are then not all
      reproduced, but their shape may be as far as there are numbers.
  """
  verdicts = outcome_lib.Verdict
  rest = f'; {missing} were not measured' if missing else ''
  if not pairs:
    return verdicts.NOT_RUN, 'no published value was measured'
  in_bands = [pair.in_band for pair in pairs]
  inside, unknown = in_bands.count(True), in_bands.count(None)
  told = f'{inside} of {len(pairs)} values are in the band'
  told += (f', {unknown} cannot tell' if unknown else '') + rest
  told += f'; {unprinted} have no published number' if unprinted else ''
  found = order(pairs)
  # Seeds that differ widen a band: values in it may still be in another order.
  is_all = inside == len(pairs) and not missing and not unprinted
  if is_all and not found.broken:
    return verdicts.REPRODUCED, told
  told += f'; {found}'
  if found.broken:
    return verdicts.NOT, told
  # These may still be in the band, or in the order.
  if missing or found.unknown:
    return verdicts.NOT_RUN, told
  if found.total:
    return verdicts.SHAPE, told
  # Without an order, more rounds or numbers decide, or a value that is out.
  return (verdicts.NOT if False in in_bands else verdicts.NOT_RUN), told


def order(pairs: Sequence[Pair]) -> Order:
  """Returns how many pairs of rows of one task and metric are in published order."""
  groups: Mapping[tuple[str, str], list[Pair]] = {}
  for pair in pairs:
    groups.setdefault((pair.task, pair.metric), []).append(pair)
  kept = total = unknown = 0
  for group in groups.values():
    for two in itertools.combinations(group, 2):
      low, high = sorted(two, key=lambda pair: pair.published.mean)
      apart = high.published.mean - low.published.mean
      band = max(low.published_half_width, high.published_half_width)
      if apart <= band or low.published.is_bound:
        continue
      total += 1
      is_later = high.least > low.mean
      kept += is_later
      # Equal scores are in no order.
      unknown += high.is_rounds and not is_later and high.mean >= low.least
  return Order(total, kept, unknown)
