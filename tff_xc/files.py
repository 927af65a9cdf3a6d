"""Writes files so that a crash leaves either the old or the new file; reads JSON.

This module imports neither TensorFlow nor NumPy.
"""

import contextlib
import errno
import json
import math
import os
import pathlib
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

from tff_xc import errors

_TEMPORARY = re.compile(r'\.(?P<stem>.+)\.\d+\.tmp(?P<suffix>\.[^.]+|)')


@contextlib.contextmanager
def replacing(path: str | os.PathLike, durable: bool = True) -> Iterator[pathlib.Path]:
  """Yields a temporary path that becomes `path` if the block succeeds.

  The temporary file has the suffix and directory of `path`, and is removed if the block
  raises. With `durable`, even a power cut leaves either the old file or the new file.
  Raises FileExistsError if `path` exists and is not a regular file: replacing a named pipe
  would delete the pipe.
  """
  path = pathlib.Path(path)
  if path.exists() and not path.is_file():
    raise FileExistsError(errno.EEXIST, 'it is no regular file', str(path))
  temporary = path.with_name(f'.{path.stem}.{os.getpid()}.tmp{path.suffix}')
  try:
    yield temporary
    if durable:
      sync(temporary)
    os.replace(temporary, path)
    if durable:
      sync(path.parent)
  finally:
    temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def csv_rows(path: str | os.PathLike) -> Iterator[Any]:
  """Yields a CSV file for `csv.writer`; the file replaces `path` as in `replacing`.

  The method `to_csv` of pandas can also write to this file, with
  `lineterminator='\\r\\n'`. If a value is a file name with bytes that are not UTF-8, these
  bytes are written as escapes.
  """
  with (
    replacing(path) as temporary,
    temporary.open('w', newline='', encoding='utf-8', errors='backslashreplace') as file,
  ):
    # Python's csv and pandas quote a `\r` in a value only if rows end in `\r\n`.
    yield types.SimpleNamespace(write=lambda row: file.write(row.removesuffix('\r\n') + '\n'))


@contextlib.contextmanager
def writing(what: str | os.PathLike, then: str) -> Iterator[None]:
  """Turns an OSError in the block into DamageError.

  The error message says that `what` cannot be written, and ends with `then`, the advice.
  """
  try:
    yield
  except OSError as e:
    raise errors.DamageError(f'{what} cannot be written ({e.strerror or e}); {then}') from e


@contextlib.contextmanager
def folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Makes and yields the folder of an --output.

  If the folder or a file in it cannot be written, the error message names the folder.
  """
  with writing(path, 'name another --output'):
    path.mkdir(parents=True, exist_ok=True)
    yield path


@contextlib.contextmanager
def plain(folder: str | os.PathLike) -> Iterator[pathlib.Path]:
  """Yields an alternative path of a folder, for libraries that fail on special characters.

  When TensorFlow reads a SavedModel, it interprets brackets, stars, question marks and
  backslashes in the path as a pattern. Other libraries refuse paths that are not UTF-8.
  """
  descriptor = os.open(folder, os.O_RDONLY)
  try:
    yield pathlib.Path(f'/proc/self/fd/{descriptor}')
  finally:
    os.close(descriptor)


def sync(path: str | os.PathLike) -> None:
  """Waits until a file's content, or a directory's list of files, is on the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as e:
    # Some network file systems have no fsync for directories.
    if e.errno not in (errno.EINVAL, errno.ENOTSUP):
      raise
  finally:
    os.close(descriptor)


def remove_leftovers(folder: pathlib.Path, is_ours: Callable) -> None:
  """Removes temporary files that `replacing` left behind in a killed process.

  `is_ours` gets the name of the file that would have been replaced, and says whether the
  temporary file may be removed.
  """
  for file in list(folder.iterdir()) if folder.is_dir() else ():
    match = _TEMPORARY.fullmatch(file.name)
    if match and is_ours(match['stem'] + match['suffix']):
      file.unlink()


def write_json(path: str | os.PathLike, obj: Any, is_sorted: bool = True) -> None:
  """Writes `obj` atomically as JSON with a final newline; keys are sorted if `is_sorted`.

  NumPy values become numbers and lists, and paths become strings. Numbers that are not
  finite become null, because JSON cannot represent them.
  """
  text = json.dumps(plain_json(obj), sort_keys=is_sorted, indent=2, allow_nan=False)
  with replacing(path) as temporary:
    temporary.write_text(text + '\n', encoding='utf-8')


def plain_json(obj: Any) -> Any:
  """Converts a value to what reading its JSON file returns: NumPy values, paths, nan as None."""
  if hasattr(obj, 'tolist'):  # NumPy values, without importing NumPy.
    obj = obj.tolist()
  if isinstance(obj, dict):
    return {str(key): plain_json(value) for key, value in obj.items()}
  if isinstance(obj, list | tuple):
    return [plain_json(value) for value in obj]
  if isinstance(obj, float) and not math.isfinite(obj):
    return None
  return str(obj) if isinstance(obj, os.PathLike) else obj


def read_text(path: pathlib.Path) -> str:
  """Reads a regular file. Refuses pipes, because reading a pipe waits for a writer."""
  if path.exists() and not path.is_file():
    raise OSError('it is no regular file')
  return path.read_bytes().decode()


def read_json(path: pathlib.Path) -> Any:
  """Reads a JSON file; raises OSError or ValueError if it cannot be read."""
  try:
    return json.loads(read_text(path))
  except RecursionError as e:
    raise ValueError('it is nested too deeply') from e


def damaged(path: pathlib.Path, what: str) -> errors.DamageError:
  """Returns the error for a damaged file of a run."""
  return errors.DamageError(
    f'{path} is damaged ({what}); restore it, or delete {path.parent} and train again.'
  )
