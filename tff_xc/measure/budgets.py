"""The score of a run at a round, or after a number of local batches.

Hsu, Qi and Brown (arXiv:2003.08082, section 6) compare runs at rounds and at
batches: every round costs the time of the client that takes the most minibatches,
so that a run's time until round t is the sum of these numbers.

A budget is written UNIT:NUMBER, such as 'batches:10000'; several are separated by
commas. Importing this imports neither TensorFlow nor NumPy.
"""

from typing import TYPE_CHECKING
from typing import NamedTuple

from tff_xc import errors

if TYPE_CHECKING:
  import pandas as pd

UNITS = ('rounds', 'batches')


def spent(metrics: 'pd.DataFrame', unit: str) -> 'pd.Series | None':
  """Returns what was spent until the end of every round, of a run's metrics.csv.

  None if the run did not count it, as earlier versions did not count batches.
  """
  if unit == 'rounds':
    return metrics['round']
  if 'local_batches' not in metrics:
    return None
  return metrics['local_batches'].fillna(0).cumsum()


class Budget(NamedTuple):
  """A number of rounds or of local batches."""

  unit: str
  number: int

  @property
  def name(self) -> str:
    """The budget as it is written: 'batches:10000'."""
    return f'{self.unit}:{self.number}'

  @property
  def heading(self) -> str:
    """The budget in a table: 'at 10,000 batches'."""
    return f'at {self.number:,} {self.unit}'

  def score(self, metrics: 'pd.DataFrame', name: str) -> float | None:
    """Returns a score of the last evaluated round within the budget.

    None if the run ended before it, or was not evaluated within it.
    """
    until = spent(metrics, self.unit)
    if name not in metrics or until is None or until.iloc[-1] < self.number:
      return None
    scores = metrics[name][until <= self.number].dropna()
    return float(scores.iloc[-1]) if len(scores) else None


def parse(text: str) -> tuple[Budget, ...]:
  """Returns the budgets of a text such as 'rounds:1000,batches:10000', each once.

  Raises:
    errors.InputError: the text is malformed.
  """
  found = []
  for part in text.split(',') if text.strip() else ():
    unit, _, number = part.strip().partition(':')
    # int() may refuse longer numbers.
    small = number.isdecimal() and len(number) < 20
    if unit not in UNITS or not (small and int(number)):
      raise errors.InputError(
        f'the budget {part.strip()[:40]!r} is not of the form rounds:1000 or'
        ' batches:10000'
      )
    found.append(Budget(unit, int(number)))
  return tuple(dict.fromkeys(found))
