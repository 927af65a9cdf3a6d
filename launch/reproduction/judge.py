"""What measured values say of a published table or figure: pairs, claims, a verdict."""

import enum
import itertools
import math
import statistics
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import NamedTuple

from launch.reproduction import rows as rows_lib
from tasks.papers import names
from tasks.papers import table as table_lib

if TYPE_CHECKING:
  import pandas as pd

POINTS = 2.0  # Percent points in which two values count as equal,
SHARE = 0.1  # and the same of rounds and other counts.
# Values without a sure deviation have an order if they are so many times as far apart.
UNSURE = 3
GOOD = 0.9  # Of a grid's best score: the scores of its good region.
SEEDS = 3  # That tell an order.
AGREES, DISAGREES, UNDECIDED = 'agrees', 'disagrees', 'undecided'
Bounds = tuple[float, float]
COSTS = (names.BEST_ROUND, names.SENT, names.SECONDS)


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


class Judged(NamedTuple):
  """A verdict, its reason, and the orders behind it."""

  verdict: Verdict
  why: str
  orders: tuple[Order, ...] = ()


def judge(found: table_lib.Result, frame: 'pd.DataFrame', scale: str) -> Judged:
  """Returns the verdict on a result, of its lines at a scale."""
  if isinstance(found, table_lib.Diagram):
    return Judged(Verdict.NOTHING, 'it is a diagram')
  if isinstance(found, table_lib.Formula):
    return _of_formula(found)
  if frame.empty:
    is_without = scale != 'paper' and not getattr(found, scale, None)
    none = f'it has no {scale} form'
    why = none if is_without else 'it has not been measured here'
    return Judged(Verdict.NOT_RUN, why)
  notes = [note for note in dict.fromkeys(frame['note']) if note]
  frame = frame[frame['metric'] != '']  # Others only say what is missing.
  if not (frame['mean'] != '').any():
    why = '; '.join(notes) or 'none of its experiments has finished'
    return Judged(Verdict.NOT_RUN, why)
  if isinstance(found, table_lib.Study):
    return _of_study(found, frame, scale)
  return _of_table(found, frame, scale)


def _of_formula(found: table_lib.Formula) -> Judged:
  equal = found.equal
  why = f'{equal.count("yes")} of {len(equal)} values are the published ones'
  if rounded := equal.count('of rounded'):
    why += f', {rounded} those of rounded numbers'
  return Judged(Verdict.FORMULA, why)


def bounds(found: table_lib.Study, scale: str) -> Mapping[str, Bounds]:
  """Returns the bounds of a study's values: published ones at that scale, or expected."""
  is_published = scale == 'paper' and found.published
  return found.published if is_published else found.expected


def bound_of(limits: Mapping[str, Bounds], line) -> Bounds | None:
  """Returns the bounds of a line of a study; None if it has none."""
  return limits.get(f'{line.task}: {line.row}') or limits.get(line.row)


def _of_study(found: table_lib.Study, frame, scale: str) -> Judged:
  limits = bounds(found, scale)
  is_published = limits is found.published
  told, missing = [], dict.fromkeys(frame['task'][frame['mean'] == ''])
  for line in numbers(frame).itertuples():
    within = bound_of(limits, line)
    if within and not math.isnan(line.m):
      told.append((line.row, within[0] <= line.m <= within[1]))
  outside = [row for row, holds in told if not holds]
  lacks = f'; the data of {", ".join(missing)} are missing' if missing else ''
  what = 'published values' if is_published else 'expected values'
  if outside:
    why = (
      f'{len(outside)} of {len(told)} {what} do not hold: {"; ".join(outside)}'
    )
    return Judged(Verdict.NOT, why + lacks)
  # Of a data set or none; other data sets were not asked for.
  of = {'', *frame['task']}
  names_of = {*frame['row'], *(frame['task'] + ': ' + frame['row'])}
  wanted = [n for n in limits if n.rpartition(': ')[0] in of]
  if not told or missing or not names_of.issuperset(wanted):
    why = f'{len(told)} of {len(wanted)} {what} were measured{lacks}'
    return Judged(Verdict.NOT_RUN, why)
  verdict = Verdict.REPRODUCED if is_published else Verdict.SHAPE
  return Judged(verdict, f'all {len(told)} {what} hold')


def numbers(frame: 'pd.DataFrame') -> 'pd.DataFrame':
  """Returns lines with numbers: m, s and n measured, p, p_std and width published.

  `is_open`: m is a bound from below, of runs that missed a target; `is_bound`: p is.
  `error` is m's standard error; `by_seed` are m's values by seed as far as they are
  known, and `drawn` what tells which rows draw alike at equal seeds. `best` is the best
  seed's score where the paper printed this one.
  """
  import pandas as pd  # Late: flags are checked first.

  is_best = frame['metric'].str.startswith(names.BEST_SEED)
  best = {
    (line.row, line.metric.removeprefix(names.BEST_SEED)): float(line.mean)
    for line in frame[is_best].itertuples()
  }
  frame = frame[~is_best]
  number = lambda text: pd.to_numeric(text.str.lstrip('>'), errors='coerce')
  printed = frame['published'].str.replace(',', '').str.split('±', expand=True)
  printed = printed.reindex(columns=[0, 1]).fillna('').astype(str)
  p, p_std = number(printed[0]), number(printed[1]).fillna(0.0)
  percent = frame['metric'].map(lambda name: bool(names.unit(name)))
  width = (SHARE * p).where(~percent, POINTS).combine(2 * p_std, max)
  is_open = frame['mean'].str.startswith('>')
  by_seed = frame['by_seed'].where(~is_open, '').map(values_by_seed)
  of = zip(frame['row'], frame['metric'], strict=True)
  bests = pd.Series([best.get(key) for key in of], frame.index, float)
  s = number(frame['std']).fillna(0.0).astype(float)
  n = number(frame['seeds']).fillna(0)
  return frame.assign(
    best=bests,
    m=number(frame['mean']),
    s=s,
    n=n,
    error=s / n**0.5,
    by_seed=by_seed,
    drawn=[
      rows_lib.drawn(line.task, line.algorithm, line.changes) if known else ''
      for line, known in zip(frame.itertuples(), by_seed, strict=True)
    ],
    p=p,
    p_std=p_std,
    width=width,
    is_open=is_open,
    is_bound=frame['published'].str.startswith('>'),
  )


def main_lines(frame: 'pd.DataFrame') -> 'pd.DataFrame':
  """Returns the lines of results, each row once, without those of what it cost."""
  printed = set(frame['metric'][frame['published'] != ''])
  costs = [name for name in COSTS if name not in printed]
  kept = frame[~frame['metric'].isin(costs)]
  return kept.drop_duplicates(['row', 'metric'])


def is_equal(line) -> bool:
  """Whether a measured value of `numbers` counts as the published one."""
  if line.is_bound:
    return line.m > line.p or (line.is_open and line.m >= line.p)
  apart = abs(_gap(as_printed(line), line.p))
  # A best seed's error is at most the deviation of one.
  error = line.error if math.isnan(line.best) else line.s
  return not line.is_open and apart <= max(line.width, 2 * error)


def as_printed(line) -> float:
  """Returns what compares with a printed value: the mean, or the best seed's."""
  return line.m if math.isnan(line.best) else line.best


def values_by_seed(text: str) -> dict[int, float]:
  """Returns the values of '0:51.5 1:49.3' by seed; ValueError for another text.

  Of a target that the seed missed it is the bound, as of '2:>60'.
  """
  pairs = (each.split(':') for each in text.split())
  return {int(seed): float(value.lstrip('>')) for seed, value in pairs}


def _gap(high: float, low: float) -> float:
  """Returns a difference of printed numbers: 65.9 - 63.9 is 2.0, and no more."""
  return round(high - low, 9)


def _of_table(found: table_lib.PaperTable, frame, scale: str) -> Judged:
  lines = numbers(main_lines(frame))
  measured = lines[lines['m'].notna()]
  notes = [note for note in dict.fromkeys(frame['note']) if note]
  missing = len(lines) - len(measured)
  form = found.form(scale) or found
  if found.best_over:
    lines = _best(lines, found.best_over)
    measured = lines[lines['m'].notna()]
  claims = _claims(form.claims, lines)
  pairs = _pairs(measured, UNSURE if found.is_unsure else 1)
  inside = [
    is_equal(line) for line in measured.itertuples() if line.p == line.p
  ]
  told = [order.told for order in (*pairs, *claims)]
  few = [order for order in (*pairs, *claims) if order.is_few]
  parts = []
  if scale == 'paper' and inside:
    same = f'{sum(inside)} of {len(inside)}'
    parts.append(f'{same} values are the published ones')
  for what, of in (('pairs of rows', pairs), ('claims of the paper', claims)):
    if enough := [order for order in of if not order.is_few]:
      parts.append(f'{what}: {_counted(enough)}')
  if few:
    kept, fewest = sum(order.is_kept for order in few), int(measured['n'].min())
    other = 'other ' if len(few) < len(told) else ''
    parts.append(
      f'the means have {kept} of {len(few)} {other}published orders; {SEEDS} seeds'
      f' would tell them, and {fewest} {"were" if fewest > 1 else "was"} run'
    )
  if missing:
    parts.append(f'values that were not measured: {missing}')
  why = '; '.join([*parts, *notes])
  orders = (*pairs, *claims)
  if scale == 'paper' and not missing and all(inside):
    printed = {name for row in form.rows for name in row.published}
    is_known = lines['p'].notna() | ~lines['metric'].isin(printed)
    has_seeds = measured['n'].min() >= min(SEEDS, len(form.seeds))
    is_claimed = all(claim.is_kept for claim in claims)
    if is_known.all() and has_seeds and is_claimed and DISAGREES not in told:
      return Judged(Verdict.REPRODUCED, why, orders)
  alone = scale == 'paper' and not told and not all(inside)
  if DISAGREES in told or alone:
    return Judged(Verdict.NOT, why, orders)
  if missing:
    return Judged(Verdict.NOT_RUN, why, orders)
  agreed = [order.told for order in pairs].count(AGREES)
  is_most = 2 * agreed > len(pairs) or not pairs
  if told and is_most and all(claim.told == AGREES for claim in claims):
    return Judged(Verdict.SHAPE, why, orders)
  return Judged(Verdict.UNDECIDED, why or 'nothing tells', orders)


def _best(lines: 'pd.DataFrame', searched: Sequence[str]) -> 'pd.DataFrame':
  """Returns of rows that differ only in settings that were `searched` the best one.

  Its changes are without these. Of a grid without all values none is the best: its m
  is NaN. Rounds that missed a target come last.
  """
  others = lambda text: table_lib.text_of(
    table_lib.without(table_lib.changes(text), searched)
  )
  lines = lines.assign(changes=lines['changes'].map(others))
  kept = []
  for (*_, metric), grid in lines.groupby(
    ['task', 'algorithm', 'changes', 'metric'], sort=False
  ):
    is_cost = names.parse(metric).is_cost
    grid = grid.sort_values(
      ['is_open', 'm'], ascending=[True, is_cost], kind='stable'
    )
    if grid['m'].isna().any():
      grid = grid.assign(m=math.nan)
    kept.append(grid.index[0])
    lines.loc[grid.index[0], 'm'] = grid['m'].iloc[0]
  return lines.loc[sorted(kept)]


def _counted(orders) -> str:
  told = [order.told for order in orders]
  plural = {AGREES: 'agree', DISAGREES: 'disagree', UNDECIDED: 'undecided'}
  return ', '.join(
    f'{told.count(word)} {word if told.count(word) == 1 else words}'
    for word, words in plural.items()
    if word in told
  )


def _pairs(lines: 'pd.DataFrame', times: float = 1) -> list[Order]:
  """Returns the pairs of rows that the paper orders.

  Their printed values are further apart than two standard deviations or `POINTS`
  (`SHARE` of counts), `times` that without a deviation. A bound has an order only with
  a number below it: '>20000' is later than 9005, and may be sooner than 39236 or
  '>50000'.
  """
  found = []
  unsure = lines['width'].where(lines['p_std'] > 0, times * lines['width'])
  lines = lines.assign(width=unsure)
  for (_, metric), group in lines.groupby(['task', 'metric'], sort=False):
    printed = group[group['p'].notna()]
    for two in itertools.combinations(printed.itertuples(), 2):
      low, high = sorted(two, key=lambda line: line.p)
      gap = _gap(high.p, low.p)
      if gap <= max(low.width, high.width) or low.is_bound:
        continue
      says = f'{names.heading(metric)}: {high.row} above {low.row}'
      printed = f'{gap:+.{names.digits(metric)}f}'
      found.append(_order(says, printed, high, low))
  return found


def _claims(claims, lines: 'pd.DataFrame') -> list[Order]:
  """Returns the paper's claims, as far as there are their rows."""
  found = []
  for claim in claims:
    of = lines[lines['metric'] == claim.metric]
    rows = [
      table_lib.Row(
        line.task, line.algorithm, {}, table_lib.changes(line.changes)
      )
      for line in of.itertuples()
    ]
    measured, pairs = [*of.itertuples()], claim.pairs(rows)
    gain = f', over {claim.over},' if claim.over else ''
    if claim.over == table_lib.REGION:
      gain = ', share of good settings,'
      sides = _regions(claim, measured, rows, pairs)
    else:
      if claim.over:
        measured = _gains(measured, rows, claim.over)
      sides = [(measured[i], measured[j]) for i, j in pairs]
    for high, low in sides:
      times = f'{claim.times:g} times ' if claim.times != 1 else ''
      says = (
        f'{claim.says}: {names.heading(claim.metric)}{gain} of {high.row} above'
        f' {times}{low.row}'
      )
      least = f'at least {claim.least:+g}' if claim.least else 'above'
      found.append(_order(says, least, high, low, claim.least, claim.times))
  return found


def _regions(claim, measured, rows, pairs) -> list[tuple]:
  """Returns of each task the two sides of a claim, the grid of each as one line."""
  found = []
  for task in dict.fromkeys(rows[i].task for i, _ in pairs):
    high, low = zip(*(p for p in pairs if rows[p[0]].task == task), strict=True)
    grids = ([measured[i] for i in dict.fromkeys(side)] for side in (high, low))
    found.append(tuple(map(_region, (claim.high, claim.low), grids)))
  return found


def _region(words: str, grid):
  """Returns a line of the share in percent of a grid's rows with `GOOD` of its best.

  Its error is that of the seeds' shares; nan where seeds are not known.
  """
  share = lambda scores: (
    100 * sum(s >= GOOD * max(scores) for s in scores) / len(scores)
  )
  means = [line.m for line in grid]
  m = math.nan if any(map(math.isnan, means)) else share(means)
  seeds = set.intersection(*({*line.by_seed} for line in grid))
  by_seed = {
    s: share([line.by_seed[s] for line in grid]) for s in sorted(seeds)
  }
  m, error = _mean_and_error(by_seed.values()) if by_seed else (m, math.nan)
  n = min(line.n for line in grid)
  return grid[0]._replace(row=words, m=m, error=error, n=n, by_seed=by_seed)


def _gains(measured, rows, algorithm: str):
  """Returns measured lines less those of the algorithm's rows beside them."""
  found = []
  for line, row in zip(measured, rows, strict=True):
    other = table_lib.beside(row, rows, algorithm)
    base = measured[rows.index(other)] if other else line._replace(m=math.nan)
    gain, error, by_seed = _difference(line, base)
    n = min(line.n, base.n)
    found.append(line._replace(m=gain, error=error, n=n, by_seed=by_seed))
  return found


def _difference(high, low, times: float = 1.0):
  """Returns high - times low, its standard error, and the differences by seed.

  Rows that draw alike are compared seed by seed: what a draw does to both is in neither
  difference nor error. Of others, and of fewer than `SEEDS` common seeds, the means are
  compared, and no differences are returned.
  """
  is_alike = high.drawn and high.drawn == low.drawn
  seeds = sorted(high.by_seed.keys() & low.by_seed.keys()) if is_alike else ()
  apart = high.m - times * low.m
  if len(seeds) < SEEDS or math.isnan(apart):
    return apart, math.hypot(high.error, times * low.error), {}
  by_seed = {s: high.by_seed[s] - times * low.by_seed[s] for s in seeds}
  return *_mean_and_error(by_seed.values()), by_seed


def _mean_and_error(values: Iterable[float]) -> tuple[float, float]:
  """Returns the mean of seeds' values, and its standard error; nan of one."""
  values = [*values]
  std = statistics.stdev(values) if len(values) > 1 else math.nan
  return statistics.fmean(values), std / len(values) ** 0.5


def _order(
  says, published, high, low, least: float = 0.0, times: float = 1.0
) -> Order:
  """Compares two lines: the difference beyond two standard errors tells.

  A bound from below tells only what any greater number would tell.
  """
  difference, error, _ = _difference(high, low, times)
  apart = difference - least
  if math.isnan(apart):
    return Order(says, published, table_lib.NONE, UNDECIDED, False)
  told, is_few = UNDECIDED, min(high.n, low.n) < SEEDS
  if not is_few:
    if apart > 2 * error and not low.is_open:
      told = AGREES
    elif apart < -2 * error and not high.is_open:
      told = DISAGREES
  here = f'{difference + 0.0:+.{names.digits(high.metric)}f}'
  return Order(says, published, here, told, apart > 0, is_few)
