"""What a resume needs is on the disk before a checkpoint that counts on it."""

import errno
import gc
import os
import pathlib
import re

import pytest

from tests import doubling
from tff_xc import files


@pytest.fixture(name='events')
def _events(monkeypatch):
  """Returns (what, name of the file or folder), in order, as they happen."""
  found = []
  fsync, replace = os.fsync, os.replace

  def name(path):
    return re.sub(r'\.\d+\.tmp', '.tmp', pathlib.Path(path).name)

  def synced(descriptor):
    found.append(('sync', name(os.readlink(f'/proc/self/fd/{descriptor}'))))
    fsync(descriptor)

  def replaced(old, new):
    found.append(('replace', name(new)))
    replace(old, new)

  monkeypatch.setattr(os, 'fsync', synced)
  monkeypatch.setattr(os, 'replace', replaced)
  return found


def test_a_file_system_may_not_know_how_to_sync_a_folder(tmp_path, monkeypatch):
  def fails(code):
    def fsync(descriptor):
      raise OSError(code, 'no')

    monkeypatch.setattr(os, 'fsync', fsync)

  for code in (errno.EINVAL, errno.ENOTSUP):
    fails(code)
    files.write_json(tmp_path / 'x.json', {})
  fails(errno.EIO)
  with pytest.raises(OSError, match='no'):
    files.write_json(tmp_path / 'x.json', {'new': 1})
  assert (tmp_path / 'x.json').read_text() == '{}\n'


def test_a_checkpoint_comes_after_all_that_it_counts_on(events, tmp_path):
  """Of metrics.csv only later rows may be lost: a resume makes them again."""
  path = tmp_path / 'run'
  doubling.run(path, rounds=7, process=doubling.Keeping())
  saved = [e for e in events if re.match(r'round_\d', e[1])]
  assert saved == [('replace', f'round_{r}.npz') for r in (3, 6, 7)]
  begin = 0
  for round_number, rounds in ((3, (1, 2, 3)), (6, (4, 5, 6)), (7, (7,))):
    end = events.index(('replace', f'round_{round_number}.npz'))
    before = events[begin:end]
    newest = {}
    for number in rounds:  # See `doubling`: who takes part.
      newest |= {(number - 1) % 3: number, 3 + (number - 1) % 2: number}
    for client, number in newest.items():
      assert ('sync', f'{client}_{number}.npz') in before
    assert ('sync', 'client_states') in before
    assert before[-3:] == [
      ('sync', 'metrics.csv'),
      ('sync', 'run'),
      ('sync', f'.round_{round_number}.tmp.npz'),
    ]
    assert events[end + 1] == ('sync', 'checkpoints')
    begin = end
  assert ('sync', '.config.tmp.json') in events[: events.index(saved[0])]


def test_rows_after_the_last_checkpoint_may_be_lost(tmp_path):
  doubling.run(tmp_path / 'whole', rounds=5)
  path = tmp_path / 'cut'
  failing = doubling.At(4, lambda: 1 / 0)
  with pytest.raises(ZeroDivisionError):  # In round 5, after a checkpoint of 3.
    doubling.run(path, rounds=5, process=failing)
  gc.collect()  # The error holds the run's lock.
  lines = (path / 'metrics.csv').read_text().splitlines(keepends=True)
  assert len(lines) == 6  # A header, and the rounds 0 to 4.
  (path / 'metrics.csv').write_text(''.join(lines[:5]))
  doubling.run(path, rounds=5)
  assert doubling.rows(path) == doubling.rows(tmp_path / 'whole')
