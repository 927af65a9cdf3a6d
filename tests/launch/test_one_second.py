"""`--help` and flag errors of every command take less than one second."""

import os
import re
import subprocess
import sys

import pytest

from tests.launch import light

COMMANDS = sorted(
  path.stem
  for path in (light.ROOT / 'launch').glob('*.py')
  if 'app.run(' in path.read_text() and path.stem != 'app'
)
ERRORS = {
  'audit': ('--task=glyphs',),
  'benchmark': ('round', '--passes=0'),
  'compare': ('runs/a', '--rounds=0'),
  'document': ('nowhere.md',),
  'evaluate': (),
  'export': ('--run_dir=r', '--output=m', '--quantize=int8'),
  'list': ('nothing',),
  'make_splits': ('chunks', '--clients=1'),
  'plan': ('--num_classes=9', '--negatives=9', '--algorithm=fedss'),
  'predict': ('a.jpg',),
  'reproduce': ('nothing',),
  'sweep': (
    '--task=glyphs',
    '--algorithm=fedss',
    '--grid=client_learning_rate:0.1',
    '--grid=negatives:1,200',
  ),
  'train': ('--task=glyphs', '--algorithm=fedss', '--negatives=200'),
}


def test_every_command_is_here_and_listed_by_the_package():
  build = (light.ROOT / 'launch' / 'BUILD.bazel').read_text()
  [listed] = re.findall(r'COMMANDS = \[(.*?)\]', build, re.DOTALL)
  assert sorted(ERRORS) == COMMANDS == re.findall(r'"(\w+)"', listed)
  listed = subprocess.check_output([sys.executable, '-m', 'launch'], cwd=light.ROOT, text=True)
  for command in COMMANDS:
    assert re.search(rf'^python -m launch\.{command} +\w', listed, re.M)


@pytest.mark.parametrize('command', COMMANDS)
def test_nothing_large_is_imported(command):
  done = light.call(command, '--help')
  assert (done.returncode, done.stderr) == (0, '')
  assert f'python -m launch.{command}' in done.stdout
  light.assert_one_sentence(light.call(command, *ERRORS[command]), '')


def seconds(*arguments):
  """Returns the processor time of a Python process, which hardly depends on other processes."""
  process = subprocess.Popen(
    [sys.executable, *arguments],
    cwd=light.ROOT,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  _, _, usage = os.wait4(process.pid, 0)
  process.returncode = 0  # The process has ended, so `Popen` need not wait.
  return usage.ru_utime + usage.ru_stime


# Commands that pass `test_nothing_large_is_imported` are seldom slow.
@pytest.mark.parametrize(
  'command', [pytest.param(each, marks=[pytest.mark.slow] * (each != 'train')) for each in COMMANDS]
)
@pytest.mark.parametrize('is_error', [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_second_is_enough(command, is_error):
  """At least one of five tries must be fast enough."""
  arguments = ERRORS[command] if is_error else ('--help',)
  assert any(seconds('-m', f'launch.{command}', *arguments) < 1 for _ in range(5))
