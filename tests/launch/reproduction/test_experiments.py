"""`launch.reproduce`: which flags results take, what is measured, written and kept."""

import dataclasses
import errno
import re
import shutil

import pytest

from launch.reproduction import experiments
from launch.reproduction import judge
from launch.reproduction import measure
from launch.reproduction import needs
from launch.reproduction import page
from launch.reproduction import results
from launch.sweeps import training
from tasks import photographs
from tasks import registry as tasks
from tasks import task as found_lib
from tasks.papers import fedmlh
from tasks.papers import registry
from tasks.papers import table
from tests import processes
from tests.launch import light
from tests.launch.reproduction import small_table
from tff_xc import errors

pytestmark = pytest.mark.usefixtures('blank_pictures')

EURLEX = 'eurlex-4k-sets'
VERDICTS = judge.Verdict


def request(output, found, **more):
  values = {'scale': 'paper', 'output': output, 'is_one': len(found) == 1}
  return experiments.Request(**values | more)


def planned(output, *names, **more):
  """Returns what is planned, by name."""
  found = registry.chosen(names)
  plans = experiments.plan_all(found, request(output, found, **more))
  return {each.found.name: each for each in plans}


def left_out(capsys):
  return capsys.readouterr().out.splitlines()


def test_all_results_have_a_plan_at_the_papers_size(tmp_path, capsys):
  assert planned(tmp_path, 'all').keys() == registry.RESULTS.keys()
  # Flags that change nothing leave nothing out.
  given = {'data_dir': '/x', 'client_threads': 2}
  found = planned(tmp_path, 'all', given=given, seeds=(0,))
  assert found.keys() == registry.RESULTS.keys()
  assert not left_out(capsys)
  # A study is told where its data are, and a command has what it takes.
  for each in found['fedmlh/theory'].config:
    assert each['data_dir'] == '/x'
  command = lambda name: found[name].request.command(name)
  assert command('fedmlh/table5').endswith(' --scale=paper')
  assert command('fedmlh/table3').endswith(' --seeds=0 --client_threads=2')


def test_a_flag_that_chooses_rows_changes_no_others(tmp_path):
  given = {'client_learning_rate': 0.1, 'server_momentum': 0.5, 'rounds': 9}
  more = {'task': 'cifar10-dirichlet', 'given': given, 'seeds': (0,)}
  [found] = planned(tmp_path, 'fedvc/fig4', **more).values()
  of = {
    (config['algorithm'], *map(config['hyperparameters'].get, list(given)[:2]))
    for [run] in found.runs
    for config in [run.config]
  }
  assert of == {
    *(('fedavg', 0.1, 0.0), ('fedavgm', 0.1, 0.5), ('centralized', 0.01, 0.0))
  }
  assert {run.config['rounds'] for [run] in found.runs} == {9}
  assert len(found.rows) == 2 * 8 + 1


def test_flags_limit_the_results_that_take_them(tmp_path, capsys):
  found = planned(tmp_path, 'fedmlh', task=EURLEX)
  without = {f'fedmlh/{n}' for n in ('table2', 'table4', 'table5', 'fig1')}
  whole = {name for name in registry.RESULTS if name.startswith('fedmlh/')}
  assert found.keys() == whole - without
  for each in found.values():
    assert {r.config['task'] for g in each.runs for r in g} <= {EURLEX}
  assert [c['task'] for c in found['fedmlh/theory'].config] == [EURLEX]
  [line] = left_out(capsys)
  assert line.startswith('left out: ')
  assert 'this --task' in line
  assert all(name in line for name in without)
  found = planned(tmp_path, 'all', task='sop', algorithm='fedss')
  assert found.keys() == {
    name
    for name, table in registry.TABLES.items()
    if any((row.task, row.algorithm) == ('sop', 'fedss') for row in table.rows)
  }
  found = planned(tmp_path, 'fedmlh', given={'rounds': 9})
  assert found.keys() == {n for n in registry.TABLES if 'fedmlh/' in n}
  # Tables without the scores of their round.
  left_out(capsys)
  names = [f'turbosvm-fl/{name}' for name in ('table2', 'table3', 'table10')]
  found = planned(tmp_path, *names, given={'eval_every': 40})
  assert found.keys() == {'turbosvm-fl/table2'}
  [line] = left_out(capsys)
  assert f'{", ".join(names[1:])}: --eval_every=40: ' in line
  for flags, problem in (
    ({'task': 'sopp'}, "unknown task 'sopp'"),
    ({'algorithm': 'fedxx'}, '--algorithm=fedxx: fedss/table1 has, on '),
    ({'given': {'rounds': 0}}, '--rounds=0'),
  ):
    with pytest.raises(errors.InputError, match=problem):
      planned(tmp_path, 'fedss', **flags)


EARLY = {'early_stopping_patience': 3}


@pytest.mark.parametrize(
  ('name', 'given', 'problem'),
  [
    ('turbosvm-fl/table3', {'eval_every': 40}, 'round 100 of 201'),
    ('turbosvm-fl/table3', {**EARLY, 'best_by': 'mcc'}, 'before round 100,'),
    ('turbosvm-fl/table2', {**EARLY, 'best_by': 'mcc'}, None),
    ('turbosvm-fl/table3', {'eval_every': 25}, None),
    # The last round is always evaluated.
    ('turbosvm-fl/table3', {'eval_every': 40, 'rounds': 57}, None),
    ('fedvc/table3', {'eval_every': 1000}, '2500 of 12500, .* divisor of 500$'),
    ('fedvc/table3', {'eval_every': 250}, None),
    # Those that are not reached are not shown.
    ('fedvc/table3', {'eval_every': 1000, 'rounds': 1500}, None),
  ],
)
def test_rounds_whose_scores_a_table_shows_are_evaluated(
  name, given, problem, tmp_path
):
  if problem:
    with pytest.raises(errors.InputError, match=problem):
      planned(tmp_path, name, given=given)
  else:
    [each] = planned(tmp_path, name, given=given).values()
    for run in (run for group in each.runs for run in group):
      assert run.config.items() >= given.items()


@pytest.mark.parametrize(
  ('arguments', 'problem'),
  [
    ([], 'name a table or figure'),
    (['table5'], "unknown table 'table5'"),
    (['fedmlh/table5', '--rounds=3'], '--rounds: fedmlh/table5 has no use'),
    (['fedmlh/theory', '--client_learning_rate=3'], '--client_learning_rate: '),
    (['fedmlh/theory', '--task=bibtex'], '--task=bibtex: fedmlh/theory is of'),
    (['fedss/table1', '--rounds=3'], '--rounds: fedss/table1 --scale=small'),
    (['fedss/table1', '--needs', '--finished_only'], 'leave one out'),
    (['fedss/table1', '--scale=big'], '<small|real|paper>'),
    (['--scale=paper', 'fedss/table2', '--seeds=1,1'], '--seeds=1,1: expected'),
    (['fedss/table2', '--seeds='], '--seeds=: expected'),
    (['--scale=paper', 'fedss/table2', '--seed=1'], 'no flag --seed'),
    (['--scale=paper', 'fedmlh/table3', '--validation=2'], '--validation=2.0'),
    (['--scale=paper', 'fedmlh/table3', '--negatives=2'], 'fedmlh, fedavg'),
  ],
)
def test_bad_input_is_one_sentence(arguments, problem, tmp_path):
  output = tmp_path / 'out'
  done = light.call('reproduce', *arguments, f'--output={output}')
  light.assert_one_sentence(done, problem)
  assert not output.exists()


def test_the_command_of_a_result_says_what_flags_changed(tmp_path):
  given = {'rounds': 9, 'data_dir': '/x', 'split': 'a b', 'encoder_weights': ''}
  asked = request(tmp_path, [0], algorithm='fedss', seeds=(0, 2), given=given)
  assert asked.command('a/table1') == (
    'python -m launch.reproduce a/table1 --scale=paper --algorithm=fedss'
    " --seeds=0,2 --rounds=9 '--split=a b' --encoder_weights="
  )
  # A setting in which rows differ limits a table, and is told first.
  given = {'depth': 8, 'rounds': 1000}
  [each] = planned(tmp_path, 'fedaws/table1', given=given).values()
  assert [row.changes['depth'] for row in each.rows] == [8] * 4
  assert {run.config['rounds'] for [run, *_] in each.runs} == {1000}
  command = each.request.command('fedaws/table1')
  assert command.endswith('--scale=paper --depth=8 --rounds=1000')


def lines_of(output, name, scale='small'):
  return results.read(output, registry.RESULTS[name], scale).lines


def verdict(output, name, scale='small'):
  return results.read(output, registry.RESULTS[name], scale).judged.verdict


def measured(output, *found, scale='small', **more):
  """Measures results; returns their lines as written."""
  asked = request(output, found, scale=scale, **more)
  experiments.run_all([experiments.plan_one(f, asked) for f in found], asked)
  return [lines_of(output, each.name, scale) for each in found]


def test_fedmlhs_sizes_are_the_papers(tmp_path, capsys):
  volume, memory = registry.chosen(['fedmlh/table4', 'fedmlh/table5'])
  equal = [row[-1] for row in (*volume.rows, *memory.rows)]
  assert (equal.count('yes'), equal.count('of rounded')) == (18, 5)
  [other] = [row for row in volume.rows if row[-1] == 'no']
  assert other == ('AMZtitle', 'fedavg', 'GiB', '135.0', '134.94', 'no')
  measured(tmp_path, volume, memory)
  assert '2 formula only' in capsys.readouterr().out
  assert set(registry.RESULTS['fedmlh/table2'].equal) == {'yes'}
  for found in fedmlh.CONFIGURATIONS:
    task = tasks.get(found.task)
    assert task.num_classes == found.labels
    options = task.option_values()
    assert options['hashed_features'] == found.features
    assert options['hidden_dim'] == found.hidden


@pytest.fixture
def own(monkeypatch):
  """Returns a small table that is known."""
  found = small_table.TABLE
  monkeypatch.setitem(registry.RESULTS, found.name, found)
  return found


class Ended:
  def __init__(self, run, error=None):
    self.run, self.error, self.seconds = run, error, 1.0


@pytest.fixture
def trains(own, monkeypatch):
  """Finishes runs at once; () -> the runs that were started."""
  started = []

  def run_all(waiting, arguments_of, jobs):
    for run in waiting:
      fails = run.config['algorithm'] == 'posonly' and run.seed == 1
      started.append(arguments_of(run, 1))
      if not fails:
        small_table.finish(run, 0.5 + len(started) / 100)
      yield Ended(run, 'no memory' if fails else None), 1

  monkeypatch.setattr(training, 'run_all', run_all)
  return started


def test_small_runs_are_trained_once_and_shown(trains, own, tmp_path, capsys):
  [lines] = measured(tmp_path, own)
  assert {'--negatives=5', '--seed=0'} <= {*trains[0]}
  command = 'python -m launch.reproduce p/fig1 --scale=small'
  assert set(lines['command']) == {command}
  assert (lines['processor'] != '').all()
  assert verdict(tmp_path, own.name) == VERDICTS.UNDECIDED
  shown = capsys.readouterr().out
  assert 'finished 1 of 3, about' in shown
  assert shown.count('undecided: ') == 1
  # Not the last, which names the directory.
  assert max(map(len, shown.splitlines()[-12:-1])) <= 100
  folder = tmp_path / own.name
  assert {p.name for p in folder.iterdir()} == {'result.md', 'result.png'}
  trains.clear()
  [again] = measured(tmp_path, own)
  assert again.equals(lines)
  assert not trains
  [lines] = measured(tmp_path, own, seeds=(0, 2, 3))
  assert len(trains) == 6
  assert set(lines['seeds']) == {'3'}
  assert lines['command'][0].endswith('--scale=small --seeds=0,2,3')


def test_a_form_on_real_data_has_its_own_rows_and_its_flags_choose_them(
  trains, monkeypatch, tmp_path
):
  rows = small_table.ROWS[:2]
  form = table.Form('On real glyphs', rows, (), (0, 1, 2))
  found = dataclasses.replace(small_table.TABLE, real=form)
  monkeypatch.setitem(registry.RESULTS, found.name, found)
  [lines] = measured(tmp_path, found, scale='real')
  assert len(trains) == 6
  assert [*dict.fromkeys(lines['row'])] == table.labels(rows)
  assert 'On real glyphs' in results.read(tmp_path, found, 'real').about
  assert verdict(tmp_path, found.name) == VERDICTS.NOT_RUN  # The small one.
  given = {'given': {'negatives': 9, 'rounds': 8}, 'seeds': (0,)}
  [lines] = measured(tmp_path, found, scale='real', **given)
  assert set(lines['row']) == {table.labels(rows[1:])[0]}
  assert '--negatives=9' in lines['command'][0]
  with pytest.raises(errors.InputError, match='no form on real data'):
    measured(tmp_path, small_table.TABLE, scale='real')


def test_finished_runs_alone_are_shown_beside_the_published(
  trains, own, tmp_path, capsys
):
  [lines] = measured(tmp_path, own, train=False, scale='paper')
  assert not trains
  assert set(lines['mean']) == {''}
  out = capsys.readouterr().out
  assert re.search(r'fedss negatives=9 +– +80\.0 ', out)
  assert 'not run: none of its experiments has finished' in out


def test_failed_runs_and_parts_of_data_are_named(
  trains, own, tmp_path, monkeypatch
):
  more = {'scale': 'paper', 'seeds': (0, 1), 'given': {'rounds': 20}}
  [lines] = measured(tmp_path / 'a', own, **more)
  of = {line.row: line for line in lines.itertuples()}
  assert of['posonly'].mean == ''  # Of one seed it would be no result.
  assert of['posonly'].note.endswith('seed1 failed: no memory')
  assert of['fedss negatives=5'].mean
  assert verdict(tmp_path / 'a', own.name, 'paper') == VERDICTS.NOT_RUN
  find = lambda directory: found_lib.Part('5 of 9 users')
  of_part = dataclasses.replace(tasks.get('glyphs'), find=find)
  monkeypatch.setitem(tasks.TASKS, 'glyphs', of_part)
  monkeypatch.setattr(training, 'check_files', lambda *_: None)
  [lines] = measured(tmp_path / 'b', own, scale='paper', seeds=(0,))
  assert set(lines['note']) == {'glyphs has 5 of 9 users'}


def test_missing_data_end_one_result_and_are_told_of_several(
  tmp_path, capsys, monkeypatch
):
  # Without a process for each task; `test_sweep` has that.
  look = lambda task, data_dir: tasks.get(task).find(data_dir)
  monkeypatch.setattr(training, 'check_files', look)
  found = registry.chosen(['fedss/table2', 'fedaws/table1', 'fedmlh/theory'])
  more = {'scale': 'paper', 'given': {'data_dir': str(tmp_path / 'none')}}
  with pytest.raises(errors.InputError, match='none'):
    measured(tmp_path / 'a', found[0], **more)
  assert not (tmp_path / 'a').exists()
  for lines in measured(tmp_path / 'b', *found, **more):
    assert 'none' in lines['note'][0]
    assert verdict(tmp_path / 'b', found[0].name, 'paper') == VERDICTS.NOT_RUN
  assert 'none' in (tmp_path / 'b' / page.FILE).read_text()
  assert '3 not run' in capsys.readouterr().out
  # All tasks of a table are named in one sentence.
  with pytest.raises(errors.InputError, match=r'cifar10: .*; cifar100: '):
    measured(tmp_path / 'c', found[1], **more)


def test_an_output_that_cannot_be_written_is_named(own, tmp_path):
  (tmp_path / 'file').write_text('')
  for name in ('fedmlh/table5', 'fedvc/fig10'):
    with pytest.raises(errors.InputError, match='cannot be written'):
      measured(tmp_path / 'file', registry.RESULTS[name])


def test_a_result_stays_if_nothing_can_be_measured_again(
  trains, own, tmp_path, monkeypatch, capsys
):
  others = own, registry.RESULTS['fedmlh/table5']
  [before, _] = measured(tmp_path, *others)
  shutil.rmtree(tmp_path / 'runs')
  [after] = measured(tmp_path, own, train=False)
  assert after.equals(before)
  assert 'result of before stays' in capsys.readouterr().out

  def fails(*arguments):
    raise errors.InputError('another run is in the way')

  monkeypatch.setattr(training, 'train', fails)
  assert measured(tmp_path, *others)[0].equals(before)
  assert 'in the way; the result of' in capsys.readouterr().out


@pytest.fixture
def finished(own, tmp_path):
  """Returns a table whose runs have finished in tmp_path, and two others."""
  found = registry.chosen([own.name, 'fedmlh/table5', 'fedvc/fig10'])
  asked = request(tmp_path, found, scale='small')
  plans = experiments.plan_all(found, asked)
  for each in plans:
    for [run] in each.runs:
      small_table.finish(run, 0.5)
  return sorted(plans, key=lambda each: not each.runs), asked


def test_tables_of_a_paper_train_their_runs_together_the_costliest_first(
  finished, monkeypatch, tmp_path
):
  [first, *_], asked = finished
  fewer = dataclasses.replace(first.found, number='Fig. 2')
  monkeypatch.setitem(registry.RESULTS, fewer.name, fewer)
  second = dataclasses.replace(
    first, found=fewer, runs=first.runs[1:], rows=first.rows[1:]
  )
  folders = [run.folder for [run] in first.runs]
  trained, names = [], []

  def train(runs, given, output, jobs):
    assert output == tmp_path / 'runs' / 'glyphs'
    trained.append([run.folder for run in runs])
    names.append([run.point.partition(' ')[0] for run in runs])
    return dict.fromkeys(folders[2:], 'it broke')

  shutil.rmtree(folders[2])
  monkeypatch.setattr(training, 'train', train)
  monkeypatch.setattr(needs, 'cost', lambda run: folders.index(run.folder))
  experiments.run_all([second, first], asked)
  assert trained == [folders[::-1]]
  # Rows of several tables have one label.
  assert names == [['p/fig2', 'p/fig2', 'p/fig1']]
  for name in ('p/fig1', 'p/fig2'):
    notes = set(lines_of(tmp_path, name)['note'])
    assert f'{folders[2]} failed: it broke' in notes
  # A table alone needs no prefix.
  experiments.run_all([first], dataclasses.replace(asked, is_one=True))
  assert (trained[1:], names[1][0]) == ([folders[::-1]], 'posonly')


@pytest.mark.parametrize(
  ('where', 'name', 'error'),
  [(training, 'train', BrokenPipeError), (experiments, '_measured', KeyError)],
)
def test_a_bug_keeps_its_trace_and_nothing_goes_on_if_nobody_reads(
  where, name, error, finished, monkeypatch
):
  [first, *_], asked = finished
  seen = []

  def fails(*given):
    seen.append(given)
    raise error

  monkeypatch.setattr(where, name, fails)
  with pytest.raises(error):
    experiments.run_all([first, first], asked)
  assert len(seen) == 1


@pytest.mark.parametrize(
  'kind', ['damaged', pytest.param('full', marks=pytest.mark.slow)]
)
def test_one_results_files_end_no_other(
  kind, finished, tmp_path, capsys, monkeypatch
):
  plans, asked = finished
  if kind == 'damaged':
    path = next(tmp_path.rglob('summary.json'))
    path.write_text('{')
    reason = f'{path} is damaged ('
  else:
    full = OSError(errno.ENOSPC, 'No space left on device', 'result.png')
    monkeypatch.setattr(measure, 'draw', lambda *_: (_ for _ in ()).throw(full))
    reason = 'cannot be written (No space left on device)'
  with pytest.raises(errors.InputError, match='being measured: p/fig1; the'):
    experiments.run_all(plans, asked)
  out = capsys.readouterr().out
  assert 'p/fig1: not run: ' in out
  assert reason in out
  assert '1 shape reproduced, 1 not run, 1 formula only' in out
  assert (tmp_path / page.FILE).is_file()
  assert len(lines_of(tmp_path, 'fedvc/fig10'))


def test_a_formula_with_curves_has_a_picture_of_them(tmp_path):
  found = [registry.RESULTS['fedss/fig8']]
  asked = request(tmp_path, found, scale='small')
  experiments.run_all(experiments.plan_all(found, asked), asked)
  where = tmp_path / 'fedss/fig8'
  assert (where / 'result.png').read_bytes().startswith(b'\x89PNG')
  assert '![FedSS, Fig. 8](result.png)' in (where / 'result.md').read_text()
  assert (tmp_path / page.FILE).read_text().count('<img ') == 1


@pytest.mark.slow  # A process looks for each task's data.
def test_a_report_over_all_results_needs_no_data(tmp_path):
  output = tmp_path / 'out'
  arguments = ('--scale=paper', f'--data_dir={tmp_path}', f'--output={output}')
  done = processes.python('-m', 'launch.reproduce', 'fedmlh', *arguments)
  assert (done.returncode, done.stderr) == (0, '')
  first, *lines = done.stdout.splitlines()
  assert first == 'the data of these 4 tasks are missing'
  for line, each in zip(lines, fedmlh.CONFIGURATIONS, strict=False):
    assert line.startswith(f'  {each.task}: no ')
  assert (output / page.FILE).is_file()
  for name in ('fedmlh/table1', 'fedmlh/table3', 'fedmlh/fig2'):
    assert verdict(output, name, 'paper') == VERDICTS.NOT_RUN


def test_without_its_photographs_a_table_says_where_they_are(tmp_path):
  named = {
    task.name: found[0].name
    for task in photographs.TASKS
    if (found := registry.of_task(task.name))
  }
  assert len(named) == 5
  data, output = tmp_path / 'data', tmp_path / 'runs'
  for task, name in named.items():
    arguments = (f'--task={task}', f'--data_dir={data}', f'--output={output}')
    done = light.call('reproduce', name, '--scale=paper', *arguments)
    with pytest.raises(errors.InputError) as told:  # What the task says.
      tasks.get(task).find(str(data))
    light.assert_one_sentence(done, f'error: {task}: {told.value}\n')
    where = data / task.partition('-')[0]
    for part in (f'{where} has no images', f'{where} has no clients', 'https:'):
      assert part in done.stderr
    assert f'launch.make_splits {task} --input=' in done.stderr
  assert not output.exists()


@pytest.mark.parametrize('is_trained', [True, False])
def test_rows_train_only_from_a_finished_encoder(
  tmp_path, monkeypatch, is_trained
):
  trained = []

  def train(runs, given, where, jobs):
    trained.append(where.name)
    return {run.folder: 'stopped' for run in runs}

  is_encoder = lambda run: 'encoders' in run.folder.parts
  finished = lambda run: is_trained and is_encoder(run)
  monkeypatch.setattr(training, 'train', train)
  monkeypatch.setattr(training, 'is_finished', finished)
  [found] = planned(tmp_path, 'fedvc/table3', scale='small').values()
  experiments.run_all([found], found.request)
  assert trained == ['encoders', 'glyphs'][: 1 + is_trained]
  notes = results.read(tmp_path, found.found, 'small').lines['note']
  assert all(('encoder' in note) != is_trained for note in notes)
