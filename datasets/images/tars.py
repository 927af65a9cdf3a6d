"""Images in tars, read in place.

A store of tars is one tar, or a folder of tars such as ImageNet's, one for each
class. A tar may itself consist of tars. An image in an inner tar, or in one of a
folder's, has the id that it would have if the tar were a folder without `.tar`:
`n01440764.tar` has `n01440764/n01440764_1.JPEG`. Tars beside images do not count.
"""

import array
import contextlib
import pathlib
import tarfile
import zlib
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from datasets import examples as examples_lib
from datasets import parsed_cache
from datasets.images import in_place
from datasets.images import paths
from tff_xc import errors

_MOST_NAME_BYTES = 1 << 20
_PAX_TYPES = (
  tarfile.XHDTYPE,
  tarfile.XGLTYPE,
  tarfile.SOLARIS_XHDTYPE,
)
# Increase this when the arrays of a cached index change.
VERSION = 6
# Kinds of archives by their first bytes.
_KINDS = {
  b'\x1f\x8b': 'gzip',
  b'BZh': 'bzip2',
  b'\xfd7zXZ\0': 'xz',
  b'(\xb5/\xfd': 'zstd',
  b'PK\3\4': 'zip',
  b"7z\xbc\xaf'\x1c": '7z',
  b'Rar!': 'rar',
}


def open_tars(path: pathlib.Path, files: Sequence[str] = ()) -> in_place.Images:
  """Opens tars; the user's cache keeps the index of their images.

  Args:
    path: a tar, or a folder.
    files: the folder's tars, paths in it.

  Raises:
    errors.InputError: a tar cannot be read, or has a link for an image.
  """
  whole = [path / file for file in files] or [path]
  prefixes = [f'{_stem(file)}/' for file in files] or ['']
  found, index = in_place.open_files(
    path,
    whole,
    VERSION,
    lambda store: _fill(store, path, list(zip(prefixes, whole, strict=True))),
  )
  paths.tell(index['left_out'].tobytes().decode(), path)
  return found


def names_of_compressed(path: pathlib.Path) -> examples_lib.Texts:
  """Returns the names of a compressed tar's images, in order.

  Raises:
    errors.InputError: as `open_tars`.
  """
  names, _, found = _scanned(path, [('', path)], 'r|*')
  paths.tell(found.paths.left_out(), path)
  return names


def _scanned(path, whole, mode: str):
  """Returns the names of images in order, where each one was, and where it is."""
  found = _Found()
  names, order = paths.in_order(found.names(whole, mode), path)
  return *found.kept(names, order), found


def _fill(store: parsed_cache.Store, path, whole) -> None:
  """Indexes tars."""
  names, order, found = _scanned(path, whole, 'r:')
  numbers = {name: getattr(found, name) for name in in_place.NUMBERS}
  in_place.append(store, names, order, numbers)
  left_out = found.paths.left_out().encode()
  store.append('left_out', np.frombuffer(left_out, np.uint8))


class _Member(tarfile.TarInfo):
  """A member whose damage is an error; Python takes it for the tar's end."""

  @classmethod
  def fromtarfile(cls, file):
    try:
      return super().fromtarfile(file)
    except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as e:
      raise tarfile.ReadError(f'{e} at byte {file.offset:,}') from e
    except tarfile.EmptyHeaderError as e:
      raise tarfile.ReadError(
        f'it stops at byte {file.offset:,} without the zeros that end a tar'
      ) from e

  def _proc_member(self, file):
    # Python reads the content of these members whole, as names.
    is_name = self.type in (*tarfile.GNU_TYPES[:2], *_PAX_TYPES)
    if is_name and self.size > _MOST_NAME_BYTES:
      raise tarfile.ReadError(f'a name of {self.size:,} bytes')
    return super()._proc_member(file)


class _Found:
  """What a scan of tars finds; an `array` takes 8 bytes for each number.

  Attributes:
    files: of each image, the place of its tar.
    offsets, sizes: of each image in that.
    inner: of each image, whether it is in a tar in that.
    paths: all names.
  """

  def __init__(self):
    self.files, self.offsets, self.sizes = (array.array('q') for _ in range(3))
    self.inner = array.array('b')
    self.paths = paths.Found()

  def names(
    self, whole: Sequence[tuple[str, pathlib.Path]], mode: str
  ) -> Iterator[str]:
    """Yields the names of images; notes where they are.

    Args:
      whole: tars, and what their images' names begin with.
      mode: of `tarfile.open`.
    """
    for place, (prefix, path) in enumerate(whole):
      with _readable(path), tarfile.open(path, mode, tarinfo=_Member) as opened:
        for name, offset, size, is_inner in _images(
          opened, path, mode[:2], self.paths, prefix
        ):
          self.files.append(place)
          self.offsets.append(offset)
          self.sizes.append(size)
          self.inner.append(is_inner)
          yield name

  def kept(self, names: examples_lib.Texts, order: np.ndarray):
    """Returns those names and places that count: tars beside images do not."""
    tars = np.frombuffer(self.files, np.int64)
    inner = np.frombuffer(self.inner, bool)
    beside = np.zeros(tars.max(initial=-1) + 1, bool)
    beside[tars[~inner]] = True
    if not (inner & beside[tars]).any():
      return names, order
    counts = np.flatnonzero(~(inner & beside[tars])[order])
    return examples_lib.Texts(names.array.take(counts)), order[counts]


def _images(
  file: tarfile.TarFile,
  path,
  mode: str,
  found: paths.Found,
  prefix: str,
  start: int = 0,
) -> Iterator[tuple[str, int, int, bool]]:
  """Yields name, offset, size, and whether it is in an inner tar."""
  while (member := file.next()) is not None:
    file.members.clear()  # It would keep all.
    tar = paths.tar(member.name)
    is_file = not (tar or member.isdir())
    name = found.image(prefix + member.name) if is_file else None
    if name and (member.islnk() or member.issym()):
      raise errors.InputError(
        f'{path}: {member.name} is a link, to {member.linkname}; pack the'
        ' images with tar --dereference --hard-dereference'
      )
    offset = start + member.offset_data
    if name and member.isfile():
      yield name, offset, member.size, False
    elif tar and member.isfile():
      within, inner = f'{path}, {member.name}', file.extractfile(member)
      with (
        _readable(within),
        tarfile.open(fileobj=inner, mode=mode, tarinfo=_Member) as opened,
      ):
        for name, at, size, _ in _images(
          opened, within, mode, found, f'{prefix}{_stem(tar)}/', offset
        ):
          yield name, at, size, True


def _stem(tar: str) -> str:
  return tar[: -len('.tar')]


@contextlib.contextmanager
def _readable(path):
  """Turns what a damaged tar raises into an `errors.InputError`."""
  try:
    yield
  except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as e:
    raise errors.InputError(
      f'{path} is no archive that can be read ({e}{kind(path)}); get a damaged one again, and'
      ' unpack a compressed one (.tar.gz), whose images cannot be read in place'
    ) from e


def kind(path) -> str:
  """Says what archive a file is, whatever its name; empty: not known."""
  try:
    with open(path, 'rb') as file:
      start = file.read(8)
  except OSError:  # It is in another archive, for example.
    return ''
  kinds = (k for magic, k in _KINDS.items() if start.startswith(magic))
  return next((f'; by its first bytes it is {k}' for k in kinds), '')
