"""Tables of several runs: a row for each method, mean ± sample std over seeds.

Runs whose settings differ only in the seed are one method. `collect` returns a DataFrame of
runs. `build` returns a DataFrame of methods, the content of compare.csv. Functions that
print a table take the DataFrame of methods from `build` or from a compare.csv. A method with
a single seed has no std. If a seed lacks a value, the table shows no mean, because readers
would expect a mean over all seeds.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import pathlib
import statistics
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from tff_xc import errors, files, wording
from tff_xc.lazy import pd
from tff_xc.measure import catalog, targets as targets_lib
from tff_xc.report import run_files, text_table

# Settings that change only the last digits of results.
_OF_MACHINES = ('runtime', 'device')
# Tables give the rounds until a method reaches these shares of a reference's score (Hsu, Qi
# and Brown, Table 5).
_PARTS = (0.1, 0.5, 0.9)
_NONE = '–'


def collect(
  runs: Sequence[run_files.Run],
  labels: Sequence[str] | None = None,
  chosen: Callable[[run_files.Run], Collection[str]] | None = None,
) -> pd.DataFrame:
  """Returns finished runs of one task as a DataFrame, with a row for each run.

  The columns are `run`, a `run_files.Run`; `algorithm`; `seed`; `label`; and `method`, a
  number. Methods are in the order of their first runs. The runs of a method are sorted by
  seed. `labels` names the method of each run. Without `labels`, runs with equal settings
  form a method, whose label is the algorithm and those `chosen` settings (default: all)
  that differ between methods.
  """
  for run in runs:
    if run.task != runs[0].task:
      raise errors.InputError(
        f'{runs[0].path} is a run of task {runs[0].task} and {run.path} of '
        f'task {run.task}; compare runs of one task.'
      )
    if not run_files.is_finished(run.config, run.summary):
      wanted = run.config.get('rounds', 0)
      raise errors.InputError(
        f'{run.path} has not finished its {wanted} rounds; run launch.train '
        'again with its flags and this --run_dir to finish it.'
      )
  keys = labels or [
    json.dumps([run.algorithm, run_files.settings_of(run)], sort_keys=True) for run in runs
  ]
  frame = pd.DataFrame(
    {
      'run': pd.Series(list(runs), dtype=object),
      'algorithm': [run.algorithm for run in runs],
      'seed': [run.seed for run in runs],
      'method': pd.factorize(pd.Series(keys))[0],
    }
  ).sort_values(['method', 'seed'], kind='stable', ignore_index=True)
  again = frame.duplicated(['method', 'seed'])
  if again.any():
    a, b = frame['run'][[again.idxmax() - 1, again.idxmax()]]
    raise errors.InputError(
      f'{a.path} and {b.path} have the same configuration and seed {a.seed}; name only one of them.'
    )
  names = list(dict.fromkeys(labels or ())) or _labels(
    frame, run_files.settings_of, chosen or run_files.settings_of
  )
  frame['label'] = [names[method] for method in frame['method']]
  return frame


def methods(frame: pd.DataFrame, searched: Sequence[str] = ()) -> list[str]:
  """Returns a label for each method: its algorithm and the hyperparameters that differ.

  The hyperparameters in `searched` are left out.
  """

  def of(run):
    return {n: v for n, v in run.hyperparameters.items() if n not in searched}

  return _labels(frame, of, of)


def _settings(first: pd.DataFrame, of: Callable) -> pd.DataFrame:
  """Returns a row of settings as JSON for each run. A setting that a run lacks is nan."""
  rows = [
    {key: json.dumps(value, sort_keys=True) for key, value in of(run).items() if value is not None}
    for run in first['run']
  ]
  return pd.DataFrame(rows, index=first.index)


def differing(frame: pd.DataFrame) -> list[str]:
  """Returns the settings whose values differ between the algorithms that have them.

  If `rounds` is among these settings, it comes first.
  """
  first = frame.drop_duplicates('method')
  found = []
  for key, values in _settings(first, run_files.settings_of).items():
    values = values.dropna().groupby(first['algorithm']).agg(frozenset)
    own = key in _OF_MACHINES or key.startswith(run_files.DATA)
    if not own and values.nunique() > 1:
      found.append(wording.shown(key))
  return sorted(found, key=lambda key: key != 'rounds')


def _labels(frame: pd.DataFrame, of: Callable, chosen: Callable) -> list[str]:
  """Returns the methods' labels, with the settings that distinguish them.

  `of` returns all settings of a run. `chosen` returns the settings that the label names if
  another method lacks them or has different values.
  """
  first = frame.drop_duplicates('method')
  settings = _settings(first, of)
  differ = settings.columns[settings.nunique(dropna=False) > 1]
  named = [
    {key for key in differ if key in chosen(run) and not key.startswith(run_files.DATA)}
    for run in first['run']
  ]

  def label(place):
    row = settings.iloc[place].dropna()
    words = [first['algorithm'].iloc[place]]
    for key in row.index[row.index.isin(named[place])]:
      value = json.loads(row[key])
      value = value if isinstance(value, str) else row[key]
      words.append(f'{wording.shown(key)}={wording.shown(value)}')
    return ' '.join(words)

  labels = list(map(label, range(len(first))))
  of_data = [key for key in settings if key.startswith(run_files.DATA)]
  others = [key for key in settings if key not in of_data]
  more = _telling_apart(settings, labels, [*of_data, *others])
  # Also distinguish algorithms with equal options that ran on different data.
  known = settings[settings[of_data].notna().any(axis=1)]
  options = [
    json.dumps(run.config.get('options'), sort_keys=True) for run in first['run'][known.index]
  ]
  more |= _telling_apart(known, options, of_data)
  named = [names | more for names in named]
  return list(map(label, range(len(first))))


def _telling_apart(settings: pd.DataFrame, groups: list[str], keys: Iterable[str]) -> set[str]:
  """Returns keys that distinguish methods of the same group, and prefers earlier keys."""
  found = set()
  for key in keys:
    finer = list(zip(groups, settings[key].fillna(''), strict=True))
    if len({*finer}) > len({*groups}):
      found.add(key)
      groups = finer
  return found


class Column(NamedTuple):
  """A column of a table of methods."""

  name: str  # The metric, total, target or budget.
  heading: str  # The heading for people.
  # Returns the value of a run. Returns None if the run has no value, and inf if the run did
  # not reach the target.
  read: Callable[[run_files.Run], float | None]
  # Formats a mean and its std. The std is nan if there is only one seed.
  show: Callable[[float, float], str]
  is_target: bool = False
  # Whether the column is shown even if no method has a value.
  is_asked_for: bool = False
  better: str = 'neither'  # 'higher' or 'lower' if tables mark the best value.

  @property
  def key(self) -> str:
    return f'rounds_to_{self.name}' if self.is_target else self.name


def _fixed(value: float, digits: int) -> str:
  """Returns a number as text, with 0.0 instead of -0.0."""
  return f'{round(value, digits) + 0.0:.{digits}f}'


def _with_std(digits: int, factor: float = 1.0):
  """Returns a function that prints '50.0 ± 3.0'."""

  def show(mean, std):
    spread = '' if math.isnan(std) else f' ± {std * factor:.{digits}f}'
    return _fixed(mean * factor, digits) + spread

  return show


def _score(name: str) -> Column:
  metric = catalog.SCORES[name]
  heading, show = metric.heading, _with_std(4)
  if metric.unit == 'fraction':
    heading, show = f'{heading} %', _with_std(1, 100)
  return Column(
    name, heading, lambda run: run.summary['final'].get(name), show, better=metric.better
  )


def _total(name, heading, total, show, better='neither') -> Column:
  return Column(
    name, heading, lambda run: run.summary.get(total), lambda mean, _: show(mean), better=better
  )


def _epsilon(run: run_files.Run) -> float | None:
  """Returns epsilon of the final model's differential privacy, or None."""
  known = run.metrics.get('epsilon', pd.Series(dtype=float)).dropna()
  return None if known.empty else known.iloc[-1]


def _headline_volatility(run: run_files.Run) -> float | None:
  """Returns the volatility of the first headline score that the run has, or None."""
  scores = [name for name in catalog.HEADLINES if name in run.metrics]
  return targets_lib.volatility(run.metrics[scores[0]]) if scores else None


def _of_round(name: str, metric: str, total: str, show) -> Column:
  return _total(name, catalog.ROUND[metric].heading, total, show, 'lower')


_DOWN, _UP = (f'bytes_{way}_per_client' for way in ('down', 'up'))
# The columns of every table, by name.
COLUMNS = {
  each.name: each
  for each in (
    _total('rounds', 'rounds', 'rounds', '{:.0f}'.format),
    _total('emd', 'EMD', 'emd', '{:.2f}'.format),
    *map(_score, catalog.SCORES),
    Column('volatility', 'volatility %', _headline_volatility, _with_std(1, 100), better='lower'),
    Column(
      'epsilon',
      catalog.ROUND['epsilon'].heading,
      _epsilon,
      lambda mean, _: f'{mean:.3g}',
      better='lower',
    ),
    _of_round('class_rows', 'class_rows', 'class_rows_requested_mean', '{:.1f}'.format),
    _of_round('bytes_down', _DOWN, f'{_DOWN}_round', wording.human_bytes),
    _of_round('bytes_up', _UP, f'{_UP}_round', wording.human_bytes),
    _total(
      'bytes_saving',
      'saved %',
      'bytes_saving_vs_fullsoftmax',
      lambda saving: _fixed(100 * saving, 1),
      'higher',
    ),
    _of_round('seconds_per_round', 'seconds', 'seconds_per_round_median', '{:.3g}'.format),
  )
}
# The columns that a narrow table shows first. The other columns follow if there is space.
_TELLING = (
  *catalog.HEADLINES,
  'macro_f1',
  'mcc',
  'class_rows',
  'bytes_saving',
  'seconds_per_round',
  'p@5',
  'train_top1',
  'class_distance_mean',
)
# Explanations below a printed table, for headings that need one.
_LEGEND = {
  'emd': 'EMD: how much clients differ, from 0 (same shares of classes) to 2 (no class in common)',
  'bytes_saving': 'saved %: bytes saved compared with sending all class rows',
}
# Columns of the best round, with the heading and the function that formats the number.
_OF_BEST = {
  'round': ('best round', _with_std(0)),
  'bytes_down': ('MiB sent down until then', _with_std(0, 2**-20)),
}


def column(name: str, reference: pd.DataFrame | None = None) -> Column:
  """Returns the column with this name: a key of `COLUMNS`, or one of these forms.

  'top1:0.7': rounds to a target.
  'top1@400': a score after round 400.
  'top1@batches:500': a score when a budget is used up.
  'best.top1', 'best.round', 'best.bytes_down': numbers of the best round.
  'relative_top1': a score divided by the same score of the method `reference`
    (Hsu, Qi and Brown, arXiv:2003.08082).
  'relative_top1:0.5': rounds to this share of the reference's score.
  'volatility_top1': standard deviation of a score over the last tenth of evaluations.
  """
  if name in COLUMNS:
    return COLUMNS[name]
  found = None
  score, _, when = name.rpartition('@')  # A score may contain @, as in p@1@100.
  with contextlib.suppress(ValueError):  # The name may have a word instead of a number.
    if name.startswith('best.'):
      found = _of_best_round(name.removeprefix('best.'))
    elif name.startswith('relative_'):
      of, _, part = name.removeprefix('relative_').partition(':')
      found = _relative(of, part, reference)
    elif name.startswith('volatility_'):
      found = _volatility(name.removeprefix('volatility_'))
    elif score in catalog.SCORES:
      found = _after(score, when)
    elif ':' in name:
      target = targets_lib.parse_one(name)
      name, found = target.name, _rounds_to(target.heading, target)
  if found is None:
    raise errors.InputError(
      f'there is no column {wording.shown(name)}; there are {", ".join(COLUMNS)}'
    )
  return found._replace(name=name)


def _volatility(score: str) -> Column | None:
  if score not in catalog.SCORES:
    return None
  of = COLUMNS[score]
  return of._replace(
    heading=f'volatility of {of.heading}',
    read=lambda run: targets_lib.volatility(run.metrics.get(score)),
    better='lower',
  )


def _rounds_to(heading: str, target: targets_lib.Target) -> Column:
  def read(run):
    metrics = run.metrics
    if target.metric not in metrics or not metrics[target.metric].count():
      return None
    reached = target.first_round(metrics)
    return math.inf if reached is None else reached

  def show(mean, std):
    return _with_std(0 if math.isnan(std) else 1)(mean, std)

  return Column('', heading, read, show, is_target=True, better='lower')


def _relative(score: str, part: str, reference) -> Column | None:
  if score not in catalog.SCORES:
    return None
  of, one = COLUMNS[score], math.nan
  if reference is not None:
    one = whole(reference, score)
  if part:
    target = targets_lib.Target(score, float(part) * one)
    return _rounds_to(f'rounds to relative {100 * float(part):.10g} %', target)

  def read(run):
    found = of.read(run)
    return None if found is None else found / one

  return of._replace(heading=f'relative {of.heading}', read=read)


def _after(score: str, when: str) -> Column:
  """Returns the column of a score after a round or at a budget."""
  of = COLUMNS[score]
  if when.isdecimal():
    heading = f'{of.heading} after {wording.count(int(when), "round")}'

    def read(run):
      return of.read(run_files.first_rounds(run, int(when)))
  else:
    [budget] = targets_lib.parse_budgets(when)
    heading = f'{of.heading} {budget.heading}'

    def read(run):
      return budget.score(run.metrics, score)

  return of._replace(heading=heading, read=read, is_asked_for=True)


def _of_best_round(key: str) -> Column | None:
  heading, show = _OF_BEST.get(key, (None, None))
  better = 'lower'
  if key in catalog.SCORES:
    heading, show = f'{COLUMNS[key].heading}, best round', COLUMNS[key].show
    better = COLUMNS[key].better
  found = Column('', heading, lambda run: (run.summary.get('best_round') or {}).get(key), show)
  return heading and found._replace(is_asked_for=True, better=better)


def columns_of(table: pd.DataFrame) -> list[Column]:
  """Returns the columns whose means are in a table."""
  keys = [n.removesuffix('_mean') for n in table if n.endswith('_mean')]
  return [column(key.removeprefix('rounds_to_')) for key in keys]


def whole(reference: pd.DataFrame, score: str) -> float:
  """Returns the final score of a reference, averaged over its seeds."""
  found = math.nan
  if catalog.SCORES[score].unit == 'fraction':
    found = of_methods(reference, [COLUMNS[score]])[f'{score}_mean'].iloc[0]
  if not found > 0:
    told = 'none' if math.isnan(found) else f'{found:.4g}'
    raise errors.InputError(
      f'{reference["run"].iloc[0].path} is no reference for {score}: its final'
      f' {score} is {told}; scores can be related to a fraction above 0'
    )
  return found


def _mean(values: pd.Series) -> float:
  return statistics.fmean(values.tolist())


def _std(values: pd.Series) -> float:
  found = values.tolist()
  if len(found) < 2 or not all(map(math.isfinite, found)):
    return math.nan
  return statistics.stdev(found)


def of_methods(frame: pd.DataFrame, columns: Iterable[Column]) -> pd.DataFrame:
  """Returns the methods' values as exact numbers, such as fractions and bytes.

  The DataFrame has a row for each method of `collect`, with the following columns:
    algorithm: the method's label.
    seeds: the seeds, separated by spaces.
    NAME_mean and NAME_std, for each column NAME: numbers, or nan if not measured.
    rounds_to_NAME_mean and rounds_to_NAME_std, for each target NAME: numbers, or nan if a
      seed did not reach the target.
    rounds_to_NAME_by_seed, for each target NAME: the rounds of each seed, such as
      '54 >200', or '' if not measured.
  """
  by = frame['method'].to_numpy()
  cells = {
    'algorithm': frame.groupby(by)['label'].first(),
    'seeds': frame.groupby(by)['seed'].agg(lambda s: ' '.join(map(str, s))),
  }
  rounds = [run.summary['rounds'] for run in frame['run']]
  for each in columns:
    read = map(each.read, frame['run'])
    values = pd.Series([math.nan if v is None else v for v in read], dtype=float)
    mean = values.groupby(by).agg(_mean)
    cells[f'{each.key}_mean'] = mean.replace(math.inf, math.nan)
    cells[f'{each.key}_std'] = values.groupby(by).agg(_std)
    if each.is_target:
      reached = pd.DataFrame({'reached': values, 'rounds': rounds})
      cells[f'{each.key}_by_seed'] = reached.groupby(by).apply(_by_seed)
  return pd.DataFrame(cells)


def _by_seed(runs: pd.DataFrame) -> str:
  """Returns each seed's rounds to a target, or a bound such as '>200' for a missed target."""
  if runs['reached'].isna().any():
    return ''
  missed = runs['reached'] == math.inf
  bound = f'>{runs["rounds"][missed].min()}'
  return ' '.join(bound if found == math.inf else f'{found:.0f}' for found in runs['reached'])


def all_columns(targets: Iterable[targets_lib.Target], more: Iterable[Column] = ()) -> list[Column]:
  """Returns the columns that all tables have, the columns of `targets`, and `more`."""
  rounds, *others = COLUMNS.values()
  names = dict.fromkeys(target.name for target in targets)
  return [rounds, *map(column, names), *more, *others]


def build(
  frame: pd.DataFrame,
  metric: str | None = None,
  targets: Sequence[targets_lib.Target] | None = None,
  budgets: Sequence[targets_lib.Budget] = (),
  reference: pd.DataFrame | None = None,
  more: Sequence[Column] = (),
) -> pd.DataFrame:
  """Returns the table of methods as `of_methods` does, the best `metric` first.

  Args:
    frame: from `collect`.
    metric: a score or a target to sort by. None means the first score that any method has.
    targets: targets for which the table shows the rounds. None means the targets of the
      runs.
    budgets: budgets for which the table shows the score of `metric` when the budget is used
      up.
    reference: runs of one method. The table then also has the score of `metric` divided by
      the reference's final score, and the rounds to a tenth, half and nine tenths of this
      final score.
    more: additional columns.
  """
  wanted = [target.name for target in targets or ()]
  if targets is None:
    targets = [
      target for run in frame['run'] for target in targets_lib.parse(run.config.get('target', ''))
    ]
  if metric is not None:
    wanted.append(metric)
    if ':' in metric:
      targets = [*targets, targets_lib.parse_one(metric)]
  table = of_methods(frame, all_columns(targets, more))
  present = measured(table)
  # If `metric` is a target, use the score of this target.
  first = metric and metric.partition(':')[0]
  scores = [n for n in (first, *present) if n in catalog.SCORES]
  if scores and (budgets or reference is not None):
    added = [column(f'{scores[0]}@{budget.name}') for budget in budgets]
    if reference is not None:
      name = f'relative_{scores[0]}'
      names = (name, *(f'{name}:{part}' for part in _PARTS))
      added += [column(each, reference) for each in names]
    table = of_methods(frame, all_columns(targets, [*added, *more]))
  for name in wanted:
    if name not in present:
      what = f'a final {name} of all its seeds'
      if ':' in name:
        what = f'the scores of all its seeds that the target {name} needs'
      raise errors.InputError(
        f'none of the runs has {what}; they have {", ".join(present) or "no metric"}.'
      )
  if metric is None:
    metric = present[0] if present else next(iter(catalog.SCORES))
  return table.iloc[ranking(table, metric)]


def measured(table: pd.DataFrame) -> list[str]:
  """Returns the scores, then the targets, for which any method has a value."""
  columns = [each for each in columns_of(table) if _has_value(table, each)]
  scores = [each.name for each in columns if each.name in catalog.SCORES]
  return [*scores, *(each.name for each in columns if each.is_target)]


def _has_value(table, each: Column) -> bool:
  if each.is_target:
    return table[f'{each.key}_by_seed'].astype(bool).any()
  return table[f'{each.key}_mean'].notna().any()


def ranking(table: pd.DataFrame, metric: str) -> list[int]:
  """Returns the indices of a table's rows, sorted by a metric, the best first."""
  key = column(metric).key
  means = table[f'{key}_mean']
  if ':' in metric:
    # Among methods that missed the target, methods with fewer missing seeds come first.
    by_seed = table[f'{key}_by_seed']
    missed = by_seed.str.count('>').astype(float).where(by_seed != '', math.inf)
    best = list(zip(missed, means.fillna(math.inf), strict=True))
  else:
    sign = 1 if catalog.SCORES[metric].better == 'lower' else -1
    best = (sign * means).fillna(math.inf).tolist()
  return sorted(range(len(table)), key=best.__getitem__)


def cells(
  table: pd.DataFrame, columns: Sequence[Column], label: str = 'algorithm'
) -> list[list[str]]:
  """Returns the heading and the rows of a table as printed text."""
  lines = [[label, 'seeds', *(each.heading for each in columns)]]
  for _, row in table.iterrows():
    seeds = str(len(row['seeds'].split()))
    lines.append([row[label], seeds, *(shown(each, row) for each in columns)])
  return lines


def _marked(
  table: pd.DataFrame, columns: Sequence[Column], best: str, other: str
) -> list[list[str]]:
  """Returns `cells`, with the best values of a column marked.

  The pattern `best` formats the best values of each column, and `other` formats its other
  values. Columns without a better direction, or whose values all look alike, stay unchanged.
  """
  heading, *lines = cells(table, columns)
  for place, each in enumerate(columns, 2):
    means = table[f'{each.key}_mean']
    # Also mark values that look like the best value when printed.
    looks = [_NONE if math.isnan(m) else each.show(m, math.nan) for m in means]
    if each.better == 'neither' or len({*looks} - {_NONE}) < 2:
      continue
    of_best = means.min() if each.better == 'lower' else means.max()
    as_best = each.show(of_best, math.nan)
    for line, look in zip(lines, looks, strict=True):
      line[place] = (best if look == as_best else other).format(line[place])
  return [heading, *lines]


def shown(each: Column, row: pd.Series) -> str:
  """Returns a value as printed text, such as '50.0 ± 3.0' or '>200 in 1 of 3 seeds'."""
  seeds = str(row.get(f'{each.key}_by_seed', '')).split()
  missed = [seed for seed in seeds if seed.startswith('>')]
  if missed:
    some = f' in {len(missed)} of {len(seeds)} seeds'
    return missed[0] + (some if len(missed) < len(seeds) else '')
  mean, std = (row.get(f'{each.key}_{of}', math.nan) for of in ('mean', 'std'))
  return _NONE if math.isnan(mean) else each.show(mean, std)


def _shown_columns(table: pd.DataFrame) -> list[Column]:
  """Returns the columns that have a value in any row, or that were asked for."""
  return [each for each in columns_of(table) if each.is_asked_for or _has_value(table, each)]


def to_text(
  table: pd.DataFrame,
  width: int | None = None,
  metric: str | None = None,
  elsewhere: str = 'the CSV',
  mark: bool = False,
) -> str:
  """Returns an aligned table for a terminal, ending in a newline.

  With `mark`, the best values of a column have a star. With `width`, the table has only as
  many columns as fit this many characters. `metric` and columns that were asked for take
  precedence, and then the most informative columns. A line below the table says that the
  other columns are in `elsewhere`.
  """
  columns = _shown_columns(table)
  stars = ('{}*', '{} ') if mark else ('{}', '{}')
  if width is None:
    return text_table.to_text(_marked(table, columns, *stars))
  wrapped = table['algorithm'].map(lambda label: textwrap.fill(label, max(width // 2, 20)))
  table = table.assign(algorithm=wrapped)
  asked_for = [each.name for each in columns if each.name not in COLUMNS]
  first = [metric, *asked_for, *catalog.HEADLINES, *_TELLING]
  order = [*first, *(each.name for each in columns)]
  kept, text = [], ''
  for each in sorted(columns, key=lambda c: order.index(c.name)):
    more = [c for c in columns if c in kept or c is each]
    wider = text_table.to_text(_marked(table, more, *stars))
    if not kept or max(map(len, wider.splitlines())) <= width:
      kept, text = more, wider
  if mark and '*' in text:
    text += '*: the best of its column\n'
  for each in kept:
    if each.name in _LEGEND:
      text += textwrap.fill(_LEGEND[each.name], width) + '\n'
  if others := ', '.join(c.heading for c in columns if c not in kept):
    others = f'more columns in {elsewhere}: {others}'
    text += textwrap.fill(others, width) + '\n'
  return text


def to_markdown(table: pd.DataFrame, mark: bool = False) -> str:
  best = '**{}**' if mark else '{}'
  found = _marked(table, _shown_columns(table), best, '{}')
  return text_table.to_markdown(found)


def to_csv(table: pd.DataFrame) -> str:
  """Returns a table as CSV."""
  return table.to_csv(index=False, lineterminator='\n')


def read_csv(path: pathlib.Path) -> pd.DataFrame:
  """Reads a table that `to_csv` wrote; raises InputError if it is not such a table."""
  try:
    text = io.StringIO(files.read_text(path))
    table = pd.read_csv(text, dtype=str, keep_default_na=False)
    exact = [name for name in table if name.endswith(('_mean', '_std'))]
    table[exact] = table[exact].replace('', 'nan').astype(float)
    if 'seeds' not in table:
      raise ValueError('it has no column seeds')
  except (OSError, ValueError) as e:
    raise errors.InputError(f'{path} is no table of runs ({e})') from e
  return table.copy()  # Without the copy, pandas would add columns slowly.
