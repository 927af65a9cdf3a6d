"""Compares measured values of a published table or figure with the paper.

The comparisons are the pairs of rows that the paper's numbers order, and the claims in the
paper's text.
"""

import collections
import dataclasses
import enum
import functools
import itertools
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from launch.reproduction import lines as lines_lib
from tasks import configuration
from tasks.papers import names, table as table_lib
from tff_xc import errors
from tff_xc.options import participation

POINTS = 2.0  # Two scores are equal if they differ by at most this many percentage points.
# Counts, such as rounds, are equal if they differ by at most this share of the published one.
SHARE = 0.1
# If published standard deviations are uncertain, a pair counts as ordered only if the gap is this
# many times as large as usual.
UNSURE = 3
GOOD = 0.9  # A row of a grid is good if it has at least this share of the best score of the grid.
SEEDS = 3  # The order of two rows is undecided with fewer seeds.
AGREES, DISAGREES, UNDECIDED = 'agrees', 'disagrees', 'undecided'
_PLURALS = {AGREES: 'agree', DISAGREES: 'disagree', UNDECIDED: 'undecided'}
# Task options that change the model, but do not change which clients a round samples.
_OF_MODELS = frozenset({'embedding_dim', 'logit_scale', 'depth'})
COSTS = (names.BEST_ROUND, names.SENT, names.SECONDS)
Bounds = tuple[float, float]
Line = lines_lib.Line


class Verdict(str, enum.Enum):
  """The verdict on a result.

  REPRODUCED: every value equals the published one.
  SHAPE: no pair of rows disagrees with the published order, most pairs agree, and all claims
    agree.
  NOT: a pair or a claim disagrees, or a study's value is outside its bounds. At the paper's
    scale, a table without pairs and claims is NOT if a value differs from the published one.
  UNDECIDED: the measurements do not suffice for these verdicts; for example, they have fewer
    than three seeds.
  FORMULA: nothing is trained. The reason for the verdict counts the published numbers that the
    formula gives.
  """

  REPRODUCED = 'reproduced'
  SHAPE = 'shape reproduced'
  NOT = 'not reproduced'
  UNDECIDED = 'undecided'
  NOT_RUN = 'not run'
  FORMULA = 'formula only'
  NOTHING = 'nothing to run'

  # Python 3.10 has no enum.StrEnum.
  __str__ = str.__str__


class Order(NamedTuple):
  """The comparison of two rows.

  `published` and `here` are the published and the measured difference. `told` is AGREES,
  DISAGREES or UNDECIDED. `is_kept` says whether the measured means have the published order, and
  `is_few` whether a row has too few seeds to decide the order.
  """

  says: str
  published: str
  here: str
  told: str
  is_kept: bool
  is_few: bool = False
  # The claim in the paper's words, without its page; '': the comparison is a pair of rows.
  claim: str = ''


class Judged(NamedTuple):
  """A verdict, its reason, and the orders that led to it."""

  verdict: Verdict
  why: str
  orders: tuple[Order, ...] = ()


class Side(NamedTuple):
  """The mean of a row as one side of a comparison."""

  row: str
  metric: str
  mean: float  # nan: not measured.
  error: float  # The standard error of the mean.
  seeds: int
  by_seed: Mapping[int, float]  # {}: unknown, or some values are bounds.
  # With the same seed, rows with equal texts sample the same clients; '': unknown.
  drawn: str = ''
  # Whether the mean is only a lower bound, because a run did not reach a target.
  is_open: bool = False


def judge(measured: lines_lib.Measured) -> Judged:
  """Returns the verdict on the measurements of a result."""
  found, scale = measured.found, measured.scale
  if isinstance(found, table_lib.Diagram):
    return Judged(Verdict.NOTHING, 'it is a diagram')
  if isinstance(found, table_lib.Formula):
    return _of_formula(found)
  if not measured.lines:
    has_form = scale == 'paper' or measured.form.what
    why = 'it has not been measured here' if has_form else f'it has no {scale} form'
    return Judged(Verdict.NOT_RUN, why)
  if not measured.is_measured:
    notes = '; '.join(measured.distinct('note'))
    return Judged(Verdict.NOT_RUN, notes or 'none of its experiments has finished')
  # Lines without a metric only have a note that says what is missing.
  lines = [line for line in measured.lines if line.metric]
  judged = _of_study if isinstance(found, table_lib.Study) else _of_table
  return judged(found, lines, scale)


def finding(judged: Judged) -> str:
  """Returns the first claim of the paper for which all comparisons agree, or ''."""
  others = {''} | {order.claim for order in judged.orders if order.told != AGREES}
  return next((o.claim for o in judged.orders if o.claim not in others), '')


def _of_formula(found: table_lib.Formula) -> Judged:
  heading, *rows = found.cells
  equal = [row[heading.index('equal')] for row in rows]
  values = len(equal) - equal.count(table_lib.NONE)
  why = f'{equal.count("yes")} of {values} values are the published ones'
  if rounded := equal.count('of rounded'):
    why += f', {rounded} those of rounded numbers'
  return Judged(Verdict.FORMULA, why)


def bound_of(found: table_lib.Study, scale: str, line: Line) -> Bounds | None:
  """Returns the published or expected bounds for a line of a study; None if there are none."""
  limits = _limits(found, scale)
  return limits.get(f'{line.task}: {line.row}') or limits.get(line.row)


def _limits(found: table_lib.Study, scale: str) -> Mapping[str, Bounds]:
  return (scale == 'paper' and found.published) or found.expected


def is_within(limits: Bounds, line: Line) -> bool:
  """Whether a study's measured value lies within its bounds."""
  return limits[0] <= line.measured.value <= limits[1]


def _of_study(found: table_lib.Study, lines: Sequence[Line], scale: str) -> Judged:
  limits = _limits(found, scale)
  bounded = [(line, bound_of(found, scale, line)) for line in lines if line.measured]
  holds = [(line.row, is_within(within, line)) for line, within in bounded if within]
  outside = [row for row, is_true in holds if not is_true]
  missing = dict.fromkeys(line.task for line in lines if not line.measured)
  lacks = f'; the data of {", ".join(missing)} are missing' if missing else ''
  is_published = limits is found.published
  what = 'published value' if is_published else 'expected value'
  if outside:
    count = f'{len(outside)} of {len(holds)} {what}s do not hold'
    return Judged(Verdict.NOT, f'{count}: {"; ".join(outside)}{lacks}')
  # A bound is needed if it belongs to no data set, or to a requested data set.
  tasks = {'', *(line.task for line in lines)}
  wanted = {name for name in limits if name.rpartition(': ')[0] in tasks}
  known = {name for line in lines for name in (line.row, f'{line.task}: {line.row}')}
  if not holds or missing or wanted - known:
    why = f'{len(holds)} of {len(wanted)} {what}s were measured{lacks}'
    return Judged(Verdict.NOT_RUN, why)
  verdict = Verdict.REPRODUCED if is_published else Verdict.SHAPE
  why = f'the {what} holds' if len(holds) == 1 else f'all {len(holds)} {what}s hold'
  return Judged(verdict, why)


def main_lines(lines: Sequence[Line]) -> list[Line]:
  """Returns one line for each row and metric. Costs remain only if the paper prints costs."""
  left_out = set(COSTS) - {line.metric for line in lines if line.published}
  kept: dict[tuple[str, str], Line] = {}
  for line in lines:
    if line.metric not in left_out and not line.metric.startswith(names.BEST_SEED):
      kept.setdefault((line.row, line.metric), line)
  return [*kept.values()]


def best_seeds(lines: Iterable[Line]) -> dict[tuple[str, str], float]:
  """Returns the best seed's score by row and metric, if the paper prints best seeds."""
  return {
    (line.row, line.metric.removeprefix(names.BEST_SEED)): line.measured.value
    for line in lines
    if line.metric.startswith(names.BEST_SEED) and line.measured
  }


def width(line: Line) -> float:
  """Returns the largest difference from the published value that counts as equal."""
  least = POINTS if names.unit(line.metric) else SHARE * line.published.value
  return max(least, 2 * (line.published.std or 0.0))


def is_equal(line: Line, best: float | None = None) -> bool:
  """Whether the measured value equals the published one; `best` is the best seed's value."""
  here, printed = line.measured, line.published
  if printed.is_bound:
    return here.value > printed.value or (here.is_bound and here.value >= printed.value)
  # The error of the best seed's value is at most the standard deviation over seeds.
  error = _side(line).error if best is None else here.std or 0.0
  apart = abs(_gap(here.value if best is None else best, printed.value))
  return not here.is_bound and apart <= max(width(line), 2 * error)


def _gap(high: float, low: float) -> float:
  """Returns the difference of printed numbers without float errors: 65.9 - 63.9 is 2.0."""
  return round(high - low, 9)


@functools.cache
def drawn(task: str, algorithm: str, changes: str) -> str:
  """Returns the settings that, together with the seed, decide which clients a row samples.

  The JSON text has the task, the options of its data, and the options of client participation
  (if the algorithm has clients). Returns '' if this version of the program refuses the row's
  settings.
  """
  try:
    config = configuration.resolve(task, algorithm, table_lib.changes(changes))
  except errors.InputError:
    return ''
  data = table_lib.without(config['options'], _OF_MODELS)
  of = {field.name for field in dataclasses.fields(participation.Participation)}
  taken = {n: v for n, v in config['hyperparameters'].items() if n in of}
  return json.dumps([task, data, taken], sort_keys=True)


def _side(line: Line) -> Side:
  """Returns a line's measured mean as a side of a comparison."""
  here = line.measured or table_lib.Number(math.nan)
  by_seed = {} if here.is_bound else {seed: each.value for seed, each in line.by_seed.items()}
  changes = table_lib.text_of(line.changes)
  return Side(
    row=line.row,
    metric=line.metric,
    mean=here.value,
    error=(here.std or 0.0) / line.seeds**0.5 if line.seeds else math.nan,
    seeds=line.seeds,
    by_seed=by_seed,
    drawn=drawn(line.task, line.algorithm, changes) if by_seed else '',
    is_open=here.is_bound,
  )


def _of_table(found: table_lib.PaperTable, lines: Sequence[Line], scale: str) -> Judged:
  form, is_paper = found.form(scale), scale == 'paper'
  best, notes = best_seeds(lines), dict.fromkeys(line.note for line in lines)
  lines = main_lines(lines)
  missing = sum(not line.measured for line in lines)
  if found.best_over:
    lines = best_of_grids(lines, found.best_over)
  there = [line for line in lines if line.measured]
  pairs = _pairs(there, UNSURE if found.is_unsure else 1)
  claims = _claims(form.claims, lines)
  orders = (*pairs, *claims)
  inside = [is_equal(line, best.get((line.row, line.metric))) for line in there if line.published]
  seeds = min((line.seeds for line in there), default=0)
  parts = []
  if is_paper and inside:
    parts.append(f'{sum(inside)} of {len(inside)} values are the published ones')
  for what, of in (('pairs of rows', pairs), ('claims of the paper', claims)):
    enough = collections.Counter(order.told for order in of if not order.is_few)
    counts = [f'{n} {w if n == 1 else _PLURALS[w]}' for w in _PLURALS if (n := enough[w])]
    if counts:
      parts.append(f'{what}: {", ".join(counts)}')
  if few := [order.is_kept for order in orders if order.is_few]:
    other = 'other ' if len(few) < len(orders) else ''
    parts.append(
      f'the means have {sum(few)} of {len(few)} {other}published orders; {SEEDS} seeds'
      f' would tell them, and {seeds} {"were" if seeds > 1 else "was"} run'
    )
  if missing:
    parts.append(f'values that were not measured: {missing}')
  why = '; '.join(filter(None, [*parts, *notes])) or 'nothing tells'

  told = [order.told for order in orders]
  agreed = sum(order.told == AGREES for order in pairs)
  # To be reproduced, every printed result must have a number, and each claim must hold.
  printed = {name for row in form.rows for name in row.published}
  is_whole = all(inside) and all(x.published or x.metric not in printed for x in lines)
  is_whole &= seeds >= min(SEEDS, len(form.seeds)) and all(claim.is_kept for claim in claims)
  if DISAGREES in told or (is_paper and not orders and not all(inside)):
    verdict = Verdict.NOT
  elif missing:
    verdict = Verdict.NOT_RUN
  elif is_paper and is_whole:
    verdict = Verdict.REPRODUCED
  elif (
    orders
    and (2 * agreed > len(pairs) or not pairs)
    and all(claim.told == AGREES for claim in claims)
  ):
    verdict = Verdict.SHAPE
  else:
    verdict = Verdict.UNDECIDED
  return Judged(verdict, why, orders)


def best_of_grids(lines: Sequence[Line], searched: Sequence[str]) -> list[Line]:
  """Returns the best row of each group of rows that differ only in the tuned settings `searched`.

  `changes` of the best row leaves out these settings. A row that missed a target ranks last. If
  a row of the group has no value, the best row has no measured value, either.
  """
  grids: dict[tuple, list[int]] = {}
  for number, line in enumerate(lines):
    others = table_lib.text_of(table_lib.without(line.changes, searched))
    grids.setdefault((line.task, line.algorithm, others, line.metric), []).append(number)
  kept = {}
  for (_, _, others, metric), grid in grids.items():
    sign = 1 if names.parse(metric).is_cost else -1
    places = {number: _place(lines[number], sign) for number in grid}
    best = min(places, key=places.get)
    is_whole = all(lines[number].measured for number in grid)
    kept[best] = dataclasses.replace(
      lines[best],
      changes=table_lib.changes(others),
      measured=lines[best].measured if is_whole else None,
    )
  return [kept[number] for number in sorted(kept)]


def _place(line: Line, sign: int) -> tuple[bool, float]:
  """Returns a key that sorts lines by `sign` times their value. Lines without a value are last."""
  here = line.measured or table_lib.Number(sign * math.inf, is_bound=True)
  return here.is_bound, sign * here.value


def _pairs(lines: Sequence[Line], times: float = 1) -> list[Order]:
  """Returns the comparisons of pairs of rows that the paper's numbers order.

  The printed values of such a pair differ by more than two standard deviations and by more than
  `POINTS` (`SHARE` for counts). If a value has no standard deviation, the gap must be `times`
  as large. A lower bound such as '>20000' has an order only against a smaller number: it is more
  than 9005, but may be less than 39236 or '>50000'.
  """
  groups: dict[tuple[str, str], list[Line]] = {}
  for line in lines:
    if line.published:
      groups.setdefault((line.task, line.metric), []).append(line)
  found = []
  for (_, metric), group in groups.items():
    for two in itertools.combinations(group, 2):
      low, high = sorted(two, key=lambda line: line.published.value)
      gap = _gap(high.published.value, low.published.value)
      far = max(width(x) * (1 if x.published.std else times) for x in two)
      if gap > far and not low.published.is_bound:
        says = f'{names.heading(metric)}: {high.row} above {low.row}'
        printed = f'{gap:+.{names.digits(metric)}f}'
        found.append(_order(says, printed, _side(high), _side(low)))
  return found


def _claims(claims: Iterable[table_lib.Claim], lines: Sequence[Line]) -> list[Order]:
  """Returns the comparisons of the paper's claims, for the rows that are in `lines`."""
  found = []
  for claim in claims:
    of = [line for line in lines if line.metric == claim.metric]
    rows = [table_lib.Row(line.task, line.algorithm, {}, line.changes) for line in of]
    sides, pairs = [_side(line) for line in of], claim.pairs(rows)
    gain = f', over {claim.over},' if claim.over else ''
    if claim.over == table_lib.REGION:
      gain = ', share of good settings,'
      grids: dict[str, list] = {}
      for i, j in pairs:
        highs, lows = grids.setdefault(rows[i].task, [{}, {}])
        highs[i], lows[j] = sides[i], sides[j]
      compared = [
        (_region(claim.high, [*highs.values()]), _region(claim.low, [*lows.values()]))
        for highs, lows in grids.values()
      ]
    else:
      if claim.over:
        sides = _gains(sides, rows, claim.over)
      compared = [(sides[i], sides[j]) for i, j in pairs]
    times = f'{claim.times:g} times ' if claim.times != 1 else ''
    least = f'at least {claim.least:+g}' if claim.least else 'above'
    for high, low in compared:
      says = (
        f'{claim.says}: {names.heading(claim.metric)}{gain} of {high.row} above {times}{low.row}'
      )
      order = _order(says, least, high, low, claim.least, claim.times)
      found.append(order._replace(claim=claim.says.partition(' (')[0]))
  return found


def _region(words: str, grid: Sequence[Side]) -> Side:
  """Returns the percentage of a grid's rows that have at least `GOOD` of its best score.

  The error is computed from the percentages of the single seeds; it is nan if the values by
  seed are unknown.
  """
  seeds = set.intersection(*({*side.by_seed} for side in grid))
  by_seed = {s: _good([x.by_seed[s] for x in grid]) for s in sorted(seeds)}
  mean, error = _good([side.mean for side in grid]), math.nan
  if by_seed:
    mean, error = _mean_and_error(by_seed.values())
  seeds = min(side.seeds for side in grid)
  return grid[0]._replace(row=words, mean=mean, error=error, seeds=seeds, by_seed=by_seed)


def _good(scores: Sequence[float]) -> float:
  """Returns the percentage of scores of at least `GOOD` of the best; nan if any score is nan."""
  if any(map(math.isnan, scores)):
    return math.nan
  return 100 * sum(score >= GOOD * max(scores) for score in scores) / len(scores)


def _gains(sides: Sequence[Side], rows: Sequence[table_lib.Row], algorithm: str) -> list[Side]:
  """Subtracts from each side the mean of the row of `algorithm` with the same settings."""
  found = []
  for side, row in zip(sides, rows, strict=True):
    other = table_lib.beside(row, rows, algorithm)
    base = sides[rows.index(other)] if other else side._replace(mean=math.nan)
    found.append(_less(side, base))
  return found


def _less(high: Side, low: Side, times: float = 1.0) -> Side:
  """Returns high - times * low, with its standard error.

  If both rows sample the same clients, they are compared seed by seed, so the effect of the
  sampling cancels. For other rows, or with fewer than `SEEDS` common seeds, the means are
  subtracted, and `by_seed` of the result is empty.
  """
  is_alike = high.drawn and high.drawn == low.drawn
  seeds = sorted(high.by_seed.keys() & low.by_seed.keys()) if is_alike else ()
  by_seed = {s: high.by_seed[s] - times * low.by_seed[s] for s in seeds}
  mean, error = high.mean - times * low.mean, math.hypot(high.error, times * low.error)
  if len(by_seed) < SEEDS or math.isnan(mean):
    by_seed = {}
  else:
    mean, error = _mean_and_error(by_seed.values())
  seeds = min(high.seeds, low.seeds)
  return high._replace(mean=mean, error=error, seeds=seeds, by_seed=by_seed)


def _mean_and_error(values: Iterable[float]) -> tuple[float, float]:
  """Returns the mean of the seeds' values and its standard error, which is nan for one seed."""
  values = [*values]
  std = statistics.stdev(values) if len(values) > 1 else math.nan
  return statistics.fmean(values), std / len(values) ** 0.5


def _order(
  says: str, published: str, high: Side, low: Side, least: float = 0.0, times: float = 1.0
) -> Order:
  """Compares two rows. The order is decided if the difference exceeds two standard errors.

  A lower bound such as '>200' decides an order only if every larger number would give the
  same order.
  """
  difference = _less(high, low, times)
  apart, error = difference.mean - least, difference.error
  if math.isnan(apart):
    return Order(says, published, table_lib.NONE, UNDECIDED, False)
  told, is_few = UNDECIDED, difference.seeds < SEEDS
  if not is_few and apart > 2 * error and not low.is_open:
    told = AGREES
  elif not is_few and apart < -2 * error and not high.is_open:
    told = DISAGREES
  here = f'{difference.mean + 0.0:+.{names.digits(high.metric)}f}'
  return Order(says, published, here, told, apart > 0, is_few)
