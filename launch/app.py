"""Runs a command: parses its flags and reports bad input in one sentence.

The commands import TensorFlow after parsing their flags, so that `--help` and
flag errors answer at once.
"""

import atexit
import contextlib
import errno
import math
import os
import sys
from collections.abc import Callable
from collections.abc import Sequence

from absl import flags

from tff_xc import errors
from tff_xc import lazy_imports

# What a path that the user named may have, wherever it is looked at first.
_OF_PATHS = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)


def run(main: Callable[[Sequence[str]], None], usage: str) -> None:
  """Parses `sys.argv`, calls `main` with the arguments left, and exits.

  Exit status: 0 done, 2 bad input (one sentence on stderr), 130 interrupted,
  141 if nobody reads the output any more (`| head`).

  Args:
    main: the command; raises `errors.InputError` on bad input.
    usage: the text that `--help` prints above the flags: the command's
      docstring.
  """
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  ending = _Ending()
  lazy_imports.install()
  # `bazel run` starts elsewhere; paths are relative to the user's directory.
  os.chdir(os.environ.get('BUILD_WORKING_DIRECTORY', '.'))
  try:
    if any(arg in ('--help', '-h', '-help') for arg in sys.argv[1:]):
      print(usage.strip() + '\n' + _flags_help())
    else:
      main(_parse())
    sys.stdout.flush()
    ending.status = 0
  except BrokenPipeError:
    # Python flushes stdout once more at its exit, which would fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    ending.exit(141)
  except errors.InputError as e:
    print(f'error: {e}', file=sys.stderr)
    ending.exit(2)
  except OSError as e:
    if e.errno not in _OF_PATHS or e.filename is None:
      raise
    print(
      f'error: {e.filename} cannot be opened ({e.strerror}); check its permissions,'
      ' or name another',
      file=sys.stderr,
    )
    ending.exit(2)
  except KeyboardInterrupt:
    print('interrupted', file=sys.stderr)
    ending.exit(130)


class _Ending:
  """Ends the process with its status, also where Ray hangs."""

  def __init__(self):
    self.status = 1  # Of an error of ours.
    atexit.register(self._leave)  # The first one is called last.

  def exit(self, status: int) -> None:
    self.status = status
    sys.exit(status)

  def _leave(self) -> None:
    cluster = sys.modules.get('tff_xc.runtime.cluster.connection')
    if cluster and cluster.left_behind:
      for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # The disk is full, say.
          stream.flush()
      os._exit(self.status)


def _parse() -> Sequence[str]:
  """Parses the flags and returns the other arguments."""
  try:
    return flags.FLAGS(sys.argv)[1:]
  except flags.Error as e:
    raise errors.InputError(f'{e} (--help lists the flags)') from e


def define_float(
  name: str, default: float, text: str, least: float, most: float
) -> None:
  """Defines a flag that takes numbers from `least` to `most`, and no nan."""
  flags.DEFINE_float(name, default, text, lower_bound=least, upper_bound=most)
  flags.register_validator(
    name, math.isfinite, message='expected a finite number'
  )


def _flags_help() -> str:
  """Describes the command's flags and those it shares with other commands."""
  main = sys.argv[0]
  modules = [m for m in flags.FLAGS.flags_by_module_dict() if m == main]
  modules += [
    m for m in flags.FLAGS.flags_by_module_dict() if m.startswith('launch.')
  ]
  return '\n'.join(flags.FLAGS.module_help(m) for m in modules)
