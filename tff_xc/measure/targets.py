"""Compares runs by targets, by budgets and by their best rounds.

A target METRIC:VALUE, such as 'top1:0.7', asks how many rounds a run needs to reach a score.
A budget UNIT:NUMBER, such as 'batches:10000', asks which score a run has after a number of
rounds, local batches or bytes. Commas separate several targets or budgets.

In each round, a budget of batches counts the minibatches of the client that trains on the
most, because this client determines the time of the round (Hsu, Qi and Brown,
arXiv:2003.08082, section 6). A budget of bytes counts the bytes sent to all clients. Dai et
al. (arXiv:2110.12292, fig. 4) plot scores over bytes. Importing this module imports neither
TensorFlow nor pandas.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tff_xc import errors
from tff_xc.lazy import pd
from tff_xc.measure import catalog

UNITS = ('rounds', 'batches', 'bytes')


class Target(NamedTuple):
  """A value that a metric should reach.

  If lower values of the metric are better, the metric should fall to this value.
  """

  metric: str  # The metric's name in `catalog.SCORES`.
  value: float  # A fraction, or a distance.

  @property
  def name(self) -> str:
    """The target as users write it: 'top1:0.7'."""
    return f'{self.metric}:{self.value:.12g}'

  @property
  def heading(self) -> str:
    """The heading of the target in a table: 'rounds to top-1 70 %'."""
    metric = catalog.SCORES[self.metric]
    value = f'{self.value:.12g}'
    if metric.unit == 'fraction':
      value = f'{100 * self.value:.10g} %'
    return f'rounds to {metric.heading} {value}'

  def first_round(self, metrics: 'pd.DataFrame') -> int | None:
    """Returns the first round of metrics.csv that reaches the target, or None."""
    scores = metrics[self.metric]  # nan for a round without evaluation.
    lower = catalog.SCORES[self.metric].better == 'lower'
    reached = scores <= self.value if lower else scores >= self.value
    found = metrics['round'][reached]
    return int(found.iloc[0]) if len(found) else None


def parse(text: str, measured: Collection[str] | None = None) -> tuple[Target, ...]:
  """Returns the targets of a text such as 'top1:0.7,mcc:0.5', without duplicates.

  Raises `errors.InputError` for a malformed text, or for a metric that is not in `measured`
  (None: any score is allowed).
  """
  parts = text.split(',') if text.strip() else []
  found = [parse_one(part.strip(), measured) for part in parts]
  return tuple(dict.fromkeys(found))


def parse_one(text: str, measured: Collection[str] | None = None) -> Target:
  """Parses a text that consists of exactly one target; see `parse`."""
  metric, colon, number = text.rpartition(':')
  try:
    value = float(number)
  except ValueError:
    value = math.nan
  told = ''
  if not colon or not math.isfinite(value):
    told = 'is not of the form METRIC:VALUE, such as top1:0.7'
  elif metric not in catalog.SCORES:
    told = f'names no metric; there are {", ".join(measured or catalog.SCORES)}'
  elif measured is not None and metric not in measured:
    told = f'is of a metric that is not measured here; measured are {", ".join(measured)}'
  elif catalog.SCORES[metric].unit == 'fraction' and abs(value) > 1:
    told = (
      f'is {"above 1" if value > 0 else "below -1"}; write a fraction, such as'
      f' {metric}:{value / 100:.12g} for {value:.12g} %'
    )
  if told:
    raise errors.InputError(f'the target {text!r} {told}')
  return Target(metric, value)


def spent(metrics: 'pd.DataFrame', unit: str) -> 'pd.Series':
  """Returns the total cost up to the end of each round, in `unit`, from a run's metrics.csv."""
  if unit == 'rounds':
    return metrics['round']
  if unit == 'bytes':
    return _sent(metrics, 'down').fillna(0).cumsum()
  return metrics['local_batches'].fillna(0).cumsum()


def _sent(metrics: 'pd.DataFrame', way: str) -> 'pd.Series':
  """Returns the bytes of all clients in each round; `way` is 'down' or 'up'."""
  return metrics[f'bytes_{way}_per_client'] * metrics['clients']


def volatility(scores: 'pd.Series | None') -> float | None:
  """Returns the sample standard deviation of a score over the last tenth of its evaluations.

  The number of evaluations is rounded up. A value of nan is not an evaluation. Returns None
  if the last tenth has fewer than two evaluations.
  """
  if scores is None:
    return None
  measured = scores.dropna()
  last = measured.tail(math.ceil(len(measured) / 10))
  return float(last.std()) if len(last) > 1 else None


class Budget(NamedTuple):
  """A number of rounds, of local batches, or of bytes sent to all clients."""

  unit: str
  number: int

  @property
  def name(self) -> str:
    """The budget as users write it: 'batches:10000'."""
    return f'{self.unit}:{self.number}'

  @property
  def heading(self) -> str:
    """The heading of the budget in a table: 'at 10,000 batches'."""
    return f'at {self.number:,} {self.unit}'

  def score(self, metrics: 'pd.DataFrame', name: str) -> float | None:
    """Returns the score `name` of the last evaluated round within the budget.

    Returns None if the run did not use up the budget, or if no round within the budget has
    the score.
    """
    scores = self.scores(metrics, name)
    return None if scores is None else float(scores.iloc[-1])

  def scores(self, metrics: 'pd.DataFrame', name: str) -> 'pd.Series | None':
    """Returns all values of the score `name` within the budget; None if `score` returns None."""
    until = spent(metrics, self.unit)
    if name not in metrics or until.iloc[-1] < self.number:
      return None
    scores = metrics[name][until <= self.number].dropna()
    return scores if len(scores) else None


def parse_budgets(text: str) -> tuple[Budget, ...]:
  """Returns the budgets of a text such as 'rounds:1000,batches:10000', without duplicates.

  Raises `errors.InputError` for a malformed text.
  """
  found = []
  for part in text.split(',') if text.strip() else ():
    unit, _, number = part.strip().partition(':')
    # int() may refuse longer numbers.
    small = number.isdecimal() and len(number) < 20
    if unit not in UNITS or not (small and int(number)):
      raise errors.InputError(
        f'the budget {part.strip()[:40]!r} is not of the form rounds:1000,'
        ' batches:10000 or bytes:1000000'
      )
    found.append(Budget(unit, int(number)))
  return tuple(dict.fromkeys(found))


class BestRound(NamedTuple):
  """Selects the round with the best value of a score. If rounds tie, the first one is best."""

  metric: str = ''  # A name in `catalog.SCORES`; '': no round is selected.
  # A run stops after this many evaluations without a better value; 0: no early stop.
  stop_after: int = 0

  def stops(self, rows: Iterable[Mapping[str, float]]) -> bool:
    """Whether a run with these rows of metrics.csv should stop early."""
    values = [row.get(self.metric, math.nan) for row in rows]
    values = [value for value in values if not math.isnan(value)]
    place = self._place(values)
    return self.stop_after > 0 and place is not None and len(values) - 1 - place >= self.stop_after

  def round(self, rows: Sequence[Mapping[str, float]]) -> int | None:
    """Returns the best round among successive rows of metrics.csv, or None."""
    place = self._place([row.get(self.metric, math.nan) for row in rows])
    return None if place is None else int(rows[0].get('round', 0)) + place

  def summary(self, table: 'pd.DataFrame', metrics: Iterable[str]) -> dict[str, Any] | None:
    """Returns the best round, its scores and the bytes up to it, or None.

    'bytes_down' and 'bytes_up' are sums over all clients and over the rounds of metrics.csv.
    """
    place = self._place(table[self.metric]) if self.metric else None
    if place is None:
      return None
    row = table.iloc[place]
    upto = table[table['round'] <= row['round']]
    return {
      'by': self.metric,
      'round': int(row['round']),
      **{name: float(row[name]) for name in metrics},
      **{f'bytes_{way}': float(_sent(upto, way).sum()) for way in ('down', 'up')},
    }

  def _place(self, values: Iterable[float]) -> int | None:
    """Returns the index of the best value; None if all are nan. The first of equal values wins."""
    sign = 1 if not self.metric or catalog.SCORES[self.metric].better == 'lower' else -1
    measured = [(sign * value, i) for i, value in enumerate(values) if not math.isnan(value)]
    return min(measured)[1] if measured else None


NO_BEST = BestRound()


def check_best(best_by: str, stop_after: int, measured: Collection[str]) -> None:
  """Raises `errors.InputError` for an unknown score, or for early stopping without a score."""
  if best_by and best_by not in measured:
    clients = '; with --evaluate_clients, also client scores' * (best_by in catalog.OF_CLIENTS)
    raise errors.InputError(
      f'--best_by={best_by}: expected a score of this task: {", ".join(measured)}{clients}'
    )
  if stop_after and not best_by:
    raise errors.InputError('--early_stopping_patience needs --best_by, a score to improve')
