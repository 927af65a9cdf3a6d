"""`launch.train` from the command line: it runs, resumes, is exact and small, and stops well."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from launch import machine
from tests import doubling, processes, small_data
from tests.launch import light
from tff_xc.measure import catalog

SMALL = ('--task=glyphs', '--algorithm=fedss', '--negatives=5', '--clients_per_round=3')
# Clients keep states, some clients leave rounds, and the server adapts its bounds.
MOON = (
  *small_data.SPARSE_WORDS,
  '--algorithm=moon',
  '--client_failure_rate=0.2',
  '--robust_aggregation=zeroing+clipping',
  '--eval_every=5',
)
# Sequences whose features are class rows. The validation score selects the best round.
ITEMS = (
  '--task=items-demo',
  '--algorithm=scaffold',
  '--num_classes=40',
  '--num_clients=15',
  '--embedding_dim=8',
  '--clients_per_round=4',
  '--eval_every=5',
)


def command(run_dir, *flags):
  return [sys.executable, '-m', 'launch.train', *flags, f'--run_dir={run_dir}']


def call(run_dir, *flags):
  done = processes.run(command(run_dir, *flags), cwd=light.ROOT, timeout=900)
  assert done.returncode == 0, done.stderr
  return done


def rounds_done(run_dir) -> int:
  """Counts the lines after the heading and the line of the initial model."""
  file = run_dir / 'metrics.csv'
  return file.read_text().count('\n') - 2 if file.exists() else 0


@pytest.mark.slow
def test_a_run_leaves_its_files_a_row_a_round_and_what_crossed(tmp_path):
  run_dir = tmp_path / 'run'
  done = call(run_dir, *SMALL, '--rounds=10', '--eval_every=4')
  assert 'Traceback' not in done.stderr
  for name in ('config.json', 'metrics.csv', 'summary.json', 'curves.png'):
    assert (run_dir / name).stat().st_size > 0
  assert any((run_dir / 'tensorboard').iterdir())
  rows = doubling.rows(run_dir)
  assert [int(r['round']) for r in rows] == list(range(11))
  assert all(None not in r and None not in r.values() for r in rows)
  assert [int(r['round']) for r in rows if r['top1'] != 'nan'] == [0, 4, 8, 10]
  # The row of the initial model has scores, and no values of a round.
  empty = {name for name, cell in rows[0].items() if cell == ''}
  assert empty == {name for name in rows[0] if name in catalog.ROUND}
  summary = json.loads((run_dir / 'summary.json').read_text())
  assert summary['final']['top1'] == float(rows[-1]['top1'])
  # A client has the rows of its own classes and of five negatives. A row has 64 floats. Ids are
  # sent twice, and a weight is sent once.
  held = summary['class_rows_requested_mean']
  down = 4 * (288 + 3 * 9216 + 256 + 288 * 64 + 64) + held * 64 * 4
  assert summary['bytes_down_per_client_round'] == pytest.approx(down)
  assert summary['bytes_up_per_client_round'] == pytest.approx(down + 4 + held * 8)


def stopped_by(signal_number, flags, run_dir, after):
  """Starts a run, sends it a signal after some rows of metrics, and returns its output."""
  running = subprocess.Popen(
    command(run_dir, *flags),
    cwd=light.ROOT,
    text=True,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
  )
  deadline = time.monotonic() + 200
  while rounds_done(run_dir) < after and running.poll() is None:
    assert time.monotonic() < deadline
    time.sleep(0.02)
  running.send_signal(signal_number)
  _, said = running.communicate(timeout=60)
  assert not (run_dir / 'summary.json').exists(), 'it was not stopped in time'
  return running.returncode, said


@pytest.mark.slow
@pytest.mark.parametrize(('flags', 'rounds'), [(SMALL, 12), (MOON, 200), (ITEMS, 200)])
def test_kill_9_and_ctrl_c_and_resumes_give_the_same_digits(flags, rounds, tmp_path):
  """The kill also cuts a line of metrics.csv and damages the newest checkpoint."""
  run_dir, whole = tmp_path / 'killed', tmp_path / 'whole'
  flags = (*flags, f'--rounds={rounds}', '--checkpoint_every=2')
  call(whole, *flags)
  stopped_by(signal.SIGKILL, flags, run_dir, after=5)
  killed = rounds_done(run_dir)
  with open(run_dir / 'metrics.csv', 'a') as file:
    file.write('9,0.5,0')
  checkpoints = run_dir / 'checkpoints'
  newest = max(int(p.stem.removeprefix('round_')) for p in checkpoints.glob('round_*'))
  file = checkpoints / f'round_{newest}.npz'
  os.truncate(file, file.stat().st_size // 2)
  # Interrupt the resumed run after the row from which it resumed.
  status, said = stopped_by(signal.SIGINT, flags, run_dir, after=killed + 1)
  assert f'round {newest} is damaged' in said
  assert (checkpoints / 'damaged' / file.name).is_file()
  assert (status, 'stopped' in said, 'Traceback' in said) == (130, True, False)
  # All digits are equal although the number of threads differs.
  call(run_dir, *flags, '--client_threads=1')
  assert doubling.rows(run_dir) == doubling.rows(whole)
  doubling.assert_same_arrays(run_dir, whole)


# -- Tests that take minutes: memory. --

# After the warm-up, the graphs exist, and nearly all clients are decoded.
_WARM_UP, _ROUNDS, _WINDOW = 50, 550, 100


@pytest.mark.slow
@pytest.mark.parametrize('algorithm', ['fedss', 'fedaws'])
def test_500_rounds_add_nothing_to_the_memory(tmp_path, algorithm):
  run_dir = tmp_path / 'run'
  given = (
    '--task=glyphs',
    f'--algorithm={algorithm}',
    f'--rounds={_ROUNDS}',
    '--eval_every=25',
    '--clients_per_round=3',
    '--checkpoint_every=5',
  )
  samples = []
  with subprocess.Popen(
    command(run_dir, *given), cwd=light.ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
  ) as run:
    try:
      while run.poll() is None:
        done = rounds_done(run_dir)
        if _WARM_UP <= done < _ROUNDS:  # After these rounds, the run draws its curves.
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
  assert grown < 16


@pytest.mark.slow
def test_a_round_of_the_size_of_amazoncat_fits_4_gb(tmp_path):
  """The size is 13,330 labels, 203,882 features, 4,096 clients, and 512 numbers per row."""
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
