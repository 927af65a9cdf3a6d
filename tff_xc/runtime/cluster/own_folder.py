"""A folder of `launch.workers`: marked as ours, for its user only, and locked.

tff_xc.lock by its name says that `make` made the folder. A folder without it is
never changed.
"""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator

from tff_xc import errors

# The folder of the nodes' files in it.
NODES = 'nodes'
_LOCK = 'tff_xc.lock'


@contextlib.contextmanager
def _using(folder: pathlib.Path) -> Iterator[None]:
  try:
    yield
  except OSError as e:
    raise errors.InputError(
      f'{folder} cannot be used for the cluster ({e.strerror}): name another'
      ' folder'
    ) from e


def is_made(folder: pathlib.Path) -> bool:
  """Whether `make` made the folder; not if there is none, or an empty one.

  Raises:
    errors.InputError: it holds other files, or cannot be read.
  """
  with _using(folder):
    try:
      names = set(os.listdir(folder))
      is_open = folder.stat().st_mode & 0o077
    except FileNotFoundError:
      return False
  # Earlier versions made `lock`, `nodes`, and the folder private.
  if _LOCK in names or ({'lock', NODES} <= names and not is_open):
    return True
  if names:
    raise errors.InputError(
      f'{folder} holds other files than those of a cluster, and is left alone:'
      ' name a folder that `start` made, or for `start` an empty or a new one'
    )
  return False


def make(folder: pathlib.Path) -> None:
  """Makes the folder, for its user only.

  Raises:
    errors.InputError: it cannot be made, holds other files, belongs to somebody
      else, or is open to others.
  """
  with _using(folder):
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_made(folder)
    found = folder.stat()
    if found.st_uid != os.getuid():
      raise errors.InputError(f'{folder} belongs to another user: name another')
    if found.st_mode & 0o077:
      raise errors.InputError(
        f'{folder} is open to others: close it with `chmod 700`, or name a new'
        ' folder'
      )
    (folder / _LOCK).touch(mode=0o600)
    (folder / NODES).mkdir(mode=0o700, exist_ok=True)


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
  """Keeps other commands from changing the folder, which is made.

  Raises:
    errors.InputError: another command is changing it.
  """
  with contextlib.ExitStack() as stack:
    try:
      file = stack.enter_context(open(folder / _LOCK, 'a'))
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
      raise errors.InputError(
        f'another command is starting or stopping nodes of {folder}: wait for'
        ' its end'
      ) from e
    except OSError as e:
      raise errors.InputError(
        f'{folder} cannot be used ({e.strerror}): name another folder'
      ) from e
    yield


def write(path: pathlib.Path, text: str) -> None:
  """Writes a file that only the user can read, in one step.

  Raises:
    errors.InputError: it cannot be written; it is as before then.
  """
  new = path.with_name(f'.{path.name}.{os.getpid()}')
  try:
    with open(
      new, 'w', opener=lambda name, flags: os.open(name, flags, 0o600)
    ) as file:
      file.write(text)
    os.replace(new, path)
  except OSError as e:
    new.unlink(missing_ok=True)
    raise errors.InputError(
      f'{path} cannot be written ({e.strerror}): make room, or name another'
      ' folder'
    ) from e
