"""Text files, also in a zip, where a path such as `a.zip/b.csv` names them.

A member is named by its path in the zip, or by the end of it if that is enough.
"""

import io
import os
import pathlib
import zipfile
from typing import NamedTuple
from typing import TextIO

from datasets import never_data
from tff_xc import errors


class Member(NamedTuple):
  """A file in a zip.

  Attributes:
    archive: the zip.
    name: its path in it.
  """

  archive: pathlib.Path
  name: str


def is_zip(path: str | os.PathLike) -> bool:
  """Whether a path is that of a zip, by its name."""
  path = pathlib.Path(path)
  return path.suffix.lower() == '.zip' and path.is_file()


def is_file(path: str | os.PathLike) -> bool:
  """Whether there is a file, or a member of a zip.

  Raises:
    errors.InputError: two members have the name, or the zip is damaged.
  """
  return pathlib.Path(path).is_file() or find(path) is not None


def find(path: str | os.PathLike) -> Member | None:
  """Returns the member that a path names; None: there is none, or no zip.

  Raises:
    errors.InputError: two members have the name, or the zip is damaged.
  """
  path = pathlib.Path(path)
  for archive in filter(is_zip, path.parents):
    inside = path.relative_to(archive).as_posix()
    names = [n for n in names_of(archive) if f'/{n}'.endswith(f'/{inside}')]
    if inside in names:
      return Member(archive, inside)
    if len(names) > 1:
      raise errors.InputError(
        f'{archive} has {" and ".join(names[:2])}; name one of them with its'
        ' folder'
      )
    return Member(archive, names[0]) if names else None
  return None


def names_of(archive: pathlib.Path) -> list[str]:
  """Returns the paths of a zip's files; raises InputError if it is damaged."""
  try:
    with zipfile.ZipFile(archive) as file:
      names = file.namelist()
  except (OSError, ValueError, zipfile.BadZipFile) as e:
    raise errors.InputError(
      f'{archive} is no zip that can be read ({e}); get it again'
    ) from e
  return [n for n in names if never_data.is_data(n) and n[-1:] != '/']


def open_text(path: str | os.PathLike, **options) -> TextIO:
  """Opens a file or a member for reading, as `open` with these options.

  Reading a damaged member raises `zipfile.BadZipFile` or `zlib.error`.
  """
  found = None if pathlib.Path(path).is_file() else find(path)
  if found is None:
    return open(path, **options)
  archive = zipfile.ZipFile(found.archive)  # Closed with its last member.
  with archive:
    return io.TextIOWrapper(archive.open(found.name), **options)
