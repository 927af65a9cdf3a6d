"""The best round of a run by one score, and when to stop waiting for a better.

Importing this imports neither TensorFlow nor pandas.
"""

import math
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

from tff_xc import errors
from tff_xc.measure import catalog

if TYPE_CHECKING:
  import pandas as pd


class Choice(NamedTuple):
  """Chooses the round with the best value of a score, the first of equals.

  Attributes:
    metric: a name in `catalog.SCORES`; '': no round is chosen.
    stop_after: evaluations without a better value after which a run stops; 0: it
      does not.
  """

  metric: str = ''
  stop_after: int = 0

  def waited(self, rows: Iterable[Mapping[str, float]]) -> int:
    """Returns the number of evaluations since the best of these rows."""
    best, waited = math.nan, 0
    for row in rows:
      value = row.get(self.metric, math.nan)
      if math.isnan(value):
        continue  # Not evaluated.
      waited += 1
      if math.isnan(best) or self._is_better(value, best):
        best, waited = value, 0
    return waited

  def stops(self, rows: Iterable[Mapping[str, float]]) -> bool:
    """Whether a run with these rows of metrics.csv stops."""
    return bool(self.stop_after) and self.waited(rows) >= self.stop_after

  def summary(
    self, table: 'pd.DataFrame', metrics: Iterable[str]
  ) -> dict[str, Any] | None:
    """Returns the best round, its scores and the bytes up to it, or None.

    'bytes_down' and 'bytes_up' are sums over clients and rounds.

    Args:
      table: a run's metrics.csv.
      metrics: names of the scores.
    """
    values = table[self.metric] if self.metric else []
    if not self.metric or values.isna().all():
      return None
    lower = catalog.SCORES[self.metric].better == 'lower'
    row = table.loc[values.idxmin() if lower else values.idxmax()]
    upto = table[table['round'] <= row['round']]
    return {
      'by': self.metric,
      'round': int(row['round']),
      **{name: float(row[name]) for name in metrics},
      **{
        f'bytes_{way}': float(
          (upto[f'bytes_{way}_per_client'] * upto['clients']).sum()
        )
        for way in ('down', 'up')
      },
    }

  def _is_better(self, value: float, best: float) -> bool:
    lower = catalog.SCORES[self.metric].better == 'lower'
    return value < best if lower else value > best


NO_CHOICE = Choice()


def check(best_by: str, stop_after: int, measured: Collection[str]) -> None:
  """Raises `errors.InputError` for flags that do not go together.

  Args:
    best_by: a metric, or ''.
    stop_after: see `Choice`.
    measured: names of the metrics that there are.
  """
  if best_by and best_by not in measured:
    raise errors.InputError(
      f'--best_by={best_by}: expected a score of this task:'
      f' {", ".join(measured)}'
    )
  if stop_after and not best_by:
    raise errors.InputError('--stop_after needs --best_by, a score to improve')
