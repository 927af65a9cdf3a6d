"""Trains the runs of results, measures them, and writes what came of them."""

import dataclasses
import itertools
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence

from launch import machine, runs as runs_lib
from launch.reproduction import judge, lines as lines_lib, page, plan
from tasks import registry as tasks, task as task_lib
from tasks.papers import names, table as table_lib
from tff_xc import environment, errors, files
from tff_xc.measure import catalog, targets
from tff_xc.report import methods, run_files

Number = lines_lib.Number
Line = lines_lib.Line
Planned = plan.Planned
_Runs = Sequence[run_files.Run]


def run_all(planned: Sequence[Planned], request: plan.Request) -> None:
  """Measures results one after another; prints and writes what came of them.

  The runs of all tables of a paper are trained together, ahead of its results. Of
  several results, one that cannot be measured ends no others.
  """
  verdicts, damaged = [], []
  for paper, group in itertools.groupby(planned, lambda each: each.found.paper):
    together = [*group]
    failures = _train(paper, together, request) if request.train else {}
    for each in together:
      try:
        verdicts.append(_measure(each, failures))
      except errors.InputError as e:
        if request.is_one:
          raise
        if isinstance(e, errors.DamageError):
          damaged.append(each.found.name)
        verdicts.append(_not_measured(each, e))
  if not request.is_one:
    print(page.counted(verdicts))
  shown = page.write(request.output, request.scale)
  print(f'written to {request.output}, see {shown.name}', flush=True)
  if damaged:
    raise errors.InputError(
      'files that are damaged, or cannot be written, kept these from being measured:'
      f' {", ".join(damaged)}; the reasons stand above'
    )


def _train(
  paper: str, planned: Sequence[Planned], request: plan.Request
) -> dict[pathlib.Path, Exception | str]:
  """Trains the runs of tables together, so that no core waits for a table's last run.

  Returns why runs failed, by directory; an exception if none of its task was trained.
  """
  with_runs = [each for each in planned if each.runs]
  by_folder: dict[str, dict[pathlib.Path, runs_lib.Run]] = {}
  for each in with_runs:
    # Encoders are trained before the runs that start from them.
    by_folder.setdefault(plan.ENCODERS, {}).update(each.encoders)
    for folder, run in each.by_folder.items():
      if len(with_runs) > 1:  # Rows of several tables have one label.
        run = dataclasses.replace(run, name=f'{each.found.name} {run.point}')
      by_folder.setdefault(run.task, {}).setdefault(folder, run)
  if len(with_runs) > 1:
    print(f'{paper}: the runs of its tables and figures ...', flush=True)
  failures: dict[pathlib.Path, Exception | str] = {}
  encoders = by_folder.get(plan.ENCODERS, {})
  for task, found in by_folder.items():
    waiting = []
    for folder, run in found.items():
      encoder = encoders.get(pathlib.Path(run.config['start_from']))
      if encoder and (why := _why_not_finished(encoder, failures)):
        failures[folder] = f'the encoder that it starts from was not trained: {why}'
      else:
        waiting.append(run)
    if not waiting:
      continue
    # One tells how many fit the memory, and the cores wait for the last.
    waiting.sort(key=plan.cost, reverse=True)
    where = request.output / 'runs' / task
    try:
      failures |= runs_lib.train(waiting, {}, where, request.jobs)
    except BrokenPipeError:
      raise  # Nobody reads what is printed.
    except (errors.InputError, OSError) as e:
      failures |= {run.folder: e for run in waiting}
  return failures


def _why_not_finished(
  encoder: runs_lib.Run, failures: Mapping[pathlib.Path, Exception | str]
) -> str:
  """Returns why a run is not finished; '' if it is."""
  try:
    if runs_lib.is_finished(encoder):
      return ''
  except errors.InputError as e:
    return str(e)
  return str(failures.get(encoder.folder, 'it has not finished'))


def _not_measured(each: Planned, problem: errors.InputError) -> judge.Verdict:
  """Tells why a result was not measured, and writes it where nothing was before."""
  kept, why = each.kept(), str(problem)
  if kept.is_measured:
    why = f'{why}; the result of before stays'
  elif not isinstance(problem, errors.DamageError):
    kept = each.measured([_about(each, note=why)])
    kept.write(each.request.output)
  verdict = judge.judge(kept).verdict
  print(f'{kept.found.name}: {verdict}: {why}\n', flush=True)
  return verdict


def _about(each: Planned, **more) -> Line:
  """Returns what all lines of a result have."""
  return Line(table=each.found.table, scale=each.request.scale, command=each.command, **more)


def _measure(each: Planned, failures: Mapping[pathlib.Path, Exception | str]) -> judge.Verdict:
  """Measures, writes and tells a result; without any now, that of before stays."""
  found, request = each.found, each.request
  if not request.is_one:
    print(f'{found.name} ...', flush=True)
  try:
    _refuse_without_runs(each, failures)
    now, kept = _measured(each, failures), each.kept()
    shown = now if now.is_measured or not kept.is_measured else kept
    if shown is now and now.lines:
      now.write(request.output)
    with lines_lib.writing(request.output / found.name) as where:
      page.write_text(shown, where)
  except BrokenPipeError:
    raise  # Nobody reads what is printed.
  except OSError as e:
    raise errors.DamageError(
      f'{found.name} could not be measured: {e}; mend that, and run the same command again'
    ) from e
  verdict, why, _ = judge.judge(shown)
  told = f'{found.name}: {verdict}: {why}\n'
  print(page.to_text(shown) if request.is_one else told, flush=True)
  if shown is kept:
    print('nothing was measured now; the result of before stays\n', flush=True)
  return verdict


def _refuse_without_runs(each: Planned, failures: Mapping[pathlib.Path, Exception | str]) -> None:
  """Raises why nothing was trained, if no run of a result was begun, now or before."""
  problems: dict[str, Exception] = {}
  for folder, run in each.by_folder.items():
    why = failures.get(folder)
    if isinstance(why, OSError):
      raise why
    if not isinstance(why, Exception) or folder.exists():
      return
    problems[run.task] = why
  if problems:
    told = [f'{task}: {why}' for task, why in problems.items()]
    raise errors.InputError('; '.join(told))


def _measured(
  each: Planned, failures: Mapping[pathlib.Path, Exception | str]
) -> lines_lib.Measured:
  """Measures a study, or reads a table's runs."""
  found, where = each.found, each.request.output / each.found.name
  processor = machine.processor() if each.request.train else ''
  about = _about(each, processor=processor, note=_part(each))
  if isinstance(found, table_lib.Study):
    if not each.request.train:
      return each.measured([])
    from launch.reproduction import studies  # Late: it needs TensorFlow.

    with lines_lib.writing(where):
      made = studies.measure(each, where)
    revision = environment.describe()['git_revision'] or ''
    about = dataclasses.replace(about, revision=revision)
    return each.measured([_joined(about, line) for line in made])
  if not each.rows:
    return each.measured([])
  groups = finished(found, each.runs)
  if any(groups):
    with lines_lib.writing(where):
      draw(found, each.rows, groups, where)
  notes = [_note(group, failures) for group in each.runs]
  return each.measured(lines(found, each.rows, groups, about, notes))


def _joined(about: Line, line: Line) -> Line:
  """Returns a study's line with what all lines have."""
  return dataclasses.replace(
    line,
    table=about.table,
    scale=about.scale,
    command=about.command,
    processor=about.processor,
    revision=about.revision,
    note=line.note or about.note,
  )


def _part(each: Planned) -> str:
  """Returns which data sets of a table are there only in part; '' if none is."""
  told = {}
  for run in each.by_folder.values():
    if run.task not in told:
      told[run.task] = task_lib.part(tasks.get(run.task), run.config['data_dir'])
  return ', '.join(f'{task} has {part}' for task, part in told.items() if part)


def _note(group: Sequence[runs_lib.Run], failures: Mapping[pathlib.Path, Exception | str]) -> str:
  """Returns why a row lacks a run, ''; of several seeds the last one's."""
  for run in reversed(group):
    why = failures.get(run.folder)
    if isinstance(why, Exception):
      return f'{run.task}: {why}'
    if why:
      return f'{run.folder} failed: {why}'
  return ''


def finished(
  found: table_lib.PaperTable, runs: Sequence[Sequence[runs_lib.Run]]
) -> list[_Runs | None]:
  """Returns each row's runs as they are after the table's rounds.

  None for a row of which a seed has not finished: a mean over some seeds would pass
  for one over all.
  """
  groups = []
  for group in runs:
    is_whole = all(runs_lib.is_finished(run) for run in group)
    groups.append([_read(found, run) for run in group] if is_whole else None)
  return groups


def _read(found: table_lib.PaperTable, planned: runs_lib.Run) -> run_files.Run:
  run = run_files.read_run(planned.folder)
  if run.metrics['round'].max() != run.summary['rounds']:
    raise files.damaged(
      run.path / run_files.METRICS, f'expected rounds up to {run.summary["rounds"]}'
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
  about: Line,
  notes: Sequence[str],
) -> list[Line]:
  """Returns the lines of a table, those of rows without runs empty.

  `about` has what all lines have, `notes` why each row has no runs.
  """
  made, labels = [], table_lib.labels(rows)
  claims = (found.form(about.scale) or found).claims
  of_row = {id(row): runs for row, runs in zip(rows, groups, strict=True)}
  for row, label, runs, note in zip(rows, labels, groups, notes, strict=True):
    line = dataclasses.replace(
      about, row=label, task=row.task, algorithm=row.algorithm, changes=row.changes
    )
    if runs:
      revisions = (run.config.get('git_revision') for run in runs)
      line = dataclasses.replace(
        line,
        seeds=len(runs),
        # The longest, if some stopped early.
        rounds=max(run.summary['rounds'] for run in runs),
        revision=' '.join(dict.fromkeys(filter(None, revisions))),
      )
    else:
      note = '; '.join(filter(None, [about.note, note]))
      line = dataclasses.replace(line, note=note)
    whole = of_row.get(id(found.reference(row, rows)))
    claimed = (c.metric for c in claims if _is_claimed(c, row, rows))
    wanted = dict.fromkeys([*row.published, *claimed])
    for name in wanted:
      value, by_seed = measured(runs, name, whole)
      made.append(
        dataclasses.replace(
          line, metric=name, published=row.published.get(name), measured=value, by_seed=by_seed
        )
      )
      is_score = names.parse(name).is_percent and len(by_seed) > 1
      if is_score and row.algorithm in found.best_seed:
        best = Number(max(each.value for each in by_seed.values()))
        name = names.BEST_SEED + name
        made.append(dataclasses.replace(line, metric=name, measured=best))
    for name in (names.SECONDS, names.BEST_ROUND, names.SENT):
      value, by_seed = measured(runs, name)
      if value and name not in wanted:
        made.append(dataclasses.replace(line, metric=name, measured=value, by_seed=by_seed))
  return made


def _is_claimed(claim: table_lib.Claim, row: table_lib.Row, rows: Sequence[table_lib.Row]) -> bool:
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
) -> tuple[Number | None, dict[int, Number]]:
  """Returns the mean over runs and each seed's value, in percent or as a number.

  None and {} without all of them. A score without a budget is that of the best round
  where a run chose one. Rounds to a target that a seed missed are a bound, of the
  rounds that it had. `whole` are the runs to whose score a result may be relative, each
  seed's to its own.
  """
  parts, by_seed = names.parse(name), {}
  references = {run.seed: run for run in whole or ()}
  for run in runs or ():
    if parts.is_rounds:
      value = _rounds_to(run, parts, references.get(run.seed))
    else:
      value = _value(run, parts)
      factor = 100 if parts.is_percent else 1
      value = None if value is None else Number(factor * value)
    if value is None:
      return None, {}
    by_seed[run.seed] = value
  if not by_seed:
    return None, {}
  values = [each.value for each in by_seed.values()]
  missed = [each.is_bound for each in by_seed.values()]
  std = statistics.stdev(values) if len(values) > 1 else None
  if all(missed):  # Nothing is known of how they differ.
    std = None
  return Number(statistics.fmean(values), std, any(missed)), by_seed


def _rounds_to(
  run: run_files.Run, parts: names.Parts, reference: run_files.Run | None
) -> Number | None:
  """Returns the first round with a score; a bound if there is none."""
  target = parts.target
  if target is None:
    score = reference and _value(reference, names.Parts(parts.metric))
    if score is None:
      return None
    target = targets.Target(parts.metric, parts.relative * score)
  if parts.metric not in run.metrics or not run.metrics[parts.metric].count():
    return None
  reached = target.first_round(run.metrics)
  rounds = run.summary['rounds'] if reached is None else reached
  return Number(float(rounds), is_bound=reached is None)


def _value(run: run_files.Run, parts: names.Parts) -> float | None:
  """Returns a number of one run at a budget, its best round or its end."""
  best, name = run.summary['best_round'], parts.metric
  if parts.is_volatility:
    found = run.metrics.get(name)
    if parts.budget:
      found = parts.budget.scores(run.metrics, name)
    return targets.volatility(found)
  if parts.budget:
    return parts.budget.score(run.metrics, name)
  if name == names.SECONDS:
    return run.summary.get('seconds_per_round_median')
  if name in (names.BEST_ROUND, names.SENT):
    return best.get('round' if name == names.BEST_ROUND else name)
  if name in catalog.SCORES:
    return (best or run.summary['final']).get(name)
  last = run.metrics[name].iloc[-1] if name in run.metrics else math.nan
  # Such as the support vectors of a class that was not drawn in this round.
  return None if math.isnan(last) else float(last)


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
  from tff_xc.report import curves, pictures, tables

  there = zip(rows, table_lib.labels(rows), groups, strict=True)
  there = [each for each in there if each[2]]
  if found.best_over:
    there = best_of_grids(there, found.best_over)

  def frame(labelled):
    all_ = [(run, label) for label, runs in labelled for run in runs]
    return tables.collect([run for run, _ in all_], [label for _, label in all_])

  tasks_ = dict.fromkeys(row.task for row, *_ in there)
  for task in tasks_:
    of_task = [each for each in there if each[0].task == task]
    if found.over == table_lib.EFFECTIVE_RATE:
      of_rate = [(row, runs) for row, _, runs in of_task]
      figure = curves.lines_figure(
        by_effective_rate(of_rate, found.curves[0]),
        task,
        'effective rate, that of the clients / (1 - momentum)',
        f'final {names.heading(found.curves[0])} %',
      )
    else:
      # Rows with equal settings share their runs.
      shown = {runs[0].path: (label, runs) for _, label, runs in of_task}
      wholes = {id(found.reference(row, rows)) for row, *_ in of_task}
      whole = [each[1:] for each in of_task if id(each[0]) in wholes][:1]
      figure = curves.compare_figure(
        frame(shown.values()),
        found.curves,
        found.over,
        frame(whole) if found.is_relative and whole else None,
        searched=found.best_over,
      )
    name = 'result.png' if len(tasks_) == 1 else f'result_{task}.png'
    pictures.save(figure, where / name)


def best_of_grids(
  there: Sequence[tuple[table_lib.Row, str, _Runs]], searched: Sequence[str]
) -> list[tuple[table_lib.Row, str, _Runs]]:
  """Returns the best of rows that differ only in `searched`, by their first score."""
  best = {}
  for each in there:
    row, _, runs = each
    scores = [n for n in row.published if names.parse(n).is_percent]
    mean = measured(runs, scores[0])[0] if scores else None
    score = mean.value if mean else 0.0
    others = table_lib.text_of(table_lib.without(row.changes, searched))
    key = row.task, row.algorithm, others
    if key not in best or score > best[key][0]:
      best[key] = score, each
  return [each for _, each in best.values()]


def by_effective_rate(
  of_rows: Sequence[tuple[table_lib.Row, _Runs]], metric: str
) -> dict[str, list[tuple[float, float]]]:
  """Returns by the rows' other settings (rate, best score in percent), sorted."""
  rows = [row for row, _ in of_rows]
  best: dict[str, dict[float, float]] = {}
  for row, runs in of_rows:
    rate, momentum = (runs[0].hyperparameters[n] for n in table_lib.EFFECTIVE)
    # 0.001 / (1 - 0.9) is a little above 0.01.
    rate = float(f'{rate / (1 - momentum):.6g}')
    others = table_lib.own_changes(row, rows)
    others = table_lib.without(others, table_lib.EFFECTIVE)
    text = table_lib.text_of(others).replace(';', ', ')
    line = best.setdefault(text or methods.title(row.algorithm), {})
    mean, _ = measured(runs, metric)
    line[rate] = max(line.get(rate, 0.0), mean.value)
  return {name: sorted(line.items()) for name, line in best.items()}
