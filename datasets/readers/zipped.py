"""Opens files. A file may be a member of a zip, with a path such as `a.zip/b.csv`.

`b.csv` may be the member's whole path in the zip. It may also be the end of this path, if no
other member's path ends in the same way. If a file or member is compressed with gzip, it is
unpacked, whatever its name is.
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

# The errors that reading a damaged file raises.
DAMAGE = (OSError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile, UnicodeDecodeError)
# The names of files and folders that are never data: hidden files (`._*` of macOS, `.git`),
# thumbnails, and files that file systems and file servers make for their own use.
_NEVER = re.compile(
  r'(^|/)(\.|(__MACOSX|(?i:(eh)?thumbs\.db|desktop\.ini)|@eaDir|@tmp|@Recycle'
  r'|@Recently-Snapshot|#recycle|#snapshot|~snapshot|\$RECYCLE\.BIN|RECYCLE[DR]'
  r'|FOUND\.\d{3}|System Volume Information|Network Trash Folder|Temporary Items'
  r'|lost\+found)(/|$))'
)
_ADVICE = 'mend it, or give another file'
_GZIP = b'\x1f\x8b'
# The largest number of characters in a line. A line of a small gzip file may unpack to more
# than the memory.
LONGEST_LINE = 2**26


def is_data(path: str) -> bool:
  """Whether a file may be data, by its path. The path has `/` separators and no `./`."""
  return not _NEVER.search(path)


def is_zip(path: str | os.PathLike) -> bool:
  """Whether a path is a file whose name ends in `.zip`."""
  path = pathlib.Path(path)
  return path.suffix.lower() == '.zip' and path.is_file()


def is_file(path: str | os.PathLike) -> bool:
  """Whether a path is a file or a zip member; raises the errors of `find`."""
  return pathlib.Path(path).is_file() or find(path) is not None


def find(path: str | os.PathLike) -> tuple[pathlib.Path, str] | None:
  """Returns the zip and the member that a path names, or None if there is no such member.

  Raises `errors.InputError` if two members match, or the zip is damaged.
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
  """Turns the errors of opening and reading a file into an InputError.

  The context must not include code that uses the content, because an OSError of that code
  may concern another file.
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
  """Opens a file or zip member as UTF-8, with or without byte order mark.

  Use it in the context `readable`, which turns errors into InputError.
  """
  return io.TextIOWrapper(open_bytes(path), encoding='utf-8-sig', **options)


def open_bytes(path: str | os.PathLike) -> BinaryIO:
  """Opens a file or zip member, unpacked; raises InputError for folders and pipes."""
  path = pathlib.Path(path)
  if path.is_file() or not any(map(is_zip, path.parents)):
    check_regular(path)
    file = path.open('rb')
  elif found := find(path):
    archive, name = found
    # The zip stays open until its member is closed.
    advice = f'unpack it, and give the file {name}'
    with readable(archive, advice), zipfile.ZipFile(archive) as opened:
      file = opened.open(name)
  else:
    raise errors.InputError(f'{path} is not in its zip; name another file of it')
  if path.suffix.lower() == '.gz' or file.peek(2)[:2] == _GZIP:
    packed, file = file, gzip.GzipFile(fileobj=file)
    file.myfileobj = packed  # The GzipFile then also closes the packed file.
  return file


def check_regular(path: pathlib.Path) -> None:
  """Raises InputError for folders and pipes. Reading from a pipe would wait for a writer."""
  if path.exists() and not path.is_file():
    raise errors.InputError(f'{path} is no file; give one')


def text_lines(path: str | os.PathLike, advice: str = _ADVICE, **options) -> Iterator[str]:
  """Yields the lines of a text file or zip member; raises the errors of `readable`."""
  with readable(path, advice), open_text(path, **options) as file:
    for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), ''), 1):
      if len(line) == LONGEST_LINE:
        raise errors.InputError(
          f'{path}, line {number} has more than {LONGEST_LINE:,} characters; give a'
          ' file with shorter lines'
        )
      yield line
