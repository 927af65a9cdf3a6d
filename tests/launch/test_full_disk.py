"""launch.train on a disk that is full: exit status 2, one sentence, and on it goes."""

import pathlib
import subprocess
import sys

import pytest

from tests import doubling
from tests import full_disk
from tests import small_data

ROOT = pathlib.Path(__file__).parents[2]
FLAGS = (
  *small_data.SPARSE_WORDS,
  '--algorithm=fedavg',
  '--rounds=4',
  '--eval_every=2',
)


def train(run_dir):
  return subprocess.run(
    [sys.executable, '-m', 'launch.train', *FLAGS, f'--run_dir={run_dir}'],
    cwd=ROOT,
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
    done = train(run_dir)
    assert done.returncode == 2, done.stderr
    assert 'Traceback' not in done.stderr
    [told] = [n for n in done.stderr.splitlines() if n.startswith('error: ')]
    assert 'cannot be written (No space left on device)' in told
    assert not [p for p in run_dir.rglob('*') if 'tmp' in p.name]
    disk.make_room()
    done = train(run_dir)
    assert done.returncode == 0, done.stderr
    assert [row['round'] for row in doubling.rows(run_dir)] == list('01234')
    assert (run_dir / 'curves.png').exists()
