"""Runs a command that must answer before the large packages are imported."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]

# Stubs the modules that would import TensorFlow, so that a command with valid
# flags ends there.
_CODE = """
import os, runpy, sys, types
say = lambda *_: print(os.environ.get('TFF_XC_CACHE'))
for name in ('training', 'evaluation'):
  sys.modules[f'launch.{name}'] = types.SimpleNamespace(run=say)
command = sys.argv.pop(1)
try:
  runpy.run_module(f'launch.{command}', run_name='__main__')
finally:
  large = {
    'matplotlib', 'numpy', 'pandas', 'scipy', 'sklearn', 'tensorflow',
    'tensorflow_federated',
  } & set(sys.modules)
  assert not large, large
"""


def call(command, *arguments):
  """Returns a command's output; a stack trace if it imported too much."""
  return subprocess.run(
    [sys.executable, '-c', _CODE, command, *map(str, arguments)],
    cwd=ROOT,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    timeout=60,
    check=False,
  )


def assert_one_sentence(done, expected):
  assert done.returncode == 2, done.stderr
  assert done.stdout == ''
  assert done.stderr.startswith('error: '), done.stderr
  assert done.stderr.count('\n') == 1, done.stderr
  assert expected in done.stderr
