"""`launch.reproduce`: what it refuses, measures, writes and prints."""

import dataclasses
import pathlib
import shutil

import pytest

from launch.reproduction import experiments
from launch.reproduction import measuring
from launch.reproduction import outcome as outcome_lib
from launch.sweeps import children
from tasks import photographs
from tasks import registry as tasks
from tasks import task as found_lib
from tasks.papers import fedmlh
from tasks.papers import registry
from tasks.papers import result
from tests.launch import light
from tests.launch.reproduction import small_table
from tff_xc import errors

VERDICTS = outcome_lib.Verdict


@pytest.mark.parametrize(
  ('arguments', 'problem'),
  [
    ([], 'name a table or figure, a paper or all'),
    (['table5'], "unknown table 'table5': there are all, fedss, "),
    (['fedmlh/table9'], "'fedmlh/table9': there are fedmlh/table1, "),
    (['fedmlh/table5', '--rounds=3'], '--rounds: fedmlh/table5 has no use'),
    (['fedmlh/table5', '--task=bibtex-sets'], '--task: fedmlh/table5 has no'),
    (['fedmlh/table5', '--data_dir=x'], '--data_dir: fedmlh/table5 has no'),
    (['fedmlh', '--seeds=1'], '--seeds: fedmlh/table1 has no use for it'),
    (['fedmlh/theory', '--client_learning_rate=3'], '--client_learning_rate: '),
    (['fedmlh/theory', '--task=bibtex'], '--task=bibtex: fedmlh/theory is of'),
    (['fedmlh/theory', '--hash_tables=0'], '--hash_tables=0'),
    (['fedss/fig9', '--negatives=3'], '--negatives: fedss/fig9 has no use'),
    (['fedss/fig9', '--num_classes=30'], 'a batch leaves 29 other classes at'),
    (['fedss/fig7', '--rounds=3'], '--rounds: fedss/fig7 --scale=small'),
    (['fedvc/fig10', '--task=glyphs'], '--task: fedvc/fig10 has no use'),
    (['fedvc/fig3', '--task=sop'], '--task=sop: fedvc/fig3 --scale=small is'),
    (['fedss/table1', '--rounds=3'], '--rounds: fedss/table1 --scale=small'),
    (['fedss/table1', '--needs', '--finished_only'], 'leave one out'),
    (['fedss/table1', '--scale=big'], 'should be one of <paper|small>'),
    (['--scale=paper', 'fedss/table2', '--task=x'], '--task=x: fedss/table2'),
    (['--scale=paper', 'fedss/table2', '--seeds=1,1'], '--seeds=1,1: expected'),
    (['--scale=paper', 'fedss/table2', '--seed=1'], 'no flag --seed'),
    (
      ['--scale=paper', 'fedmlh/table3', '--validation=2'],
      '--validation=2.0',
    ),
    (
      ['--scale=paper', 'fedmlh/table3', '--negatives=2'],
      'none of these algorithms: fedmlh, fedavg',
    ),
  ],
)
def test_bad_input_is_one_sentence(arguments, problem, tmp_path):
  output = tmp_path / 'out'
  done = light.call('reproduce', *arguments, f'--output={output}')
  light.assert_one_sentence(done, problem)
  assert not output.exists()


def request(output, *found, **more):
  names = tuple(each.name for each in found)
  return experiments.Request(
    **({'scale': 'small', 'output': output} | more), names=names
  )


def measured(output, *found, **more):
  """Measures results; returns their outcomes as written."""
  asked = request(output, *found, **more)
  experiments.run_all([experiments.plan_one(f, asked) for f in found], asked)
  return [outcome_lib.read(output, each.name) for each in found]


def test_fedmlhs_sizes_are_the_papers(tmp_path, capsys):
  found = registry.chosen(['fedmlh/table4', 'fedmlh/table5'])
  volume, memory = measured(tmp_path, *found)
  lines = [*volume.tables[0].rows, *memory.tables[0].rows]
  equal = [line[-1] for line in lines]
  assert (equal.count('yes'), equal.count('of rounded')) == (18, 5)
  [other] = [line for line in lines if line[-1] == 'no']
  assert other == ('AMZtitle', 'fedavg', 'GiB', '135.0', '134.94', 'no')
  assert volume.verdict == VERDICTS.SHAPE
  assert memory.verdict == VERDICTS.REPRODUCED
  told = capsys.readouterr().out
  has = 'values are the published ones, '
  assert f'table4: shape reproduced: 8 of 12 {has}3 those of rounded' in told
  assert f'table5: reproduced: 10 of 12 {has}2 those of rounded' in told
  assert '1 reproduced, 1 shape reproduced' in told


def test_the_configurations_are_the_tasks_defaults(tmp_path, capsys):
  for found in fedmlh.CONFIGURATIONS:
    task = tasks.get(found.task)
    assert task.num_classes == found.labels
    options = task.option_values()
    assert options['hashed_features'] == found.features
    assert options['hidden_dim'] == found.hidden
    assert task.by_algorithm['fedmlh'] == {
      'hash_tables': found.tables,
      'hash_buckets': found.buckets,
    }
  [outcome] = measured(tmp_path, *registry.chosen(['fedmlh/table2']))
  assert outcome.verdict == VERDICTS.REPRODUCED
  assert '312,330' in capsys.readouterr().out


class Ended:
  def __init__(self, run, error=None):
    self.run, self.error, self.seconds = run, error, 1.0


@pytest.fixture
def trains(monkeypatch):
  """Makes `children` finish runs at once; () -> the runs that were started."""
  started = []
  table = small_table.TABLE
  monkeypatch.setitem(registry.RESULTS, table.name, table)

  def run_all(waiting, arguments_of, jobs, on_end):
    for run in waiting:
      fails = run.config['algorithm'] == 'posonly' and run.seed == 1
      started.append(arguments_of(run, 1))
      if not fails:
        small_table.finish(run, 0.5 + len(started) / 100)
      on_end(Ended(run, 'no memory' if fails else None), 1)

  monkeypatch.setattr(children, 'run_all', run_all)
  return started


def test_small_runs_are_trained_once_and_shown(trains, tmp_path, capsys):
  [found] = measured(tmp_path, small_table.TABLE)
  assert '--negatives=5' in trains[0]
  assert '--seed=0' in trains[0]
  assert found.verdict == VERDICTS.NOT  # fedss is not 5 points above.
  assert found.command == 'python -m launch.reproduce p/fig1 --scale=small'
  shown = capsys.readouterr().out
  assert 'finished 1 of 3, about' in shown
  assert shown.count('not reproduced: 1 of 2 do not hold') == 1
  # Not the last, which names the directory.
  assert max(map(len, shown.splitlines()[-12:-1])) <= 100
  trains.clear()
  assert measured(tmp_path, small_table.TABLE) == [found]
  assert not trains


def test_nothing_is_trained_of_finished_runs_alone(trains, tmp_path):
  [found] = measured(tmp_path, small_table.TABLE, train=False)
  assert not trains
  assert found.verdict == VERDICTS.NOT_RUN
  assert found.why == 'none of its experiments has finished'


def test_a_failed_run_is_named_and_its_row_has_no_mean(trains, tmp_path):
  more = {'scale': 'paper', 'seeds': (0, 1), 'given': {'rounds': 20}}
  [found] = measured(tmp_path, small_table.TABLE, **more)
  assert found.why.endswith('posonly_rounds=20/seed1 failed: no memory')
  assert found.tables[0].rows[2][1] == '–'
  assert found.tables[0].rows[0][1].startswith('5')


def test_missing_data_end_one_result_and_are_told_of_several(
  tmp_path, capsys, monkeypatch
):
  # Without a process for each task; `test_children` has that.
  look = lambda task, data_dir: tasks.get(task).find(data_dir)
  monkeypatch.setattr(children, 'check_data', look)
  found = registry.chosen(['fedss/table2', 'fedaws/table1'])
  more = {'scale': 'paper', 'given': {'data_dir': str(tmp_path / 'none')}}
  with pytest.raises(errors.InputError, match='none'):
    measured(tmp_path / 'a', found[0], **more)
  assert not (tmp_path / 'a').exists()
  for outcome in measured(tmp_path / 'b', *found, **more):
    assert outcome.verdict == VERDICTS.NOT_RUN
    assert 'none' in outcome.why
  # All tasks of a table are named in one sentence.
  with pytest.raises(errors.InputError, match=r'cifar10: .*; cifar100: '):
    measured(tmp_path / 'c', found[1], **more)
  assert '2 not run' in capsys.readouterr().out


def test_a_diagram_has_nothing_to_run(monkeypatch, tmp_path):
  diagram = result.Diagram(
    paper='P', number='Fig. 2', source='arXiv:1', caption='A sketch'
  )
  monkeypatch.setitem(registry.RESULTS, diagram.name, diagram)
  [found] = measured(tmp_path, diagram)
  assert found.verdict == VERDICTS.NOTHING


def test_an_output_that_cannot_be_written_is_named(tmp_path):
  (tmp_path / 'file').write_text('')
  for name in ('fedmlh/table5', 'fedvc/fig10'):
    with pytest.raises(errors.InputError, match='cannot be written'):
      measured(tmp_path / 'file', *registry.chosen([name]))


def test_the_command_of_a_result_says_what_flags_changed():
  asked = experiments.Request(
    names=('a/table1',),
    scale='paper',
    output=pathlib.Path('x'),
    algorithm='fedss',
    seeds=(0, 2),
    given={'rounds': 9, 'data_dir': '/x', 'split': 'a b'},
  )
  assert asked.command('a/table1') == (
    'python -m launch.reproduce a/table1 --scale=paper --algorithm=fedss'
    " --seeds=0,2 --rounds=9 '--split=a b'"
  )


def test_a_result_says_which_rows_and_seeds_were_left_out(trains, tmp_path):
  more = {'scale': 'paper', 'algorithm': 'fedss', 'seeds': (0,)}
  [found] = measured(tmp_path, small_table.TABLE, **more)
  assert found.what == 'measured with --algorithm=fedss, --seeds=0 only'
  [found] = measured(tmp_path, small_table.TABLE, **more, given={'rounds': 9})
  assert found.what.startswith('Changed by flags: --rounds=9; measured with')


def test_a_result_says_that_the_data_were_a_part(trains, tmp_path, monkeypatch):
  find = lambda directory: found_lib.Part('5 of 9 users')
  of_part = dataclasses.replace(tasks.get('glyphs'), find=find)
  monkeypatch.setitem(tasks.TASKS, 'glyphs', of_part)
  monkeypatch.setattr(children, 'check_data', lambda *_: None)
  [found] = measured(tmp_path, small_table.TABLE, scale='paper')
  assert found.what == 'glyphs has 5 of 9 users'


def test_a_study_that_is_kept_stays_as_it_was(tmp_path, monkeypatch):
  found = registry.RESULTS['fedvc/fig10']
  kept = outcome_lib.Outcome(
    name=found.name,
    scale='small',
    verdict=VERDICTS.SHAPE,
    why='w',
    command='c',
    version='v',
  )
  part = dataclasses.replace(
    kept,
    verdict=VERDICTS.NOT_RUN,
    tables=(outcome_lib.Cells('', ('a',), (('1',),)),),
  )
  for before in (kept, part):
    outcome_lib.write(before, tmp_path)
    assert measured(tmp_path, found, train=False) == [before]
  assert measured(tmp_path, found, train=False, scale='paper') == [part]
  empty = dataclasses.replace(part, tables=())
  outcome_lib.write(empty, tmp_path)
  [after] = measured(tmp_path, found, train=False)
  assert after.why == 'it has not been measured'


def test_a_result_stays_if_it_cannot_be_measured_again(
  trains, tmp_path, monkeypatch, capsys
):
  others = small_table.TABLE, registry.RESULTS['fedmlh/table5']
  before = measured(tmp_path, *others)

  def fails(*arguments):
    raise errors.InputError('another run is in the way')

  monkeypatch.setattr(measuring, '_train', fails)
  assert measured(tmp_path, *others) == before
  assert 'in the way; the result of before stays' in capsys.readouterr().out
  path = tmp_path / small_table.TABLE.name / 'result.json'
  path.write_text('{')
  with pytest.raises(errors.InputError, match='being measured: p/fig1; '):
    measured(tmp_path, *others)
  out = capsys.readouterr().out
  assert f'is in the way; {path} is damaged (' in out  # Both reasons.


def test_a_result_that_cannot_be_read_stays_and_ends_no_others(
  tmp_path, capsys
):
  others = registry.RESULTS['fedvc/fig10'], registry.RESULTS['fedmlh/table5']
  path = tmp_path / 'fedvc' / 'fig10' / 'result.json'
  path.parent.mkdir(parents=True)
  path.write_text('{')
  with pytest.raises(errors.InputError, match='being measured: fedvc/fig10;'):
    measured(tmp_path, *others, train=False)
  out = capsys.readouterr().out
  assert 'fig10/result.json is damaged (' in out
  assert '1 reproduced, 1 not run' in out
  assert path.read_text() == '{'


def test_a_result_stays_if_its_runs_were_removed(trains, tmp_path, capsys):
  [before] = measured(tmp_path, small_table.TABLE)
  csv = tmp_path / small_table.TABLE.name / 'result.csv'
  values = csv.read_text()
  shutil.rmtree(tmp_path / 'runs')
  assert measured(tmp_path, small_table.TABLE, train=False) == [before]
  assert csv.read_text() == values
  # Of other settings nothing was measured.
  more = {'scale': 'paper', 'train': False}
  assert measured(tmp_path, small_table.TABLE, **more) == [before]
  assert csv.read_text() == values
  out = capsys.readouterr().out
  assert 'not run: none of its experiments has finished\n' in out
  assert f'the result of before stays: {before.command}\n' in out


def test_there_may_be_nothing_to_probe(tmp_path, capsys):
  found = registry.RESULTS['fedmlh/table5']
  asked = request(tmp_path / 'out', found)
  experiments.tell_needs([experiments.plan_one(found, asked)], asked)
  assert 'nothing to probe' in capsys.readouterr().out
  assert not (tmp_path / 'out').exists()


# Every photograph task of a table, with its first table.
_PHOTOGRAPHS = {
  task.name: found[0].name
  for task in photographs.TASKS
  if (found := registry.of_task(task.name))
}


def test_photographs_have_tables():
  assert set(_PHOTOGRAPHS) == {
    *('landmarks-user-160k', 'inaturalist-user-120k', 'inaturalist-geo-3k'),
    *('sop', 'imagenet21k'),
  }


@pytest.mark.parametrize(('task', 'name'), _PHOTOGRAPHS.items())
def test_without_its_photographs_a_table_says_where_they_are(
  task, name, tmp_path
):
  data, output = tmp_path / 'data', tmp_path / 'runs'
  arguments = (f'--task={task}', f'--data_dir={data}', f'--output={output}')
  done = light.call('reproduce', name, '--scale=paper', *arguments)
  with pytest.raises(errors.InputError) as told:  # What the doctor prints.
    tasks.get(task).find(str(data))
  light.assert_one_sentence(done, f'error: {task}: {told.value}\n')
  folder = data / task.partition('-')[0]
  for part in (f'{folder} has no images', f'{folder} has no clients', 'https:'):
    assert part in done.stderr
  assert f'launch.make_splits {task} --input=' in done.stderr
  assert not output.exists()
