"""launch.train in real training: order of scores, memory, a full disk. Minutes: slow."""

import json
import pathlib
import resource
import subprocess
import sys
import time

import psutil
import pytest

from tests import doubling
from tests import full_disk
from tests import small_data
from tests.launch import light

# The graphs are there by then, and nearly all clients have been decoded.
_WARM_UP, _ROUNDS, _WINDOW = 50, 550, 100
_MOST_GROWTH_MIB = 16


def command(run_dir, *flags):
  return [sys.executable, '-m', 'launch.train', *flags, f'--run_dir={run_dir}']


def _rounds_done(metrics: pathlib.Path) -> int:
  """Counts the lines after the heading and that of the initial model."""
  return metrics.read_text().count('\n') - 2 if metrics.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize('algorithm', ['fedss', 'fedaws'])
def test_500_rounds_add_nothing_to_the_memory(tmp_path, algorithm):
  run_dir = tmp_path / 'run'
  given = ('--task=glyphs', f'--algorithm={algorithm}', f'--rounds={_ROUNDS}')
  given += ('--eval_every=25', '--clients_per_round=3', '--checkpoint_every=5')
  samples = []
  with subprocess.Popen(
    command(run_dir, *given),
    cwd=light.ROOT,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  ) as run:
    try:
      while run.poll() is None:
        done = _rounds_done(run_dir / 'metrics.csv')
        if _WARM_UP <= done < _ROUNDS:  # Afterwards it draws the curves.
          samples.append(
            (done, psutil.Process(run.pid).memory_info().rss / 2**20)
          )
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
    *('--task=sparse-words', '--algorithm=fedaws', '--num_classes=13330'),
    *('--num_features=203882', '--embedding_dim=512', '--feature_dim=512'),
    *('--hidden_dim=1024', '--clients_per_round=4096', '--rounds=1'),
    *('--spreadout_neighbors=100', '--spreadout_learning_rate=0.0001'),
  )
  subprocess.run(given, cwd=light.ROOT, check=True, stdout=subprocess.DEVNULL)
  peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
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
    name: train(tmp_path / name, '--task=glyphs', *flags)['top1']
    for name, flags in RUNS.items()
  }
  assert top1['full'] > 0.7
  assert top1['fedss'] > 0.9 * top1['full']
  assert top1['fedss'] > 1.2 * top1['posonly']
  assert top1['fedss, m=3'] > 1.1 * top1['negonly, m=3']


@pytest.mark.slow
def test_fedaws_is_near_the_oracle_on_delicious(tmp_path, data_dir):
  """P@1 after 100 rounds with one label a client; softmax has 53.7 %."""
  p1 = {
    name: train(
      tmp_path / name,
      '--task=delicious',
      f'--algorithm={name}',
      f'--data_dir={data_dir}',
    )['p@1']
    for name in ('fedaws', 'fedaws_baseline2')
  }
  assert p1['fedaws'] > 0.75 * 0.537
  assert p1['fedaws'] > 1.2 * p1['fedaws_baseline2']


def resumed(run_dir):
  given = ('--algorithm=fedavg', '--rounds=4', '--eval_every=2')
  return subprocess.run(
    command(run_dir, *small_data.SPARSE_WORDS, *given),
    cwd=light.ROOT,
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )


@pytest.mark.slow
def test_training_stops_with_a_sentence_and_goes_on_later(tmp_path):
  with full_disk.mounted(tmp_path / 'disk', '2m') as disk:
    if isinstance(disk, str):
      pytest.skip(disk)
    # Enough for the first rounds, and not for the picture of the curves.
    disk.fill(left=48 * 1024)
    run_dir = disk.path / 'run'
    done = resumed(run_dir)
    assert done.returncode == 2, done.stderr
    assert 'Traceback' not in done.stderr
    [told] = [n for n in done.stderr.splitlines() if n.startswith('error: ')]
    assert 'cannot be written (No space left on device)' in told
    assert not [p for p in run_dir.rglob('*') if 'tmp' in p.name]
    disk.make_room()
    done = resumed(run_dir)
    assert done.returncode == 0, done.stderr
    assert [row['round'] for row in doubling.rows(run_dir)] == list('01234')
    assert (run_dir / 'curves.png').exists()
