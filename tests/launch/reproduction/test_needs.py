"""What runs will roughly take: their data, hours and disk."""

import dataclasses
import json

import pandas as pd
import pytest

from launch.reproduction import experiments
from launch.reproduction import needs
from launch.reproduction import rows as rows_lib
from launch.sweeps import training
from tasks import registry as tasks
from tasks import task as found_lib
from tasks.papers import registry
from tests.launch.reproduction import small_table
from tff_xc import errors
from tff_xc import wording
from tff_xc.experiment import checkpoints


def planned(output, *rows, seeds=(0, 1), **given):
  rows = rows or small_table.ROWS
  groups = rows_lib.plan_runs(rows, given, seeds, output)
  return [run for group in groups for run in group]


def line_of(runs, output, kind):
  text = needs.told(runs, output)
  [line] = [line for line in text.splitlines() if line.startswith(kind)]
  return line.removeprefix(kind).split(), text


@pytest.fixture
def nothing_kept(monkeypatch, tmp_path):
  monkeypatch.setattr(needs, '_KEPT_RESULTS', tmp_path / 'none')


def test_time_is_that_of_rounds_before_in_proportion(nothing_kept, tmp_path):
  runs = planned(tmp_path)
  small_table.finish(runs[0], 0.5)
  path = runs[0].folder / 'metrics.csv'
  pd.read_csv(path).assign(seconds=2.0).to_csv(path, index=False)
  words, text = line_of(runs, tmp_path, 'glyphs fedss')
  assert text.startswith('6 runs, 5 of them not finished')
  assert words[:3] == ['3', '60', '2']
  assert wording.human_duration(3 * 20 * 2) in ' '.join(words)
  # Another algorithm of the task has about the same.
  assert line_of(runs, tmp_path, 'glyphs posonly')[0][:3] == ['2', '40', '2']
  # Four times the clients and twice the epochs; the newest checkpoint counts.
  each = small_table.ROWS[0]
  clients = 4 * runs[0].config['hyperparameters']['clients_per_round']
  changes = {**each.changes, 'clients_per_round': clients, 'local_epochs': 2}
  runs = planned(tmp_path, each._replace(changes=changes), seeds=(0,))
  folder = runs[0].folder / 'checkpoints'
  folder.mkdir(parents=True)
  (runs[0].folder / 'config.json').write_text(json.dumps(runs[0].config))
  for name in ('round_8', 'round_12', '.round_13.7.tmp'):
    (folder / f'{name}.npz').touch()
  words, _ = line_of(runs, tmp_path, 'glyphs fedss')
  assert words[:3] == ['1', '8', '16']


def test_what_no_run_has_shown_is_said(nothing_kept, tmp_path):
  words, text = line_of(planned(tmp_path), tmp_path, 'glyphs fedss')
  assert words[:4] == ['4', '80', '–', '–']
  assert 'without 6 runs' in text
  assert not list(tmp_path.iterdir())
  run = planned(tmp_path)[0]  # It was stopped in its first round.
  small_table.finish(run, 0.5)
  path = run.folder / 'metrics.csv'
  pd.read_csv(path).drop(columns='seconds').to_csv(path, index=False)
  words, _ = line_of(planned(tmp_path), tmp_path, 'glyphs fedss')
  assert words[2:4] == ['–', '–']


def test_the_kept_results_tell_seconds_too(tmp_path):
  rows = registry.TABLES['fedaws/table1'].rows[:1]
  words, text = line_of(planned(tmp_path, *rows), tmp_path, 'cifar10 fedaws')
  assert float(words[3]) > 0
  assert 'without' not in text.split('one after another')[1]


def test_the_disk_has_checkpoints_and_what_clients_keep(tmp_path):
  def of(task, algorithm, **changes):
    row = small_table.row(algorithm, '1.0', task, **changes)
    [run] = planned(tmp_path, row, seeds=(0,))
    return needs.disk_bytes(run)

  plain = of('femnist', 'fedavg', rounds=9)
  # 6,603,710 parameters (TurboSVM-FL, Table 5), three checkpoints of thrice these.
  assert plain == pytest.approx(9 * 4 * 6_603_710, rel=0.02)
  assert of('femnist', 'fedavg', rounds=1) == pytest.approx(plain / 3)
  # MOON keeps models of those who take part, at most of all.
  drawn = of('femnist', 'moon', rounds=4, clients_per_round=8)
  assert drawn == pytest.approx(plain / 9 * (9 + 4 * 8))
  all_ = of('femnist', 'moon', rounds=5000, clients_per_round=8)
  assert all_ == pytest.approx(plain / 9 * (9 + 3195))
  # A run keeps as many checkpoints as are counted.
  checkpoints.prepare(tmp_path)
  for number in range(1, 9):
    checkpoints.save(tmp_path, [1.0], number)
  found = list((tmp_path / 'checkpoints').iterdir())
  assert len(found) == needs._CHECKPOINTS


def test_work_is_clients_times_epochs_or_steps(tmp_path):
  def work(name, task=None, **given):
    rows = rows_lib.chosen(
      registry.TABLES[name], registry.TABLES[name].rows, task, None
    )
    runs = planned(tmp_path, *rows, seeds=[0], **given)
    return {needs.work(run.config) for run in runs}

  assert work('turbosvm-fl/table11', 'femnist') == {8, 16, 32}
  layers = work('fedaws/table1', 'cifar10')
  assert max(layers) / min(layers) == 32 / 8 * 10  # Centralised has no clients.
  assert work('fedvc/table4', local_steps=3) == {1, 30, 150, 300}


def test_formulas_and_studies_have_nothing_to_run(tmp_path, capsys):
  asked = experiments.Request(scale='small', output=tmp_path / 'out')
  found = registry.chosen(['fedmlh/table5'])
  experiments.tell_needs(experiments.plan_all(found, asked), asked)
  assert 'nothing to run' in capsys.readouterr().out
  assert not (tmp_path / 'out').exists()


def test_data_that_are_missing_or_a_part_are_told(
  monkeypatch, tmp_path, capsys
):
  [run, *_] = planned(tmp_path)
  others = [
    dataclasses.replace(run, config={**run.config, 'task': name})
    for name in ('runs', 'rows', 'more')
  ]
  images = f'{found_lib.ALSO}no images'
  why = {'runs': f'no runs{images}', 'rows': f'no rows{images}', 'more': ''}
  asked = []

  def look(task, data_dir):
    asked.append(task)
    if why[task]:
      raise errors.InputError(why[task])

  monkeypatch.setattr(training, 'check_files', look)
  monkeypatch.setattr(tasks, 'get', lambda name: tasks.TASKS['glyphs'])
  assert needs.with_data([*others, *others]) == [others[2]] * 2
  assert asked == [*why]  # Each once.
  lines = ['runs: no runs', 'runs, rows: no images', 'rows: no rows']
  told = capsys.readouterr().out.splitlines()
  assert told == [f'missing: {line}' for line in lines]
  with pytest.raises(errors.InputError, match='2 tasks are missing') as problem:
    needs.with_data(others[:2])
  assert all(line in str(problem.value) for line in lines)
  find = lambda directory: found_lib.Part('5 of 9 users')
  of_part = dataclasses.replace(tasks.TASKS['glyphs'], find=find)
  monkeypatch.setattr(tasks, 'get', lambda name: of_part)
  assert needs.with_data(others[2:]) == others[2:]
  assert 'only a part: more in ' in capsys.readouterr().out
