"""Training that is killed at random: python -m tests.launch.killed_training.

Arguments: a directory, the number of kills, and flags of launch.train. It trains in
DIRECTORY/killed, kills the process at random moments, starts it again each time, and
lets it finish; then it trains in DIRECTORY/whole at one go, in one process whatever the
runtime. Each training is a fork of this process, which has imported all and computed
nothing. It writes DIRECTORY/log: for each kill, the rows of metrics.csv that there were.
"""

import os
import pathlib
import random
import signal
import sys
import time

from launch import app, train
from tff_xc.experiment import training  # noqa: F401  Large imports, before the forks.

# Seconds: the most that a start and a few rounds take.
_START, _ROUNDS = 5.0, 0.5


def started(flags, run_dir, output) -> int:
  """Trains in a fork; returns its process id."""
  child = os.fork()
  if child:
    return child
  for stream in (1, 2):
    os.dup2(output.fileno(), stream)
  sys.argv = ['train', *flags, f'--run_dir={run_dir}']
  status = 1
  try:
    app.run(train.main, '')
    status = 0
  except SystemExit as e:
    status = e.code or 0
  finally:
    sys.stdout.flush()
    os._exit(status)


def rows(run_dir) -> int:
  file = run_dir / 'metrics.csv'
  return len(file.read_text().splitlines()) if file.exists() else 0


def ended(child, deadline, enough=lambda: False) -> bool:
  """Waits until the child ends, the deadline, or `enough`."""
  while time.monotonic() < deadline and not enough():
    if os.waitpid(child, os.WNOHANG)[0]:
      return True
    time.sleep(0.005)
  return False


def main(root, kills, *flags):
  root, draw = pathlib.Path(root), random.Random(0)
  run_dir, now = root / 'killed', time.monotonic
  with open(root / 'output', 'a') as output, open(root / 'log', 'w') as log:
    for number in range(int(kills)):
      child, before = started(flags, run_dir, output), rows(run_dir)
      if number % 4 == 3:  # While it starts.
        done = ended(child, now() + draw.uniform(0, _START))
      else:

        def new(before=before):
          return rows(run_dir) > before

        done = ended(child, now() + 60, new)
        done = done or ended(child, now() + draw.uniform(0, _ROUNDS))
      if done:
        sys.exit(f'training ended before kill {number}; give it more rounds')
      os.kill(child, signal.SIGKILL)
      os.waitpid(child, 0)
      log.write(f'{rows(run_dir)}\n')
      log.flush()
    alone = [flag for flag in flags if not flag.startswith('--runtime=')]
    for path, given in ((run_dir, flags), (root / 'whole', alone)):
      status = os.waitpid(started(given, path, output), 0)[1]
      if status:
        sys.exit(f'training in {path} ended with {status}')


if __name__ == '__main__':
  main(*sys.argv[1:])
