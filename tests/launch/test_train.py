"""The commands from the command line: they run, resume and refuse bad input."""

import csv
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from launch import evaluation as evaluation_lib
from launch import train as train_lib
from tasks import experiment
from tests.launch import light
from tff_xc import errors
from tff_xc.measure import catalog

ROOT = pathlib.Path(__file__).parents[2]
SMALL = ('--task=glyphs', '--algorithm=fedss', '--negatives=5')
SMALL += ('--clients_per_round=3', '--eval_every=4', '--checkpoint_every=3')


def call(module, *flags):
  return subprocess.run(
    command(module, *flags),
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


def command(module, *flags):
  return [sys.executable, '-m', f'launch.{module}', *map(str, flags)]


def metrics(run_dir):
  with open(run_dir / 'metrics.csv') as file:
    return [
      {k: v for k, v in row.items() if k != 'seconds'}
      for row in csv.DictReader(file)
    ]


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """An uninterrupted run of ten rounds."""
  run_dir = tmp_path_factory.mktemp('runs') / 'finished'
  done = call('train', *SMALL, '--rounds=10', f'--run_dir={run_dir}')
  assert done.returncode == 0, done.stderr
  return run_dir, done


def test_a_run_leaves_its_files_and_a_row_a_round(finished):
  run_dir, done = finished
  for name in ('config.json', 'metrics.csv', 'summary.json', 'curves.png'):
    assert (run_dir / name).stat().st_size > 0
  assert any((run_dir / 'tensorboard').iterdir())
  assert 'Traceback' not in done.stderr
  assert str(run_dir / 'curves.png') in done.stdout
  rows = metrics(run_dir)
  assert [int(r['round']) for r in rows] == list(range(11))
  assert all(None not in r and None not in r.values() for r in rows)
  evaluated = [int(r['round']) for r in rows if r['top1'] != 'nan']
  assert evaluated == [0, 4, 8, 10]
  # The initial model has scores and no cell of a round.
  assert {name for name, cell in rows[0].items() if cell == ''} == {
    name for name in rows[0] if name in catalog.ROUND
  }


def test_the_summary_is_machine_readable(finished):
  summary = json.loads((finished[0] / 'summary.json').read_text())
  rows = metrics(finished[0])
  assert summary['rounds'] == 10
  assert summary['final']['top1'] == float(rows[-1]['top1'])
  assert summary['best']['top1'] == max(
    float(r['top1']) for r in rows if r['top1'] != 'nan'
  )
  assert 0 <= summary['final']['train_top1'] <= 1
  assert summary['seconds_per_round_median'] > 0
  # A client holds its own classes and five negatives. A row has 64 floats; ids
  # are sent twice, and one weight once.
  held = summary['class_rows_requested_mean']
  encoder_bytes = 4 * (288 + 3 * 9216 + 256 + 288 * 64 + 64)
  down = summary['bytes_down_per_client_round']
  assert down == pytest.approx(encoder_bytes + held * 64 * 4)
  assert summary['bytes_up_per_client_round'] == pytest.approx(
    down + 4 + held * 8
  )


def stopped_by(signal_number, flags, run_dir, after):
  """Starts a run, signals it after a row of metrics; returns its output."""
  running = subprocess.Popen(
    command('train', *flags),
    cwd=ROOT,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  )
  deadline = time.monotonic() + 200
  while time.monotonic() < deadline and running.poll() is None:
    if (run_dir / 'metrics.csv').exists() and len(metrics(run_dir)) >= after:
      break
    time.sleep(0.02)
  running.send_signal(signal_number)
  _, said = running.communicate(timeout=60)
  assert len(metrics(run_dir)) < 11, 'it was not stopped in time'
  return running.returncode, said


@pytest.mark.slow
def test_kill_9_and_ctrl_c_and_resumes_give_the_same_metrics(
  finished, tmp_path
):
  """Also if the kill cut a line short and damaged the newest checkpoint."""
  run_dir = tmp_path / 'killed'
  flags = (*SMALL, '--rounds=10', f'--run_dir={run_dir}')
  flags = (*flags, '--checkpoint_every=2')
  stopped_by(signal.SIGKILL, flags, run_dir, after=6)
  with open(run_dir / 'metrics.csv', 'a') as file:
    file.write('9,0.5,0')
  checkpoints = run_dir / 'checkpoints'
  rounds = [
    int(p.stem.removeprefix('round_')) for p in checkpoints.glob('round_*')
  ]
  assert len(rounds) > 1
  newest = checkpoints / f'round_{max(rounds)}.npz'
  os.truncate(newest, newest.stat().st_size // 2)
  # The resumed run is interrupted, with the row that it resumed from there.
  status, said = stopped_by(signal.SIGINT, flags, run_dir, after=8)
  assert f'round {max(rounds)} is damaged' in said
  assert (checkpoints / 'damaged' / newest.name).is_file()
  assert status == 130
  assert 'stopped' in said
  assert 'Traceback' not in said
  done = call('train', *flags, '--client_threads=1')
  assert done.returncode == 0, done.stderr
  # All digits are equal although the number of threads differs.
  assert metrics(run_dir) == metrics(finished[0])


def test_another_configuration_is_refused_and_nothing_changes(
  finished, in_process
):
  run_dir, _ = finished
  before = (run_dir / 'config.json').read_bytes()
  changes = {'clients_per_round': 3, 'negatives': 5, 'rounds': 10, 'seed': 1}
  changes |= {'eval_every': 4, 'checkpoint_every': 3}
  config = experiment.resolve('glyphs', 'fedss', changes)
  with pytest.raises(errors.InputError, match='seed was 0 and is 1'):
    train_lib.run(config, str(run_dir))
  assert (run_dir / 'config.json').read_bytes() == before


def test_evaluate_gives_the_final_metrics_and_a_confusion_matrix(
  finished, in_process, monkeypatch, tmp_path
):
  run_dir = tmp_path / 'run'
  shutil.copytree(finished[0], run_dir)
  # A file that training alone needs.
  config = json.loads((run_dir / 'config.json').read_text())
  config['hyperparameters']['importance_weights'] = 'gone.csv'
  (run_dir / 'config.json').write_text(json.dumps(config))
  monkeypatch.setattr(experiment, 'install_runtime', lambda config: None)
  evaluation_lib.run(str(run_dir))
  evaluation = json.loads((run_dir / 'evaluation.json').read_text())
  summary = json.loads((run_dir / 'summary.json').read_text())
  assert evaluation['metrics'] == summary['final']
  lines = (run_dir / 'confusion.csv').read_text().splitlines()
  assert lines[0].startswith('class of the training examples of')
  counts = [list(map(int, line.split(',')[1:])) for line in lines[1:]]
  correct = sum(counts[i][i] for i in range(len(counts)))
  total = sum(map(sum, counts))
  assert evaluation['client_train_top1'] == pytest.approx(correct / total)
  assert (run_dir / 'confusion.png').stat().st_size > 0
  with pytest.raises(errors.InputError, match='no such client'):
    evaluation_lib.run(str(run_dir), 'nobody')


@pytest.mark.parametrize(
  ('flags', 'expected'),
  [
    ('--algorithm=fedss', '--task is missing: glyphs'),
    ('--task=glyphs', '--algorithm is missing: fedavg'),
    ('--task=mnist --algorithm=fedss', "unknown task 'mnist'"),
    ('--task=glyph --algorithm=fedss', 'did you mean glyphs?'),
    ('--task=glyphs --algorithm=fedsss', 'did you mean fedss?'),
    ('--task=glyphs --algorithm=x', "unknown algorithm 'x'"),
    ('--lr=1', 'did you mean --client_learning_rate?'),
    ('--server_optimizer=adma', 'did you mean adam?'),
    ('--task=images --data_dir=. --encoder=mobilnet', 'mean mobilenet_v'),
    ('--algorithm=posonly', 'hyper-parameter of posonly'),
    ('--nonsense=1', 'no flag --nonsense'),
    ('--batch_size=many', '--batch_size=many'),
    ('--batch_size=0', 'at least 1'),
    ('--rounds=0', '--rounds=0'),
    ('--seed=-1', '--seed=-1'),
    ('--target=top1=0.7', 'METRIC:VALUE'),
    ('--target=map@r:0.7', 'not measured here'),
    ('extra', "'extra' is no flag"),
    ('--runtime=cloud', 'worker'),
    (
      '--task=glyphs --algorithm=centralized --clients_per_round=2',
      'has no clients',
    ),
  ],
)
def test_bad_flags_answer_in_one_sentence_without_tensorflow(flags, expected):
  flags = flags.split()
  first = () if flags[0].startswith(('--task=g', '--task=m')) else SMALL
  first = () if expected.startswith('--task is missing') else first
  light.assert_one_sentence(light.call('train', *first, *flags), expected)
