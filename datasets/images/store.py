"""Stores of images: a folder, a tar or a zip, read by number.

A store lists its images once, and reads an image's bytes where they lie. A tar
is not unpacked: its index (names, offsets, sizes) is kept in the user's cache
(`datasets.parsed_cache`). A folder and its archive have the same names in the same
order, that of the names' bytes. Of images of one name, the last in an archive
counts, as in tar.
"""

import os
import pathlib
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import numpy as np

from datasets import parsed_cache
from datasets.splits import listing as listing_lib
from datasets.splits import own
from tff_xc import errors

SUFFIXES = ('.jpg', '.jpeg', '.png')
COMPRESSED = ('.tar.gz', '.tgz', '.tar.bz2', '.tar.xz')
# Increase this when the arrays of a cached index change.
VERSION = 2


class Store(NamedTuple):
  """Images by number, in the order of their names.

  Attributes:
    path: the folder or archive.
    names: of all images, their paths in it.
    read: number -> an image's bytes; from several threads. It raises one of
      `decode.DAMAGE` if that fails.
    stamp: numbers int [k] -> JSON that changes when these images' files do.
  """

  path: pathlib.Path
  names: listing_lib.Texts
  read: Callable[[int], bytes]
  stamp: Callable[[np.ndarray], Any]

  def where(self, number: int) -> str:
    """Names an image for an error."""
    [name] = self.names.take(np.array([number]))
    return str(self.path / name)


def open_store(path: str | os.PathLike) -> Store:
  """Opens a folder, a tar or a zip of images.

  Raises:
    errors.InputError: it cannot be read, or has no images.
  """
  path = pathlib.Path(path)
  if path.is_dir():
    store = _folder(path)
  elif not path.is_file():
    raise errors.InputError(
      f'{path} does not exist; give a folder, a .tar or a .zip of images'
    )
  elif path.name.lower().endswith('.zip'):
    store = _zip(path)
  else:
    store = _tar(path)
  _check_some(store.names, path)
  return store


def names_of(path: str | os.PathLike) -> listing_lib.Texts:
  """Returns the names of all images of a folder or archive, in order.

  A compressed tar will do, too, although it cannot be read in place.

  Raises:
    errors.InputError: as `open_store`.
  """
  path = pathlib.Path(path)
  if not path.name.lower().endswith(COMPRESSED) or path.is_dir():
    return open_store(path).names
  names, _ = _sorted(_tar_images(path, [], [], 'r|*'), path)
  _check_some(names, path)
  return names


def _check_some(names: listing_lib.Texts, path: pathlib.Path) -> None:
  if not len(names):
    raise errors.InputError(
      f'{path} has no images ({", ".join(SUFFIXES)}); give another folder or'
      ' archive'
    )


def find(store: Store, ids: listing_lib.Texts) -> np.ndarray:
  """Returns int64, the number of each image by its id, or -1.

  Ids are the images' paths in the store, or these without their suffix, or the
  files' names, or these without their suffix: the first form that finds all, or
  most.

  Raises:
    errors.InputError: an id names two images.
  """
  best, best_keys = np.full(len(ids), -1), None
  for keys in _forms(store.names.array):
    places = own.find(listing_lib.Texts(keys), ids)
    if best_keys is None or (places >= 0).sum() > (best >= 0).sum():
      best, best_keys = places, keys
    if (best >= 0).all():
      break
  last = (
    len(store.names) - 1 - own.find(listing_lib.Texts(best_keys[::-1]), ids)
  )
  if twice := np.flatnonzero((best >= 0) & (best != last)).tolist():
    row = twice[0]
    raise errors.InputError(
      f'{store.path}: the image_id {ids.take(np.array([row]))[0]!r} may be'
      f' {store.where(best[row])} or {store.where(last[row])}; give images by'
      ' their paths'
    )
  return best


def _forms(names) -> Iterator:
  """Yields what ids may call the images, arrow arrays of text."""
  import pyarrow.compute

  cut = lambda array, pattern: pyarrow.compute.replace_substring_regex(
    array, pattern=pattern, replacement=''
  )
  base = cut(names, '^.*/')
  yield from (
    names,
    cut(names, r'\.[A-Za-z]+$'),
    base,
    cut(base, r'\.[A-Za-z]+$'),
  )


def _id(name: str) -> str | None:
  """Returns the id of an image by its path, None for other files.

  Like tar, it takes absolute paths as relative ones, and none through `..`.
  """
  parts = [part for part in name.split('/') if part not in ('', '.')]
  hidden = any(part.startswith(('.', '__MACOSX')) for part in parts)
  id_ = '/'.join(parts)
  return id_ if id_.lower().endswith(SUFFIXES) and not hidden else None


def _sorted(names: Iterable[str], path) -> tuple[listing_lib.Texts, np.ndarray]:
  """Returns the names in order, and where each one was, the last of equals."""
  import pyarrow.compute

  def blocks():
    block = []
    for name in names:
      block.append(name)
      if len(block) == listing_lib.BLOCK:
        yield block
        block = []
    yield block

  try:
    found = listing_lib.texts(
      listing_lib.watched_rows(blocks(), 'listing', len)
    )
  except UnicodeEncodeError as e:
    raise errors.InputError(
      f'{path} has the name {e.object!a}, which is not UTF-8; rename it'
    ) from e
  order = pyarrow.compute.sort_indices(found.array).to_numpy()
  array = found.array.take(order)
  last = np.ones(len(array), bool)
  same = pyarrow.compute.equal(array[1:], array[:-1])
  last[:-1] = ~same.to_numpy(zero_copy_only=False).astype(bool)
  if not last.all():  # Copying very many names takes memory.
    array, order = array.take(np.flatnonzero(last)), order[last]
  return listing_lib.Texts(array), order


def _folder(path: pathlib.Path) -> Store:
  names, _ = _sorted(filter(None, map(_id, _files(path))), path)
  name = lambda number: names.take(np.array([number]))[0]

  return Store(
    path,
    names,
    lambda number: (path / name(number)).read_bytes(),
    lambda numbers: [_stamp(path / name) for name in names.take(numbers)],
  )


def _stamp(file: pathlib.Path) -> list[int]:
  try:
    status = os.stat(file)
  except OSError:  # A link to nothing, for example. Reading it fails, too.
    return []
  # Permissions change the last of these only.
  return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _files(path: pathlib.Path) -> Iterator[str]:
  def fail(e: OSError):
    raise errors.InputError(
      f'{e.filename} cannot be read ({e.strerror}); check its permissions'
    ) from e

  above = {os.fspath(path): ()}  # What each folder lies in.
  for folder, below, files in os.walk(path, followlinks=True, onerror=fail):
    outer, real = above.pop(folder), os.path.realpath(folder)
    if real in outer:  # A link leads back.
      below.clear()
      continue
    for name in below:
      above[os.path.join(folder, name)] = (*outer, real)
    start = pathlib.Path(folder).relative_to(path).as_posix()
    yield from (f'{start}/{file}' for file in files)


def _of_archive(path: pathlib.Path) -> Callable[[np.ndarray], Any]:
  status = path.stat()
  return lambda numbers: [status.st_size, status.st_mtime_ns]


def _zip(path: pathlib.Path) -> Store:
  try:
    archive = zipfile.ZipFile(path)
  except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as e:
    raise errors.InputError(
      f'{path} is no archive that can be read ({e}); make or get it again'
    ) from e
  members = [
    m for m in archive.infolist() if _id(m.filename) and not m.is_dir()
  ]
  names, order = _sorted((_id(m.filename) for m in members), path)
  return Store(
    path,
    names,
    lambda number: archive.read(members[order[number]]),
    _of_archive(path),
  )


def _tar(path: pathlib.Path) -> Store:
  import pyarrow as pa

  arrays = parsed_cache.arrays(
    parsed_cache.path(path, 'index'),
    parsed_cache.describe_files(VERSION, [path]),
    lambda store: _fill(store, path),
  )
  text = map(pa.py_buffer, (arrays['ends'], arrays['names']))
  names = pa.LargeStringArray.from_buffers(len(arrays['ends']) - 1, *text)
  offsets, sizes = arrays['offsets'], arrays['sizes']
  file = path.open('rb')

  def read(number: int) -> bytes:
    size = int(sizes[number])
    data = os.pread(file.fileno(), size, int(offsets[number]))
    if len(data) < size:
      raise EOFError(f'{path} ends within it')
    return data

  return Store(path, listing_lib.Texts(names), read, _of_archive(path))


def _fill(store: parsed_cache.Store, path: pathlib.Path) -> None:
  """Indexes a tar."""
  offsets, sizes = [], []
  names, order = _sorted(_tar_images(path, offsets, sizes), path)
  _, ends, text = names.array.buffers()
  ends = np.frombuffer(ends, np.int64)[: len(names) + 1]
  text = b'' if text is None else text
  store.append('names', np.frombuffer(text, np.uint8)[: ends[-1]])
  store.append('ends', ends)
  store.append('offsets', np.array(offsets, np.int64)[order])
  store.append('sizes', np.array(sizes, np.int64)[order])


def _tar_images(
  path: pathlib.Path, offsets: list[int], sizes: list[int], mode: str = 'r:'
) -> Iterator[str]:
  """Yields the names of images; appends to `offsets` and `sizes`."""
  try:
    with tarfile.open(path, mode) as file:
      while (member := file.next()) is not None:
        file.members.clear()  # It would keep all.
        name = _id(member.name)
        if name and (member.islnk() or member.issym()):
          raise errors.InputError(
            f'{path}: {member.name} is a link, to {member.linkname}; pack the'
            ' images with tar --dereference --hard-dereference'
          )
        if name and member.isfile():
          offsets.append(member.offset_data)
          sizes.append(member.size)
          yield name
  except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as e:
    raise errors.InputError(
      f'{path} is no archive that can be read ({e}); get a damaged one again, and'
      ' unpack a compressed one (.tar.gz), whose images cannot be read in place'
    ) from e
