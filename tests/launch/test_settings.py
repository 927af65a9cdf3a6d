"""Flags are checked and take effect before TensorFlow is imported."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]

# Runs a command up to the module that would import TensorFlow.
STUBBED = """
import os, runpy, sys, types
say = lambda *_: print(os.environ.get('TFF_XC_CACHE'))
for name in ('training', 'evaluation'):
  sys.modules[f'launch.{name}'] = types.SimpleNamespace(run=say)
command = sys.argv.pop(1)
try:
  runpy.run_module(f'launch.{command}', run_name='__main__')
finally:
  assert 'tensorflow' not in sys.modules
"""


def stubbed(*arguments):
  return subprocess.run(
    [sys.executable, '-c', STUBBED, *map(str, arguments)],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )


@pytest.mark.parametrize(
  'arguments',
  [
    ('train', '--task=bibtex', '--algorithm=fedaws'),
    ('evaluate', '--run_dir=somewhere'),
  ],
)
def test_the_cache_folder_may_be_chosen(arguments, tmp_path, cache_folder):
  chosen = stubbed(*arguments, f'--cache_dir={tmp_path}')
  assert chosen.stdout.splitlines()[-1] == str(tmp_path), chosen.stderr
  default = stubbed(*arguments)
  assert default.stdout.splitlines()[-1] == str(cache_folder)
