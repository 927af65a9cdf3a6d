"""launch.train from the command line: it runs, resumes, is exact, small and stops well."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from launch import evaluate, machine
from tasks import experiment
from tests import doubling, full_disk, processes, small_data
from tests.launch import light
from tff_xc import errors
from tff_xc.measure import catalog

SMALL = ('--task=glyphs', '--algorithm=fedss', '--negatives=5')
SMALL += ('--clients_per_round=3', '--eval_every=4', '--checkpoint_every=3')


def command(run_dir, *flags):
  return [sys.executable, '-m', 'launch.train', *flags, f'--run_dir={run_dir}']


def call(run_dir, *flags):
  return processes.run(command(run_dir, *flags), cwd=light.ROOT, timeout=300)


def rounds_done(run_dir) -> int:
  """Counts the lines after the heading and that of the initial model."""
  file = run_dir / 'metrics.csv'
  return file.read_text().count('\n') - 2 if file.exists() else 0


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """An uninterrupted run of ten rounds."""
  run_dir = tmp_path_factory.mktemp('runs') / 'finished'
  done = call(run_dir, *SMALL, '--rounds=10')
  assert done.returncode == 0, done.stderr
  return run_dir, done


@pytest.mark.slow
def test_a_run_leaves_its_files_a_row_a_round_and_can_be_evaluated(
  finished, in_process, monkeypatch, tmp_path
):
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
  _assert_summary(run_dir)
  monkeypatch.setattr(experiment, 'install_runtime', lambda config: None)
  shutil.copytree(run_dir, tmp_path / 'run')
  _assert_evaluation(tmp_path / 'run')


def _assert_summary(run_dir):
  summary = json.loads((run_dir / 'summary.json').read_text())
  scores = [float(row['top1']) for row in doubling.rows(run_dir)]
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


def _assert_evaluation(run_dir):
  """It has the final metrics and a confusion matrix."""
  # A file that training alone needs.
  config = json.loads((run_dir / 'config.json').read_text())
  config['hyperparameters']['importance_weights'] = 'gone.csv'
  (run_dir / 'config.json').write_text(json.dumps(config))
  evaluate.run(str(run_dir))
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
    evaluate.run(str(run_dir), 'nobody')


def stopped_by(signal_number, flags, run_dir, after):
  """Starts a run, signals it after a row of metrics; returns its output."""
  running = subprocess.Popen(
    command(run_dir, *flags),
    cwd=light.ROOT,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  )
  deadline = time.monotonic() + 200
  while rounds_done(run_dir) < after and running.poll() is None:
    assert time.monotonic() < deadline
    time.sleep(0.02)
  running.send_signal(signal_number)
  _, said = running.communicate(timeout=60)
  assert rounds_done(run_dir) < 10, 'it was not stopped in time'
  return running.returncode, said


@pytest.mark.slow
def test_kill_9_and_ctrl_c_and_resumes_give_the_same_metrics(finished, tmp_path):
  """Also if the kill cut a line short and damaged the newest checkpoint."""
  run_dir = tmp_path / 'killed'
  flags = (*SMALL, '--rounds=10', '--checkpoint_every=2')
  stopped_by(signal.SIGKILL, flags, run_dir, after=5)
  with open(run_dir / 'metrics.csv', 'a') as file:
    file.write('9,0.5,0')
  checkpoints = run_dir / 'checkpoints'
  rounds = [int(p.stem.removeprefix('round_')) for p in checkpoints.glob('round_*')]
  assert len(rounds) > 1
  newest = checkpoints / f'round_{max(rounds)}.npz'
  os.truncate(newest, newest.stat().st_size // 2)
  # The resumed run is interrupted, with the row that it resumed from there.
  status, said = stopped_by(signal.SIGINT, flags, run_dir, after=7)
  assert f'round {max(rounds)} is damaged' in said
  assert (checkpoints / 'damaged' / newest.name).is_file()
  assert status == 130
  assert 'stopped' in said
  assert 'Traceback' not in said
  done = call(run_dir, *flags, '--client_threads=1')
  assert done.returncode == 0, done.stderr
  # All digits are equal although the number of threads differs.
  assert doubling.rows(run_dir) == doubling.rows(finished[0])


# -- minutes: memory, order of scores, a full disk --

# The graphs are there by then, and nearly all clients have been decoded.
_WARM_UP, _ROUNDS, _WINDOW = 50, 550, 100
_MOST_GROWTH_MIB = 16


@pytest.mark.slow
@pytest.mark.parametrize('algorithm', ['fedss', 'fedaws'])
def test_500_rounds_add_nothing_to_the_memory(tmp_path, algorithm):
  run_dir = tmp_path / 'run'
  given = ('--task=glyphs', f'--algorithm={algorithm}', f'--rounds={_ROUNDS}')
  given += ('--eval_every=25', '--clients_per_round=3', '--checkpoint_every=5')
  samples = []
  quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}
  with subprocess.Popen(command(run_dir, *given), cwd=light.ROOT, **quiet) as run:
    try:
      while run.poll() is None:
        done = rounds_done(run_dir)
        if _WARM_UP <= done < _ROUNDS:  # Afterwards it draws the curves.
          mib = psutil.Process(run.pid).memory_info().rss / 2**20
          samples.append((done, mib))
        time.sleep(0.2)
    finally:
      run.kill()
  assert run.returncode == 0
  early = [mib for done, mib in samples if done < _WARM_UP + _WINDOW]
  late = [mib for done, mib in samples if done >= _ROUNDS - _WINDOW]
  grown = max(late) - max(early)
  print(f'{algorithm}: {max(early):.0f} MiB, then {grown:+.1f} MiB')
  assert grown < _MOST_GROWTH_MIB


@pytest.mark.slow
def test_a_round_of_the_size_of_amazoncat_fits_4_gb(tmp_path):
  """13,330 labels, 203,882 features, 4,096 clients, 512 numbers a row."""
  given = command(
    tmp_path / 'run',
    '--task=sparse-words',
    '--algorithm=fedaws',
    '--num_classes=13330',
    '--num_features=203882',
    '--embedding_dim=512',
    '--feature_dim=512',
    '--hidden_dim=1024',
    '--clients_per_round=4096',
    '--rounds=1',
    '--spreadout_neighbors=100',
    '--spreadout_learning_rate=0.0001',
  )
  run, peak = subprocess.Popen(given, cwd=light.ROOT), 0
  while run.poll() is None:
    peak = max(peak, machine.peak_bytes(run.pid))
    time.sleep(0.2)
  assert run.returncode == 0
  print(f'{peak / 1e9:.2f} GB')
  assert peak < 4e9


RUNS = {
  'full': ('--algorithm=fullsoftmax',),
  'fedss': ('--algorithm=fedss',),
  'posonly': ('--algorithm=posonly',),
  'fedss, m=3': ('--algorithm=fedss', '--negatives=3'),
  'negonly, m=3': ('--algorithm=negonly', '--negatives=3'),
}


def train(run_dir, *flags):
  """Trains without evaluating in between; returns the final metrics."""
  short = ('--eval_every=100', '--rounds=100')
  subprocess.run(command(run_dir, *flags, *short), cwd=light.ROOT, check=True)
  return json.loads((run_dir / 'summary.json').read_text())['final']


@pytest.mark.slow
def test_fedss_is_near_full_softmax_and_above_the_rest(tmp_path):
  """Top-1 after 100 rounds on the default glyphs, 200 classes."""
  top1 = {
    name: train(tmp_path / name, '--task=glyphs', *flags)['top1'] for name, flags in RUNS.items()
  }
  assert top1['full'] > 0.7
  assert top1['fedss'] > 0.9 * top1['full']
  assert top1['fedss'] > 1.2 * top1['posonly']
  assert top1['fedss, m=3'] > 1.1 * top1['negonly, m=3']


@pytest.mark.slow
def test_fedaws_is_near_the_oracle_on_delicious(tmp_path, data_dir):
  """P@1 after 100 rounds with one label a client; softmax has 53.7 %."""
  task = ('--task=delicious', f'--data_dir={data_dir}')
  p1 = {
    name: train(tmp_path / name, *task, f'--algorithm={name}')['p@1']
    for name in ('fedaws', 'fedaws_baseline2')
  }
  assert p1['fedaws'] > 0.75 * 0.537
  assert p1['fedaws'] > 1.2 * p1['fedaws_baseline2']


@pytest.mark.slow
def test_training_stops_with_a_sentence_and_goes_on_later(tmp_path):
  with full_disk.mounted(tmp_path / 'disk', '2m') as disk:
    if isinstance(disk, str):
      pytest.skip(disk)
    # Enough for the first rounds, and not for the picture of the curves.
    disk.fill(left=48 * 1024)
    run_dir = disk.path / 'run'
    given = ('--algorithm=fedavg', '--rounds=4', '--eval_every=2')
    done = call(run_dir, *small_data.SPARSE_WORDS, *given)
    assert done.returncode == 2, done.stderr
    assert 'Traceback' not in done.stderr
    [told] = [n for n in done.stderr.splitlines() if n.startswith('error: ')]
    assert 'cannot be written (No space left on device)' in told
    assert not [p for p in run_dir.rglob('*') if 'tmp' in p.name]
    disk.make_room()
    done = call(run_dir, *small_data.SPARSE_WORDS, *given)
    assert done.returncode == 0, done.stderr
    assert [row['round'] for row in doubling.rows(run_dir)] == list('01234')
    assert (run_dir / 'curves.png').exists()
