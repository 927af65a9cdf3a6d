"""Ways to install: uv's lock, the extras, the Dockerfile, and packages with wrong versions."""

import os
import pathlib
import re

import absl
import pytest

import launch
from tests import processes

try:
  import tomllib
except ModuleNotFoundError:  # Python 3.10 has no tomllib.
  import tomli as tomllib

ROOT = pathlib.Path(__file__).parents[1]


def pins(file):
  text = (ROOT / file).read_text()
  return dict(re.findall(r'^([\w.-]+)(?:\[.*?\])?==([^\s;]+)', text, re.M))


@pytest.mark.parametrize('file', ['requirements.txt', 'requirements-cluster.txt'])
def test_the_lock_has_the_versions_of_the_requirements(file):
  locked = {}
  for package in tomllib.loads((ROOT / 'uv.lock').read_text())['package']:
    locked.setdefault(package['name'], []).append(package['version'])
  both = {n: [v] for n, v in pins(file).items() if n in locked}
  assert both == {n: locked[n] for n in both}
  assert both.keys() == pins(file).keys()


def test_an_absent_package_of_an_extra_is_one_sentence_that_names_it():
  project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
  extras = project['optional-dependencies']
  known = pins('requirements.txt')
  for module, extra in launch.EXTRAS.items():
    package = module.replace('_', '-')
    assert any(r.startswith(package) for r in extras[extra])
    assert package in known  # The extra that the message recommends.
    told = launch.without(ModuleNotFoundError('', name=f'{module}.part'))
    assert module in told and f'`{extra}`' in told and '\n' not in told


# Importing tff_xc when TensorFlow or TFF is missing or has a wrong version.


def installed(folder, *distributions):
  """Creates packages that fail when they are imported. Returns their path."""
  for distribution in distributions:
    name, _, _ = distribution.partition('-')
    module = 'tensorflow' if name == 'tensorflow_cpu' else name
    (folder / module).mkdir(parents=True, exist_ok=True)
    (folder / module / '__init__.py').write_text('1 / 0\n')
    (folder / f'{distribution}.dist-info').mkdir()
  return os.pathsep.join(map(str, (folder, ROOT)))


def python(*arguments, path):
  return processes.python('-S', *arguments, env={**os.environ, 'PYTHONPATH': path}, cwd='/')


@pytest.mark.parametrize(
  ('distributions', 'told'),
  [
    ((), 'no TensorFlow and no TensorFlow Federated'),
    (('tensorflow-2.15.0', 'tensorflow_federated-0.88.0'), 'TensorFlow 2.15.0 and'),
    # One package's files are in the folder of the other.
    (
      ('tensorflow-2.21.0', 'tensorflow_cpu-2.14.1', 'tensorflow_federated-0.87.0'),
      'TensorFlow 2.21.0',
    ),
    (('tensorflow_cpu-2.14.1', 'tensorflow_federated-0.87.0'), ''),
  ],
)
def test_importing_the_package_says_what_does_not_fit(distributions, told, tmp_path):
  path = installed(tmp_path, *distributions)
  done = python('-c', 'import tff_xc', path=path)
  assert (done.returncode == 0) == (not told), done.stderr
  if told:
    error = done.stderr.splitlines()[-1]
    assert error.startswith('ImportError: ') and told in error


def test_a_command_says_it_without_a_trace(tmp_path):
  path = installed(tmp_path)
  (tmp_path / 'absl').symlink_to(pathlib.Path(absl.__file__).parent)
  done = python('-m', 'launch.list', path=path)
  assert done.returncode == 2
  [line] = done.stderr.splitlines()
  assert line.startswith('error: tff_xc needs TensorFlow')
