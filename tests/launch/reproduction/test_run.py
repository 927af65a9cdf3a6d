"""What `launch.reproduce` trains, measures, writes and stores."""

import dataclasses
import errno
import json
import math
import shutil
import types
from unittest import mock

import pytest

from launch import runs as runs_lib
from launch.reproduction import judge, lines as lines_lib, plan, run as run_lib
from tasks import task as task_lib
from tasks.papers import registry, table
from tests.launch.reproduction import small_table
from tests.report import fake_runs
from tff_xc import errors
from tff_xc.report import curves, run_files

pytestmark = pytest.mark.usefixtures('blank_pictures')


def measured(output, *found, **more):
  """Measures results. Returns the written lines."""
  values = {'scale': 'small', 'output': output, 'is_one': len(found) == 1}
  request = plan.Request(**values | more)
  plans = [plan.plan_one(each, request) for each in found]
  run_lib.run_all(plans, request)
  return [[*each.kept().lines] for each in plans]


@pytest.fixture
def own(monkeypatch):
  """Returns a small table that is registered."""
  for known in (registry.RESULTS, registry.KNOWN):
    monkeypatch.setitem(known, small_table.TABLE.name, small_table.TABLE)
  return small_table.TABLE


@pytest.fixture
def trains(own, monkeypatch):
  """Finishes runs at once. Returns the runs that were started."""
  started = []

  def run_all(waiting, arguments_of, jobs):
    for run in waiting:
      started.append(run)
      error = 'no memory' if run.config['algorithm'] == 'posonly' and run.seed == 1 else None
      if not error:
        small_table.finish(run, 0.5 + len(started) / 100)
      yield types.SimpleNamespace(run=run, error=error, seconds=1.0), 1

  monkeypatch.setattr(runs_lib, 'run_all', run_all)
  return started


def test_runs_are_trained_once_and_finished_ones_are_kept(trains, own, tmp_path, capsys):
  [lines] = measured(tmp_path, own)
  assert len(trains) == 3
  assert {line.command for line in lines} == {'python -m launch.reproduce p/fig1 --scale=small'}
  assert all(line.processor for line in lines)
  assert judge.judge(lines_lib.read(tmp_path, own, 'small')).verdict == judge.Verdict.UNDECIDED
  assert 'undecided: ' in capsys.readouterr().out
  assert {p.name for p in (tmp_path / own.name).iterdir()} == {'result.md', 'result.png'}
  assert measured(tmp_path, own) == [lines]
  assert len(trains) == 3
  [lines] = measured(tmp_path, own, seeds=(0, 2, 3))
  assert len(trains) == 3 + 6
  assert {line.seeds for line in lines} == {3}
  assert lines[0].command.endswith('--scale=small --seeds=0,2,3')


def test_finished_runs_alone_are_shown_beside_the_published(trains, own, tmp_path, capsys):
  [lines] = measured(tmp_path, own, train=False, scale='paper')
  assert not trains
  assert not any(line.measured for line in lines)
  assert 'none of its experiments has finished' in capsys.readouterr().out


def test_failed_runs_and_parts_of_data_are_named(trains, own, tmp_path, monkeypatch):
  monkeypatch.setattr(task_lib, 'part', lambda *_: '5 of 9 users')
  [lines] = measured(tmp_path, own, scale='paper', seeds=(0, 1), given={'rounds': 20})
  of = {line.row: line for line in lines}
  assert of['posonly'].measured is None  # One seed would not be a result.
  assert of['posonly'].note.endswith('seed1 failed: no memory')
  assert of['fedss negatives=5'].measured
  assert of['fedss negatives=5'].note == 'glyphs has 5 of 9 users'
  assert judge.judge(lines_lib.read(tmp_path, own, 'paper')).verdict == judge.Verdict.NOT_RUN


def test_a_result_stays_if_nothing_can_be_measured_again(
  trains, own, tmp_path, monkeypatch, capsys
):
  others = own, registry.RESULTS['fedmlh/table5']
  [before, _] = measured(tmp_path, *others)
  shutil.rmtree(tmp_path / 'runs')
  assert measured(tmp_path, own, train=False) == [before]
  assert 'result of before stays' in capsys.readouterr().out
  monkeypatch.setattr(
    runs_lib, 'train', mock.Mock(side_effect=errors.InputError('another run is in the way'))
  )
  assert measured(tmp_path, *others)[0] == before
  assert 'in the way; the result of' in capsys.readouterr().out


def test_tables_of_a_paper_train_their_runs_together_the_costliest_first(
  trains, own, tmp_path, monkeypatch
):
  rows = small_table.SMALL._replace(rows=small_table.ROWS[1:])
  fewer = dataclasses.replace(small_table.TABLE, number='Fig. 2', forms={'small': rows})
  monkeypatch.setitem(registry.RESULTS, fewer.name, fewer)

  def cost(run):
    return run.config['hyperparameters'].get('negatives', 0)

  monkeypatch.setattr(plan, 'cost', cost)
  both = measured(tmp_path, fewer, own)
  assert [cost(run) for run in trains] == [9, 5, 0]
  # Rows of several tables have the same label.
  assert [run.point.partition(' ')[0] for run in trains] == ['p/fig2', 'p/fig1', 'p/fig2']
  shared = [line.measured for line in both[1] if line.metric == 'top1'][1:]
  assert [x.measured for x in both[0] if x.metric == 'top1'] == shared


@pytest.mark.parametrize('is_trained', [True, False])
def test_rows_train_only_from_a_finished_encoder(tmp_path, monkeypatch, is_trained):
  trained = []

  def train(runs, given, where, jobs):
    trained.append(where.name)
    return {run.folder: 'stopped' for run in runs if not finished(run)}

  def finished(run):
    return is_trained and 'encoders' in run.folder.parts

  monkeypatch.setattr(runs_lib, 'train', train)
  monkeypatch.setattr(runs_lib, 'is_finished', finished)
  why = 'seed2 failed: stopped' if is_trained else 'the encoder .* was not trained: .*stopped'
  with pytest.raises(errors.InputError, match=why):
    measured(tmp_path, registry.RESULTS['fedvc/table3'])
  assert trained == ['encoders', 'glyphs'][: 1 + is_trained]


@pytest.mark.parametrize(('name', 'error'), [('train', BrokenPipeError), ('is_finished', KeyError)])
def test_a_bug_keeps_its_trace_and_nothing_goes_on_if_nobody_reads(
  name, error, own, monkeypatch, tmp_path
):
  monkeypatch.setattr(runs_lib, name, mock.Mock(side_effect=error))
  with pytest.raises(error):
    measured(tmp_path, own, registry.RESULTS['fedmlh/table5'])


@pytest.mark.parametrize('kind', ['damaged', 'full'])
def test_one_results_files_end_no_other(kind, trains, own, tmp_path, capsys, monkeypatch):
  others = own, registry.RESULTS['fedmlh/table5']
  measured(tmp_path, *others)
  path, reason = next(tmp_path.rglob('summary.json')), 'No space left on device'
  if kind == 'damaged':
    path.write_text('{')
    reason = f'{path} is damaged ('
  else:
    full = OSError(errno.ENOSPC, reason, 'result.png')
    monkeypatch.setattr(run_lib, 'draw', mock.Mock(side_effect=full))
  with pytest.raises(errors.InputError, match='being measured: p/fig1; the'):
    measured(tmp_path, *others)
  out = capsys.readouterr().out
  assert reason in out and '1 formula only' in out
  with pytest.raises(errors.InputError, match='cannot be written'):
    measured(path, others[1])


# -- The lines of runs. --


def runs_of(output, seeds=(0,), rows=small_table.TABLE.rows, **given):
  return plan.plan_runs(rows, given, seeds, output)


def lines_of(output, scores, seeds=(0,), found=small_table.TABLE):
  """Returns the lines of rows with these top-1 scores per seed; None means that there is no run."""
  runs = runs_of(output, seeds, found.form('small').rows)
  for group, of_row in zip(runs, scores, strict=True):
    for run, score in zip(group, of_row, strict=True):
      if score is not None:
        small_table.finish(run, score)
  groups = run_lib.finished(found, runs)
  about = lines_lib.Line(scale='small', table=found.table)
  return run_lib.lines(found, found.form('small').rows, groups, about, [''] * len(runs))


def test_a_row_has_a_line_for_each_result_cost_and_claim(tmp_path):
  claim = table.Claim('Ahead', 'map@r', 'fedss', 'posonly')
  forms = {'small': small_table.SMALL._replace(claims=(claim,))}
  found = dataclasses.replace(small_table.TABLE, forms=forms, best_seed=('posonly',))
  lines = lines_of(tmp_path, [(0.3, 0.4), (0.5, 0.5), (0.4, 0.6)], (0, 1), found)
  usual = ['top1', 'map@10', 'map@r']
  best = [n for name in usual for n in (name, f'best_seed_{name}')]
  assert [x.metric for x in lines] == 2 * [*usual, 'seconds'] + [*best, 'seconds']
  first = lines[0]
  assert (first.row, first.seeds, first.rounds) == ('fedss negatives=5', 2, 20)
  assert first.changes == {'rounds': 20, 'negatives': 5}
  assert first.published.value == 60
  assert first.measured[:2] == pytest.approx((35, 50**0.5))
  assert {seed: round(x.value) for seed, x in first.by_seed.items()} == {0: 30, 1: 40}
  assert lines[9].measured.value == pytest.approx(60)  # The value of the best seed.


def test_a_mean_over_some_of_the_seeds_is_no_result(tmp_path):
  lines = lines_of(tmp_path, [(0.3, None), (0.5, 0.5), (None, None)], (0, 1))
  of = [line for line in lines if line.metric == 'top1']
  assert [(line.seeds, bool(line.measured)) for line in of] == [(0, False), (2, True), (0, False)]


def test_a_claim_is_measured_where_its_metric_is_printed(tmp_path):
  claims = [table.Claim('Ahead', name, 'fedss', 'posonly') for name in ('top1:0.3', 'map@10:0.3')]
  first, *_, other = small_table.TABLE.rows
  rows = (first._replace(published={'top1': None}), other._replace(published={'map@10': None}))
  both = dataclasses.replace(
    small_table.TABLE, forms={'small': table.Form('', rows, tuple(claims))}
  )
  lines = lines_of(tmp_path, [(0.3,), (0.5,)], found=both)
  assert [(line.algorithm, line.metric) for line in lines] == [
    ('fedss', 'top1'),
    ('fedss', 'top1:0.3'),
    ('fedss', 'seconds'),
    ('posonly', 'map@10'),
    ('posonly', 'map@10:0.3'),
    ('posonly', 'seconds'),
  ]


def write_scores(folder, *scores, seed=0):
  """Returns a finished run with a score after rounds 2, 4, 6 and so on."""
  path = folder / str(seed)
  fake_runs.write_run(path, seed=seed, top1=scores[-1], rounds=2 * len(scores))
  text = 'round,local_batches,top1,seconds\n' + ''.join(
    f'{2 * n},8,{score},1.0\n' for n, score in enumerate(scores, 1)
  )
  (path / 'metrics.csv').write_text(text)
  run = run_files.read_run(path)
  return dataclasses.replace(run, summary={**run.summary, 'best_round': {}})


def mean(runs, name, whole=None):
  """Returns a measured mean, as text if it is a bound."""
  number, _ = run_lib.measured(runs, name, whole)
  if number and number.is_bound:
    return f'>{number.value:g}'
  return number and number.value


def test_results_at_budgets_targets_and_relative_ones_are_measured(tmp_path):
  whole = [write_scores(tmp_path / 'whole', 0.5, 0.8)]
  part = [write_scores(tmp_path / 'part', 0.1, 0.3, 0.4)]
  for name, value in {
    **{'top1': 40, 'top1@rounds:5': 30, 'top1@batches:16': 30},
    **{'top1@rounds:7': None},  # The run ended before round 7.
    **{'top1:0.3': 4, 'top1:0.7': '>6', 'seconds': 0.5},
    **{'best_round': None, 'support_vectors': None, 'relative_top1:0.1': None},
  }.items():
    found = mean(part, name)
    assert found == (pytest.approx(value) if isinstance(value, int) else value)
  assert mean(part, 'relative_top1:0.1', whole) == 2
  assert mean(part, 'relative_top1:0.9', whole) == '>6'
  # The target of each seed is the score of its own run, which the run reaches.
  seeds = [write_scores(tmp_path / f'own{n}', 0.1, n, seed=n) for n in (0, 1)]
  number, by_seed = run_lib.measured(seeds, 'relative_top1:1', seeds)
  assert number == (3, pytest.approx(2**0.5), False)
  assert [x.value for x in by_seed.values()] == [2, 4]
  # A number that the last round lacks counts as not measured.
  name = 'support_vectors_class_1'
  seeds[0].metrics[name] = [8.0, 7.0]
  assert mean(seeds[:1], name) == 7
  seeds[0].metrics[name] = [8.0, math.nan]  # The class was not drawn.
  assert mean(seeds[:1], name) is None


def test_seeds_that_missed_a_target_make_it_a_bound(tmp_path):
  reached = write_scores(tmp_path, 0.5, 0.8)
  short = write_scores(tmp_path, 0.5, seed=1)  # The run stopped early.
  number, by_seed = run_lib.measured([reached, short], 'top1:0.7')
  assert number == (3, pytest.approx(2**0.5), True)
  assert [x.is_bound for x in by_seed.values()] == [False, True]
  number, _ = run_lib.measured([reached, short], 'top1:0.9')
  assert (number.std, number.is_bound) == (None, True)


def test_scores_are_those_of_the_round_that_the_command_chooses(tmp_path):
  """Another command may have trained the runs with another --best_by."""
  rows = small_table.TABLE.rows[:1]
  [[run]] = runs_of(tmp_path, rows=rows)
  small_table.finish(run, 0.5)
  metrics = run_files.read_metrics(run.folder / 'metrics.csv')
  metrics.loc[metrics['round'] == 10, 'top1'] = 0.9
  metrics.to_csv(run.folder / 'metrics.csv', index=False)
  best = {'by': 'mcc', 'round': 20, 'top1': 0.4, 'bytes_down': 10.0}
  path = run.folder / 'summary.json'
  path.write_text(json.dumps(json.loads(path.read_text()) | {'best_round': best}))
  last = pytest.approx(100 * metrics['top1'].iloc[-1])
  for at_rounds, by, wanted in (
    (None, '', [50.0, None, None]),
    (None, 'top1', [90.0, 10, mock.ANY]),
    (None, 'mcc', [40.0, 20, 10]),
    (20, 'top1', [last, None, None]),
  ):
    [group] = run_lib.finished(
      dataclasses.replace(small_table.TABLE, at_rounds=at_rounds),
      runs_of(tmp_path, rows=rows, best_by=by),
    )
    assert [mean(group, name) for name in ('top1', 'best_round', 'bytes_down')] == wanted


@pytest.mark.parametrize(
  ('name', 'content'),
  [
    ('metrics.csv', 'round,loss,seconds\n'),
    ('metrics.csv', 'round,loss,seconds\n1,0.5,1.0\n'),
    ('summary.json', '{"final": {}, "rounds": 20, "best_round": {"by": "top1", "top1": NaN}}'),
  ],
)
def test_files_of_runs_that_are_damaged_are_named(name, content, tmp_path):
  [[run], *_] = runs = runs_of(tmp_path)
  for [each] in runs:
    small_table.finish(each, 0.5)
  (run.folder / name).write_text(content)
  with pytest.raises(errors.DamageError, match=f'{run.folder / name} is damaged'):
    run_lib.finished(small_table.TABLE, runs)


def test_pictures_are_of_tasks_and_of_the_best_of_grids(tmp_path, monkeypatch):
  whole = small_table.row('centralized', '90.0')
  rows = (*small_table.TABLE.rows, small_table.TABLE.rows[0]._replace(task='glyphs-femnist'), whole)
  found = dataclasses.replace(small_table.TABLE, is_relative=True, best_over=('negatives',))
  runs = runs_of(tmp_path, rows=rows)
  for [run], score in zip(runs, (0.4, 0.5, 0.5, 0.5, 0.5), strict=True):
    small_table.finish(run, score)
  groups, drawn = run_lib.finished(found, runs), []
  about = lines_lib.Line(scale='small', table=found.table)
  lines = run_lib.lines(found, rows, groups, about, [''] * len(rows))
  compared = curves.compare_figure

  def compare_figure(frame, *given, **more):
    drawn.append([*frame['label']])
    return compared(frame, *given, **more)

  monkeypatch.setattr(curves, 'compare_figure', compare_figure)
  run_lib.draw(lines_lib.Measured(found, 'small', lines), rows, groups, tmp_path)
  assert {path.name for path in tmp_path.glob('*.png')} == {
    'result_glyphs-femnist.png',
    'result_glyphs.png',
  }
  assert [label.split()[:2] for label in drawn[0]] == [
    ['glyphs', 'fedss'],
    ['glyphs', 'posonly'],
    ['glyphs', 'centralized'],
  ]
  assert 'negatives=9' in drawn[0][0]  # The better run of those with 5 and 9 negatives.


def test_the_best_score_at_each_effective_rate_is_drawn(tmp_path):
  rows = [
    small_table.row(algorithm, '1', classes_per_client=skew, **changes)
    for algorithm, skew, changes in (
      ('fedavg', 5, {'client_learning_rate': 0.1}),
      ('fedavg', 5, {'client_learning_rate': 0.01}),
      ('fedavg', 1, {'client_learning_rate': 0.01}),
    )
  ]
  runs = runs_of(tmp_path, rows=rows)
  for [run], score in zip(runs, (0.5, 0.25, 0.125), strict=True):
    small_table.finish(run, score)
  groups = run_lib.finished(small_table.TABLE, runs)
  best = run_lib.by_effective_rate([*zip(rows, groups, strict=True)], 'top1')
  assert best == {
    'classes_per_client=5': [(0.01, 25.0), (0.1, 50.0)],
    'classes_per_client=1': [(0.01, 12.5)],
  }
