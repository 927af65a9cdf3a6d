"""Shared by all tests: one TFF worker a test process, and the real data."""

import os
import pathlib

import pytest

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')


@pytest.fixture(scope='session')
def tff_worker():
  """Installs TFF's own worker as the default context of this process."""
  from tff_xc.runtime import registry

  return registry.install('worker')


@pytest.fixture(scope='session')
def data_dir() -> pathlib.Path:
  """The real data sets; skips where they are absent."""
  root = pathlib.Path(__file__).parents[1]
  path = pathlib.Path(
    os.environ.get('TFF_XC_DATA', root / '..' / 'shared' / 'data')
  )
  if not path.is_dir():
    pytest.skip(f'no real data at {path}: set TFF_XC_DATA')
  return path
