"""Seconds until a run goes on after a fault: python -m tests.fault_seconds DIRECTORY.

Trains FedSS on a few images that it makes. At a random moment each fault strikes: the
process is killed, its last checkpoint is cut short as well, its data have become others
at the next start, or the disk is full. What is broken is mended, the same command is
given again, and the run must have the numbers of one without faults. The disk is a
small one, which only root can mount; elsewhere its line is missing. It prints what the
command said and a table, and writes DIRECTORY/table.csv.
"""

import os
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Callable

from tests import doubling
from tests import full_disk
from tests import kept
from tests.launch import light
from tests.launch import test_other_data
from tff_xc.report import text_table

_EVERY = 5
FLAGS = (
  *('--task=images', '--algorithm=fedss', '--rounds=60', '--eval_every=10'),
  *(f'--checkpoint_every={_EVERY}', '--clients_per_round=2', '--device=cpu'),
)


class Run:
  """A run, and the commands that train it.

  Attributes:
    path: its directory.
    data: the file of its data.
  """

  def __init__(self, path: pathlib.Path, data: pathlib.Path):
    self.path, self.data = path, data

  def start(self) -> subprocess.Popen:
    flags = (*FLAGS, f'--data_dir={self.data}', f'--run_dir={self.path}')
    return subprocess.Popen(
      [sys.executable, '-m', 'launch.train', *flags],
      cwd=light.ROOT,
      env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '2'},
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      text=True,
    )

  def rounds(self) -> int:
    """Returns how many rounds metrics.csv has."""
    file = self.path / 'metrics.csv'
    lines = file.read_text().splitlines() if file.exists() else []
    return max(len(lines) - 2, 0)  # Without the heading and round 0.

  def saved(self) -> list[pathlib.Path]:
    """Returns its checkpoints in the order of their rounds."""
    number = lambda path: int(path.stem.split('_')[-1])
    return sorted(self.path.glob('checkpoints/round_*.npz'), key=number)

  def kill(self, rounds: int) -> None:
    """Trains, and kills the process after so many rounds."""
    process = self.start()
    while self.rounds() < rounds:
      if process.poll() is not None:
        raise RuntimeError(process.communicate()[1])
      time.sleep(0.01)
    process.kill()
    process.communicate()

  def refused(self) -> str:
    """Trains what ends with exit status 2; returns the sentence."""
    process = self.start()
    _, errors = process.communicate()
    told = [line for line in errors.splitlines() if line.startswith('error: ')]
    if process.returncode != 2 or len(told) != 1:
      raise RuntimeError(errors)
    return told[0]

  def go_on(self) -> float:
    """Gives the command again; returns after how many seconds it was further."""
    before, started = self.rounds(), time.monotonic()
    process = self.start()
    while process.poll() is None and self.rounds() <= before:
      time.sleep(0.01)
    seconds = time.monotonic() - started
    _, errors = process.communicate()
    if process.returncode:
      raise RuntimeError(errors)
    return seconds


def killed(run: Run, rounds: int) -> str:
  run.kill(rounds)
  return 'killed'


def cut(run: Run, rounds: int) -> str:
  run.kill(rounds)
  last = run.saved()[-1]
  os.truncate(last, last.stat().st_size // 2)
  return f'killed, and {last.name} cut short'


def other_data(run: Run, rounds: int) -> str:
  run.kill(rounds)
  own = run.data.read_bytes()
  test_other_data.write(run.data, seed=1)
  told = run.refused()
  run.data.write_bytes(own)
  return told


def full(run: Run, rounds: int) -> str:
  """Fills the disk on which the run is, but for a few rounds' rows."""
  run.kill(rounds)
  disk = full_disk.Disk(run.path.parent)
  disk.fill(left=8 * 1024)
  told = run.refused()
  disk.make_room()
  return told


def measure(
  name: str, fault: Callable[[Run, int], str], run: Run, rounds: int
) -> tuple[str, ...]:
  """Returns a row of the table."""
  print(f'{name}: {fault(run, rounds)}', flush=True)
  done, saved = run.rounds(), run.saved()
  seconds = run.go_on()
  last = saved[-2 if fault is cut else -1].stem.split('_')[-1]
  return name, f'{done - int(last)} of {done}', f'{seconds:.1f}'


def main(directory: str) -> None:
  """Trains under each fault and prints what it cost."""
  path = pathlib.Path(directory)
  path.mkdir(parents=True)
  data = path / 'data.npz'
  test_other_data.write(data)
  whole = Run(path / 'whole', data)
  alone = whole.go_on()
  draw = random.Random(0)
  table = [('fault', 'rounds lost', 's until it was further')]
  with full_disk.mounted(path / 'disk', '8m') as disk:
    faults = {'killed': killed, 'checkpoint': cut, 'data': other_data}
    if isinstance(disk, str):
      print(disk)
    else:
      faults['disk'] = full
    for name, fault in faults.items():
      run = Run(path / ('disk/run' if fault is full else name), data)
      table.append(measure(name, fault, run, draw.randrange(12, 50)))
      if doubling.rows(run.path) != doubling.rows(whole.path):
        sys.exit(f'{run.path} and {whole.path} have other numbers')
  kept.write(path / 'table.csv', table)
  print(text_table.to_text(table))
  print(
    f'The numbers are equal. A run without faults began after {alone:.1f} s.'
  )


if __name__ == '__main__':
  main(*sys.argv[1:])
