"""Runs a command: parses its flags and reports bad input in one sentence."""

import atexit
import contextlib
import errno
import math
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

import launch
from datasets import cache_folder
from tff_xc import errors, files, interrupts, lean_tensorflow, wording
from tff_xc.report import pictures

# A command lists all its flags if one of these arguments is given.
HELP_ALL = ('--help=all', '--helpfull')
_HELP = ('-h', '--help', *HELP_ALL)
# Error numbers that a bad path of the user may cause, wherever the program first uses the path.
_OF_PATHS = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)


def run(
  main: Callable[[Sequence[str]], None],
  usage: str,
  narrow: Callable[[Sequence[str]], str | None] | None = None,
  takes_arguments: bool = True,
) -> None:
  """Parses `sys.argv`, calls `main` with the arguments that are not flags, and exits.

  With --help, `narrow` is called instead of `main`. `narrow` deletes the flags that --help
  leaves out, and may return a text that replaces `usage`. If `takes_arguments` is false,
  arguments that are not flags are refused.

  Exit status:
    0: done
    2: bad input, which one sentence on stderr explains
    129, 130, 143: ended by SIGHUP, Ctrl-C or SIGTERM
    141: the program that reads the output has ended, such as `| head`
  """
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  if not os.path.isabs(os.path.expanduser('~')):  # The user has no home directory.
    os.environ['HOME'] = os.devnull  # No library can write files there.
  # Names in users' data may have characters that a terminal cannot show.
  sys.stdout.reconfigure(errors='replace')
  ending = _Ending()
  lean_tensorflow.install()
  interrupts.install()
  # `bazel run` changes to another directory, but paths are relative to the directory of the user.
  os.chdir(os.environ.get('BUILD_WORKING_DIRECTORY', '.'))
  try:
    with interrupts.raising():
      given = [arg for arg in sys.argv if arg not in _HELP]
      arguments = _parse(given)
      if len(given) == len(sys.argv):
        if arguments and not takes_arguments:
          raise errors.InputError(f'{arguments[0]!r} is no flag; flags are written --name=value')
        _use_shared_flags()
        main(arguments)
      else:
        usage = (narrow(arguments) if narrow else None) or usage
        print(f'{usage.strip()}\n\n{_flags_help()}')
      sys.stdout.flush()
      interrupts.check()
    ending.status = 0
  except BrokenPipeError:
    ending.exit(141)
  except KeyboardInterrupt:
    ending.exit(interrupts.status(), 'interrupted')
  except Exception as e:
    if sentence := _sentence(e):  # The sentence may contain names from untrusted data.
      lines = map(wording.shown, sentence.split('\n'))
      ending.exit(2, 'error: ' + '\n'.join(lines))
    if interrupts.received():  # C code turned the interrupt into another error.
      ending.exit(interrupts.status(), 'interrupted')
    raise


def _sentence(error: Exception) -> str:
  """Returns a sentence for an error that the user can fix; '' for a bug in the program."""
  tf = sys.modules.get('tensorflow')
  if isinstance(error, errors.InputError):
    return str(error)
  if isinstance(error, MemoryError) or (
    tf is not None and isinstance(error, tf.errors.ResourceExhaustedError)
  ):
    return (
      f'memory ran out ({str(error).partition(chr(10))[0] or "no more is free"});'
      ' free some, or choose smaller settings or data'
    )
  if isinstance(error, ModuleNotFoundError):
    return launch.without(error)
  is_of_path = isinstance(error, OSError) and error.filename is not None
  if is_of_path and error.errno in _OF_PATHS:
    return (
      f'{error.filename} cannot be opened ({error.strerror}); check its'
      ' permissions, or name another'
    )
  return ''


class _Ending:
  """Ends the process with an exit status.

  After a signal, or if Ray left processes behind, the process ends without cleaning up: the
  cleanup could hang or crash.
  """

  def __init__(self):
    self.status = 1  # The exit status after a bug.
    # atexit calls functions in reverse order of registration. So this function runs after all
    # functions that are registered later.
    atexit.register(self._leave)

  def exit(self, status: int, sentence: str = '') -> None:
    self.status = status
    if sentence:
      print(sentence, file=sys.stderr)
    sys.exit(status)

  def _leave(self) -> None:
    cluster = sys.modules.get('tff_xc.runtime.cluster.connection')
    if self.status > 128 or getattr(cluster, 'left_behind', False):
      for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # The reader of the output may have ended.
          stream.flush()
      os._exit(self.status)


def _parse(given: Sequence[str]) -> Sequence[str]:
  """Parses the flags, expands `~/` in all values, and returns the arguments that are not flags."""
  try:
    arguments = flags.FLAGS(given)[1:]
  except flags.UnrecognizedFlagError as e:
    meant = wording.meant(e.flagname, flags.FLAGS, '--')
    raise errors.InputError(
      f'there is no flag --{e.flagname}{meant} (--help=all lists the flags)'
    ) from e
  except flags.Error as e:
    raise errors.InputError(f'{e} (--help=all lists the flags)') from e
  # A shell expands neither --name=~/x nor the lines of a flag file.
  for name in flags.FLAGS:
    flags.FLAGS[name].value = _expanded(flags.FLAGS[name].value)
  return _expanded(arguments)


def _expanded(value: Any) -> Any:
  if isinstance(value, list):
    return [_expanded(one) for one in value]
  is_in_home = isinstance(value, str) and value.startswith('~/')
  return os.path.expanduser(value) if is_in_home else value


def _use_shared_flags() -> None:
  """Makes this process and its child processes use --cache_dir and --picture_format.

  Commands check their other flags later.
  """
  given = {n: flags.FLAGS[n].value for n in ('cache_dir', 'picture_format') if n in flags.FLAGS}
  if given.get('picture_format') is not None:
    pictures.use_formats(given['picture_format'])
  if given.get('cache_dir'):
    chosen = os.path.abspath(given['cache_dir'])
    with files.writing(f'--cache_dir={chosen}', 'name another'):
      os.makedirs(chosen, exist_ok=True)
      tempfile.TemporaryFile(dir=chosen).close()
    os.environ[cache_folder.VARIABLE] = chosen


def define_float(name: str, default: float | None, text: str, least: float, most: float) -> None:
  """Defines a flag that accepts numbers from `least` to `most`, but not nan."""
  flags.DEFINE_float(name, default, text, lower_bound=least, upper_bound=most)
  flags.register_validator(
    name, lambda value: value is None or math.isfinite(value), 'expected a finite number'
  )


def _flags_help() -> str:
  """Returns the help of the command's own flags, and then of the groups of `launch.settings`."""
  own, groups = ['flags:'], []
  for module, of_module in flags.FLAGS.flags_by_module_dict().items():
    text = flags.FLAGS.module_help(module).strip('\n')
    if module == sys.argv[0] or module.startswith('launch.'):
      own.append(text.partition('\n')[2])
    elif '.' not in module and of_module:
      groups.append(text)
  return '\n\n'.join(['\n'.join(own), *groups])
