"""The cache of parsed arrays: valid for its source, mended, shared by processes."""

import os
import pathlib

import numpy as np
import pytest

from datasets import cache_folder
from datasets.readers import parsed_cache

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


@pytest.mark.parametrize('change', [{'text': 'abcd'}, {'time': 6}, {'version': 2}, {'part': 2}])
def test_files_count_by_size_time_version_and_settings(change, tmp_path):
  made = Counted()

  def load(text='abc', time=5, version=1, part=1):
    (tmp_path / 'a').write_text(text)
    os.utime(tmp_path / 'a', ns=(0, time))
    files = [tmp_path / 'a']
    check(parsed_cache.of_files(files[0], 'x', version, files, made, part=part))

  load()
  load()
  assert made.calls == 1
  load(**change)
  assert made.calls == 2


@pytest.mark.parametrize('name', ['about.json', *ROWS])
def test_a_file_that_is_cut_short_is_made_again(name, cache, folder):
  counted = Counted()
  parsed_cache.arrays(cache, 'a', counted)
  content = (cache / name).read_bytes()
  (cache / name).write_bytes(content[: len(content) // 2] or b'x')
  check(parsed_cache.arrays(cache, 'a', counted))
  check(parsed_cache.arrays(cache, 'a', counted))
  assert counted.calls == 2
  assert list(folder.iterdir()) == [cache]


def test_a_folder_that_cannot_be_made_or_written_to(cache, folder):
  folder.parent.write_text('a file in its place')
  check(parsed_cache.arrays(cache, 'a', fill))
  folder.parent.unlink()
  folder.mkdir(parents=True)
  folder.chmod(0o555)
  check(parsed_cache.arrays(cache, 'a', fill))
  assert list(folder.iterdir()) == []


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
