"""Deferred imports, on packages made for the test."""

import importlib
import pathlib
import subprocess
import sys
import threading

import pytest

from tff_xc import lazy_imports


@pytest.fixture
def package(tmp_path, monkeypatch):
  """A deferred package 'slow_one' with a module; it notes each run."""
  folder = tmp_path / 'slow_one'
  folder.mkdir()
  (folder / '__init__.py').write_text(
    'import time, sys\n'
    'from slow_one import part\n'
    'part.before = "value" in globals()\n'
    'sys.slow_one_runs = getattr(sys, "slow_one_runs", 0) + 1\n'
    'time.sleep(0.05)\n'
    'value = 3\n'
  )
  (folder / 'part.py').write_text('import slow_one\n')
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(lazy_imports, '_DEFERRED', {'slow_one', 'no_such_one'})
  monkeypatch.setattr(sys, 'meta_path', list(sys.meta_path))
  monkeypatch.setattr(sys, 'slow_one_runs', 0, raising=False)
  lazy_imports.install()
  yield folder
  for name in [n for n in sys.modules if n.startswith('slow_one')]:
    del sys.modules[name]


def test_a_deferred_package_runs_at_its_first_use_and_once(package):
  import slow_one

  assert not sys.slow_one_runs
  assert slow_one.__file__ == str(package / '__init__.py')
  assert not hasattr(slow_one, '__wrapped__') and not sys.slow_one_runs
  found = []
  threads = [
    threading.Thread(target=lambda: found.append(slow_one.value))
    for _ in range(4)
  ]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert found == [3] * 4 and sys.slow_one_runs == 1
  with pytest.raises(AttributeError, match='nothing'):
    _ = slow_one.nothing


@pytest.mark.parametrize(
  'statement', ['import slow_one.part', 'from slow_one import value']
)
def test_a_part_of_it_or_a_name_from_it_runs_it(package, statement):
  exec(statement)
  assert sys.slow_one_runs == 1


def test_a_package_that_is_missing_or_fails_says_so(package):
  with pytest.raises(ModuleNotFoundError, match='no_such_one'):
    importlib.import_module('no_such_one')
  (package / '__init__.py').write_text('raise ValueError("broken")')
  module = importlib.import_module('slow_one')
  for _ in range(2):
    with pytest.raises(ValueError, match='broken'):
      _ = module.value


def test_installing_twice_is_installing_once(package):
  finders = len(sys.meta_path)
  lazy_imports.install()
  assert len(sys.meta_path) == finders


def test_tff_defers_them_and_they_still_work():
  program = (
    'import sys\n'
    'from tff_xc import lazy_imports as lazy\n'
    'lazy.install()\n'
    'import tensorflow as tf, tensorflow_federated as tff\n'
    'deferred = lambda: {n for n, m in sys.modules.items()'
    ' if isinstance(m, lazy._Module)}\n'
    'print(sorted(deferred() & {"pandas", "scipy.stats"}),'
    ' "jax" in sys.modules)\n'
    'import numpy as np\n'
    'add = tff.jax.computation(lambda x: x + 1, np.int32)\n'
    'import pandas as pd, scipy.stats\n'
    'print(add.type_signature, pd.Series([1, 2]).sum(),'
    ' scipy.stats.norm.cdf(0), tf.lite.OpsSet.TFLITE_BUILTINS.name)\n'
  )
  root = pathlib.Path(__file__).parents[1]
  run = subprocess.run(
    [sys.executable, '-c', program],
    cwd=root,
    capture_output=True,
    text=True,
    check=False,
  )
  assert run.returncode == 0, run.stderr
  assert run.stdout.splitlines() == [
    "['pandas', 'scipy.stats'] False",
    '(int32 -> int32) 3 0.5 TFLITE_BUILTINS',
  ]
