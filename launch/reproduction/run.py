"""Trains the runs of results, and measures, prints and writes the results."""

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
from tff_xc.report import methods, pictures, run_files, tables

Number = lines_lib.Number
Line = lines_lib.Line
Planned = plan.Planned
_Runs = Sequence[run_files.Run]
# The reasons why runs were not trained, by run directory.
_Failures = Mapping[pathlib.Path, str]


def run_all(planned: Sequence[Planned], request: plan.Request) -> None:
  """Measures results one after another, and prints and writes them.

  The runs of all tables of a paper are trained together, before the paper's results are
  measured. If one of several results cannot be measured, the function still measures the
  others.
  """
  verdicts, damaged = [], []
  for paper, group in itertools.groupby(planned, lambda each: each.found.paper):
    together = [*group]
    failures = _train(paper, together, request) if request.train else {}
    for each in together:
      name = each.found.name
      if not request.is_one:
        print(f'{name} ...', flush=True)
      try:
        with files.writing(name, 'mend that, and run the same command again'):
          now = _measured(each, failures)
      except errors.InputError as e:
        if request.is_one:
          raise
        damaged += [name] if isinstance(e, errors.DamageError) else []
        now = each.measured([_about(each, note=str(e))])
      verdicts.append(_write(each, now))
  if not request.is_one:
    print(page.counted(verdicts))
  shown = page.write(request.output, request.scale)
  print(f'written to {request.output}, see {shown.name}', flush=True)
  if damaged:
    raise errors.InputError(
      'files that are damaged, or cannot be written, kept these from being measured:'
      f' {", ".join(damaged)}; the reasons stand above'
    )


def _train(paper: str, planned: Sequence[Planned], request: plan.Request) -> _Failures:
  """Trains the runs of several tables together, so that no core is idle between tables."""
  with_runs = [each for each in planned if each.runs]
  by_folder: dict[str, dict[pathlib.Path, runs_lib.Run]] = {}
  for each in with_runs:
    # Encoders are trained before the runs that start from them.
    by_folder.setdefault(plan.ENCODERS, {}).update(each.encoders)
    for folder, run in each.by_folder.items():
      if len(with_runs) > 1:  # Rows of different tables may have the same label.
        run = dataclasses.replace(run, name=f'{each.found.name} {run.point}')
      by_folder.setdefault(run.task, {}).setdefault(folder, run)
  if len(with_runs) > 1:
    print(f'{paper}: the runs of its tables and figures ...', flush=True)
  failures: dict[pathlib.Path, str] = {}
  for task, found in by_folder.items():
    # The largest run comes first, because it shows how many runs fit into memory. If the largest
    # run came last, other cores would wait for it.
    waiting = sorted(found.values(), key=plan.cost, reverse=True)
    where = request.output / 'runs' / task
    for run in waiting:
      encoder = by_folder[plan.ENCODERS].get(pathlib.Path(run.config['start_from']))
      if encoder and (encoder.folder in failures or not runs_lib.is_finished(encoder)):
        why = failures.get(encoder.folder, 'it has not finished')
        failures[run.folder] = f'the encoder that it starts from was not trained: {why}'
    waiting = [run for run in waiting if run.folder not in failures]
    try:
      failed = runs_lib.train(waiting, {}, where, request.jobs) if waiting else {}
      failures |= {folder: f'{folder} failed: {why}' for folder, why in failed.items()}
    except BrokenPipeError:
      raise  # The program that reads the output has ended.
    except (errors.InputError, OSError) as e:
      failures |= {run.folder: f'{run.task}: {e}' for run in waiting}
  return failures


def _write(each: Planned, now: lines_lib.Measured) -> judge.Verdict:
  """Writes and prints a result. If nothing was measured now, an earlier result is kept."""
  kept, request = each.kept(), each.request
  stays = kept.is_measured and not now.is_measured
  shown = kept if stays else now
  if now.lines and not stays:
    now.write(request.output)
  with files.folder(request.output / each.found.name) as where:
    page.write_text(shown, where)
  verdict, why, _ = judge.judge(shown)
  told = f'{each.found.name}: {verdict}: {why}\n'
  print(page.to_text(shown) if request.is_one else told, flush=True)
  if stays:
    reasons = '; '.join(['nothing was measured now', *now.distinct('note')])
    print(f'{reasons}; the result of before stays\n', flush=True)
  return verdict


def _about(each: Planned, **more) -> Line:
  """Returns a line with the columns that all lines of a result share."""
  return Line(table=each.found.table, scale=each.request.scale, command=each.command, **more)


def _measured(each: Planned, failures: _Failures) -> lines_lib.Measured:
  """Measures a study, or reads the runs of a table.

  Raises `errors.InputError` if no run has been trained, now or earlier.
  """
  found, where = each.found, each.request.output / each.found.name
  why = [failures.get(folder) for folder in each.by_folder if not folder.exists()]
  if why and None not in why and len(why) == len(each.by_folder):
    raise errors.InputError('; '.join(dict.fromkeys(why)))
  folders = {run.task: run.config['data_dir'] for run in each.by_folder.values()}
  parts = {task: task_lib.part(tasks.get(task), folder) for task, folder in folders.items()}
  part = ', '.join(f'{task} has {there}' for task, there in parts.items() if there)
  about = _about(each, processor=machine.processor() if each.request.train else '')
  if isinstance(found, table_lib.Study):
    if not each.request.train:
      return each.measured([])
    # `studies` is imported late, because it imports TensorFlow.
    from launch.reproduction import studies

    with files.folder(where):
      made = studies.measure(each, where)
    same = {n: getattr(about, n) for n in ('table', 'scale', 'command', 'processor')}
    same['revision'] = environment.describe()['git_revision'] or ''
    return each.measured([dataclasses.replace(x, **same, note=x.note or part) for x in made])
  groups = finished(found, each.runs)
  notes = []
  for group, runs in zip(each.runs, groups, strict=True):
    failed = [failures[run.folder] for run in group if not runs and run.folder in failures]
    notes.append('; '.join(filter(None, [part, *failed[-1:]])))
  measured = each.measured(lines(found, each.rows, groups, about, notes))
  if any(groups):
    with files.folder(where):
      draw(measured, each.rows, groups, where)
  return measured


def finished(
  found: table_lib.PaperTable, runs: Sequence[Sequence[runs_lib.Run]]
) -> list[_Runs | None]:
  """Returns the runs of each row, cut to the table's number of rounds.

  A row has None if one of its seeds has not finished, because a reader would take the mean over
  fewer seeds for the mean over all seeds.
  """
  return [
    [_read(found, run) for run in group] if all(map(runs_lib.is_finished, group)) else None
    for group in runs
  ]


def _read(found: table_lib.PaperTable, planned: runs_lib.Run) -> run_files.Run:
  run = run_files.read_run(planned.folder)
  if run.metrics['round'].max() != run.summary['rounds']:
    raise files.damaged(
      run.path / run_files.METRICS, f'expected rounds up to {run.summary["rounds"]}'
    )
  by = planned.config['best_by']
  if found.at_rounds:
    by = ''
    run = run_files.first_rounds(run, min(found.at_rounds, run.config['rounds']))
  # The run may have been trained with a different --best_by.
  best = run.summary.get('best_round') or {}
  if best.get('by', '') != by:
    scores = [name for name in catalog.SCORES if name in run.metrics]
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
  """Returns the lines of a table. The lines of a row without runs have no values.

  `about` has the columns that all lines share. `notes` has, for each row, the reason why values
  are missing.
  """
  made, labels = [], table_lib.labels(rows)
  claims = found.form(about.scale).claims
  of_row = {id(row): runs for row, runs in zip(rows, groups, strict=True)}
  for row, label, runs, note in zip(rows, labels, groups, notes, strict=True):
    revisions = (run.config.get('git_revision') for run in runs or ())
    line = dataclasses.replace(
      about,
      row=label,
      task=row.task,
      algorithm=row.algorithm,
      changes=row.changes,
      seeds=len(runs or ()),
      # Some runs may have stopped early.
      rounds=max((run.summary['rounds'] for run in runs or ()), default=0),
      revision=' '.join(dict.fromkeys(filter(None, revisions))),
      note=note,
    )
    whole = of_row.get(id(found.reference(row, rows)))
    claimed = (c.metric for c in claims if _is_claimed(c, row, rows))
    wanted = dict.fromkeys([*row.published, *claimed])
    for name in dict.fromkeys([*wanted, names.SECONDS, names.BEST_ROUND, names.SENT]):
      value, by_seed = measured(runs, name, whole)
      if not value and name not in wanted:
        continue  # This is a cost that is neither measured nor published.
      printed = row.published.get(name)
      own = {'published': printed, 'measured': value, 'by_seed': by_seed}
      made.append(dataclasses.replace(line, metric=name, **own))
      is_score = names.parse(name).is_percent and len(by_seed) > 1
      if is_score and row.algorithm in found.best_seed:
        best = Number(max(each.value for each in by_seed.values()))
        made.append(dataclasses.replace(line, metric=names.BEST_SEED + name, measured=best))
  return made


def _is_claimed(claim: table_lib.Claim, row: table_lib.Row, rows: Sequence[table_lib.Row]) -> bool:
  """Whether the results of a row include the metric of a claim.

  They do if the claim names the row's algorithm, and the paper prints the metric either for
  this row or for no row of the table.
  """
  metric, has_metric = claim.metric, table_lib.has_metric
  if row.algorithm not in claim.algorithms:
    return False
  if any(metric in other.published for other in rows):
    return metric in row.published
  return has_metric(metric, [row]) or not has_metric(metric, rows)


def measured(
  runs: _Runs | None, name: str, whole: _Runs | None = None
) -> tuple[Number | None, dict[int, Number]]:
  """Returns the mean over runs, and the value of each seed. Scores are in percent.

  Returns None and {} if a value is missing. A score without a budget is the score of the best
  round, if the run chose one. If a run missed a target, its number of rounds is a lower bound.
  If a result is relative, `whole` has the reference runs, which are matched by seed.
  """
  parts = names.parse(name)
  references = {run.seed: run for run in whole or ()}
  by_seed = {run.seed: _number(run, parts, references.get(run.seed)) for run in runs or ()}
  if not by_seed or None in by_seed.values():
    return None, {}
  values = [each.value for each in by_seed.values()]
  missed = [each.is_bound for each in by_seed.values()]
  # If all values are bounds, their standard deviation is unknown.
  std = statistics.stdev(values) if len(values) > 1 and not all(missed) else None
  return Number(statistics.fmean(values), std, any(missed)), by_seed


def _number(
  run: run_files.Run, parts: names.Parts, reference: run_files.Run | None
) -> Number | None:
  """Returns a result of one run: a value, the first round with a score, or a lower bound."""
  if not parts.is_rounds:
    value = _value(run, parts)
    factor = 100 if parts.is_percent else 1
    return None if value is None else Number(factor * value)
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
  """Returns a value of one run at a budget, at its best round or at its end."""
  best, name = run.summary.get('best_round'), parts.metric
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
  # A metric may be nan in the last round. For example, a class without clients in this round has no
  # support vectors.
  return None if math.isnan(last) else float(last)


def draw(
  measured: lines_lib.Measured,
  rows: Sequence[table_lib.Row],
  groups: Sequence[_Runs | None],
  where: pathlib.Path,
) -> None:
  """Draws the learning curves of a table as result.png, or as result_TASK.png for several tasks.

  A figure over effective rates shows the best final score at each rate. If rows differ in tuned
  settings, the figure shows only the curve of the best row. The title is the first claim of the
  paper that the runs confirm, if there is one.
  """
  from tff_xc.report import curves

  found, finding = measured.found, judge.finding(judge.judge(measured))
  there = zip(rows, table_lib.labels(rows), groups, strict=True)
  there = [each for each in there if each[2]]
  if found.best_over:
    score = next(iter(rows[0].published))  # The first metric decides which row is best.
    scores = [line for line in measured.lines if line.metric == score]
    best = {line.row for line in judge.best_of_grids(scores, found.best_over)}
    there = [each for each in there if each[1] in best]

  def frame(labelled):
    all_ = [(run, label) for label, runs in labelled for run in runs]
    return tables.collect([run for run, _ in all_], [label for _, label in all_])

  tasks_ = dict.fromkeys(row.task for row, *_ in there)
  for task in tasks_:
    of_task = [each for each in there if each[0].task == task]
    if found.over == table_lib.EFFECTIVE_RATE:
      figure = curves.lines_figure(
        by_effective_rate([(row, runs) for row, _, runs in of_task], found.curves[0]),
        task,
        'effective rate: client learning rate / (1 - momentum)',
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
        finding=finding,
      )
    name = 'result.png' if len(tasks_) == 1 else f'result_{task}.png'
    pictures.save(figure, where / name)


def by_effective_rate(
  of_rows: Sequence[tuple[table_lib.Row, _Runs]], metric: str
) -> dict[str, list[tuple[float, float]]]:
  """Returns sorted pairs (effective rate, best score in percent).

  The keys are texts of the rows' other settings.
  """
  rows = [row for row, _ in of_rows]
  best: dict[str, dict[float, float]] = {}
  for row, runs in of_rows:
    rate, momentum = (runs[0].hyperparameters[n] for n in table_lib.EFFECTIVE)
    # 0.001 / (1 - 0.9) is a little above 0.01.
    rate = float(f'{rate / (1 - momentum):.6g}')
    others = table_lib.without(table_lib.own_changes(row, rows), table_lib.EFFECTIVE)
    text = table_lib.text_of(others).replace(';', ', ')
    line = best.setdefault(text or methods.title(row.algorithm), {})
    mean, _ = measured(runs, metric)
    line[rate] = max(line.get(rate, 0.0), mean.value)
  return {name: sorted(line.items()) for name, line in best.items()}
