"""The commands from the command line: they run, resume and refuse bad input."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from launch import evaluation as evaluation_lib
from tasks import experiment
from tests import doubling
from tests.launch import light
from tff_xc import errors
from tff_xc.measure import catalog

SMALL = ('--task=glyphs', '--algorithm=fedss', '--negatives=5')
SMALL += ('--clients_per_round=3', '--eval_every=4', '--checkpoint_every=3')


def call(module, *flags):
  return subprocess.run(
    command(module, *flags),
    cwd=light.ROOT,
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


def command(module, *flags):
  return [sys.executable, '-m', f'launch.{module}', *map(str, flags)]


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
  rows = doubling.rows(run_dir)
  assert [int(r['round']) for r in rows] == list(range(11))
  assert all(None not in r and None not in r.values() for r in rows)
  evaluated = [int(r['round']) for r in rows if r['top1'] != 'nan']
  assert evaluated == [0, 4, 8, 10]
  # The initial model has scores and no cell of a round.
  assert {name for name, cell in rows[0].items() if cell == ''} == {
    name for name in rows[0] if name in catalog.ROUND
  }


def test_the_summary_has_what_crossed(finished):
  summary = json.loads((finished[0] / 'summary.json').read_text())
  scores = [float(row['top1']) for row in doubling.rows(finished[0])]
  assert summary['rounds'] == 10
  assert summary['final']['top1'] == scores[-1]
  assert summary['best']['top1'] == np.nanmax(scores)
  assert 0 <= summary['final']['train_top1'] <= 1
  assert summary['seconds_per_round_median'] > 0
  # A client holds its own classes and five negatives. A row has 64 floats; ids
  # are sent twice, and one weight once.
  held = summary['class_rows_requested_mean']
  down = 4 * (288 + 3 * 9216 + 256 + 288 * 64 + 64) + held * 64 * 4
  assert summary['bytes_down_per_client_round'] == pytest.approx(down)
  up = summary['bytes_up_per_client_round']
  assert up == pytest.approx(down + 4 + held * 8)


def stopped_by(signal_number, flags, run_dir, after):
  """Starts a run, signals it after a row of metrics; returns its output."""
  running = subprocess.Popen(
    command('train', *flags),
    cwd=light.ROOT,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  )
  deadline = time.monotonic() + 200
  while time.monotonic() < deadline and running.poll() is None:
    if (run_dir / 'metrics.csv').exists() and len(
      doubling.rows(run_dir)
    ) >= after:
      break
    time.sleep(0.02)
  running.send_signal(signal_number)
  _, said = running.communicate(timeout=60)
  assert len(doubling.rows(run_dir)) < 11, 'it was not stopped in time'
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
  assert doubling.rows(run_dir) == doubling.rows(finished[0])


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
