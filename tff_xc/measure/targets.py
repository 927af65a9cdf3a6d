"""Targets of a run: how many rounds until a score reaches a value.

A target is written METRIC:VALUE, such as 'top1:0.7'; several are separated by
commas. Importing this imports neither TensorFlow nor NumPy.
"""

import math
from collections.abc import Collection
from typing import TYPE_CHECKING
from typing import NamedTuple

from tff_xc import errors
from tff_xc.measure import catalog

if TYPE_CHECKING:
  import pandas as pd


class Target(NamedTuple):
  """A value of a metric."""

  metric: str  # Its name in `catalog.SCORES`.
  # A fraction, or a distance; at least this, or at most this for metrics of
  # which less is better.
  value: float

  @property
  def name(self) -> str:
    """The target as it is written: 'top1:0.7'."""
    return f'{self.metric}:{self.value:.12g}'

  @property
  def heading(self) -> str:
    """The target in a table: 'rounds to top-1 70 %'."""
    metric = catalog.SCORES[self.metric]
    value = f'{self.value:.12g}'
    if metric.unit == 'fraction':
      value = f'{100 * self.value:.10g} %'
    return f'rounds to {metric.heading} {value}'

  def first_round(self, metrics: 'pd.DataFrame') -> int | None:
    """Returns the first round of metrics.csv that reaches the target, or None."""
    scores = metrics[self.metric]  # nan, where not evaluated, reaches nothing.
    lower = catalog.SCORES[self.metric].better == 'lower'
    reached = scores <= self.value if lower else scores >= self.value
    found = metrics['round'][reached]
    return int(found.iloc[0]) if len(found) else None


def parse(
  text: str, measured: Collection[str] | None = None
) -> tuple[Target, ...]:
  """Returns the targets of a text such as 'top1:0.7,mcc:0.5', each once.

  Args:
    text: may be empty.
    measured: names of the metrics that may occur; None: all scores.

  Raises:
    errors.InputError: the text is malformed, or a metric or its value is not
      possible.
  """
  parts = text.split(',') if text.strip() else []
  found = [parse_one(part.strip(), measured) for part in parts]
  return tuple(dict.fromkeys(found))


def parse_one(text: str, measured: Collection[str] | None = None) -> Target:
  """As `parse`, of exactly one target."""
  metric, colon, number = text.rpartition(':')
  try:
    value = float(number)
  except ValueError:
    value = math.nan
  if not colon or not math.isfinite(value):
    raise errors.InputError(
      f'the target {text!r} is not of the form METRIC:VALUE, such as top1:0.7'
    )
  if metric not in catalog.SCORES:
    known = ', '.join(measured or catalog.SCORES)
    raise errors.InputError(
      f'the target {text!r} names no metric; there are {known}'
    )
  if measured is not None and metric not in measured:
    raise errors.InputError(
      f'the target {text!r} is of a metric that is not measured here; measured'
      f' are {", ".join(measured)}'
    )
  if catalog.SCORES[metric].unit == 'fraction' and abs(value) > 1:
    raise errors.InputError(
      f'the target {text!r} is {"above 1" if value > 0 else "below -1"}; write a'
      ' fraction, such as'
      f' {metric}:{value / 100:.12g} for {value:.12g} %'
    )
  return Target(metric, value)
