"""What measured values say of a published table or figure: pairs, claims, a verdict."""

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
from tasks import experiment
from tasks.papers import names, table as table_lib
from tff_xc import errors
from tff_xc.options import participation

POINTS = 2.0  # Percent points in which two values count as equal,
SHARE = 0.1  # and the same of rounds and other counts.
# Values without a sure deviation have an order if they are so many times as far apart.
UNSURE = 3
GOOD = 0.9  # Of a grid's best score: the scores of its good region.
SEEDS = 3  # That tell an order.
AGREES, DISAGREES, UNDECIDED = 'agrees', 'disagrees', 'undecided'
_PLURALS = {AGREES: 'agree', DISAGREES: 'disagree', UNDECIDED: 'undecided'}
# Options of tasks that change the model, and not who is drawn.
_OF_MODELS = frozenset({'embedding_dim', 'logit_scale', 'depth'})
COSTS = (names.BEST_ROUND, names.SENT, names.SECONDS)
Bounds = tuple[float, float]
Line = lines_lib.Line


class Verdict(enum.StrEnum):
  """FORMULA: nothing is trained, and the reason says how many published digits it gives.
  REPRODUCED: every value is the published one. SHAPE: no pair of rows disagrees
  with the published order, most agree, and so do all claims. NOT: some disagrees, or
  values differ and have no order. UNDECIDED: neither, as with fewer than three seeds.
  """

  REPRODUCED = 'reproduced'
  SHAPE = 'shape reproduced'
  NOT = 'not reproduced'
  UNDECIDED = 'undecided'
  NOT_RUN = 'not run'
  FORMULA = 'formula only'
  NOTHING = 'nothing to run'


class Order(NamedTuple):
  """Two rows: what is published, the difference here, and AGREES or another word.

  `is_kept`: whether the means alone are in this order; `is_few`: whether a row has too
  few seeds to tell it.
  """

  says: str
  published: str
  here: str
  told: str
  is_kept: bool
  is_few: bool = False
  claim: str = ''  # The paper's sentence, without its place; '': a pair of rows.


class Judged(NamedTuple):
  """A verdict, its reason, and the orders behind it."""

  verdict: Verdict
  why: str
  orders: tuple[Order, ...] = ()


class Side(NamedTuple):
  """A row's mean, as one side of a comparison."""

  row: str
  metric: str
  mean: float  # nan: it was not measured.
  error: float  # The standard error of the mean.
  seeds: int
  by_seed: Mapping[int, float]  # {}: not known, or some are bounds.
  # Rows with equal texts draw the same clients at equal seeds; '': it is not known.
  drawn: str = ''
  is_open: bool = False  # The mean is a bound from below: a seed missed a target.


def judge(measured: lines_lib.Measured) -> Judged:
  """Returns the verdict on what was measured of a result."""
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
  # Lines without a metric only say what is missing.
  lines = [line for line in measured.lines if line.metric]
  judged = _of_study if isinstance(found, table_lib.Study) else _of_table
  return judged(found, lines, scale)


def finding(judged: Judged) -> str:
  """Returns the first of the paper's claims of which every comparison agrees, or ''."""
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
  """Returns the bounds of a line of a study, published or expected; None if it has none."""
  limits = _limits(found, scale)
  return limits.get(f'{line.task}: {line.row}') or limits.get(line.row)


def _limits(found: table_lib.Study, scale: str) -> Mapping[str, Bounds]:
  return (scale == 'paper' and found.published) or found.expected


def is_within(limits: Bounds, line: Line) -> bool:
  """Whether a measured value of a study lies within its bounds."""
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
  # Those of no data set, or of one that was asked for.
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
  """Returns the lines of results, each row once, without those of what it cost."""
  left_out = set(COSTS) - {line.metric for line in lines if line.published}
  kept: dict[tuple[str, str], Line] = {}
  for line in lines:
    if line.metric not in left_out and not line.metric.startswith(names.BEST_SEED):
      kept.setdefault((line.row, line.metric), line)
  return [*kept.values()]


def best_seeds(lines: Iterable[Line]) -> dict[tuple[str, str], float]:
  """Returns the best seed's score where the paper printed it, by row and metric."""
  return {
    (line.row, line.metric.removeprefix(names.BEST_SEED)): line.measured.value
    for line in lines
    if line.metric.startswith(names.BEST_SEED) and line.measured
  }


def width(line: Line) -> float:
  """Returns how far another value may be from the published one, to count as equal."""
  least = POINTS if names.unit(line.metric) else SHARE * line.published.value
  return max(least, 2 * (line.published.std or 0.0))


def is_equal(line: Line, best: float | None = None) -> bool:
  """Whether a measured value counts as the published one; `best`: the best seed's."""
  here, printed = line.measured, line.published
  if printed.is_bound:
    return here.value > printed.value or (here.is_bound and here.value >= printed.value)
  # A best seed's error is at most the deviation of one.
  error = _side(line).error if best is None else here.std or 0.0
  apart = abs(_gap(here.value if best is None else best, printed.value))
  return not here.is_bound and apart <= max(width(line), 2 * error)


def _gap(high: float, low: float) -> float:
  """Returns a difference of printed numbers: 65.9 - 63.9 is 2.0, and no more."""
  return round(high - low, 9)


@functools.cache
def drawn(task: str, algorithm: str, changes: str) -> str:
  """Returns what decides, with a seed, whom a row draws in each round, as text.

  Those are the data and the options of who takes part, which a method without clients
  does not have. '' of settings that are not known today.
  """
  try:
    config = experiment.resolve(task, algorithm, table_lib.changes(changes))
  except errors.InputError:
    return ''
  data = table_lib.without(config['options'], _OF_MODELS)
  of = {field.name for field in dataclasses.fields(participation.Participation)}
  taken = {n: v for n, v in config['hyperparameters'].items() if n in of}
  return json.dumps([task, data, taken], sort_keys=True)


def _side(line: Line) -> Side:
  """Returns the measured mean of a line for comparisons."""
  here = line.measured or table_lib.Number(math.nan)
  by_seed = {}
  if not here.is_bound:
    by_seed = {seed: each.value for seed, each in line.by_seed.items()}
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
  # Every printed result has a number, and each claim holds.
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
  """Returns of rows that differ only in settings that were `searched` the best one.

  Its changes are without these. A grid without all values has none that is measured.
  Rounds that missed a target come last.
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
  """Returns what sorts lines by their value, or -1 times it; without one they are last."""
  here = line.measured or table_lib.Number(sign * math.inf, is_bound=True)
  return here.is_bound, sign * here.value


def _pairs(lines: Sequence[Line], times: float = 1) -> list[Order]:
  """Returns the pairs of rows that the paper orders.

  Their printed values are further apart than two standard deviations or `POINTS`
  (`SHARE` of counts), `times` that without a deviation. A bound has an order only with
  a number below it: '>20000' is later than 9005, and may be sooner than 39236 or
  '>50000'.
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
  """Returns the paper's claims, as far as there are their rows."""
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
  """Returns the share in percent of a grid's rows with `GOOD` of its best score.

  Its error is that of the seeds' shares; nan where seeds are not known.
  """
  seeds = set.intersection(*({*side.by_seed} for side in grid))
  by_seed = {s: _good([x.by_seed[s] for x in grid]) for s in sorted(seeds)}
  mean, error = _good([side.mean for side in grid]), math.nan
  if by_seed:
    mean, error = _mean_and_error(by_seed.values())
  seeds = min(side.seeds for side in grid)
  return grid[0]._replace(row=words, mean=mean, error=error, seeds=seeds, by_seed=by_seed)


def _good(scores: Sequence[float]) -> float:
  """Returns the percentage of scores with `GOOD` of the best; nan if one is."""
  if any(map(math.isnan, scores)):
    return math.nan
  return 100 * sum(score >= GOOD * max(scores) for score in scores) / len(scores)


def _gains(sides: Sequence[Side], rows: Sequence[table_lib.Row], algorithm: str) -> list[Side]:
  """Returns means less those of the algorithm's rows beside them."""
  found = []
  for side, row in zip(sides, rows, strict=True):
    other = table_lib.beside(row, rows, algorithm)
    base = sides[rows.index(other)] if other else side._replace(mean=math.nan)
    found.append(_less(side, base))
  return found


def _less(high: Side, low: Side, times: float = 1.0) -> Side:
  """Returns high - times low, with its standard error.

  Rows that draw alike are compared seed by seed: what a draw does to both is in neither
  difference nor error. Of others, and of fewer than `SEEDS` common seeds, the means are
  compared, and no differences are returned.
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
  """Returns the mean of seeds' values, and its standard error; nan of one."""
  values = [*values]
  std = statistics.stdev(values) if len(values) > 1 else math.nan
  return statistics.fmean(values), std / len(values) ** 0.5


def _order(
  says: str, published: str, high: Side, low: Side, least: float = 0.0, times: float = 1.0
) -> Order:
  """Compares two rows: a difference decides if it exceeds two standard errors.

  A value that is only a lower bound, such as '>200', decides only if every greater number would.
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
