"""Runs a command: parses its flags and reports bad input in one sentence."""

import atexit
import contextlib
import errno
import io
import math
import os
import re
import stat
import sys
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

from absl import flags

import launch
from tff_xc import errors
from tff_xc import home
from tff_xc import interrupts
from tff_xc import lazy_imports
from tff_xc import wording

_HELP = '--help', '-h', '-help', '--helpfull', '--helpshort'
# Flags of names in data, which may begin with ~.
_OF_DATA = re.compile('_columns?$|^client$|^record_features$')
# What a path that the user named may have, wherever it is looked at first.
_OF_PATHS = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)


def run(
  main: Callable[[Sequence[str]], None],
  usage: str,
  narrow: Callable[[Sequence[str]], str | None] | None = None,
) -> None:
  """Parses `sys.argv`, calls `main` with the arguments left, and exits.

  `narrow` receives the arguments beside --help. It leaves those flags that apply to
  the others given, with their values, and returns None; or it returns another `usage`.

  Exit status: 0 done, 2 bad input (one sentence on stderr), 130 interrupted, 143
  ended by SIGTERM, 129 by SIGHUP, 141 if nobody reads the output any more (`| head`).
  """
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  if not os.path.isabs(os.path.expanduser('~')):  # A user without a name, too.
    os.environ['HOME'] = os.devnull  # Where no library can keep anything.
  _open_streams()
  ending = _Ending()
  lazy_imports.install()
  interrupts.install()
  # `bazel run` starts elsewhere; paths are relative to the user's directory.
  os.chdir(os.environ.get('BUILD_WORKING_DIRECTORY', '.'))
  try:
    with interrupts.raising():
      is_help = lambda arg: arg.partition('=')[0] in _HELP  # --help=1, say.
      given = [arg for arg in sys.argv if not is_help(arg)]
      if len(given) == len(sys.argv):
        main(_parse(given))
      else:
        narrowed = narrow(_parse(given)) if narrow else usage
        told = 'default' if narrowed else 'value'
        usage = narrowed or usage
        print(f'{usage.strip()}\n\n{_flags_help(told)}')
      sys.stdout.flush()
      interrupts.check()
    ending.status = 0
  except BrokenPipeError:
    ending.exit(141)
  except KeyboardInterrupt:
    ending.exit(interrupts.status(), 'interrupted')
  except Exception as e:
    told = _told(e)
    if told:  # It may name what strangers named.
      lines = map(wording.shown, told.split('\n'))
      ending.exit(2, 'error: ' + '\n'.join(lines))
    if interrupts.received():  # C code made another error of it.
      ending.exit(interrupts.status(), 'interrupted')
    raise


class _Terminal(io.TextIOWrapper):
  """An output that leads nowhere once its terminal is gone, as after a logout."""

  def write(self, text: str) -> int:
    try:
      return super().write(text)
    except OSError as e:
      self._leave(e)
      return len(text)

  def flush(self) -> None:
    try:
      super().flush()
    except OSError as e:
      self._leave(e)

  def _leave(self, error: OSError) -> None:
    """Lets all of this process write elsewhere; raises the error of another cause."""
    number = self.fileno()
    is_terminal = stat.S_ISCHR(os.fstat(number).st_mode)
    if error.errno != errno.EIO or not is_terminal:
      raise error
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _open_streams() -> None:
  """Lets a closed stream lead nowhere, so that no other file gets its number."""
  for name, mode in (('stdin', 'r'), ('stdout', 'w'), ('stderr', 'w')):
    stream = getattr(sys, name)
    if stream is None:
      setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    elif mode == 'w' and stream is getattr(sys, f'__{name}__'):
      lasting = _Terminal(
        stream.buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
      )
      setattr(sys, name, lasting)
  # Names in people's data may have what a terminal cannot show.
  sys.stdout.reconfigure(errors='replace')


def _told(error: Exception) -> str:
  """Returns the sentence of an error that the user can mend; '' of a fault."""
  if isinstance(error, errors.InputError):
    return str(error)
  if isinstance(error, MemoryError) or _is_of_tensorflows_memory(error):
    return (
      f'memory ran out ({str(error).partition(chr(10))[0] or "no more is free"});'
      ' free some, or choose smaller settings or data'
    )
  if isinstance(error, UnicodeEncodeError):  # TensorFlow's files, say.
    return f'{error.object[:500]} is no UTF-8 text; choose another name'
  if isinstance(error, ModuleNotFoundError):
    return launch.without(error)
  if isinstance(error, OSError) and error.filename is None:
    try:
      print(flush=True)
    except OSError as e:
      return (
        f'standard output cannot be written ({e.strerror}); mend that, or let it'
        ' lead elsewhere'
      )
  elif isinstance(error, OSError) and error.errno in _OF_PATHS:
    return (
      f'{error.filename} cannot be opened ({error.strerror}); check its'
      ' permissions, or name another'
    )
  return ''


def _is_of_tensorflows_memory(error: Exception) -> bool:
  tf = sys.modules.get('tensorflow')
  return tf is not None and isinstance(error, tf.errors.ResourceExhaustedError)


class _Ending:
  """Ends the process with its status, also where Ray hangs or C code ran Python."""

  def __init__(self):
    self.status = 1  # Of an error of ours.
    atexit.register(self._leave)  # The first one is called last.

  def exit(self, status: int, told: str = '') -> None:
    self.status = status
    try:
      sys.stdout.flush()
    except OSError:
      # Python flushes it once more at its exit, which would fail again.
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with contextlib.suppress(OSError):
      if told:
        print(told, file=sys.stderr)
    sys.exit(status)

  def _leave(self) -> None:
    cluster = sys.modules.get('tff_xc.runtime.cluster.connection')
    if self.status > 128 or (cluster and cluster.left_behind):
      for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # The disk is full, say.
          stream.flush()
      os._exit(self.status)


def _parse(given: Sequence[str]) -> Sequence[str]:
  """Parses the flags and returns the other arguments; `~` of paths is a home."""
  try:
    arguments = flags.FLAGS(given)[1:]
  except flags.UnrecognizedFlagError as e:
    meant = wording.meant(e.flagname, flags.FLAGS, '--')
    raise errors.InputError(
      f'there is no flag --{e.flagname}{meant} (--help lists the flags)'
    ) from e
  except flags.Error as e:
    raise errors.InputError(f'{e} (--help lists the flags)') from e
  for name in flags.FLAGS:
    flag = flags.FLAGS[name]
    # A shell expands neither --name=~/x nor what a flag file says.
    if not _OF_DATA.search(name):
      flag.value = _expanded(flag.value)
  return _expanded(arguments)


def _expanded(value: Any) -> Any:
  if isinstance(value, list):
    return [_expanded(one) for one in value]
  return home.expanded(value) if isinstance(value, str) else value


def define_float(
  name: str, default: float, text: str, least: float, most: float
) -> None:
  """Defines a flag that takes numbers from `least` to `most`, and no nan."""
  flags.DEFINE_float(name, default, text, lower_bound=least, upper_bound=most)
  flags.register_validator(
    name, math.isfinite, message='expected a finite number'
  )


def _flags_help(told: str) -> str:
  """Describes the command's flags and those it shares with other commands.

  `told` is what the value of a flag is called.
  """
  known, main = flags.FLAGS.flags_by_module_dict(), sys.argv[0]
  modules = [main] if main in known else []
  modules += [m for m in known if m.startswith('launch.')]
  bodies = ['flags:'] if modules else []
  bodies += [_of_module(module).partition('\n')[2] for module in modules]
  # Those without a dot are groups of `launch.settings`.
  groups = [_of_module(m) for m in known if '.' not in m and m != main]
  text = '\n\n'.join(['\n'.join(bodies), *groups])
  return text.replace('(default: ', f'({told}: ')


def _of_module(module: str) -> str:
  return flags.FLAGS.module_help(module).strip('\n')
