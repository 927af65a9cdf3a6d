"""The forms of a published table or figure, and what is expected of a small one."""

import dataclasses
import math
from typing import NamedTuple

# Cells of formulas: no number is printed; the printed one was computed from rounded
# numbers, and has the digits that these give.
NONE = '–'
OF_ROUNDED = 'of rounded'
# Of small forms that were changed.
REDESIGNED = (
  '; the form was changed after a first measurement, what is expected was not'
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
  """A published table or figure.

  Attributes:
    paper: its short name.
    number: 'Table 1' or 'Fig. 9'.
    source: where to find the paper.
    caption: what it shows.
    notes: doubts about the numbers, and what differs here; sentences.
  """

  paper: str
  number: str
  source: str
  caption: str
  notes: str = ''

  @property
  def name(self) -> str:
    """Its name on a command line, such as 'fedss/table1' or 'fedvc/fig10'."""
    number = self.number.replace(' ', '').replace('.', '')
    return f'{self.paper}/{number}'.lower()

  @property
  def title(self) -> str:
    return f'{self.paper}, {self.number}'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Formula(Result):
  """A table that follows from formulas.

  Attributes:
    heading: of the columns.
    rows: cells; published beside computed, and of each number that the paper prints
      'yes', 'no' or `OF_ROUNDED` below 'equal'.
  """

  heading: tuple[str, ...]
  rows: tuple[tuple[str, ...], ...]

  @property
  def equal(self) -> tuple[str, ...]:
    """Returns the cells below 'equal' of printed numbers; () if none is printed."""
    if 'equal' not in self.heading:
      return ()
    place = self.heading.index('equal')
    return tuple(row[place] for row in self.rows if row[place] != NONE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study(Result):
  """A result with a measurement of its own, neither a formula nor plain runs.

  Attributes:
    module: the module of `launch.reproduction.studies` that measures it.
    expected: what the small one is to show, of the values that the module names.
    published: bands of the published values, for the measurement at the paper's
      size; (): `expected` holds there too.
    small: what the small one measures, in a sentence.
    needs: what the measurement at the paper's size needs, in a sentence; '': it
      is too small to have a size of its own.
  """

  module: str
  small: str
  expected: tuple['Expected', ...] = ()
  published: tuple['Expected', ...] = ()
  needs: str = ''


@dataclasses.dataclass(frozen=True, kw_only=True)
class Diagram(Result):
  """A figure without measurements; there is nothing to reproduce."""


class Expected(NamedTuple):
  """What a result is to show, written down before it was measured.

  Attributes:
    metric: the name of a score or target, as in `table.Row.published`.
    of: the label of a row (`table.labels`), or a study's name of a value.
    least: bound, included: percent, rounds, or in the value's own unit.
    most: bound, included.
    than: the label whose value is subtracted; '': none is.
  """

  metric: str
  of: str
  least: float = -math.inf
  most: float = math.inf
  than: str = ''

  @property
  def bounds(self) -> str:
    """Returns the bounds of a value: 'at least 10', '5 to 7', 'exactly 1,262'."""
    least, most = (f'{v:,.10g}' for v in (self.least, self.most))
    if self.least == self.most:
      return f'exactly {least}'
    if self.most == math.inf:
      return f'at least {least}'
    if self.least == -math.inf:
      return f'at most {most}'
    return f'{least} to {most}'

  def compared(self, unit: str) -> str:
    """Returns where a value is to be, of another: 'at most 3 points below'.

    Args:
      unit: of their difference, with a space before it, or ''.
    """
    apart = lambda v: f'{abs(v):,.10g}{unit} {"below" if v < 0 else "above"}'
    if self.most == math.inf:
      if not self.least:
        return 'not below'
      return f'at {"most" if self.least < 0 else "least"} {apart(self.least)}'
    if self.least == -math.inf:
      if not self.most:
        return 'not above'
      return f'at {"most" if self.most > 0 else "least"} {apart(self.most)}'
    return f'from {apart(self.least)} to {apart(self.most)}'

  def is_reversed(self, difference: float) -> bool:
    """Whether a difference has the other order and still holds.

    An expectation with one bound is of an order, which it may allow to be reversed
    by a little; one with two bounds is of no order.
    """
    if not self.than or not self.holds(difference):
      return False
    above, below = self.most == math.inf, self.least == -math.inf
    return (above and difference < 0) or (below and difference > 0)

  def holds(self, value: float) -> bool:
    """Whether a value, or a difference of two, is within the bounds."""
    return self.least <= value <= self.most
