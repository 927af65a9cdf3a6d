"""The wheel contains only the library, and works outside the checkout."""

import ast
import os
import re
import shutil
import sys
import zipfile

import pytest

from tests import documents, processes

ROOT = documents.ROOT
# TensorFlow, TFF, and the packages that they need. requirements.txt installs them.
WITH_TFF = {
  'absl',
  'attrs',
  'dp_accounting',
  'google',
  'grpc',
  'h5py',
  'tensorflow',
  'tensorflow_federated',
  'tree',
}
# Names that the example in the documentation needs, and checks that it uses the wheel.
BEFORE = """
import importlib.util
import numpy as np
from tff_xc.round import examples as examples_lib
from tff_xc.round import process
x, y = np.zeros([3, 28, 28], np.uint8), np.array([0, 963, 5], np.int32)
cohorts = [[examples_lib.ClientExamples(x, y, np.int64(0), y)]]
"""
AFTER = """
import tff_xc
import datasets
assert state.round_number == 1
assert datasets.OWNER == 'somebody else'
for name in ('launch', 'tasks', 'tests'):
  assert importlib.util.find_spec(name) is None, name
print(tff_xc.__file__)
"""


def call(command, folder, **env):
  done = processes.run([*map(str, command)], cwd=folder, env={**os.environ, **env}, timeout=300)
  assert done.returncode == 0, done.stderr
  return done.stdout


@pytest.fixture(name='wheel', scope='module')
def _wheel(tmp_path_factory):
  """Builds the wheel with `make wheel` in a copy of the tree."""
  source = tmp_path_factory.mktemp('source')
  for folder in ('tff_xc', 'datasets', 'tasks'):
    shutil.copytree(ROOT / folder, source / folder, ignore=shutil.ignore_patterns('__pycache__'))
  (source / 'tools').mkdir()
  for file in ('pyproject.toml', 'tools/wheel.md', 'Makefile', 'LICENSE'):
    shutil.copy(ROOT / file, source / file)
  for left in ('site/index.html', 'lib/tff_xc/deleted.py'):
    (source / 'build' / left).parent.mkdir(parents=True)
    (source / 'build' / left).touch()
  make = ['make', '-o', 'venv', 'wheel', f'PYTHON_BIN={sys.executable}']
  call(make, source, PIP_NO_INDEX='1')
  assert (source / 'build' / 'site' / 'index.html').exists()
  [wheel] = (source / 'dist').iterdir()
  return wheel


@pytest.mark.slow
def test_the_wheel_holds_the_library_alone_and_its_licence(wheel):
  file = zipfile.ZipFile(wheel)
  files = [name for name in file.namelist() if '.dist-info/' not in name]
  found = [*(ROOT / 'tff_xc').rglob('*.py'), ROOT / 'tff_xc/requirements.txt']
  assert sorted(files) == sorted(str(path.relative_to(ROOT)) for path in found)
  requirements = file.read('tff_xc/requirements.txt')
  assert requirements == (ROOT / 'requirements.txt').read_bytes()
  of = {name.split('.dist-info/')[-1]: name for name in file.namelist()}
  assert file.read(of['licenses/LICENSE']) == (ROOT / 'LICENSE').read_bytes()
  metadata = file.read(of['METADATA']).decode()
  assert 'License-Expression: Apache-2.0' in metadata


@pytest.mark.slow
def test_the_example_of_the_docs_runs_from_the_wheel_outside_the_checkout(wheel, tmp_path):
  installed = tmp_path / 'installed'
  pip = [sys.executable, '-m', 'pip', 'install', '--no-deps', '--quiet']
  call([*pip, '--target', installed, wheel], tmp_path, PIP_NO_INDEX='1')
  # The user may have installed another package of this name.
  (installed / 'datasets.py').write_text("OWNER = 'somebody else'\n")
  [example] = [
    block
    for block in documents.code(documents.page('your_own'), 'python')
    if 'learning.next' in block
  ]
  (tmp_path / 'example.py').write_text(BEFORE + example + AFTER)
  printed = call([sys.executable, 'example.py'], tmp_path, PYTHONPATH=str(installed))
  assert printed.split()[-1] == str(installed / 'tff_xc' / '__init__.py')


def test_dependencies_name_what_the_library_imports():
  text = (ROOT / 'pyproject.toml').read_text()
  listed = re.findall(
    r'^(?:dependencies|cluster|hnsw|mlflow|wandb) = (\[.*?\])', text, re.M | re.DOTALL
  )
  assert len(listed) == 5
  found = set()
  for path in (ROOT / 'tff_xc').rglob('*.py'):
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, ast.Import):
        found |= {name.name.split('.')[0] for name in node.names}
      elif isinstance(node, ast.ImportFrom):
        found.add(node.module.split('.')[0])
  names = {
    'faiss': 'faiss-cpu',
    'mlflow': 'mlflow-skinny',
    'sklearn': 'scikit-learn',
    'tensorflow_addons': 'tensorflow-addons',
  }
  found = {names.get(name, name) for name in found}
  others = found - set(sys.stdlib_module_names) - {'tff_xc'} - WITH_TFF
  named = [name for part in listed for name in ast.literal_eval(part)]
  # ray has an upper bound because we use private parts of it, and faiss because of NumPy.
  assert others <= {name.partition('<')[0] for name in named}
