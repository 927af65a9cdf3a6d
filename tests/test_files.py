"""Atomic writes, JSON, and files that declare more data than the memory has space for."""

import csv
import json
import math
import os
import pathlib

import numpy as np
import pandas as pd
import pytest

from tff_xc import errors, files, memory
from tff_xc.report import run_files


def test_json_is_plain_sorted_and_without_nan(tmp_path):
  path = tmp_path / 'x.json'
  files.write_json(
    path,
    {
      'b': np.float32(0.5),
      'a': [math.nan, math.inf, np.int64(3), (1, True)],
      'c': {'p': pathlib.Path('q'), 'n': None, 'v': np.array([1.0, np.nan])},
    },
  )
  text = path.read_text()
  assert text.endswith('}\n')
  assert text.index('"a"') < text.index('"b"')
  assert json.loads(text) == {
    'a': [None, None, 3, [1, True]],
    'b': 0.5,
    'c': {'p': 'q', 'n': None, 'v': [1.0, None]},
  }


def test_a_failed_write_leaves_the_old_file_or_pipe_and_nothing_else(tmp_path):
  path = tmp_path / 'x.json'
  files.write_json(path, {'old': 1})
  with pytest.raises(TypeError):
    files.write_json(path, {'new': object()})
  with pytest.raises(RuntimeError), files.replacing(path) as temporary:
    temporary.write_text('half')
    raise RuntimeError
  assert json.loads(path.read_text()) == {'old': 1}
  assert [p.name for p in tmp_path.iterdir()] == ['x.json']
  path.unlink()
  os.mkfifo(path)  # A pipe is not replaced.
  with pytest.raises(FileExistsError, match='it is no regular file'):
    files.write_json(path, {})
  assert path.is_fifo()
  assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
  ('folder', 'limit', 'current', 'cache', 'none'),
  [
    ('.', 'memory.max', 'memory.current', 'inactive_file', 'max'),
    ('memory', 'memory.limit_in_bytes', 'memory.usage_in_bytes', 'total_inactive_file', 2**63),
  ],
)
def test_a_container_has_less_free_than_the_machine(tmp_path, folder, limit, current, cache, none):
  meminfo = tmp_path / 'meminfo'
  meminfo.write_text('MemTotal: 9 kB\nMemAvailable:    3 kB\n')
  assert memory.free_bytes(meminfo, tmp_path) == 3072
  folder = tmp_path / folder
  folder.mkdir(exist_ok=True)
  (folder / current).write_text('100\n')
  (folder / 'memory.stat').write_text(f'anon 7\n{cache} 40\nslab 1\n')
  (folder / limit).write_text('1100\n')
  assert memory.free_bytes(meminfo, tmp_path) == 1040
  (folder / current).write_text('1200\n')
  assert memory.free_bytes(meminfo, tmp_path) == 0
  (folder / limit).write_text(f'{none}\n')
  assert memory.free_bytes(meminfo, tmp_path) == 3072


def test_a_small_file_that_unpacks_to_very_much_is_refused(monkeypatch):
  with pytest.raises(errors.InputError, match='900 TB'):
    memory.require(9 * 10**14, 'a.txt', 'mend it')
  assert memory.free_bytes() > 10**6
  monkeypatch.setattr(memory, 'free_bytes', lambda: 10**12)
  memory.require_unpacked(10**9, 1, 'a.npz', 'mend it')
  memory.require_unpacked(2 * 10**9, 10**7, 'a.npz', 'mend it')
  with pytest.raises(errors.InputError, match='200 times'):
    memory.require_unpacked(2 * 10**9 + 1, 10**7, 'a.npz', 'mend it')
  with pytest.raises(errors.InputError, match='with a copy'):
    memory.require_unpacked(6 * 10**11, 10**11, 'a.npz', 'mend it')


@pytest.mark.slow
def test_zeros_that_unpack_to_very_much_are_refused(tmp_path):
  np.savez_compressed(tmp_path / 'a.npz', x=np.zeros(2 * 10**9, np.uint8), y=np.arange(3))
  with np.load(tmp_path / 'a.npz') as file:
    memory.require_arrays(file.zip, ['y'], 'a.npz', 'mend it')
    with pytest.raises(errors.InputError, match=r'memory|200 times'):
      memory.require_arrays(file.zip, ['x', 'y'], 'a.npz', 'mend it')


def test_a_csv_holds_exact_values(tmp_path):
  """Also values that a spreadsheet would execute, and all characters that may end a line."""
  path = tmp_path / 'classes.csv'
  names = ['@ann', '-x', '=bob', '+49 1', "'q'", 'a"b,c', 'x\u200ey', ' z ']
  names += ['a\rb', 'a\r\nb', 'a\nb', 'a\u2028b\x85\x0c', '\t', '']
  with files.csv_rows(path) as file:
    writer = csv.writer(file)
    writer.writerows([('class', 'name'), *enumerate(names)])
  written = path.read_bytes()
  assert run_files.class_names(path, len(names)) == names
  table = pd.read_csv(path, keep_default_na=False)
  assert table['name'].tolist() == names
  with files.csv_rows(path) as file:
    table.to_csv(file, index=False, lineterminator='\r\n')
  assert path.read_bytes() == written
  assert written.startswith(b'class,name\n')
  with files.csv_rows(path) as file:  # A file name that is not UTF-8.
    csv.writer(file).writerow(['\udcff'])
  assert path.read_text() == '\\udcff\n'
