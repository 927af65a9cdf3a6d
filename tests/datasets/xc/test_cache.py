"""The cache of parsed files of the Extreme Classification Repository."""

import mmap
import multiprocessing
import os
import pathlib
import shutil

import numpy as np
import pytest

from datasets import cache_folder
from datasets import parsed_cache
from datasets.xc import cache as xc_cache
from datasets.xc import headers as xc_headers
from datasets.xc import text as xc_text
from tff_xc import errors

TEXT = '3 7 5\n0,3 1:0.5 6:2\n 2:0.123456 3:1\n4 \n'


@pytest.fixture
def path(tmp_path):
  path = tmp_path / 'some.txt'
  path.write_text(TEXT)
  return path


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
  """Returns the path of a cache folder that does not exist yet."""
  folder = tmp_path / 'user' / 'caches'
  monkeypatch.setenv(cache_folder.VARIABLE, str(folder))
  return folder


@pytest.fixture
def parses(monkeypatch):
  """Counts how often a text is parsed."""
  read, calls = xc_text.read, []

  def counted(*args):
    calls.append(args)
    return read(*args)

  monkeypatch.setattr(xc_text, 'read', counted)
  return calls


def same(a, b):
  assert a.header == b.header
  for part, again in zip(a[1:], b[1:], strict=True):
    assert (part is None) == (again is None)
    for x, y in zip(arrays(part), arrays(again), strict=True):
      np.testing.assert_array_equal(x, y)
      assert x.dtype == y.dtype


def arrays(matrix):
  names = ('data', 'indices', 'indptr')
  return [] if matrix is None else [getattr(matrix, name) for name in names]


@pytest.mark.parametrize(
  ('form', 'text'),
  [
    ('examples', TEXT),
    ('features', '3 7\n1:0.5\n\n2:1 3:1\n'),
    ('labels', '3 5\n1:1\n\n2:1 3:1\n'),
    ('examples', '0 7 5\n'),
    ('examples', '2 7 5\n \n \n'),
  ],
)
def test_the_second_time_nothing_is_parsed(path, parses, folder, form, text):
  path.write_text(text)
  first = xc_cache.read(path, form)
  second = xc_cache.read(path, form)
  assert len(parses) == 1
  same(first, second)
  same(first, xc_text.read(path, form))
  assert isinstance(second.header, xc_headers.Header)
  assert list(folder.iterdir()) == [xc_cache.cache_path(path, form)]


def test_nothing_is_written_beside_the_data(tmp_path):
  data = tmp_path / 'data'
  data.mkdir()
  path = data / 'some.txt'
  path.write_text(TEXT)
  xc_cache.read(path)
  assert list(data.iterdir()) == [path]


def test_files_of_one_name_have_caches_of_their_own(tmp_path, parses):
  paths = [tmp_path / name / 'train.txt' for name in 'ab']
  for path, value in zip(paths, ('6:2', '6:3'), strict=True):
    path.parent.mkdir()
    path.write_text(TEXT.replace('6:2', value))
    os.utime(path, ns=(0, 0))
  for _ in range(2):
    assert [xc_cache.read(p).features[0, 6] for p in paths] == [2, 3]
  assert len(parses) == 2


def test_a_path_is_the_same_however_it_is_written(path, parses, monkeypatch):
  monkeypatch.chdir(path.parent)
  xc_cache.read(path)
  xc_cache.read(path.name)
  assert len(parses) == 1


@pytest.mark.parametrize(
  ('variables', 'expected'),
  [
    ({'TFF_XC_CACHE': '/c', 'XDG_CACHE_HOME': '/x', 'HOME': '/h'}, '/c'),
    ({'XDG_CACHE_HOME': '/x', 'HOME': '/h'}, '/x/tff_xc'),
    ({'XDG_CACHE_HOME': 'relative', 'HOME': '/h'}, '/h/.cache/tff_xc'),
    ({'HOME': '/h'}, '/h/.cache/tff_xc'),
    ({'TFF_XC_CACHE': '', 'HOME': '/h'}, '/h/.cache/tff_xc'),
  ],
)
def test_the_folder_is_the_users(variables, expected, monkeypatch):
  for name in ('TFF_XC_CACHE', 'XDG_CACHE_HOME', 'HOME'):
    monkeypatch.delenv(name, raising=False)
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  assert cache_folder.folder() == pathlib.Path(expected)


def test_arrays_are_read_only_at_either_time(path):
  for table in (xc_cache.read(path), xc_cache.read(path)):
    for array in arrays(table.features) + arrays(table.labels):
      with pytest.raises(ValueError, match='read-only'):
        array[0] = 1


def test_the_second_time_arrays_are_mapped_and_not_copied(path):
  xc_cache.read(path)
  table = xc_cache.read(path)
  for array in arrays(table.features) + arrays(table.labels):
    while isinstance(array.base, np.ndarray):
      array = array.base
    assert isinstance(array.base, mmap.mmap)
  assert table.features[[2, 0]].nnz == 2
  assert table.labels.sum() == 3


def test_another_file_of_the_same_size_and_another_time(path, parses, folder):
  xc_cache.read(path)
  status = path.stat()
  path.write_text(TEXT.replace('6:2', '6:3'))
  os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
  assert xc_cache.read(path).features[0, 6] == 3
  assert xc_cache.read(path).features[0, 6] == 3
  assert len(parses) == 2
  assert len(list(folder.iterdir())) == 1  # The stale one is replaced.


def test_another_size_and_the_same_time(path, parses):
  xc_cache.read(path)
  status = path.stat()
  path.write_text(TEXT.replace('6:2', '6:2.5'))
  os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
  assert xc_cache.read(path).features[0, 6] == 2.5
  assert len(parses) == 2


def test_another_version(path, parses, monkeypatch):
  xc_cache.read(path)
  monkeypatch.setattr(xc_cache, 'VERSION', xc_cache.VERSION + 1)
  xc_cache.read(path)
  assert len(parses) == 2


def contents(cache):
  return {p.name: p.read_bytes() for p in cache.iterdir()}


def damage(good):
  """Yields changed bytes: cut short, and with one byte changed."""
  yield from (good[:k] for k in (0, 5, len(good) // 2, len(good) - 1))
  for k in range(0, len(good), 5):
    yield good[:k] + bytes([good[k] ^ 0x41]) + good[k + 1 :]


def test_damage_anywhere_is_mended(path, parses):
  table = xc_cache.read(path)
  cache = xc_cache.cache_path(path)
  good = contents(cache)
  assert len(good) == 7
  damaged = 0
  for name, content in good.items():
    for changed in (None, *damage(content)):
      (cache / name).unlink()
      if changed is not None:
        (cache / name).write_bytes(changed)
      same(table, xc_cache.read(path))
      damaged += 1
      assert len(parses) == 1 + damaged, (name, changed)
  assert contents(cache) == good
  assert list(cache.parent.iterdir()) == [cache]


@pytest.mark.parametrize('make', [pathlib.Path.touch, pathlib.Path.mkdir])
def test_something_else_in_the_place_of_the_cache(path, parses, folder, make):
  folder.mkdir(parents=True)
  cache = xc_cache.cache_path(path)
  make(cache)
  same(xc_cache.read(path), xc_cache.read(path))
  assert len(parses) == 1
  assert list(folder.iterdir()) == [cache]


def test_a_cache_that_is_replaced_while_it_is_loaded(path, parses, monkeypatch):
  table = xc_cache.read(path)
  cache = xc_cache.cache_path(path)
  load = np.load

  def replaced(*args, **options):
    monkeypatch.setattr(np, 'load', load)
    shutil.copytree(cache, cache.parent / 'other')
    cache.rename(cache.parent / 'old')
    (cache.parent / 'other').rename(cache)
    return load(*args, **options)

  monkeypatch.setattr(np, 'load', replaced)
  same(table, xc_cache.read(path))
  assert len(parses) == 2


def replace_often(path, seconds):
  expected = xc_text.read(path)
  for k in range(200):
    os.utime(path, (0, seconds + 2 * k))
    same(expected, xc_cache.read(path))


@pytest.mark.slow
def test_processes_that_replace_a_cache_at_once(path, folder):
  spawn = multiprocessing.get_context('spawn')
  processes = [
    spawn.Process(target=replace_often, args=[path, k]) for k in range(2)
  ]
  for process in processes:
    process.start()
  for process in processes:
    process.join()
    assert process.exitcode == 0
  assert list(folder.iterdir()) == [xc_cache.cache_path(path)]


def test_a_folder_that_nobody_may_write_to(path, parses, folder):
  folder.mkdir(parents=True)
  folder.chmod(0o555)
  table = xc_cache.read(path)
  same(table, xc_cache.read(path))
  assert len(parses) == 2
  assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made(path, parses, folder):
  folder.parent.write_text('a file in its place')
  same(xc_cache.read(path), xc_cache.read(path))
  assert len(parses) == 2


def test_a_full_disk(path, parses, folder, monkeypatch):
  def full(*_):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(parsed_cache, '_write', full)
  same(xc_cache.read(path), xc_text.read(path))
  assert list(folder.iterdir()) == []


def test_what_is_wrong_with_the_text_is_told_each_time(path):
  path.write_text(TEXT.replace('6:2', '7:2'))
  for _ in range(2):
    with pytest.raises(errors.InputError, match='line 2: feature 7'):
      xc_cache.read(path)
  assert not xc_cache.cache_path(path).exists()
  with pytest.raises(errors.InputError, match='is no file'):
    xc_cache.read(path.parent / 'absent.txt')
