"""The cache of parsed arrays, appended row by row; see also xc/test_cache."""

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
  monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path / 'cache'))
  return tmp_path / 'cache'


def fill(store):
  for name, rows in ROWS.items():
    for part in np.array_split(rows, 3):
      store.append(name, part)


def read(tmp_path, fill=fill, source=('a', 1)):
  return parsed_cache.arrays(parsed_cache.path(tmp_path, 'x'), source, fill)


def check(arrays):
  assert set(arrays) == set(ROWS)
  for name, rows in ROWS.items():
    np.testing.assert_array_equal(arrays[name], rows)
    assert arrays[name].dtype == rows.dtype
    assert not arrays[name].flags.writeable


def test_rows_are_appended(tmp_path):
  first = read(tmp_path)
  second = read(tmp_path, None)
  for arrays in (first, second):
    check(arrays)
    assert isinstance(arrays['bytes'], np.memmap)


def test_another_source_is_made_anew(tmp_path):
  read(tmp_path)
  with pytest.raises(TypeError, match='not callable'):
    read(tmp_path, None, source=('b', 1))


@pytest.mark.parametrize('rows', [1, 10**5])
def test_a_header_grows_in_its_place(tmp_path, rows):
  def fill(store):
    for _ in range(3):
      store.append('x', np.ones([rows, 2]))

  assert read(tmp_path, fill)['x'].sum() == 6 * rows


def test_a_disk_that_fills_up_while_rows_are_written(tmp_path, folder):
  calls = []

  def until_full(store):
    calls.append(type(store).__name__)
    fill(store)
    if len(calls) == 1:
      raise OSError(28, 'No space left on device')

  check(read(tmp_path, until_full))
  assert len(set(calls)) == 2
  assert list(folder.iterdir()) == []


KILLED = """
import os, pathlib, signal, sys
import numpy as np
from datasets import parsed_cache

def fill(store):
  store.append('x', np.zeros(10**6))
  os.kill(os.getpid(), signal.SIGKILL)

parsed_cache.arrays(pathlib.Path(sys.argv[1]), 'killed', fill)
"""


def test_what_a_killed_process_left_is_removed(tmp_path, folder):
  cache = parsed_cache.path(tmp_path, 'x')
  for _ in range(2):
    subprocess.run([sys.executable, '-c', KILLED, cache], check=False)
    [left] = folder.iterdir()
    assert [path.name for path in left.glob('*/*')] == ['x.npy']
  check(read(tmp_path))
  assert list(folder.iterdir()) == [cache]


def test_what_a_living_process_writes_stays(tmp_path, folder):
  def another_meanwhile(store):
    store.append('bytes', ROWS['bytes'][:1])
    check(read(tmp_path, source='another'))
    store.append('bytes', ROWS['bytes'][1:])

  found = read(tmp_path, another_meanwhile)['bytes']
  np.testing.assert_array_equal(found, ROWS['bytes'])
  assert isinstance(found, np.memmap)
  assert len(list(folder.iterdir())) == 1


def test_what_fill_raises_leaves_nothing(tmp_path, folder):
  def wrong(store):
    fill(store)
    raise KeyError('wrong')

  with pytest.raises(KeyError):
    read(tmp_path, wrong)
  assert list(folder.iterdir()) == []


def test_files_are_described_by_size_and_time(tmp_path):
  path = tmp_path / 'a'
  path.write_text('abc')
  before = parsed_cache.describe_files(1, [path], part=[1])
  assert before == parsed_cache.describe_files(1, [path], part=[1])
  path.write_text('abcd')
  assert before != parsed_cache.describe_files(1, [path], part=[1])
