"""Several results: which take the flags, and that one's problem ends no others."""

import dataclasses
import errno
import subprocess
import sys

import pytest

from launch.reproduction import experiments
from launch.reproduction import measuring
from launch.reproduction import needs
from launch.reproduction import outcome as outcome_lib
from launch.reproduction import page
from launch.reproduction import trained
from launch.sweeps import training
from tasks.papers import fedmlh
from tasks.papers import registry
from tests.launch.reproduction import small_table
from tff_xc import errors

EURLEX = 'eurlex-4k-sets'
VERDICTS = outcome_lib.Verdict


def request(output, names, **more):
  found = registry.chosen(names)
  values = {'scale': 'paper', 'output': output} | more
  return found, experiments.Request(
    names=tuple(each.name for each in found), **values
  )


def planned(output, names, **more):
  """Returns what is planned, by name."""
  found = experiments.plan_all(*request(output, names, **more))
  return {each.found.name: each for each in found}


def test_all_results_have_a_plan_at_the_papers_size(tmp_path, capsys):
  assert planned(tmp_path, ['all']).keys() == registry.RESULTS.keys()
  assert capsys.readouterr().out == ''


def test_a_setting_in_which_rows_differ_limits_a_table(tmp_path):
  given = {'depth': 8, 'rounds': 1000}
  [each] = planned(tmp_path, ['fedaws/table1'], given=given).values()
  assert [row.changes['depth'] for row in each.rows] == [8] * 4
  assert {run.config['rounds'] for [run, *_] in each.runs} == {1000}
  assert each.request.limited == 'measured with --depth=8 only'
  assert each.request.command('fedaws/table1').endswith(
    '--scale=paper --depth=8 --rounds=1000'
  )


def test_a_task_limits_the_results_that_have_it(tmp_path, capsys):
  found = planned(tmp_path, ['fedmlh'], task=EURLEX)
  of = lambda *numbers: {f'fedmlh/{number}' for number in numbers}
  without = of('table2', 'table4', 'table5', 'fig1')
  whole = {name for name in registry.RESULTS if name.startswith('fedmlh/')}
  assert found.keys() == whole - without
  for each in found.values():
    tasks = {run.config['task'] for group in each.runs for run in group}
    assert tasks <= {EURLEX}
  assert [c['task'] for c in found['fedmlh/theory'].config] == [EURLEX]
  [line] = capsys.readouterr().out.splitlines()
  assert line.startswith('left out: ')
  assert line.endswith(': they do not take this --task')
  assert all(name in line for name in without)
  found = planned(tmp_path, ['all'], task='sop', algorithm='fedss')
  assert found.keys() == {
    name
    for name, table in registry.TABLES.items()
    if any((row.task, row.algorithm) == ('sop', 'fedss') for row in table.rows)
  }


def test_a_setting_limits_the_results_that_take_it(tmp_path, capsys):
  found = planned(tmp_path, ['fedmlh'], given={'rounds': 9})
  assert found.keys() == {
    name for name in registry.TABLES if name.startswith('fedmlh/')
  }
  assert 'this --rounds' in capsys.readouterr().out


def test_flags_that_change_nothing_leave_nothing_out(tmp_path, capsys):
  given = {'data_dir': '/x', 'client_threads': 2}
  found = planned(tmp_path, ['fedmlh', 'fedvc'], given=given, seeds=(0,))
  assert len(found) == len(registry.chosen(['fedmlh', 'fedvc']))
  assert capsys.readouterr().out == ''
  # A study is told where its data are, and a command has what it takes.
  for each in found['fedmlh/theory'].config:
    assert each['data_dir'] == '/x'
  formula = found['fedmlh/table5'].request
  assert formula.command('fedmlh/table5').endswith(' --scale=paper')
  assert formula.limited == ''
  table = found['fedmlh/table3'].request
  assert table.command('fedmlh/table3').endswith(
    ' --seeds=0 --client_threads=2'
  )


def test_flags_that_no_result_takes_are_refused_with_what_there_is(tmp_path):
  for flags, problem in (
    ({'task': 'sopp'}, "unknown task 'sopp'"),
    ({'algorithm': 'fedxx'}, '--algorithm=fedxx: fedss/table1 has, on '),
    ({'given': {'rounds': 0}}, '--rounds=0'),
  ):
    with pytest.raises(errors.InputError, match=problem):
      planned(tmp_path, ['fedss'], **flags)


@pytest.mark.parametrize(
  ('name', 'given', 'problem'),
  [
    ('table3', {'eval_every': 40}, 'eval_every=40: .* after round 100 of 201'),
    (
      'table4',
      {'eval_every': 201},
      'eval_every=201: .* after round 200 of 201',
    ),
    (
      'table3',
      {'eval_every': 40, 'rounds': 101},
      'eval_every=40: .* after round 100 of 101',
    ),
  ],
)
def test_a_round_whose_scores_a_table_shows_must_be_evaluated(
  name, given, problem, tmp_path
):
  with pytest.raises(errors.InputError, match=f'^--{problem}, [^.]*$'):
    planned(tmp_path, [f'turbosvm-fl/{name}'], given=given)


def test_a_run_may_not_end_before_the_round_that_a_table_shows(tmp_path):
  early = {'stop_after': 3, 'best_by': 'macro_f1'}
  with pytest.raises(
    errors.InputError, match=r'^--stop_after=3: .* before round 100,'
  ):
    planned(tmp_path, ['turbosvm-fl/table3'], given=early)
  assert planned(tmp_path, ['turbosvm-fl/table2'], given=early)
  early = {'stop_after': 3, 'best_by': 'top1'}
  with pytest.raises(errors.InputError, match='before round 5000, whose'):
    planned(tmp_path, ['fedvc/table3'], given=early)


def test_all_rounds_that_a_row_shows_must_be_evaluated(tmp_path):
  with pytest.raises(
    errors.InputError, match=r'after round 2500 of 12500, .* divisor of 500$'
  ):
    planned(tmp_path, ['fedvc/table3'], given={'eval_every': 1000})
  assert planned(tmp_path, ['fedvc/table3'], given={'eval_every': 250})
  # Those that are not reached are not shown.
  short = {'eval_every': 1000, 'rounds': 1500}
  assert planned(tmp_path, ['fedvc/table3'], given=short)


@pytest.mark.parametrize(
  'given',
  [
    {'eval_every': 25},
    {'eval_every': 100},
    # The last round is always evaluated.
    {'eval_every': 40, 'rounds': 100},
    {'eval_every': 40, 'rounds': 57},
  ],
)
def test_a_table_may_be_evaluated_less_often(given, tmp_path):
  [each] = planned(tmp_path, ['turbosvm-fl/table3'], given=given).values()
  assert {run.config['eval_every'] for group in each.runs for run in group} == {
    given['eval_every']
  }


def test_tables_without_the_scores_of_their_round_are_left_out(
  tmp_path, capsys
):
  names = [f'turbosvm-fl/{name}' for name in ('table2', 'table3', 'table10')]
  found = planned(tmp_path, names, given={'eval_every': 40})
  assert found.keys() == {'turbosvm-fl/table2'}
  [line] = capsys.readouterr().out.splitlines()
  assert line.startswith(
    'left out: turbosvm-fl/table3, turbosvm-fl/table10: --eval_every=40: '
  )


@pytest.mark.slow  # A process looks for each task's data.
def test_a_report_over_all_results_needs_no_data(tmp_path):
  output = tmp_path / 'out'
  arguments = ('--scale=paper', f'--data_dir={tmp_path}', f'--output={output}')
  done = subprocess.run(
    [sys.executable, '-m', 'launch.reproduce', 'fedmlh', *arguments],
    capture_output=True,
    text=True,
    check=False,
  )
  assert (done.returncode, done.stderr) == (0, '')
  first, *lines = done.stdout.splitlines()
  assert first == 'the data of these 4 tasks are missing'
  for line, each in zip(lines, fedmlh.CONFIGURATIONS, strict=False):
    assert line.startswith(f'  {each.task}: no ')
  assert (output / page.FILE).is_file()
  found = {
    name: outcome_lib.read(output, name).verdict
    for name in registry.RESULTS
    if name.startswith('fedmlh/')
  }
  assert found['fedmlh/table5'] == VERDICTS.REPRODUCED
  for name in ('fedmlh/table1', 'fedmlh/table3', 'fedmlh/fig2'):
    assert found[name] == VERDICTS.NOT_RUN


@pytest.fixture
def finished(monkeypatch, tmp_path):
  """Returns a table whose runs have finished in tmp_path, and two others."""
  table = small_table.TABLE
  monkeypatch.setitem(registry.RESULTS, table.name, table)
  names = [table.name, 'fedmlh/table5', 'fedmlh/table2']
  found, asked = request(tmp_path, names, scale='small')
  plans = experiments.plan_all(found, asked)
  for each in plans:
    for [run] in each.runs:
      small_table.finish(run, 0.5)
  return plans, asked


def test_tables_of_a_paper_train_their_runs_together(
  finished, monkeypatch, tmp_path
):
  plans, asked = finished
  [first] = [each for each in plans if each.runs]
  fewer = dataclasses.replace(first.found, number='Fig. 2', small=None)
  monkeypatch.setitem(registry.RESULTS, fewer.name, fewer)
  second = dataclasses.replace(first, found=fewer, runs=first.runs[1:])
  second = dataclasses.replace(second, rows=first.rows[1:])
  folders = [run.folder for [run] in first.runs]
  trained_then, names = [], []

  def train(runs, given, output, jobs, write):
    assert output == tmp_path / 'runs' / 'glyphs'
    trained_then.append([run.folder for run in runs])
    names.append([run.point.partition(' ')[0] for run in runs])
    return write(dict.fromkeys(folders[2:], 'it broke'))

  monkeypatch.setattr(training, 'train', train)
  experiments.run_all([second, first], asked)
  # What failed is not tried again.
  both = [*folders[1:], folders[0]]
  assert trained_then == [both, folders[1:2], folders[:2]]
  # Rows of several tables have one label.
  assert names[0] == ['p/fig2', 'p/fig2', 'p/fig1']
  why = f'{folders[2]} failed: it broke'
  assert why in outcome_lib.read(tmp_path, 'p/fig1').why
  assert why in outcome_lib.read(tmp_path, 'p/fig2').why


def test_the_costliest_runs_are_trained_first(finished, monkeypatch):
  plans, _ = finished
  [first] = [each for each in plans if each.runs]
  costs = {run.folder: i for i, [run] in enumerate(first.runs)}
  monkeypatch.setattr(needs, 'cost', lambda run: costs[run.folder])
  seen = []
  monkeypatch.setattr(training, 'train', lambda *given: seen.append(given[0]))
  measuring.train_together([first, first])
  assert [run.folder for run in seen[0]] == [*reversed(costs)]


def test_a_table_alone_trains_its_own_runs(finished, monkeypatch):
  plans, asked = finished
  [first] = [each for each in plans if each.runs]
  seen = []
  monkeypatch.setattr(training, 'train', lambda *given: seen.append(given))
  experiments.run_all([first], dataclasses.replace(asked, names=('p/fig1',)))
  assert len(seen) == 1


def test_nothing_goes_on_if_nobody_reads_what_is_printed(finished, monkeypatch):
  plans, asked = finished
  [first] = [each for each in plans if each.runs]
  seen = []

  def train(*given):
    seen.append(given)
    raise BrokenPipeError

  monkeypatch.setattr(training, 'train', train)
  with pytest.raises(BrokenPipeError):
    experiments.run_all([first, first], asked)
  [(runs, *_)] = seen
  assert runs[0].point.startswith('p/fig1 ')  # Of all tables.


def assert_others_are_measured(output, capsys, reason):
  out = capsys.readouterr().out
  assert f'p/fig1: not run: {reason}' in out
  assert '2 reproduced, 1 not run' in out
  assert (output / page.FILE).is_file()
  for name in ('fedmlh/table5', 'fedmlh/table2'):
    assert outcome_lib.read(output, name).verdict == VERDICTS.REPRODUCED
  assert reason in outcome_lib.read(output, 'p/fig1').why


def test_a_damaged_run_ends_no_other_result(finished, tmp_path, capsys):
  plans, asked = finished
  path = next(tmp_path.rglob('summary.json'))
  path.write_text('{')
  with pytest.raises(errors.InputError, match='being measured: p/fig1; the'):
    experiments.run_all(plans, asked)
  assert_others_are_measured(tmp_path, capsys, f'{path} is damaged (')


def test_a_full_disk_while_drawing_ends_no_other_result(
  finished, tmp_path, capsys, monkeypatch
):
  plans, asked = finished

  def full(*arguments):
    raise OSError(errno.ENOSPC, 'No space left on device', 'result.png')

  monkeypatch.setattr(trained, '_draw', full)
  with pytest.raises(errors.InputError, match='being measured: p/fig1; the'):
    experiments.run_all(plans, asked)
  reason = 'p/fig1 could not be measured: [Errno 28] No space left on device'
  assert_others_are_measured(tmp_path, capsys, reason)


@pytest.mark.parametrize('error', [KeyError('bug'), BrokenPipeError()])
def test_a_bug_keeps_its_trace(error, finished, monkeypatch):
  plans, asked = finished

  def fails(*arguments):
    raise error

  monkeypatch.setattr(measuring, '_outcome', fails)
  with pytest.raises(type(error)):
    experiments.run_all(plans, asked)


def test_missing_data_are_no_damage(tmp_path, capsys):
  names = ['fedmlh/theory', 'fedmlh/table5']
  given = {'data_dir': str(tmp_path)}
  found, asked = request(tmp_path / 'out', names, given=given)
  experiments.run_all(experiments.plan_all(found, asked), asked)
  theory = outcome_lib.read(tmp_path / 'out', 'fedmlh/theory')
  assert theory.verdict == VERDICTS.NOT_RUN
  for each in fedmlh.CONFIGURATIONS:
    assert f'{each.task}: no ' in theory.why
  assert '1 reproduced, 1 not run' in capsys.readouterr().out
