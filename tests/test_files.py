"""Atomic writes, and JSON."""

import json
import math
import os
import pathlib

import numpy as np
import pytest

from tff_xc import files


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


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
  path = tmp_path / 'x.json'
  files.write_json(path, {'old': 1})
  with pytest.raises(TypeError):
    files.write_json(path, {'new': object()})
  with pytest.raises(RuntimeError), files.replacing(path) as temporary:
    temporary.write_text('half')
    raise RuntimeError
  assert json.loads(path.read_text()) == {'old': 1}
  assert [p.name for p in tmp_path.iterdir()] == ['x.json']


def test_a_pipe_is_not_replaced(tmp_path):
  path = tmp_path / 'x.json'
  os.mkfifo(path)
  with pytest.raises(FileExistsError, match='it is no regular file'):
    files.write_json(path, {})
  assert path.is_fifo()
  assert list(tmp_path.iterdir()) == [path]
