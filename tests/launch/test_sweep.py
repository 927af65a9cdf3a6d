"""`launch.sweep`: bad input, what is run again, and a real interrupted sweep."""

import csv
import json
import subprocess
import sys
import time

import psutil
import pytest

from launch import sweep as sweep_lib
from launch.sweeps import children
from launch.sweeps import plan
from launch.sweeps import training
from tests.launch import light
from tests.report import fake_runs
from tff_xc import errors
from tff_xc import lock

FEDSS = ('--task=glyphs', '--algorithm=fedss')


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ((), '--task is missing'),
    (FEDSS, '--grid is missing'),
    ((*FEDSS, '--grid=negatives:0,200'), '--negatives=0'),
    ((*FEDSS, '--grid=batch_size:4', '--seeds=x'), '--seeds=x: expected'),
    ((*FEDSS, '--grid=batch_size:4', '--seed=1'), 'no flag --seed'),
    ((*FEDSS, '--grid=batch_size:4', '--run_dir=a'), 'no flag --run_dir'),
    ((*FEDSS, '--grid=batch_size:4', '--metric=p@1'), 'glyphs measures top1'),
    ((*FEDSS, '--grid=batch_size:4', '--metric=top1:x'), 'METRIC:VALUE'),
    ((*FEDSS, '--grid=batch_size:4', '--jobs=-1'), '--jobs=-1'),
    ((*FEDSS, '--grid=batch_size:4', 'more'), "'more' is no flag"),
  ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
  arguments, message, tmp_path
):
  output = tmp_path / 'sweep'
  done = light.call('sweep', *arguments, f'--output={output}')
  light.assert_one_sentence(done, message)
  assert not output.exists()


def test_missing_data_are_told_once_and_nothing_is_started(tmp_path):
  runs = plan.runs(
    'shakespeare',
    'fedavg',
    {'data_dir': str(tmp_path / 'absent')},
    [{'batch_size': 4}, {'batch_size': 8}],
    [0],
    tmp_path / 'sweep',
  )
  with pytest.raises(errors.InputError, match='no shakespeare of LEAF in'):
    sweep_lib.sweep(runs, {}, tmp_path / 'sweep', 0, None)
  assert not list(tmp_path.iterdir())


@pytest.fixture
def planned(tmp_path):
  """Returns two runs and their common settings; the first one is finished."""
  given = {'rounds': 20}
  runs = plan.runs(
    'glyphs', 'fedss', given, [{'negatives': n} for n in (2, 5)], [0], tmp_path
  )
  _finish(runs[0])
  return runs, given


def _finish(run):
  if not run.folder.exists():
    fake_runs.write_run(run.folder)
    (run.folder / 'config.json').write_text(json.dumps(run.config))


class FakeChild:
  def __init__(self, run, error=None):
    self.run, self.error, self.seconds = run, error, 30.0


def test_finished_runs_are_kept(planned, tmp_path, monkeypatch, capsys):
  runs, given = planned
  started = []

  def run_all(waiting, arguments_of, jobs, on_end):
    for run in waiting:
      started.append(arguments_of(run, 1))
      _finish(run)
      on_end(FakeChild(run), 1)

  monkeypatch.setattr(children, 'run_all', run_all)
  text = sweep_lib.sweep(runs, given, tmp_path, 0, None)
  assert started == [
    [
      *('-m', 'launch.train', f'--run_dir={tmp_path}/negatives=5/seed0'),
      *('--task=glyphs', '--algorithm=fedss', '--rounds=20', '--negatives=5'),
      '--seed=0',
    ]
  ]
  said = capsys.readouterr().out.splitlines()
  assert said[0] == f'2 runs in {tmp_path}, 1 of them finished'
  assert said[1] == 'finished 2 of 2: negatives=5 seed 0: top-1 50.0 %, 30 s'
  assert text.startswith('task glyphs, fedss\n')
  assert 'fedss negatives=2 *' in text
  assert text.endswith('sweep.md, sweep.csv, sweep.png\n')
  started.clear()
  sweep_lib.sweep(runs, given, tmp_path, 0, None)
  assert not started


def test_a_run_on_other_data_ends_the_sweep(planned, tmp_path, monkeypatch):
  runs, given = planned

  def run_all(waiting, arguments_of, jobs, on_end):
    [run] = waiting
    _finish(run)
    config = {**run.config, 'data': {'examples': 60}}
    (run.folder / 'config.json').write_text(json.dumps(config))
    on_end(FakeChild(run), 1)

  monkeypatch.setattr(children, 'run_all', run_all)
  with pytest.raises(errors.InputError, match='examples was None and is 60'):
    sweep_lib.sweep(runs, given, tmp_path, 0, None)
  assert not (tmp_path / 'sweep.md').exists()


def test_two_sweeps_in_one_directory_are_refused(planned, tmp_path):
  runs, given = planned
  with (
    lock.lock(tmp_path, 'output'),
    pytest.raises(errors.InputError, match=r'another process .* --output'),
  ):
    sweep_lib.sweep(runs, given, tmp_path, 0, None)
  lock.lock(tmp_path, 'output').close()  # The sweep has released it.


def test_side_by_side_each_run_takes_its_share_of_the_cores(planned):
  runs, given = planned
  found = training.arguments_of(runs[0], given, 4)
  assert '--client_threads=4' in found
  given = {**given, 'client_threads': 1}
  assert '--client_threads=4' not in training.arguments_of(runs[0], given, 4)


def test_a_failed_run_is_told_with_the_time_left(planned, capsys):
  runs, _ = planned
  report = training._Report(9, 0)
  report.ended(FakeChild(runs[0]), 1)
  report.ended(FakeChild(runs[1], 'no memory'), 2)
  said = capsys.readouterr().out.splitlines()
  assert said == [
    'finished 1 of 9, about 4 min left: negatives=2 seed 0: top-1 50.0 %, 30 s',
    'finished 2 of 9, about 2 min left: negatives=5 seed 0: failed: no memory',
  ]
  assert report.failures == {runs[1].folder: 'no memory'}


def test_a_directory_of_another_sweep_is_refused(planned, tmp_path):
  runs, _ = planned
  other = plan.runs(
    'glyphs', 'fedss', {'rounds': 21}, [{'negatives': 2}], [0], tmp_path
  )
  assert not training.is_finished(other[0])  # More rounds go on.
  changed = {**runs[0].config, 'eval_every': 3}
  run = plan.Run(runs[0].values, changed, runs[0].folder)
  with pytest.raises(errors.InputError, match='eval_every was 10 and is 3'):
    sweep_lib.sweep([run], {}, tmp_path, 0, None)


SMALL = (
  *('--task=sparse-words', '--algorithm=fedss', '--num_classes=20'),
  *('--num_features=64', '--feature_dim=5', '--hidden_dim=7'),
  *('--classes_per_client=2', '--examples_per_round=9', '--embedding_dim=6'),
  *('--batch_size=3', '--negatives=4', '--clients_per_round=5'),
  *('--rounds=200', '--eval_every=20', '--server_optimizer=sgd', '--seeds=0,1'),
  # With the second, no client's update stays finite.
  '--grid=client_learning_rate:0.01,2e9',
)


def start(output, jobs):
  return subprocess.Popen(
    [
      *(sys.executable, '-m', 'launch.sweep', *SMALL),
      *(f'--jobs={jobs}', f'--output={output}'),
    ],
    cwd=light.ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def without_seconds(file):
  with open(file, newline='') as f:
    return [
      {
        name: cell
        for name, cell in row.items()
        if not name.startswith('seconds')
      }
      for row in csv.DictReader(f)
    ]


@pytest.mark.slow
def test_an_interrupted_and_resumed_sweep_ends_like_another(tmp_path):
  whole = start(tmp_path / 'whole', 2)
  said, _ = whole.communicate(timeout=300)
  assert whole.returncode == 0, said
  cut = start(tmp_path / 'cut', 1)
  first, second = (
    tmp_path / 'cut' / 'client_learning_rate=0.01' / f'seed{seed}'
    for seed in (0, 1)
  )
  try:
    while not _rows(second / 'metrics.csv') > 30:
      assert cut.poll() is None, cut.communicate()[0]
      time.sleep(0.05)
    below = psutil.Process(cut.pid).children(recursive=True)
    assert below
  finally:
    cut.terminate()
    said, _ = cut.communicate(timeout=90)
  assert cut.returncode == 143
  assert 'stopped; the same command goes on from here' in said
  assert not [process for process in below if process.is_running()]
  assert not (second / 'summary.json').exists()
  assert '\nstopped ' in (second.parent / 'seed1.log').read_text()
  written = (first / 'summary.json').stat().st_mtime_ns
  again = start(tmp_path / 'cut', 2)
  said, _ = again.communicate(timeout=300)
  assert again.returncode == 0, said
  assert '4 runs in' in said
  assert '1 of them finished' in said
  assert said.count("dropped every client's update") == 4  # 2 runs, the table.
  assert (first / 'summary.json').stat().st_mtime_ns == written
  files = [
    'sweep.csv',
    *(f'{first.parent.name}/{s.name}/metrics.csv' for s in (first, second)),
  ]
  for file in files:
    assert without_seconds(tmp_path / 'cut' / file) == without_seconds(
      tmp_path / 'whole' / file
    )
  [best] = [
    row
    for row in without_seconds(tmp_path / 'cut' / 'sweep.csv')
    if row['best'] == 'True'
  ]
  assert float(best['client_learning_rate']) == 0.01


def _rows(file):
  return file.read_text().count('\n') if file.exists() else 0
