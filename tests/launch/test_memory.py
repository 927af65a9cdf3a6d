"""A long run needs no more memory than a short one: minutes, so marked slow."""

import os
import pathlib
import subprocess
import sys
import time

import pytest

_ROOT = pathlib.Path(__file__).parents[2]
_PAGE_MIB = os.sysconf('SC_PAGE_SIZE') / 2**20
# The graphs are there by then, and nearly all clients have been decoded.
_WARM_UP, _ROUNDS, _WINDOW = 50, 550, 100
_MOST_GROWTH_MIB = 16


def _rounds_done(metrics: pathlib.Path) -> int:
  return metrics.read_text().count('\n') - 1 if metrics.exists() else 0


def _resident_mib(pid: int) -> float:
  return int(pathlib.Path(f'/proc/{pid}/statm').read_text().split()[1]) * (
    _PAGE_MIB
  )


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
          samples.append((done, _resident_mib(run.pid)))
        time.sleep(0.2)
    finally:
      run.kill()
  assert run.returncode == 0
  early = [mib for done, mib in samples if done < _WARM_UP + _WINDOW]
  late = [mib for done, mib in samples if done >= _ROUNDS - _WINDOW]
  grown = max(late) - max(early)
  print(f'{algorithm}: {max(early):.0f} MiB, then {grown:+.1f} MiB')
  assert grown < _MOST_GROWTH_MIB
