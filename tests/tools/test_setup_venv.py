"""`make venv` without the network: inputs it refuses, installs it accepts."""

import os
import pathlib
import shutil
import sys

import pytest

from tests import processes

_ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(name='tree')
def _tree(tmp_path):
  """Copies the script beside an empty requirements file."""
  (tmp_path / 'tools').mkdir()
  shutil.copy(_ROOT / 'tools' / 'setup_venv.sh', tmp_path / 'tools')
  shutil.copy(_ROOT / 'Makefile', tmp_path)
  (tmp_path / 'requirements.txt').write_text('# nothing\n')
  return tmp_path


def _set_up(tree, **given):
  env = {**os.environ, 'PYTHON': sys.executable, 'PIP_NO_INDEX': '1', **given}
  for name in {'REQUIREMENTS', 'MORE'} - set(given):
    env.pop(name, None)
  return processes.run(['sh', 'tools/setup_venv.sh'], cwd=tree, env=env, timeout=300)


@pytest.mark.parametrize(
  ('programs', 'python', 'words'),
  [
    (
      {'uname': 'test "$1" = -s && echo Darwin || echo arm64'},
      sys.executable,
      ('Linux x86-64', 'Darwin arm64'),
    ),
    (  # A version manager's shim exists and fails.
      {'python3.11': 'echo no such version >&2; exit 1', 'python3': 'echo is Python 3.13'},
      'python3.11 python3',
      ('python3 is Python 3.13', 'Python 3.10 or 3.11'),
    ),
    ({}, 'no-such-python', ('no-such-python',)),
  ],
)
def test_what_cannot_work_is_refused_in_one_sentence(tree, programs, python, words):
  (tree / 'bin').mkdir()
  for name, script in programs.items():
    (tree / 'bin' / name).write_text(f'#!/bin/sh\n{script}\n')
    (tree / 'bin' / name).chmod(0o755)
  path = f'{tree / "bin"}:{os.environ["PATH"]}'
  done = _set_up(tree, PYTHON=python, PATH=path)
  assert (done.returncode, done.stdout) == (2, '')
  assert done.stderr.count('\n') == 1
  for word in ('error: ', *words):
    assert word in done.stderr
  assert not (tree / '.venv').exists()


def test_make_stops_with_status_2_and_adds_only_its_own_line(tree):
  done = processes.run(
    ['make', 'venv', 'PYTHON=no-such-python'],
    cwd=tree,
    # It must not be a sub-make of the `make test` that runs this test.
    env={k: v for k, v in os.environ.items() if not k.startswith('MAKE')},
  )
  assert done.returncode == 2
  assert done.stdout == ''
  error, make = done.stderr.splitlines()
  assert error.startswith('error: no usable Python')
  assert make.startswith('make: ***')


def test_an_environment_of_uv_is_kept(tree):
  (tree / '.venv').mkdir()
  config = tree / '.venv' / 'pyvenv.cfg'
  config.write_text('home = /usr/bin\nuv = 0.9.1\n')
  done = _set_up(tree)
  assert (done.returncode, done.stdout) == (2, '')
  assert done.stderr.startswith('error: .venv was made by uv')
  assert done.stderr.count('\n') == 1
  assert config.exists()


@pytest.mark.slow
def test_the_second_call_does_nothing_until_the_requirements_change(tree):
  done = _set_up(tree)
  assert (done.returncode, done.stderr) == (0, '')
  assert 'Installing requirements.txt' in done.stdout
  mark = tree / '.venv' / 'mark'
  mark.touch()
  done = _set_up(tree)
  assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
  assert mark.exists()
  # A package that does not exist stands for an interrupted install.
  (tree / 'requirements.txt').write_text(f'no-such-package==1.0 --hash=sha256:{"0" * 64}\n')
  done = _set_up(tree)
  assert done.returncode == 2
  assert done.stderr.splitlines()[-1].startswith('error: the install failed')
  assert not mark.exists()
  assert not (tree / '.venv' / 'installed.sha256').exists()


@pytest.mark.slow
def test_packages_are_added_once_and_kept(tree):
  more = tree / 'requirements-cluster.txt'
  no_such = f'no-such-package==1.0 --hash=sha256:{"0" * 64}\n'
  _set_up(tree)
  mark = tree / '.venv' / 'mark'
  mark.touch()

  more.write_text(no_such)
  done = _set_up(tree, MORE=more.name)
  assert done.returncode == 2
  assert done.stderr.splitlines()[-1].startswith('error: the install failed')

  # `make venv` repeats what was interrupted, and leaves the rest alone.
  assert _set_up(tree).returncode == 2
  more.write_text('# nothing\n')
  done = _set_up(tree)
  assert (done.returncode, done.stderr) == (0, '')
  assert done.stdout == f'Adding {more.name} to .venv ...\n'
  for given in ({}, {'MORE': more.name}):
    done = _set_up(tree, **given)
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
  assert mark.exists()

  # Another base, as of `make venv-gpu`, is a new .venv with the same additions.
  (tree / 'requirements-gpu.txt').write_text('# nothing else\n')
  done = _set_up(tree, REQUIREMENTS='requirements-gpu.txt')
  assert not mark.exists()
  assert f'Adding {more.name}' in done.stdout
  assert _set_up(tree).stdout == ''
  more.write_text('# changed\n')
  assert f'Adding {more.name}' in _set_up(tree).stdout
