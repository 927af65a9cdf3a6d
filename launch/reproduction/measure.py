"""The lines and the picture of a table or figure, from its finished runs."""

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch.sweeps import plan
from launch.sweeps import training
from tasks.papers import names
from tasks.papers import table as table_lib
from tff_xc import files
from tff_xc.measure import catalog
from tff_xc.measure import targets
from tff_xc.report import methods
from tff_xc.report import run_files

_Runs = Sequence[run_files.Run]


def finished(
  found: table_lib.PaperTable, runs: Sequence[Sequence[plan.Run]]
) -> list[_Runs | None]:
  """Returns each row's runs as they are after the table's rounds.

  None for a row of which a seed has not finished: a mean over some seeds would pass
  for one over all.
  """
  return [
    [_read(found, run) for run in group]
    if all(training.is_finished(run) for run in group)
    else None
    for group in runs
  ]


def _read(found: table_lib.PaperTable, planned: plan.Run) -> run_files.Run:
  run = run_files.read_run(planned.folder)
  if run.metrics['round'].max() != run.summary['rounds']:
    raise files.damaged(
      run.path / run_files.METRICS,
      f'expected rounds up to {run.summary["rounds"]}',
    )
  by = planned.config['best_by']
  if found.at_rounds:
    by = ''
    last = min(found.at_rounds, run.config['rounds'])
    run = run_files.first_rounds(run, last)
  # Another command, with another --best_by, may have trained it.
  scores = [name for name in catalog.SCORES if name in run.metrics]
  best = (run.summary.get('best_round') or {}) if by else {}
  if by and best.get('by') != by:
    choice = targets.BestRound(by if by in scores else '')
    best = choice.summary(run.metrics, scores) or {}
  return dataclasses.replace(run, summary={**run.summary, 'best_round': best})


def lines(
  found: table_lib.PaperTable,
  rows: Sequence[table_lib.Row],
  groups: Sequence[_Runs | None],
  about: Mapping[str, Any],
  notes: Mapping[int, str],
) -> list[dict[str, Any]]:
  """Returns the lines of a table, those of rows without runs empty.

  `about` is of all lines, `notes` say why a row has no runs, by its number.
  """
  made = []
  claims = (found.form(about['scale']) or found).claims
  wholes = [found.reference(row, rows) for row in rows]
  of = {id(row): runs for row, runs in zip(rows, groups, strict=True)}
  for number, (row, label, runs, whole) in enumerate(
    zip(rows, table_lib.labels(rows), groups, wholes, strict=True)
  ):
    line = {
      **about,
      'table': found.table,
      'row': label,
      'task': row.task,
      'algorithm': row.algorithm,
      'changes': table_lib.text_of(row.changes),
    }
    if runs:
      revisions = (run.config.get('git_revision') for run in runs)
      line |= {
        'seeds': len(runs),
        # The longest, if some stopped early.
        'rounds': max(run.summary['rounds'] for run in runs),
        'revision': ' '.join(dict.fromkeys(filter(None, revisions))),
      }
    else:
      line['note'] = '; '.join(filter(None, [about['note'], notes.get(number)]))
    claimed = (c.metric for c in claims if _is_claimed(c, row, rows))
    wanted = dict.fromkeys([*row.published, *claimed])
    for name in wanted:
      text = (row.published.get(name) or '').replace(' ', '')
      value = measured(runs, name, of[id(whole)] if whole else None)
      made.append({**line, 'metric': name, 'published': text, **value})
      is_score = (
        row.algorithm in found.best_seed and names.parse(name).is_percent
      )
      if value and is_score and len(runs) > 1:
        best = max(measured([run], name)['mean'] for run in runs)
        made.append({**line, 'metric': names.BEST_SEED + name, 'mean': best})
    for name in (names.SECONDS, names.BEST_ROUND, names.SENT):
      if runs and name not in wanted and (value := measured(runs, name)):
        made.append({**line, 'metric': name, **value})
  return made


def _is_claimed(
  claim: table_lib.Claim, row: table_lib.Row, rows: Sequence[table_lib.Row]
) -> bool:
  """Whether a claim's metric is measured of a row of an algorithm that it names.

  Of those that print the metric, if any do.
  """
  metric = claim.metric
  if row.algorithm not in claim.algorithms:
    return False
  if any(metric in other.published for other in rows):
    return metric in row.published
  has_metric = table_lib.has_metric
  return has_metric(metric, [row]) or not has_metric(metric, rows)


def measured(
  runs: _Runs | None, name: str, whole: _Runs | None = None
) -> dict[str, Any]:
  """Returns mean, and std of several seeds, in percent or as a number; {} without.

  A score without a budget is that of the best round where a run chose one. Rounds
  to a target that a seed missed are '>' the mean with the rounds that it had. `whole`
  are the runs to whose score a result may be relative, each seed's to its own.
  """
  if not runs:
    return {}
  parts = names.parse(name)
  if parts.is_rounds:
    return _rounds_to(runs, parts, whole)
  found = [_value(run, parts) for run in runs]
  if None in found:
    return {}
  factor = 100 if parts.is_percent else 1
  return _over_seeds(runs, [factor * value for value in found])


def _over_seeds(
  runs: _Runs, found: Sequence[float], missed: Sequence[bool] = ()
) -> dict[str, Any]:
  """Returns mean, std, and values by seed, with a bound where a target was missed."""
  bounds = ['>' if each else '' for each in missed or [False] * len(found)]
  values = {'mean': float(statistics.fmean(found))}
  if len(found) > 1:
    values['std'] = float(statistics.stdev(found))
  values['by_seed'] = ' '.join(
    f'{run.seed}:{bound}{value:.10g}'
    for run, bound, value in zip(runs, bounds, found, strict=True)
  )
  return values


def _rounds_to(runs: _Runs, parts: names.Parts, whole) -> dict[str, Any]:
  wanted = [parts.target] * len(runs)
  if parts.target is None:
    of_seed = {run.config['seed']: run for run in whole or ()}
    own = [of_seed.get(run.config['seed']) for run in runs]
    scores = [run and _value(run, names.Parts(parts.metric)) for run in own]
    if None in scores:
      return {}
    wanted = [
      targets.Target(parts.metric, parts.relative * score) for score in scores
    ]
  if not all(
    parts.metric in run.metrics and run.metrics[parts.metric].count()
    for run in runs
  ):
    return {}
  reached = [
    target.first_round(run.metrics)
    for target, run in zip(wanted, runs, strict=True)
  ]
  missed = [rounds is None for rounds in reached]
  least = [
    run.summary['rounds'] if rounds is None else rounds
    for run, rounds in zip(runs, reached, strict=True)
  ]
  found = _over_seeds(runs, least, missed)
  if any(missed):
    found['mean'] = f'>{found["mean"]:.10g}'
  if all(missed):  # Nothing is known of how they differ.
    found.pop('std', None)
  return found


def _value(run: run_files.Run, parts: names.Parts) -> float | None:
  """Returns a number of one run at a budget, its best round or its end."""
  best = run.summary['best_round']
  if parts.is_volatility:
    found = run.metrics.get(parts.metric)
    if parts.budget:
      found = parts.budget.scores(run.metrics, parts.metric)
    return targets.volatility(found)
  if parts.budget:
    return parts.budget.score(run.metrics, parts.metric)
  if parts.metric == names.SECONDS:
    return run.summary.get('seconds_per_round_median')
  if parts.metric in (names.BEST_ROUND, names.SENT):
    return best.get('round' if parts.metric == names.BEST_ROUND else names.SENT)
  if parts.metric in catalog.SCORES:
    return (best or run.summary['final']).get(parts.metric)
  if parts.metric not in run.metrics:
    return None
  last = float(run.metrics[parts.metric].iloc[-1])
  # Such as the support vectors of a class that was not drawn in this round.
  return None if math.isnan(last) else last


def draw(
  found: table_lib.PaperTable,
  rows: Sequence[table_lib.Row],
  groups: Sequence[_Runs | None],
  where: pathlib.Path,
) -> None:
  """Draws result.png of a table's learning curves, or result_TASK.png of several.

  Of final scores it draws the best at each effective rate, and of a grid only the
  best row's curve.
  """
  from tff_xc.report import curves
  from tff_xc.report import pictures
  from tff_xc.report import tables

  there = [
    each
    for each in zip(rows, table_lib.labels(rows), groups, strict=True)
    if each[2]
  ]
  if found.best_over:
    there = best_of_grids(there, found.best_over)
  frame = lambda labelled: tables.collect(
    [run for _, runs in labelled for run in runs],
    [label for label, runs in labelled for _ in runs],
  )
  tasks = dict.fromkeys(row.task for row, *_ in there)
  for task in tasks:
    of_task = [each for each in there if each[0].task == task]
    # Rows with equal settings share their runs.
    shown = {runs[0].path: (label, runs) for _, label, runs in of_task}
    wholes = {id(found.reference(row, rows)) for row, *_ in of_task}
    whole = [each[1:] for each in of_task if id(each[0]) in wholes][:1]
    if found.over == table_lib.EFFECTIVE_RATE:
      of_rate = [(row, runs) for row, _, runs in of_task]
      figure = curves.lines_figure(
        by_effective_rate(of_rate, found.curves[0]),
        f'{task}, best of {curves.rounds_of(r for _, runs in of_rate for r in runs)}',
        'effective rate, that of the clients / (1 - momentum)',
        f'final {names.heading(found.curves[0])} %',
      )
    else:
      figure = curves.compare_figure(
        frame(shown.values()),
        found.curves,
        found.over,
        frame(whole) if found.is_relative and whole else None,
        searched=found.best_over,
      )
    name = 'result.png' if len(tasks) == 1 else f'result_{task}.png'
    where.mkdir(parents=True, exist_ok=True)
    pictures.save(figure, where / name)


def best_of_grids(
  there: Sequence[tuple[table_lib.Row, str, _Runs]], searched: Sequence[str]
) -> list[tuple[table_lib.Row, str, _Runs]]:
  """Returns the best of rows that differ only in `searched`, by their first score."""
  best = {}
  for each in there:
    row, _, runs = each
    scores = [n for n in row.published if names.parse(n).is_percent]
    score = measured(runs, scores[0]).get('mean', 0.0) if scores else 0.0
    others = table_lib.text_of(table_lib.without(row.changes, searched))
    key = row.task, row.algorithm, others
    best[key] = max(
      best.get(key, (score, each)), (score, each), key=lambda pair: pair[0]
    )
  return [each for _, each in best.values()]


def by_effective_rate(
  of_rows: Sequence[tuple[table_lib.Row, _Runs]], metric: str
) -> dict[str, list[tuple[float, float]]]:
  """Returns by the rows' other settings (rate, best score in percent), sorted."""
  rows = [row for row, _ in of_rows]
  best: dict[str, dict[float, float]] = {}
  for row, runs in of_rows:
    settings = {n: runs[0].hyperparameters[n] for n in table_lib.EFFECTIVE}
    rate, momentum = settings.values()
    # 0.001 / (1 - 0.9) is a little above 0.01.
    rate = float(f'{rate / (1 - momentum):.6g}')
    others = {
      name: value
      for name, value in table_lib.without(row.changes, settings).items()
      if any(
        other.changes.get(name) != value
        for other in rows
        if table_lib.applying({name: value}, other.algorithm)
      )
    }
    text = table_lib.text_of(others).replace(';', ', ')
    line = best.setdefault(text or methods.title(row.algorithm), {})
    line[rate] = max(line.get(rate, 0.0), measured(runs, metric)['mean'])
  return {name: sorted(line.items()) for name, line in best.items()}


def draw_formula(found: table_lib.Formula, where: pathlib.Path) -> None:
  """Draws result.png of a formula's curves, with the printed points."""
  from tff_xc.report import pictures

  figure, [ax] = pictures.panels(1, 1, (6.5, 4))
  styles, curves = pictures.styles(), found.curves
  for drawn, without in (curves.lines, 'marker'), (curves.points, 'linestyle'):
    for (label, places), style in zip(drawn.items(), styles, strict=False):
      x, y = zip(*places, strict=True)
      ax.plot(x, y, **{**style, without: 'none'}, label=label)
  ax.set_xscale('log')
  pictures.label(ax, found.title, found.curves.x, found.curves.y)
  ax.legend(frameon=False)
  pictures.save(figure, where / 'result.png')
