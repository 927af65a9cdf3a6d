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
  """Chooses the round with the best value of a score, the first of equals."""

  metric: str = ''  # A name in `catalog.SCORES`; '': no round is chosen.
  # Evaluations without a better value after which a run stops; 0: it does not.
  stop_after: int = 0

  def waited(self, rows: Iterable[Mapping[str, float]]) -> int:
    """Returns the number of evaluations since the best of these rows."""
    values = [row.get(self.metric, math.nan) for row in rows]
    values = [
      value for value in values if value == value
    ]  # Else not evaluated.
    if not values:
      return 0
    best = min(values) if self._is_lower() else max(values)
    return len(values) - 1 - values.index(best)

  def stops(self, rows: Iterable[Mapping[str, float]]) -> bool:
    """Whether a run with these rows of metrics.csv stops."""
    return bool(self.stop_after) and self.waited(rows) >= self.stop_after

  def summary(
    self, table: 'pd.DataFrame', metrics: Iterable[str]
  ) -> dict[str, Any] | None:
    """Returns the best round, its scores and the bytes up to it, or None.

    'bytes_down' and 'bytes_up' are sums over clients and rounds of metrics.csv.
    """
    values = table[self.metric] if self.metric else []
    if not self.metric or values.isna().all():
      return None
    row = table.loc[values.idxmin() if self._is_lower() else values.idxmax()]
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

  def _is_lower(self) -> bool:
    return catalog.SCORES[self.metric].better == 'lower'


NO_CHOICE = Choice()


def check(best_by: str, stop_after: int, measured: Collection[str]) -> None:
  """Raises `errors.InputError` for flags that do not go together."""
  if best_by and best_by not in measured:
    raise errors.InputError(
      f'--best_by={best_by}: expected a score of this task:'
      f' {", ".join(measured)}'
    )
  if stop_after and not best_by:
    raise errors.InputError('--stop_after needs --best_by, a score to improve')
