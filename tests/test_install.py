"""Ways to install: uv's lock, the extras, the Dockerfile, and an import too early."""

import ast
import fnmatch
import os
import pathlib
import re
import shutil

import absl
import pytest

import launch
from tests import processes

try:
  import tomllib
except ModuleNotFoundError:  # Python 3.10
  import tomli as tomllib

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ('tff_xc', 'datasets', 'tasks', 'launch')


def project():
  return tomllib.loads((ROOT / 'pyproject.toml').read_text())


def lock():
  return tomllib.loads((ROOT / 'uv.lock').read_text())


def pins(file):
  text = (ROOT / file).read_text()
  return dict(re.findall(r'^([\w.-]+)(?:\[.*?\])?==([^\s;]+)', text, re.M))


def plain(requirement):
  """Returns a requirement's name and versions, as the lock writes them."""
  name, extras, versions = re.match(r'([\w.-]+)(\[.*?\])?\s*([^;]*)', requirement).groups()
  assert not extras
  return name, versions.strip()


# uv.


@pytest.mark.parametrize('file', ['requirements.txt', 'requirements-cluster.txt'])
def test_the_lock_has_the_versions_of_the_requirements(file):
  locked = {}
  for package in lock()['package']:
    locked.setdefault(package['name'], []).append(package['version'])
  both = {n: [v] for n, v in pins(file).items() if n in locked}
  assert both == {n: locked[n] for n in both}
  assert both.keys() == pins(file).keys()


def test_the_lock_is_of_this_project():
  of, locked = project(), lock()
  [ours] = [p for p in locked['package'] if p['name'] == 'tff-xc']
  assert ours['version'] == of['project']['version']
  told = ours['metadata']
  needs = [(r['name'], r.get('specifier', '')) for r in told['requires-dist']]
  named = of['project']['dependencies'] + [
    r for rs in of['project']['optional-dependencies'].values() for r in rs
  ]
  assert sorted(needs) == sorted(map(plain, named))
  assert set(told['provides-extras']) == {*of['project']['optional-dependencies']}
  group = {(r['name'], r.get('specifier', '')) for r in told['requires-dev']['dev']}
  assert group == {*map(plain, of['dependency-groups']['dev'])}
  overrides = {(r['name'], r.get('specifier', '')) for r in locked['manifest']['overrides']}
  assert overrides == {*map(plain, of['tool']['uv']['override-dependencies'])}


# Extras.


def test_an_absent_package_of_an_extra_is_one_sentence_that_names_it():
  extras = project()['project']['optional-dependencies']
  known = pins('requirements.txt')
  for module, extra in launch.EXTRAS.items():
    package = module.replace('_', '-')
    assert package in {plain(r)[0] for r in extras[extra]}
    assert package in known  # Where the sentence sends people.
    told = launch.without(ModuleNotFoundError('', name=f'{module}.part'))
    assert module in told and f'`{extra}`' in told and '\n' not in told
  others = {'cluster', 'hnsw', 'mlflow', 'notebooks', 'onnx', 'wandb'}
  assert {*launch.EXTRAS.values()} | others == {*extras}


def test_packages_of_extras_are_imported_where_they_are_used():
  early = []
  for path in (p for name in PACKAGES for p in (ROOT / name).rglob('*.py')):
    for node in ast.parse(path.read_text()).body:
      names = [n.name for n in getattr(node, 'names', ())]
      if isinstance(node, ast.ImportFrom):
        names = [node.module]
      if isinstance(node, ast.Import | ast.ImportFrom):
        early += [path for n in names if n.split('.')[0] in launch.EXTRAS]
  assert not early


# Importing the package where TensorFlow or TFF does not fit.


def installed(folder, *distributions):
  """Makes packages that fail if somebody imports them; returns their path."""
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
    (('tensorflow_cpu-2.14.1',), 'no TensorFlow Federated'),
    (('tensorflow-2.15.0', 'tensorflow_federated-0.87.0'), 'TensorFlow 2.15.0'),
    (('tensorflow-2.14.0', 'tensorflow_federated-0.88.0'), 'Federated 0.88.0'),
    # The files of one in the folder of the other.
    (
      ('tensorflow-2.21.0', 'tensorflow_cpu-2.14.1', 'tensorflow_federated-0.87.0'),
      'TensorFlow 2.21.0',
    ),
    (('tensorflow_cpu-2.14.1', 'tensorflow_federated-0.87.0'), ''),
    (('tensorflow-2.14', 'tensorflow_federated-0.87.0'), ''),
  ],
)
def test_importing_the_package_says_what_does_not_fit(distributions, told, tmp_path):
  path = installed(tmp_path, *distributions)
  done = python('-c', 'import tff_xc', path=path)
  assert (done.returncode == 0) == (not told), done.stderr
  if told:
    error = done.stderr.splitlines()[-1]
    assert error.startswith('ImportError: ') and told + ':' in error
    assert 'make venv' in error and 'uv sync' in error


def test_a_command_says_it_without_a_trace(tmp_path):
  path = installed(tmp_path)
  (tmp_path / 'absl').symlink_to(pathlib.Path(absl.__file__).parent)
  done = python('-m', 'launch.list', path=path)
  assert done.returncode == 2
  [line] = done.stderr.splitlines()
  assert line.startswith('error: tff_xc needs TensorFlow')


def test_a_wheel_names_the_requirements_that_it_holds(tmp_path):
  (tmp_path / 'tff_xc').mkdir()
  shutil.copy(ROOT / 'tff_xc' / '__init__.py', tmp_path / 'tff_xc')
  done = python('-c', 'import tff_xc', path=str(tmp_path))
  assert f'--require-hashes -r {tmp_path}/tff_xc/requirements.txt' in done.stderr
  held, ours = ROOT / 'tff_xc' / 'requirements.txt', ROOT / 'requirements.txt'
  assert held.read_bytes() == ours.read_bytes()


# The Dockerfile.


def test_the_dockerfile_copies_what_is_there_and_runs_targets_of_make():
  text = (ROOT / 'Dockerfile').read_text()
  ignored = (ROOT / '.dockerignore').read_text().split()
  copied = [name for line in re.findall(r'^COPY (.*)$', text, re.M) for name in line.split()[:-1]]
  assert 'requirements.txt' in copied
  for name in copied:
    assert (ROOT / name).exists(), name
    assert not any(fnmatch.fnmatch(name, pattern) for pattern in ignored), name
  make = (ROOT / 'Makefile').read_text()
  recipes = dict(re.findall(r'^([a-z-]+):.*\n((?:\t.*\n)+)', make, re.M))
  assert re.findall(r'make "(.*?)"', text) == ['$VENV']
  variants = [*re.findall(r'^ARG VENV=(.*)$', text, re.M)]
  for target in ('image', 'image-gpu'):
    variants += re.findall(r'--build-arg VENV=(\S+)', recipes[target])
  assert variants == ['venv', 'venv', 'venv-gpu']
  for variant in variants:
    script, *others = re.findall(r'(?:REQUIREMENTS=|sh )(\S+)', recipes[variant])
    assert {script, *others} <= {*copied}, recipes[variant]


def test_environments_are_in_no_image_commit_or_build():
  names = set(re.findall(r'\.venv[a-z-]*', (ROOT / 'Makefile').read_text()))
  assert len(names) == 3
  for file in ('.dockerignore', '.gitignore', '.bazelignore'):
    assert names <= {*(ROOT / file).read_text().split()}, file


def test_what_pages_write_is_in_no_image_commit_or_build():
  pages = [ROOT / 'README.md', *(ROOT / 'docs').glob('*.md')]
  text = '\n'.join(page.read_text() for page in pages)
  written = set(re.findall(r'--(?:run_dir|output)=(\w+)/', text)) - {'docs'}
  assert {'runs', 'models', 'splits'} <= written
  for file in ('.dockerignore', '.gitignore', '.bazelignore'):
    ignored = [line.strip('/') for line in (ROOT / file).read_text().split()]
    assert written <= {*ignored}, file


@pytest.mark.skipif(not shutil.which('hadolint'), reason='no hadolint is here')
def test_hadolint_finds_nothing_in_the_dockerfile():
  done = processes.run(['hadolint', 'Dockerfile'], cwd=ROOT)
  assert done.returncode == 0, done.stdout
