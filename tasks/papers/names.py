"""Names of published results.

top1                 a score at the end, or at the best round
top1@rounds:1000     a score at a budget of `tff_xc.measure.targets`: rounds, batches, bytes
top1:0.7             rounds to a target of `tff_xc.measure.targets`
relative_top1:0.1    rounds to a part of the score of the row that
                     `table.PaperTable.relative_to` names
best_round           the round with the best score, of a run's summary
seconds              of a round, the median
bytes_down           that all clients were sent until the best round
volatility_top1      standard deviation of a score over the last tenth of a run's
                     evaluations, or of those within a budget, volatility_top1@rounds:9
others               metrics of the last round, such as support_vectors
best_seed_top1       of another result, the best seed's beside the mean
"""

from collections.abc import Mapping
from typing import NamedTuple

from tff_xc import errors
from tff_xc.measure import catalog, targets

BEST_ROUND, SECONDS, SENT = 'best_round', 'seconds', 'bytes_down'
BEST_SEED = 'best_seed_'
_RELATIVE = 'relative_'
_VOLATILITY = 'volatility_'
_METRICS: Mapping[str, catalog.Metric] = {
  **catalog.METRICS,
  BEST_ROUND: catalog.Metric(
    'best round',
    'round with the best score of those that --best_by names',
    unit='rounds',
    better='lower',
  ),
  SENT: catalog.Metric(
    'sent down', 'what clients were sent until then', unit='bytes', better='lower'
  ),
}


class Parts(NamedTuple):
  """A result's name in parts."""

  metric: str
  budget: targets.Budget | None = None  # At which a score is taken, or the end.
  target: targets.Target | None = None  # To which rounds are counted.
  relative: float | None = None  # Part of another row's score, likewise.
  is_volatility: bool = False  # Its deviation over the last evaluations.

  @property
  def is_rounds(self) -> bool:
    """Whether these are rounds to a score, which a run may not reach."""
    return self.target is not None or self.relative is not None

  @property
  def is_percent(self) -> bool:
    """Whether the result is in percent; others are numbers."""
    return not self.is_rounds and _METRICS[self.metric].unit == 'fraction'

  @property
  def is_cost(self) -> bool:
    """Whether less is better, as of rounds to a score and of a loss."""
    is_less = self.is_rounds or self.is_volatility
    return is_less or _METRICS[self.metric].better == 'lower'


def parse(name: str) -> Parts:
  """Returns the parts of a result's name; `errors.InputError` if there is no such result."""
  if name.startswith(_VOLATILITY):
    found = parse(name.removeprefix(_VOLATILITY))
    return found._replace(is_volatility=True)
  score, _, budget = name.rpartition('@')
  if score in catalog.SCORES:
    [found] = targets.parse_budgets(budget)
    return Parts(score, budget=found)
  if name.startswith(_RELATIVE):
    score, _, part = name.removeprefix(_RELATIVE).partition(':')
    return Parts(score, relative=float(part))
  if ':' in name:
    target = targets.parse_one(name)
    return Parts(target.metric, target=target)
  if name not in _METRICS:
    raise errors.InputError(f'there is no result {name!r}')
  return Parts(name)


def heading(name: str) -> str:
  """Returns the heading of a result: 'top-1', 'rounds to top-1 70 %'."""
  found = parse(name)
  metric = _METRICS[found.metric].heading
  if found.is_volatility:
    metric = f'volatility of {metric}'
  if found.target:
    return found.target.heading
  if found.relative is not None:
    return f'rounds to relative {metric} {100 * found.relative:.10g} %'
  return f'{metric} {found.budget.heading}' if found.budget else metric


def unit(name: str) -> str:
  """Returns ' %' for scores that are printed in percent, '' for numbers."""
  return ' %' if parse(name).is_percent else ''


def digits(name: str) -> int:
  """Returns the decimals that people read: 2 of a loss, 1 of all others."""
  return 2 if _METRICS[parse(name).metric].unit == 'loss' else 1
