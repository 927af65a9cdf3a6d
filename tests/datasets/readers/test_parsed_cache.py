"""The cache of parsed arrays is valid for one source, is repaired, and never causes an error."""

import os
import pathlib

import numpy as np
import pytest

from datasets import cache_folder
from datasets.readers import parsed_cache

ROWS = {
  'bytes': np.arange(60, dtype=np.uint8).reshape(10, 2, 3),
  'a.floats': np.linspace(0, 1, 10, dtype=np.float32),
  'names': np.array([f'Zoë {i}' for i in range(10)]),
  'none': np.zeros([0, 5], np.int64),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  """Returns the path of a cache folder that does not exist yet."""
  folder = tmp_path / 'user' / 'caches'
  monkeypatch.setenv(cache_folder.VARIABLE, str(folder))
  return folder


class Counted:
  """Computes the arrays of a file, and counts the calls."""

  def __init__(self, tmp_path):
    self.calls, self._file = 0, tmp_path / 'a'

  def _make(self):
    self.calls += 1
    return ROWS

  def load(self, text='abc', time=5, version=1, part=1):
    self._file.write_text(text)
    os.utime(self._file, ns=(0, time))
    arrays = parsed_cache.of_files(self._file, 'x', version, [self._file], self._make, part=part)
    assert set(arrays) == set(ROWS)
    for name, rows in ROWS.items():
      np.testing.assert_array_equal(arrays[name], rows)
      assert arrays[name].dtype == rows.dtype
    return arrays


@pytest.mark.parametrize('change', [{'text': 'abcd'}, {'time': 6}, {'version': 2}, {'part': 2}])
def test_arrays_are_made_once_for_a_source_and_mapped(change, tmp_path, folder):
  counted = Counted(tmp_path)
  counted.load()
  arrays = counted.load()
  assert counted.calls == 1
  assert isinstance(arrays['bytes'], np.memmap)
  with pytest.raises(ValueError, match='read-only'):
    arrays['bytes'][0] = 1
  counted.load(**change)
  assert counted.calls == 2
  assert len(list(folder.iterdir())) == 1  # The new file replaces the outdated file.


@pytest.mark.parametrize(
  ('variables', 'expected'),
  [
    ({'TFF_XC_CACHE': '/c', 'XDG_CACHE_HOME': '/x', 'HOME': '/h'}, '/c'),
    ({'XDG_CACHE_HOME': '/x', 'HOME': '/h'}, '/x/tff_xc'),
    ({'XDG_CACHE_HOME': 'relative', 'HOME': '/h'}, '/h/.cache/tff_xc'),
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


@pytest.mark.parametrize('name', ['bytes', 'names'])
def test_a_file_that_is_cut_short_is_made_again(name, tmp_path, folder):
  counted = Counted(tmp_path)
  counted.load()
  [path] = folder.glob(f'*/{name}.npy')
  path.write_bytes(path.read_bytes()[:-9])
  counted.load()
  counted.load()
  assert counted.calls == 2


def test_what_cannot_be_written_is_made_each_time(tmp_path, folder, monkeypatch):
  counted = Counted(tmp_path)
  folder.parent.write_text('a file in its place')
  counted.load()
  folder.parent.unlink()

  def full(*_):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(np, 'save', full)
  counted.load()
  assert counted.calls == 2
  assert not list(folder.iterdir())
