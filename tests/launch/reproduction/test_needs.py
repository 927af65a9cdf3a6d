"""What runs will take, from probes."""

import dataclasses
import json
import os

import pytest

from launch.reproduction import experiments
from launch.reproduction import needs
from launch.reproduction import rows as rows_lib
from launch.sweeps import children
from tasks import registry as tasks
from tasks import task as found
from tasks.papers import registry
from tests.launch.reproduction import small_table
from tests.report import fake_runs
from tff_xc import errors
from tff_xc import wording


def planned(output, seeds=(0, 1)):
  rows = small_table.ROWS
  return [
    run
    for group in rows_lib.plan_runs(rows, {}, seeds, output)
    for run in group
  ]


class Ended:
  seconds, peak_bytes = 50.0, 3_000_000_000

  def __init__(self, run, error=None):
    self.run, self.error = run, error


# Seconds of the probes' evaluation, which comes between two checkpoints.
EVALUATION = 3
# Of the probes' data and files; a sparse file takes no disk.
CLIENTS, CHECKPOINT, STATE = 100, 10_000_000_000, 1_000_000_000


def write(folder, name, size):
  folder.mkdir(parents=True, exist_ok=True)
  with open(folder / name, 'wb') as file:
    file.truncate(size)


@pytest.fixture
def probes(monkeypatch):
  """Makes probes end at once; () -> their arguments."""
  found = []

  def run_all(runs, arguments_of, jobs, on_end):
    [run] = runs
    found.append(arguments_of(run, jobs))
    data = {'data': {'clients': CLIENTS}}
    fake_runs.write_run(run.folder, rounds=2, settings=data)
    for number, seconds in (1, 1000), (2, 1000 + 0.5 + EVALUATION):
      write(run.folder / 'checkpoints', f'round_{number}.npz', CHECKPOINT)
      path = run.folder / 'checkpoints' / f'round_{number}.npz'
      os.utime(path, (seconds, seconds))
    if run.config['algorithm'] == 'moon':
      for name in ('7_1.npz', '7_2.npz', '9_2.npz'):
        write(run.folder / 'client_states', name, STATE)
    on_end(Ended(run), 1)

  monkeypatch.setattr(children, 'run_all', run_all)
  return found


def test_each_method_is_probed_once_and_times_are_added(probes, tmp_path):
  runs = planned(tmp_path)
  small_table.finish(runs[0], 0.5)
  text, failures = needs.told(runs, tmp_path)
  assert len(probes) == 2
  assert not failures
  assert {'--rounds=2', '--eval_every=2'} <= set(probes[0])
  assert not list(tmp_path.glob('probe_*'))
  lines = [line.split() for line in text.splitlines()]
  assert lines[0] == ['6', 'runs,', '5', 'of', 'them', 'not', 'finished']
  [fedss] = [line for line in lines if line[:2] == ['glyphs', 'fedss']]
  # Three runs of (50 s less the two rounds' 1 s and the evaluation's 3 s), of 20
  # rounds of 0.5 s and of two evaluations of 3 s.
  assert wording.human_duration(3 * (46 + 10 + 6)) == '3 min'
  assert fedss[2:] == ['3', '60', '0.5', '3', 'min', '3.00', 'GB']
  assert 'memory: 3.00 GB a run, ' in text


def test_the_rounds_of_a_runs_newest_checkpoint_are_not_counted(
  probes, tmp_path
):
  runs = [
    run for run in planned(tmp_path) if run.config['algorithm'] != 'fedss'
  ]
  for run in runs:
    run.folder.mkdir(parents=True)
    (run.folder / 'config.json').write_text(json.dumps(run.config))
  for number in (8, 9, 12):
    write(runs[0].folder / 'checkpoints', f'round_{number}.npz', 1)
  (runs[0].folder / 'checkpoints' / '.round_13.7.tmp.npz').touch()
  write(runs[1].folder / 'checkpoints', 'round_20.npz', 1)
  text, _ = needs.told(runs, tmp_path)
  [line] = [line for line in text.splitlines() if 'glyphs posonly' in line]
  # 46 s, of 20 rounds the last 8, and the second of two evaluations; and 46 s of
  # the run of which only the summary is missing.
  assert line.split()[2:5] == ['2', '8', '0.5']
  seconds = wording.human_duration(46 + 8 * 0.5 + 3 + 46)
  assert f'one after another: {seconds}; side by side' in text


def test_the_costliest_run_is_probed_and_the_others_are_in_proportion(
  probes, tmp_path
):
  rows = registry.TABLES['turbosvm-fl/table4'].rows
  groups = rows_lib.plan_runs(rows, {'rounds': 20}, (0, 1), tmp_path)
  text, _ = needs.told([run for group in groups for run in group], tmp_path)
  [probe] = probes
  assert {'--clients_per_round=512', '--embedding_dim=1024'} <= set(probe)
  [line] = [line for line in text.splitlines() if 'femnist turbosvm' in line]
  # Of each of five lengths, two runs with 8, 64 and 512 clients: 46 s, an evaluation
  # of 3 s after each of 20 rounds, and these of 0.5 s times 1/64, 1/8 and 1.
  seconds = 10 * (3 * (46 + 20 * 3) + 20 * 0.5 * (8 + 64 + 512) / 512)
  assert line.split()[2:5] == ['30', '600', '0.5']
  assert wording.human_duration(seconds) in line
  assert 'by clients a round times epochs or steps' in text


def test_what_a_switch_makes_of_a_method_is_probed_apart(probes, tmp_path):
  # With one local epoch the published MOON keeps no models, and with more it does.
  rows = rows_lib.of_paper(
    registry.TABLES['turbosvm-fl/table11'], 'celeba', 'moon'
  )
  groups = rows_lib.plan_runs(rows, {}, [0], tmp_path)
  text, _ = needs.told([run for [run] in groups], tmp_path)
  lines = [line.split() for line in text.splitlines()]
  left = {
    tuple(line[:-7]): line[-7] for line in lines if line[:1] == ['celeba']
  }
  assert left == {
    ('celeba', 'moon'): '2',
    ('celeba', 'moon', 'moon_published'): '1',
  }
  assert ['--moon_published=True' in probe for probe in probes] == [True, False]


def disk(algorithm, output, **changes):
  """Returns the disk that a run is said to take, in GB."""
  given = {'clients_per_round': 8, **changes}
  rows = [small_table.row(algorithm, '1.0 1.0', **given)]
  [[run]] = rows_lib.plan_runs(rows, {}, [0], output)
  text, _ = needs.told([run], output)
  [line] = [line for line in text.splitlines() if line.startswith('disk: ')]
  number, unit = line.removeprefix('disk: at most ').split(',')[0].split()
  assert unit == 'GB'
  return float(number)


def test_the_disk_has_all_checkpoints_that_a_run_keeps(probes, tmp_path):
  assert disk('fedavg', tmp_path, eval_every=5) == 30
  assert disk('fedavg', tmp_path, eval_every=5, checkpoint_every=15) == 20
  assert disk('fedavg', tmp_path, eval_every=20) == 10


def test_a_run_keeps_as_many_checkpoints_as_are_counted(tmp_path):
  from tff_xc.experiment import checkpoints

  checkpoints.prepare(tmp_path)
  for number in range(1, 9):
    checkpoints.save(tmp_path, [1.0], number)
  found = list((tmp_path / 'checkpoints').iterdir())
  assert len(found) == needs.KEPT


def test_the_disk_has_what_clients_keep(probes, tmp_path):
  # All 100 clients, and those of a round for each of three checkpoints.
  assert disk('moon', tmp_path, eval_every=1) == 30 + 100 + 3 * 8
  # Four rounds of other clients each, and no more.
  assert disk('moon', tmp_path, eval_every=2, rounds=4) == 20 + 4 * 8
  # Everybody takes part between two checkpoints.
  assert disk('moon', tmp_path, eval_every=50, rounds=500) == 30 + 4 * 100


def test_work_is_clients_times_epochs_or_steps(tmp_path):
  def work(name, task=None, **given):
    rows = rows_lib.of_paper(registry.TABLES[name], task, None)
    groups = rows_lib.plan_runs(rows, given, [0], tmp_path)
    return {needs.work(run) for [run] in groups}

  assert work('turbosvm-fl/table11', 'femnist') == {8, 16, 32}
  assert work('fedvc/table3') == {10, 100}
  layers = work('fedaws/table1', 'cifar10')
  assert max(layers) / min(layers) == 32 / 8 * 10  # Centralised has no clients.
  assert work('fedvc/table4', local_steps=3) == {1, 30, 150, 300}


def test_a_probe_that_fails_is_told_after_the_others(
  probes, monkeypatch, tmp_path, capsys
):
  succeeds = children.run_all

  def run_all(runs, of, jobs, on_end):
    if runs[0].config['algorithm'] != 'fedss':
      return succeeds(runs, of, jobs, on_end)
    (runs[0].folder / 'checkpoints').mkdir(parents=True)  # It began.
    on_end(Ended(runs[0], 'no disk'), 1)

  monkeypatch.setattr(children, 'run_all', run_all)
  monkeypatch.setitem(
    registry.RESULTS, small_table.TABLE.name, small_table.TABLE
  )
  asked = experiments.Request(
    names=(small_table.TABLE.name,), scale='small', output=tmp_path
  )
  with pytest.raises(
    errors.InputError, match=r'^the probe of fedss .*: no disk$'
  ):
    experiments.tell_needs(
      [experiments.plan_one(small_table.TABLE, asked)], asked
    )
  lines = [line.split() for line in capsys.readouterr().out.splitlines()]
  of = {tuple(line[:2]): line[2:] for line in lines}
  told = ' '.join(of['one', 'after'])
  assert told.startswith('another, without those whose probe failed: 62 s')
  assert of['glyphs', 'fedss'] == ['2', '40', 'failed', 'failed', 'failed']
  assert of['glyphs', 'posonly'][:3] == ['1', '20', '0.5']
  assert not list(tmp_path.glob('probe_*'))


def test_nothing_is_foretold_if_all_probes_fail(monkeypatch, tmp_path):
  fails = lambda runs, of, jobs, on_end: on_end(Ended(runs[0], 'no disk'), 1)
  monkeypatch.setattr(children, 'run_all', fails)
  text, failures = needs.told(planned(tmp_path), tmp_path)
  assert 'failed' in text
  assert 'memory: ' not in text
  assert len(failures) == 2


def test_all_missing_data_are_named_once(monkeypatch, tmp_path, capsys):
  runs = planned(tmp_path)
  asked = []

  def missing(task, data_dir):
    asked.append(task)
    raise errors.InputError('there is no such file')

  monkeypatch.setattr(children, 'check_data', missing)
  with pytest.raises(errors.InputError, match='glyphs: there is no such file'):
    needs.with_data(runs)
  assert asked == ['glyphs']
  monkeypatch.setattr(children, 'check_data', lambda *_: None)
  assert needs.with_data(runs) == runs
  assert capsys.readouterr().out == ''


def test_what_several_tasks_lack_is_a_list(monkeypatch, tmp_path, capsys):
  [run, *_] = planned(tmp_path)
  files = ('runs', 'images'), ('rows', 'images'), ('more', '')
  others = [
    dataclasses.replace(run, config={**run.config, 'task': name})
    for name, _ in files
  ]
  why = {name: f'no {name}{found.ALSO}no {more}' for name, more in files}
  why['more'] = ''

  def missing_in_part(task, data_dir):
    if why[task]:
      raise errors.InputError(why[task])

  monkeypatch.setattr(children, 'check_data', missing_in_part)
  monkeypatch.setattr(tasks, 'get', lambda name: tasks.TASKS['glyphs'])
  assert needs.with_data(others) == others[2:]
  lines = ['runs: no runs', 'runs, rows: no images', 'rows: no rows']
  assert capsys.readouterr().out.splitlines() == [
    f'missing: {line}' for line in lines
  ]
  with pytest.raises(errors.InputError) as told:
    needs.with_data(others[:2])
  assert [line.strip() for line in str(told.value).splitlines()] == [
    'the data of these 2 tasks are missing',
    *lines,
  ]


def test_a_part_of_the_data_is_told(monkeypatch, tmp_path, capsys):
  runs = planned(tmp_path)
  glyphs = tasks.get('glyphs')
  find = lambda directory: found.Part('5 of 9 users')
  of_part = dataclasses.replace(glyphs, find=find)
  monkeypatch.setitem(tasks.TASKS, 'glyphs', of_part)
  monkeypatch.setattr(children, 'check_data', lambda *_: None)
  assert needs.with_data(runs) == runs
  out = capsys.readouterr().out
  assert out.startswith('only a part: glyphs in ')
  assert out.endswith(' has 5 of 9 users\n')


def test_an_output_that_cannot_be_written_is_named(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.InputError, match='file cannot be written'):
    needs.told(planned(tmp_path), tmp_path / 'file')
