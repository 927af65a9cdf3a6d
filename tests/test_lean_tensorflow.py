"""Deferred imports, of packages that the tests create and of TFF."""

import gc
import importlib
import inspect
import pathlib
import sys

import pytest

from tests import processes
from tff_xc import lean_tensorflow


@pytest.fixture
def packages(tmp_path, monkeypatch):
  """Creates a package 'heavy' that is deferred while a module 'importer' is imported."""
  (tmp_path / 'heavy').mkdir()
  (tmp_path / 'heavy' / '__init__.py').write_text(
    'import sys\nsys.heavy_runs.append(__name__)\nfrom heavy import part\n'
  )
  (tmp_path / 'heavy' / 'part.py').write_text(
    'import sys\nsys.heavy_runs.append(__name__)\nclass Thing: pass\n'
  )
  (tmp_path / 'importer.py').write_text(
    'import heavy\ntry:\n  import no_such_one\nexcept ImportError:\n  no_such_one = None\n'
  )
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(lean_tensorflow, '_DEFERRED', {'heavy', 'no_such_one'})
  monkeypatch.setattr(lean_tensorflow, '_IMPORTERS', {'importer'})
  others = [f for f in sys.meta_path if type(f) is not lean_tensorflow._Finder]
  monkeypatch.setattr(sys, 'meta_path', others)
  monkeypatch.setattr(sys, 'heavy_runs', [], raising=False)
  lean_tensorflow.install()
  lean_tensorflow.install()
  finders = [f for f in sys.meta_path if type(f) is lean_tensorflow._Finder]
  assert len(finders) == 1
  yield tmp_path
  for name in [n for n in sys.modules if n.split('.')[0] in ('heavy', 'importer')]:
    del sys.modules[name]


def test_a_deferred_module_runs_at_its_first_use_and_once(packages):
  importer = importlib.import_module('importer')
  assert not sys.heavy_runs and 'heavy' not in sys.modules
  assert importer.no_such_one is None
  assert not hasattr(importer.heavy, '__wrapped__')
  assert inspect.getfile(importer.heavy) == str(packages / 'heavy' / '__init__.py')
  assert not sys.heavy_runs
  thing = importer.heavy.part.Thing
  assert sys.heavy_runs == ['heavy', 'heavy.part']
  assert importlib.import_module('heavy').part.Thing is thing
  with pytest.raises(AttributeError, match='nothing'):
    _ = importer.heavy.nothing


def test_everybody_else_gets_the_module_itself(packages):
  importer = importlib.import_module('importer')
  importlib.import_module('heavy.part')
  heavy = importlib.import_module('heavy')
  assert sys.heavy_runs == ['heavy', 'heavy.part']
  assert not isinstance(heavy, lean_tensorflow._Placeholder)
  assert importer.heavy.part.Thing is heavy.part.Thing
  assert importlib.reload(heavy) is heavy
  assert sys.heavy_runs == ['heavy', 'heavy.part', 'heavy']


def test_a_use_while_the_importer_imports(packages):
  (packages / 'importer.py').write_text('from heavy import part\n')
  importer = importlib.import_module('importer')
  assert sys.heavy_runs == ['heavy', 'heavy.part']
  assert importer.part is importlib.import_module('heavy').part


def test_a_module_that_fails(packages):
  importer = importlib.import_module('importer')
  (packages / 'heavy' / '__init__.py').write_text('raise ValueError("broken")')
  for _ in range(2):  # The module fails with its error each time.
    with pytest.raises(ValueError, match='broken'):
      _ = importer.heavy.part
  assert 'heavy' not in sys.modules


def test_garbage_is_not_collected_while_the_importer_imports(packages, monkeypatch):
  (packages / 'importer.py').write_text('import gc\nfound = gc.isenabled()\n')
  frozen = []
  monkeypatch.setattr(gc, 'freeze', lambda: frozen.append(gc.isenabled()))
  assert gc.isenabled()
  assert not importlib.import_module('importer').found
  assert gc.isenabled()
  assert frozen == [False]


def run(program):
  root = pathlib.Path(__file__).parents[1]
  found = processes.python('-c', program, cwd=root)
  assert found.returncode == 0, found.stderr
  return found.stdout.splitlines()


@pytest.mark.slow
def test_tff_defers_them_and_they_still_work():
  assert run(
    'import sys\n'
    'from tff_xc import lean_tensorflow as lazy\n'
    'lazy.install()\n'
    'import tensorflow as tf, tensorflow_federated as tff\n'
    'print([n for n in ("jax", "pandas", "scipy.optimize",'
    ' "scipy.stats", "sklearn", "fsspec", "tensorflow_probability") if n in sys.modules])\n'
    'import numpy as np\n'
    'add = tff.jax.computation(lambda x: x + 1, np.int32)\n'
    'import pandas as pd, scipy.stats, importlib.resources\n'
    'import scipy.optimize, sklearn.preprocessing, tensorflow_privacy\n'
    'root = scipy.optimize.brentq(lambda x: x - 2, 0, 3)\n'
    'made = tensorflow_privacy.linearly_separable_labeled_examples\n'
    'assert root == 2 and made(5, np.ones((3, 2))).points.shape == (5, 3)\n'
    'print(add.type_signature, pd.Series([1, 2]).sum(),'
    ' scipy.stats.norm.cdf(0), tf.lite.OpsSet.TFLITE_BUILTINS.name,'
    ' importlib.resources.files("tensorflow").name)\n'
  ) == ['[]', '(int32 -> int32) 3 0.5 TFLITE_BUILTINS tensorflow']


@pytest.mark.parametrize('given, expected', [('', '1'), ('0', '0')])
def test_onednn_is_on_unless_the_user_says_otherwise(given, expected):
  [found] = run(
    'import os\n'
    'os.environ.pop("TF_ENABLE_ONEDNN_OPTS", None)\n'
    f'if {given!r}: os.environ["TF_ENABLE_ONEDNN_OPTS"] = {given!r}\n'
    'import datasets\n'
    'found = os.environ["TF_ENABLE_ONEDNN_OPTS"]\n'
    'from launch import benchmark\n'
    'print(found,'
    ' benchmark.given_environment().get("TF_ENABLE_ONEDNN_OPTS", ""))\n'
  )
  assert found == f'{expected} {given}'
