"""Names of published results.

top1                 a score at the end, or at the best round
top1@rounds:1000     a score at a budget of `tff_xc.measure.targets`: rounds, batches, bytes
top1:0.7             rounds to a target of `tff_xc.measure.targets`
relative_top1:0.1    rounds to a fraction of the score of the row that
                     `table.PaperTable.relative_to` names
best_round           the round with the best score, from a run's summary
seconds              median seconds of a round
bytes_down           bytes sent to all clients until the best round
volatility_top1      standard deviation of a score over the last tenth of a run's evaluations;
                     volatility_top1@rounds:9 uses only evaluations within that budget
support_vectors      a metric of the last round, like all other names
best_seed_top1       the score of the best seed, shown beside the mean of all seeds
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
    'round with the best score of --best_by',
    unit='rounds',
    better='lower',
  ),
  SENT: catalog.Metric(
    'sent down', 'bytes sent to clients until the best round', unit='bytes', better='lower'
  ),
}


class Parts(NamedTuple):
  """The parsed name of a result."""

  metric: str
  budget: targets.Budget | None = None  # When a score is taken; None: at the end.
  target: targets.Target | None = None  # The score to which rounds are counted.
  relative: float | None = None  # Rounds are counted to this fraction of another row's score.
  is_volatility: bool = False  # Whether the result is a standard deviation over evaluations.

  @property
  def is_rounds(self) -> bool:
    """Whether the result is a number of rounds to a score, which a run may not reach."""
    return self.target is not None or self.relative is not None

  @property
  def is_percent(self) -> bool:
    """Whether the result is in percent, not a plain number."""
    return not self.is_rounds and _METRICS[self.metric].unit == 'fraction'

  @property
  def is_cost(self) -> bool:
    """Whether less is better, as for rounds to a score and for a loss."""
    is_less = self.is_rounds or self.is_volatility
    return is_less or _METRICS[self.metric].better == 'lower'


def parse(name: str) -> Parts:
  """Returns the parts of a result's name; raises `errors.InputError` if it is unknown."""
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
  """Returns ' %' for results that are printed in percent, '' for numbers."""
  return ' %' if parse(name).is_percent else ''


def digits(name: str) -> int:
  """Returns the number of decimals to print: 2 for a loss, 1 for all others."""
  return 2 if _METRICS[parse(name).metric].unit == 'loss' else 1
