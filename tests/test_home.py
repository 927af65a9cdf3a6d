"""Users without a home directory, and home directories of other users."""

import os
import pathlib

import numpy as np
import pytest

from datasets import cache_folder
from datasets.readers import parsed_cache


def _refused(path, *args, **kwargs):
  raise PermissionError(13, 'Permission denied', str(path))


@pytest.mark.parametrize('home', ['none', 'of another', 'read-only'])
def test_without_a_home_nothing_is_cached(home, tmp_path, monkeypatch):
  named = cache_folder.VARIABLE, 'XDG_CACHE_HOME', 'XDG_STATE_HOME', 'HOME'
  for name in named:
    monkeypatch.delenv(name, raising=False)
  if home == 'none':
    monkeypatch.setattr('pwd.getpwuid', {}.__getitem__)
  else:
    monkeypatch.setenv('HOME', str(tmp_path / 'theirs'))
    for name in ('mkdir', 'stat', 'touch', 'read_bytes'):
      if home == 'of another' or name != 'stat':
        monkeypatch.setattr(pathlib.Path, name, _refused)
  monkeypatch.chdir(tmp_path)
  found = parsed_cache.of_files('a', 'x', 1, [], lambda: {'x': np.arange(3)})
  assert found['x'].tolist() == [0, 1, 2]
  assert os.listdir(tmp_path) == []
