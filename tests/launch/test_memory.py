"""A long run needs no more memory than a short one: minutes, so marked slow."""

import pathlib
import resource
import subprocess
import sys
import time

import psutil
import pytest

_ROOT = pathlib.Path(__file__).parents[2]
# The graphs are there by then, and nearly all clients have been decoded.
_WARM_UP, _ROUNDS, _WINDOW = 50, 550, 100
_MOST_GROWTH_MIB = 16


def _rounds_done(metrics: pathlib.Path) -> int:
  """Counts the lines after the heading and that of the initial model."""
  return metrics.read_text().count('\n') - 2 if metrics.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize('algorithm', ['fedss', 'fedaws'])
def test_500_rounds_add_nothing_to_the_memory(tmp_path, algorithm):
  run_dir = tmp_path / 'run'
  command = [
    *(sys.executable, '-m', 'launch.train', '--task=glyphs'),
    *(f'--algorithm={algorithm}', f'--run_dir={run_dir}'),
    *(f'--rounds={_ROUNDS}', '--eval_every=25', '--clients_per_round=3'),
    '--checkpoint_every=5',
  ]
  samples = []
  with subprocess.Popen(
    command, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
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
  command = [
    *(sys.executable, '-m', 'launch.train', '--task=sparse-words'),
    *('--algorithm=fedaws', '--num_classes=13330', '--num_features=203882'),
    *('--embedding_dim=512', '--feature_dim=512', '--hidden_dim=1024'),
    *('--clients_per_round=4096', '--rounds=1', f'--run_dir={tmp_path / "r"}'),
    *('--spreadout_neighbors=100', '--spreadout_learning_rate=0.0001'),
  ]
  subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.DEVNULL)
  peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
  print(f'{peak / 1e9:.2f} GB')
  assert peak < 4e9
