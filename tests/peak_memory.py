"""Peak memory of a run by algorithm: python -m tests.peak_memory FOLDER [TASK].

Trains two rounds of a task (the FEMNIST network, by default) by each algorithm, in a
process of its own, and writes peak_memory.csv, which docs/turbosvm.md shows.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from tests import kept
from tff_xc.report import text_table

ALGORITHMS = ('fedavg', 'fedprox', 'fedams', 'moon', 'turbosvm')
_ROUNDS = 2
_GIGABYTE = 1e9
_ROOT = pathlib.Path(__file__).parents[1]


def peak_bytes(task: str, algorithm: str) -> int:
  """Returns the most memory that a run's process had at a time."""
  with tempfile.TemporaryDirectory() as folder:
    flags = (
      *(f'--task={task}', f'--algorithm={algorithm}'),
      *(f'--rounds={_ROUNDS}', f'--run_dir={folder}/run', '--device=cpu'),
    )
    process = subprocess.Popen(
      [sys.executable, '-m', 'launch.train', *flags],
      cwd=_ROOT,
      env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '2'},
      stdout=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
  if process.returncode:
    sys.exit(f'{algorithm} ended with status {process.returncode}')
  return 1024 * usage.ru_maxrss


def main(folder: str, task: str = 'glyphs-femnist') -> None:
  """Measures all algorithms and writes the table."""
  rows = [('method', 'peak GB')]
  for algorithm in ALGORITHMS:
    peak = peak_bytes(task, algorithm) / _GIGABYTE
    rows.append((f'`{algorithm}`', f'{peak:.2f}'))
    print(text_table.to_text([rows[0], rows[-1]]), flush=True)
  path = pathlib.Path(folder)
  path.mkdir(parents=True, exist_ok=True)
  kept.write(path / 'peak_memory.csv', rows)


if __name__ == '__main__':
  main(*sys.argv[1:])
