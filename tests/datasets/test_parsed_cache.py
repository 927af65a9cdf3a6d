"""The cache of parsed arrays: valid for its source, mended, shared by processes."""

import errno
import fcntl
import json
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from datasets import cache_folder
from datasets import parsed_cache

ROWS = {
  'bytes': np.arange(60, dtype=np.uint8).reshape(10, 2, 3),
  'floats': np.linspace(0, 1, 10, dtype=np.float32),
  'names': np.array([f'Zoë {i}' for i in range(10)]),
  'truth': np.arange(10) % 3 == 0,
  'none': np.zeros([0, 5], np.int64),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  """Returns the path of a cache folder that does not exist yet."""
  folder = tmp_path / 'user' / 'caches'
  monkeypatch.setenv(cache_folder.VARIABLE, str(folder))
  return folder


@pytest.fixture
def cache(tmp_path):
  return parsed_cache.path(tmp_path / 'data', 'x')


def fill(store):
  for name, rows in ROWS.items():
    for part in np.array_split(rows, 3):
      store.append(name, part)


def check(arrays):
  assert set(arrays) == set(ROWS)
  for name, rows in ROWS.items():
    np.testing.assert_array_equal(arrays[name], rows)
    assert arrays[name].dtype == rows.dtype
    with pytest.raises(ValueError, match='read-only'):
      arrays[name][...] = arrays[name]


class Counted:
  """Fills a store, and counts how often."""

  calls = 0

  def __call__(self, store):
    self.calls += 1
    fill(store)


def test_the_second_time_arrays_are_mapped_and_not_made(cache, folder):
  for fill_it in (fill, None):
    arrays = parsed_cache.arrays(cache, ('a', 1), fill_it)
    check(arrays)
    assert isinstance(arrays['bytes'], np.memmap)
  assert list(folder.iterdir()) == [cache]
  again = Counted()
  check(parsed_cache.arrays(cache, ('b', 1), again))
  assert again.calls == 1
  assert list(folder.iterdir()) == [cache]  # The stale one is replaced.


def test_a_cache_is_of_a_path_however_it_is_written(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  of = parsed_cache.path
  assert of('a/b', 'x') == of(tmp_path / 'a/b', 'x')
  assert len({of('a/b', 'x'), of('c/b', 'x'), of('a/b', 'y')}) == 3


@pytest.mark.parametrize(
  ('variables', 'expected'),
  [
    ({'TFF_XC_CACHE': '/c', 'XDG_CACHE_HOME': '/x', 'HOME': '/h'}, '/c'),
    ({'XDG_CACHE_HOME': '/x', 'HOME': '/h'}, '/x/tff_xc'),
    ({'XDG_CACHE_HOME': 'relative', 'HOME': '/h'}, '/h/.cache/tff_xc'),
    ({'HOME': '/h'}, '/h/.cache/tff_xc'),
    ({'TFF_XC_CACHE': '', 'HOME': '/h'}, '/h/.cache/tff_xc'),
    ({'TFF_XC_CACHE': '~/c', 'HOME': '/h'}, '/h/c'),
  ],
)
def test_the_folder_is_the_users(variables, expected, monkeypatch):
  for name in ('TFF_XC_CACHE', 'XDG_CACHE_HOME', 'HOME'):
    monkeypatch.delenv(name, raising=False)
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  assert cache_folder.folder() == pathlib.Path(expected)


def test_files_are_described_by_size_time_version_and_settings(tmp_path):
  path, found = tmp_path / 'a', []
  for text, time, version, part in (
    ('abc', 5, 1, 1),
    ('abc', 5, 1, 1),
    ('abc', 5, 2, 1),
    ('abc', 5, 1, 2),
    ('abcd', 5, 1, 1),
    ('abc', 6, 1, 1),
  ):
    path.write_text(text)
    os.utime(path, ns=(0, time))
    described = parsed_cache.describe_files(version, [path], part=part)
    found.append(json.dumps(described))
  assert found[0] == found[1]
  assert len(set(found)) == 5


def damage(good):
  """Yields changed bytes: cut short, and with one byte changed."""
  yield None
  yield from (good[:k] for k in {0, 5, len(good) // 2, len(good) - 1})
  for k in range(0, len(good), 5):
    yield good[:k] + bytes([good[k] ^ 0x41]) + good[k + 1 :]


def test_damage_anywhere_is_mended(cache):
  counted = Counted()
  parsed_cache.arrays(cache, 'a', counted)
  contents = lambda: {p.name: p.read_bytes() for p in cache.iterdir()}
  good, damaged = contents(), 0
  assert len(good) == 1 + len(ROWS)
  for name, content in good.items():
    for changed in damage(content):
      if changed == content or changed == content[:-1] == b'':
        continue
      (cache / name).unlink()
      if changed is not None:
        (cache / name).write_bytes(changed)
      check(parsed_cache.arrays(cache, 'a', counted))
      damaged += 1
      assert counted.calls == 1 + damaged, (name, changed)
  assert damaged > 80
  assert contents() == good
  assert list(cache.parent.iterdir()) == [cache]


@pytest.mark.parametrize('make', [pathlib.Path.touch, pathlib.Path.mkdir])
def test_something_else_in_the_place_of_the_cache(cache, folder, make):
  folder.mkdir(parents=True)
  make(cache)
  check(parsed_cache.arrays(cache, 'a', fill))
  check(parsed_cache.arrays(cache, 'a', None))
  assert list(folder.iterdir()) == [cache]


def test_a_folder_that_cannot_be_made_or_written_to(cache, folder):
  folder.parent.write_text('a file in its place')
  check(parsed_cache.arrays(cache, 'a', fill))
  folder.parent.unlink()
  folder.mkdir(parents=True)
  folder.chmod(0o555)
  check(parsed_cache.arrays(cache, 'a', fill))
  assert list(folder.iterdir()) == []


def test_a_cache_that_is_replaced_while_it_is_loaded(cache, monkeypatch):
  parsed_cache.arrays(cache, 'a', fill)
  memmap, counted = np.memmap, Counted()

  def replaced(*args):
    monkeypatch.setattr(np, 'memmap', memmap)
    shutil.copytree(cache, cache.parent / 'other')
    cache.rename(cache.parent / 'old')
    (cache.parent / 'other').rename(cache)
    return memmap(*args)

  monkeypatch.setattr(np, 'memmap', replaced)
  check(parsed_cache.arrays(cache, 'a', counted))
  assert counted.calls == 1


def replace_often(cache, process):
  for k in range(200):
    check(parsed_cache.arrays(cache, [process, k], fill))


@pytest.mark.slow
def test_processes_that_replace_a_cache_at_once(cache, folder):
  spawn = multiprocessing.get_context('spawn')
  processes = [
    spawn.Process(target=replace_often, args=[cache, k]) for k in range(2)
  ]
  for process in processes:
    process.start()
  for process in processes:
    process.join()
    assert process.exitcode == 0
  assert list(folder.iterdir()) == [cache]


def test_a_disk_that_fills_up_and_what_fill_raises(cache, folder):
  stores = []

  def until_full(store):
    stores.append(store)
    fill(store)
    if len(stores) == 1:
      raise OSError(28, 'No space left on device')

  check(parsed_cache.arrays(cache, 'a', until_full))
  assert len(stores) == 2
  assert list(folder.iterdir()) == []
  with pytest.raises(TypeError):
    parsed_cache.arrays(cache, 'a', lambda store: fill(store) or store())
  assert list(folder.iterdir()) == []


KILLED = """
import os, pathlib, signal, sys
import numpy as np
from datasets import cache_folder
from datasets import parsed_cache

def fill(store):
  store.append('x', np.zeros(10**6))
  os.kill(os.getpid(), signal.SIGKILL)

parsed_cache.arrays(pathlib.Path(sys.argv[1]), 'killed', fill)
"""


def test_what_a_killed_process_left_is_removed(cache, folder):
  for _ in range(2):
    subprocess.run([sys.executable, '-c', KILLED, cache], check=False)
    [left] = folder.iterdir()
    assert [path.name for path in left.glob('*/*')] == ['x']
  check(parsed_cache.arrays(cache, 'a', fill))
  assert list(folder.iterdir()) == [cache]


@pytest.mark.parametrize('has_locks', [True, False])
def test_what_a_living_process_writes_stays(
  cache, folder, has_locks, monkeypatch
):
  def flock(file, how):
    raise OSError(errno.ENOLCK, 'no locks')

  if not has_locks:
    monkeypatch.setattr(fcntl, 'flock', flock)

  def another_meanwhile(store):
    store.append('bytes', ROWS['bytes'][:1])
    check(parsed_cache.arrays(cache, 'another', fill))
    store.append('bytes', ROWS['bytes'][1:])

  found = parsed_cache.arrays(cache, 'a', another_meanwhile)['bytes']
  np.testing.assert_array_equal(found, ROWS['bytes'])
  assert isinstance(found, np.memmap)
  assert list(folder.iterdir()) == [cache]
