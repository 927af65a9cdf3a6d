"""Runs a command that must answer before it imports the large packages."""

import functools
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]

# This program forks itself for each command, because Python and the small packages take longer to
# start than a command takes to answer. The fork imports the modules that define flags or read the
# environment. `experiment.run` is replaced, because it would import TensorFlow. A command with
# valid flags therefore ends there.
_CODE = """
import json, os, runpy, sys
from datasets.splits import rules
from launch import app
from tasks import registry
from tff_xc.algorithms import registry
for line in sys.stdin:
  given = json.loads(line)
  if not (child := os.fork()):
    break
  print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
  sys.exit()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number, file in enumerate(given['files'], 1):
  os.dup2(os.open(file, os.O_WRONLY), number)
os.environ.clear()
os.environ.update(given['environment'])
say = lambda *given: print(given[0], os.environ.get('TFF_XC_CACHE'), sep='\\n')
from tasks import experiment
experiment.run = lambda *given: sys.exit(say(*given))
command, *arguments = given['words']
sys.argv = [sys.argv[0], *arguments]
try:
  runpy.run_module(f'launch.{command}', run_name='__main__')
finally:
  large = {
    'matplotlib', 'pandas', 'scipy', 'sklearn', 'tensorflow',
    'tensorflow_federated',
  } & set(sys.modules)
  assert not large, large
"""


@functools.cache
def _forking():
  """Starts the process that forks. It ends together with this process."""
  return subprocess.Popen(
    [sys.executable, '-c', _CODE],
    cwd=ROOT,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )


def call(command, *arguments, **environment):
  """Returns a command's output. If the command imported a large package, stderr has a traceback."""
  words = [command, *map(str, arguments)]
  process = _forking()
  with tempfile.TemporaryDirectory() as folder:
    files = [pathlib.Path(folder) / name for name in ('stdout', 'stderr')]
    for file in files:
      file.touch()
    request = {
      'words': words,
      'files': [*map(str, files)],
      'environment': {**os.environ, 'PYTHONPATH': str(ROOT), **environment},
    }
    process.stdin.write(json.dumps(request) + '\n')
    process.stdin.flush()
    assert select.select([process.stdout], [], [], 60)[0], f'{words} hangs'
    status = int(process.stdout.readline())
    said = [file.read_text() for file in files]
  return subprocess.CompletedProcess(words, status, *said)


def assert_one_sentence(done, expected):
  assert done.returncode == 2, done.stderr
  assert done.stdout == ''
  assert done.stderr.startswith('error: '), done.stderr
  assert done.stderr.count('\n') == 1, done.stderr
  assert expected in done.stderr
