"""The record of the program covers its source files, and does not depend on git."""

import ast

import pytest

import tff_xc
from tests import processes, test_imports
from tff_xc import environment

# Names that Python 3.10 does not have.
_LATER = {
  'ExceptionGroup',
  'Self',
  'StrEnum',
  'TryStar',
  'UTC',
  'assert_never',
  'file_digest',
  'tomllib',
}


def _sources():
  return environment.sources.__wrapped__()  # Without the cache.


def test_the_checksum_is_of_names_and_contents_of_source_files(tmp_path, monkeypatch):
  for name in ('tff_xc/a.py', 'tasks/experiment.py', 'datasets/xc/read.py'):
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text('x = 1\n')
  monkeypatch.setattr(tff_xc, '__file__', str(tmp_path / 'tff_xc/__init__.py'))
  before = _sources()
  assert list(before) == ['tff_xc', 'tasks', 'datasets']
  (tmp_path / 'tff_xc' / '__pycache__').mkdir()
  (tmp_path / 'tff_xc' / '__pycache__' / 'a.cpython-311.pyc').write_bytes(b'x')
  (tmp_path / 'tff_xc' / 'notes.txt').write_text('of nobody')
  (tmp_path / 'tff_xc' / '.#a.py').symlink_to('an.editor@here')
  (tmp_path / 'tasks' / '._experiment.py').write_bytes(b'x')
  assert _sources() == before
  (tmp_path / 'datasets' / 'xc' / 'read.py').write_text('x = 2\n')
  edited = _sources()
  assert edited['datasets'] != before['datasets']
  assert {**edited, 'datasets': before['datasets']} == before
  (tmp_path / 'tff_xc' / 'a.py').rename(tmp_path / 'tff_xc' / 'b.py')
  assert _sources()['tff_xc'] != before['tff_xc']
  # An installed wheel has no tasks/. A package `datasets` then belongs to another project.
  (tmp_path / 'tasks' / 'experiment.py').unlink()
  assert list(_sources()) == ['tff_xc']


@pytest.mark.slow
def test_a_program_that_never_installs_a_runtime_ends_quietly():
  program = 'import tff_xc, tensorflow_federated'
  done = processes.python('-c', program)
  assert (done.returncode, 'ServiceManager' in done.stderr) == (0, False)


def test_no_module_needs_a_later_python():
  for path, _ in test_imports.modules():
    for node in ast.walk(ast.parse(path.read_text())):
      names = {type(node).__name__, *(getattr(node, n, None) for n in ('attr', 'id', 'module'))}
      names |= {name.name for name in getattr(node, 'names', ()) if isinstance(name, ast.alias)}
      assert not names & _LATER, path
