"""`.ci/run`: the tests, and what Bazel and Docker check where they are."""

import os
import pathlib
import shutil

import pytest

from tests import processes

_ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize(
  ('others', 'makes', 'printed', 'status'),
  [
    ({}, 0, 'make test', 0),
    ({'bazel': ''}, 0, 'make test\nBazel is checked', 3),
    ({'bazel': ''}, 1, 'make test', 1),
    ({'docker': ''}, 0, 'make test\nmake image', 0),
    ({'docker': 'exit 1'}, 0, 'make test', 0),  # No daemon runs.
  ],
)
def test_what_is_there_is_checked(others, makes, printed, status, tmp_path):
  (tmp_path / '.ci').mkdir()
  shutil.copy(_ROOT / '.ci' / 'run', tmp_path / '.ci')
  programs = {'make': f'echo "make $*"; exit {makes}'}
  programs |= others | {name: f'exec {shutil.which(name)} "$@"' for name in ('dirname', 'rm', 'sh')}
  (tmp_path / 'bin').mkdir()
  for name, text in programs.items():
    (tmp_path / 'bin' / name).write_text(f'#!/bin/sh\n{text}\n')
    (tmp_path / 'bin' / name).chmod(0o755)
  (tmp_path / 'tools').mkdir()
  check = tmp_path / 'tools' / 'check_bazel.sh'
  check.write_text('echo Bazel is checked\nexit 3\n')
  done = processes.run(
    [shutil.which('bash'), '.ci/run'],
    cwd=tmp_path,
    env={**os.environ, 'PATH': str(tmp_path / 'bin')},
    timeout=60,
  )
  assert done.stdout.strip() == printed, done.stderr
  assert done.returncode == status
