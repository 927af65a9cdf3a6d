"""Text files, also in a zip, where a path such as `a.zip/b.csv` names them.

A member is named by its path in the zip, or by the end of it if that is enough. A
file or member whose bytes are gzip's is unpacked, whatever its name is.
"""

import contextlib
import gzip
import io
import os
import pathlib
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, TextIO

from tff_xc import errors

# What reading a damaged file raises.
DAMAGE = (OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile, UnicodeDecodeError)
# Names of what computers leave beside data: hidden files (`._*` of macOS, `.git`),
# thumbnails, and what file systems and file servers keep for themselves.
_NEVER = re.compile(
  r'(^|/)(\.|(__MACOSX|(?i:(eh)?thumbs\.db|desktop\.ini)|@eaDir|@tmp|@Recycle'
  r'|@Recently-Snapshot|#recycle|#snapshot|~snapshot|\$RECYCLE\.BIN|RECYCLE[DR]'
  r'|FOUND\.\d{3}|System Volume Information|Network Trash Folder|Temporary Items'
  r'|lost\+found)(/|$))'
)
_ADVICE = 'mend it, or give another file'
_GZIP = b'\x1f\x8b'


def is_data(path: str) -> bool:
  """Whether a path, with `/` between its parts and without `./`, may be data."""
  return not _NEVER.search(path)


def is_zip(path: str | os.PathLike) -> bool:
  """Whether a path is that of a zip, by its name."""
  path = pathlib.Path(path)
  return path.suffix.lower() == '.zip' and path.is_file()


def is_file(path: str | os.PathLike) -> bool:
  """Whether there is a file, or a member of a zip; errors are those of `find`."""
  return pathlib.Path(path).is_file() or find(path) is not None


def find(path: str | os.PathLike) -> tuple[pathlib.Path, str] | None:
  """Returns the zip and the member that a path names; None: there is none, or no zip.

  Raises `errors.InputError` if two have the name, or the zip is damaged.
  """
  path = pathlib.Path(path)
  for archive in filter(is_zip, path.parents):
    inside = path.relative_to(archive).as_posix()
    names = [n for n in names_of(archive) if f'/{n}'.endswith(f'/{inside}')]
    if len(names) > 1 and inside not in names:
      raise errors.InputError(
        f'{archive} has {" and ".join(names[:2])}; name one of them with its folder'
      )
    return (archive, inside if inside in names else names[0]) if names else None
  return None


def names_of(archive: pathlib.Path) -> list[str]:
  """Returns the paths of a zip's files; raises InputError if it is damaged."""
  with readable(archive, 'get it again'), zipfile.ZipFile(archive) as file:
    names = file.namelist()
  return [n for n in names if is_data(n) and n[-1:] != '/']


@contextlib.contextmanager
def readable(path: str | os.PathLike, advice: str = _ADVICE) -> Iterator[None]:
  """Turns what opening and reading a file raise into an InputError.

  It must not enclose the use of what is read, whose OSError is of another file.
  """
  try:
    yield
  except UnicodeDecodeError as e:
    raise errors.InputError(
      f'{path} is not UTF-8 text (it has the byte {e.object[e.start]:#04x}); save'
      f' it as UTF-8, or {advice.removeprefix("mend it, or ")}'
    ) from e
  except DAMAGE as e:
    raise errors.InputError(f'{path} cannot be read ({e}); {advice}') from e


def open_text(path: str | os.PathLike, **options) -> TextIO:
  """Opens a file or a member as UTF-8, perhaps with a byte order mark; see
  `readable`."""
  return io.TextIOWrapper(open_bytes(path), encoding='utf-8-sig', **options)


def open_bytes(path: str | os.PathLike) -> BinaryIO:
  """Opens a file or a member, unpacked; refuses folders, and pipes, which would wait."""
  path = pathlib.Path(path)
  if path.is_file() or not any(map(is_zip, path.parents)):
    check_regular(path)
    file = path.open('rb')
  elif found := find(path):
    archive, name = found
    # The zip is closed with its member.
    advice = f'unpack it, and give the file {name}'
    with readable(archive, advice), zipfile.ZipFile(archive) as opened:
      file = opened.open(name)
  else:
    raise errors.InputError(f'{path} is not in its zip; name another file of it')
  if path.suffix.lower() == '.gz' or file.peek(2)[:2] == _GZIP:
    packed, file = file, gzip.GzipFile(fileobj=file)
    file.myfileobj = packed  # So that it is closed with the other.
  return file


def check_regular(path: pathlib.Path) -> None:
  """Refuses folders and pipes."""
  if path.exists() and not path.is_file():
    raise errors.InputError(f'{path} is no file; give one')


def text_lines(path: str | os.PathLike, advice: str = _ADVICE, **options) -> Iterator[str]:
  """Yields the lines of the text of a file or a member; errors are of `readable`."""
  with readable(path, advice), open_text(path, **options) as file:
    yield from file
