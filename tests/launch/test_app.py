"""How commands report errors: wrong input gives one sentence."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from launch import app
from tests import processes
from tests.launch import light


@pytest.fixture(autouse=True)
def handlers_as_before():
  """Restores the signal handlers of this process, because commands replace them."""
  numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
  before = [signal.getsignal(number) for number in numbers]
  yield
  for number, handler in zip(numbers, before, strict=True):
    signal.signal(number, handler)


def ran(error, monkeypatch):
  """Returns the exit status of a command that raises an error in this process."""

  def main(arguments):
    raise error

  monkeypatch.setattr(app, '_parse', lambda given: [])
  monkeypatch.setattr(sys, 'argv', ['command'])
  with pytest.raises(SystemExit) as found:
    app.run(main, '')
  return found.value.code


@pytest.mark.parametrize(
  ('error', 'words'),
  [
    (OSError(errno.EACCES, 'denied', 'private/x'), ('private/x cannot', 'denied')),
    (OSError(errno.ENAMETOOLONG, 'long', 'x'), ('x cannot be opened',)),
    (MemoryError('Unable to allocate 7 GiB'), ('memory', '7 GiB')),
    (ModuleNotFoundError('', name='absent'), ('absent', 'make venv')),
  ],
)
def test_what_a_user_can_mend_is_one_sentence(error, words, monkeypatch, capsys):
  assert ran(error, monkeypatch) == 2
  [line] = capsys.readouterr().err.splitlines()
  assert line.startswith('error: ')
  assert all(word in line for word in words)


def test_other_faults_keep_their_trace(monkeypatch):
  with pytest.raises(OSError, match='a fault of the code'):
    ran(OSError(errno.EBADF, 'a fault of the code'), monkeypatch)


HANGS = """
import atexit, sys, types
from launch import app
from tff_xc import errors

atexit.register(print, 'the way that may crash')
def main(arguments):
  atexit.register(print, 'the usual end')
  name = 'tff_xc.runtime.cluster.connection'
  sys.modules[name] = types.SimpleNamespace(left_behind={hangs})
  raise errors.InputError('no\\x1b answer')
app.run(main, '')
"""


@pytest.mark.parametrize('hangs', [False, True])
def test_a_command_that_leaves_a_thread_in_ray_ends_at_once(hangs):
  found = processes.python(
    '-c',
    HANGS.format(hangs=hangs),
    cwd=light.ROOT,
    env={**os.environ, 'PYTHONUNBUFFERED': ''},
    timeout=60,
  )
  assert (found.returncode, found.stderr) == (2, 'error: no\\x1b answer\n')
  assert 'the usual end' in found.stdout
  assert ('the way that may crash' in found.stdout) != hangs


# The program prints that it has started, and then does what its argument says.
INTERRUPTED = """
import sys, time
from launch import app

def sleep(said):
  print(said, flush=True)
  time.sleep(60)

class Destroyed:
  def __del__(self):
    sleep('begun')

def in_a_destructor(arguments):
  Destroyed()
  time.sleep(60)

def swallowed(arguments):
  try:
    sleep('begun')
  except KeyboardInterrupt:
    pass

def made_another_error(arguments):
  try:
    sleep('begun')
  except KeyboardInterrupt:
    raise ImportError('initialization failed')

def busy(arguments):
  try:
    sleep('begun')
  except KeyboardInterrupt:
    sleep('saving')

app.run(globals()[sys.argv.pop()], '')
"""


def interrupted(name, number=signal.SIGINT, ignored=False):
  """Starts such a program, and returns its process when it has started."""
  disposition = 'SIG_IGN' if ignored else 'default_int_handler'
  # `nohup` ignores signal 1.
  first = f"""
import signal
signal.signal(2, signal.{disposition})
signal.signal(1, signal.SIG_DFL)
"""
  process = subprocess.Popen(
    [sys.executable, '-c', first + INTERRUPTED, name],
    cwd=light.ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == 'begun\n'
  process.send_signal(number)
  return process


@pytest.mark.parametrize(
  ('name', 'number', 'status'),
  [
    ('in_a_destructor', signal.SIGINT, 130),
    ('in_a_destructor', signal.SIGTERM, 143),
    ('in_a_destructor', signal.SIGHUP, 129),
    ('swallowed', signal.SIGINT, 130),
    ('made_another_error', signal.SIGINT, 130),
    ('busy', signal.SIGINT, 130),
  ],
)
def test_no_interrupt_is_lost(name, number, status):
  process = interrupted(name, number)
  if name == 'busy':  # A second signal ends the program at once.
    assert process.stdout.readline() == 'saving\n'
    time.sleep(0.4)  # Wait, because signals within a short time count as one signal.
    process.send_signal(number)
  said = process.communicate(timeout=20)
  assert (process.returncode, *said) == (status, '', 'interrupted\n')


def test_an_ignored_interrupt_stays_ignored():
  process = interrupted('busy', ignored=True)
  with pytest.raises(subprocess.TimeoutExpired):
    process.wait(0.2)
  process.terminate()
  assert process.stdout.readline() == 'saving\n'
  process.kill()
  process.communicate()


def test_nobody_reads_the_output_any_more():
  line = f'{sys.executable} -m launch.list tasks | true; exit ${{PIPESTATUS[0]}}'
  done = subprocess.run(['bash', '-c', line], cwd=light.ROOT, capture_output=True, check=False)
  assert (done.returncode, done.stderr) == (141, b'')


def test_a_terminal_that_cannot_show_a_character():
  done = processes.python(
    '-m',
    'launch.list',
    'tables',
    cwd=light.ROOT,
    env={**os.environ, 'PYTHONIOENCODING': 'ascii'},
    timeout=60,
  )
  assert (done.returncode, done.stderr) == (0, '')


def test_a_tilde_is_the_home(tmp_path):
  flag_file = tmp_path / 'own.flags'
  flag_file.write_text('--data_dir=~/data\n')
  given = ('--task=glyphs', '--algorithm=fedavg')
  for argument in ('--data_dir=~/data', f'--flagfile={flag_file}'):
    done = light.call('train', *given, argument, HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"'{tmp_path / 'data'}'" in done.stdout
  done = light.call('compare', '~/runs', HOME=str(tmp_path))
  light.assert_one_sentence(done, str(tmp_path / 'runs'))
  # Names in data may begin with a tilde.
  given = ('--task=table', '--algorithm=fedavg', '--data_dir=a.csv')
  done = light.call('train', *given, '--label_column=~root')
  assert done.returncode == 0, done.stderr
  assert "'~root'" in done.stdout
