"""Stores of images: a folder, a tar, a zip, TFRecords, or a folder of such files.

A store lists its images once, and reads an image's bytes where they lie. Tars
and TFRecords are not unpacked: their index (names, offsets, sizes) is kept in the
user's cache (`images.in_place`). A folder and its archive have the same names in the same
order, that of the names' bytes; so do a folder of folders and one of their tars. Of
images of one name, the last in an archive counts, as in tar.
"""

import os
import pathlib
import zipfile
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from datasets import examples as examples_lib
from datasets import never_data
from datasets.images import paths
from datasets.images import record_features
from datasets.images import records
from datasets.images import tars
from tff_xc import errors

# Images that stand for all where reading all would take long.
_SAMPLE = 500
# Compressions of zips that Python reads.
_METHODS = (
  *(zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED),
  *(zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA),
)
COMPRESSED = ('.tar.gz', '.tgz', '.tar.bz2', '.tar.xz')


class Store(NamedTuple):
  """Images by number, in the order of their names.

  Attributes:
    path: the folder or archive.
    names: of all images, their paths in it.
    read: number -> an image's bytes; from several threads. It raises one of
      `decode.DAMAGE` if that fails.
    stamp: numbers int [k] -> for each image, numbers that change when its file does.
    files: that the images are in; none if each image is a file.
    has_users: whether the names of training images have users (`records.user_of`).
  """

  path: pathlib.Path
  names: examples_lib.Texts
  read: Callable[[int], bytes]
  stamp: Callable[[np.ndarray], Sequence[list[int]]]
  files: Sequence[pathlib.Path] = ()
  has_users: bool = False

  def where(self, number: int) -> str:
    """Names an image for an error."""
    [name] = self.names.take(np.array([number]))
    return str(self.path / name)

  def watched(self, numbers: np.ndarray) -> list[pathlib.Path]:
    """Returns the files of these images, or of some of them if they are many."""
    if self.files:
      return list(self.files)
    names = self.names.take(some(numbers))
    return [self.path / name for name in names]


def some(numbers: np.ndarray) -> np.ndarray:
  """Returns at most 500 of these images' numbers, evenly spread."""
  count = min(_SAMPLE, len(numbers))
  return numbers[np.arange(count) * len(numbers) // max(count, 1)]


def open_store(
  path: str | os.PathLike,
  features: record_features.Features = record_features.USUAL,
) -> Store:
  """Opens a folder, a tar, a zip or TFRecord files of images.

  Args:
    path: the folder or file.
    features: the names of features of TFRecord files.

  Raises:
    errors.InputError: it cannot be read, or has no images.
  """
  path = pathlib.Path(path)
  if path.is_dir():
    store = _folder(path, features)
  elif not path.is_file():
    raise errors.InputError(
      f'{path} does not exist; give a folder, a .tar, a .zip or a'
      ' .tfrecord of images'
    )
  elif path.name.lower().endswith('.zip'):
    store = _zip(path)
  elif records.is_records(path.name):
    store = _records(path, (), features)
  else:
    store = Store(path, *tars.open_tars(path))
  _check_some(store.names, path)
  return store


def names_of(path: str | os.PathLike) -> examples_lib.Texts:
  """Returns the names of all images of a folder or archive, in order.

  A compressed tar will do, too, although it cannot be read in place.

  Raises:
    errors.InputError: as `open_store`.
  """
  path = pathlib.Path(path)
  if not path.name.lower().endswith(COMPRESSED) or path.is_dir():
    return open_store(path).names
  names = tars.names_of_compressed(path)
  _check_some(names, path)
  return names


def _check_some(names: examples_lib.Texts, path: pathlib.Path) -> None:
  if not len(names):
    raise errors.InputError(
      f'{path} has no images ({", ".join(paths.SUFFIXES)}); give another folder or'
      ' archive'
    )


def find(store: Store, ids: examples_lib.Texts) -> np.ndarray:
  """Returns int64, the number of each image by its id, or -1.

  Ids are the images' paths in the store, or these without an outer folder that
  all are in, or the paths without their suffix, or the files' names, or these
  without their suffix: the first form that finds all, or most.

  Raises:
    errors.InputError: an id names two images.
  """
  best, best_keys = np.full(len(ids), -1), None
  for keys in _forms(store.names.array):
    places = examples_lib.find(examples_lib.Texts(keys), ids)
    if best_keys is None or (places >= 0).sum() > (best >= 0).sum():
      best, best_keys = places, keys
    if (best >= 0).all():
      break
  last = (
    len(store.names)
    - 1
    - examples_lib.find(examples_lib.Texts(best_keys[::-1]), ids)
  )
  if twice := np.flatnonzero((best >= 0) & (best != last)).tolist():
    row = twice[0]
    raise errors.InputError(
      f'{store.path}: the image_id {ids.take(np.array([row]))[0]!r} may be'
      f' {store.where(best[row])} or {store.where(last[row])}; give images by'
      ' their paths, or rename one of names that look the same'
    )
  return best


def _forms(names) -> Iterator:
  """Yields what ids may call the images, arrow arrays of text."""
  import pyarrow.compute

  cut = lambda array, pattern: pyarrow.compute.replace_substring_regex(
    array, pattern=pattern, replacement=''
  )
  yield names
  first, last = names[0].as_py(), names[-1].as_py()  # In order.
  outer = first[: first.find('/') + 1]
  if outer and last.startswith(outer):
    yield pyarrow.compute.utf8_slice_codeunits(names, len(outer))
  yield cut(names, r'\.[A-Za-z]+$')
  base = cut(names, '^.*/')
  yield base
  yield cut(base, r'\.[A-Za-z]+$')


def _records(path, files, features) -> Store:
  images, has_users = records.open_records(path, files, features)
  return Store(path, *images, has_users)


def _folder(path: pathlib.Path, features: record_features.Features) -> Store:
  if files := records.files_of_tff(path):
    return _records(path, files, features)
  archives, of_records, found = [], [], paths.Found()

  def images():
    for file in _files(path):
      if name := found.image(file):
        yield name
      elif name := paths.tar(file):
        archives.append(name)
      elif records.is_records(file):
        of_records.append(file.removeprefix('./'))

  names, _ = paths.in_order(images(), path)
  if archives and not len(names):
    return Store(path, *tars.open_tars(path, sorted(archives)))
  if of_records and not len(names):
    return _records(path, sorted(of_records), features)
  paths.tell(found.left_out(), path)
  name = lambda number: names.take(np.array([number]))[0]

  return Store(
    path,
    names,
    lambda number: _read(path / name(number)),
    lambda numbers: [_stamp(path / name) for name in names.take(numbers)],
  )


def _read(file: pathlib.Path) -> bytes:
  paths.check_size(file.stat().st_size)
  return file.read_bytes()


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
    below[:] = filter(never_data.is_data, below)  # Some may not even be opened.
    outer, real = above.pop(folder), os.path.realpath(folder)
    if real in outer:  # A link leads back.
      below.clear()
      continue
    for name in below:
      above[os.path.join(folder, name)] = (*outer, real)
    start = pathlib.Path(folder).relative_to(path).as_posix()
    yield from (f'{start}/{file}' for file in files)


def _zip(path: pathlib.Path) -> Store:
  try:
    archive = zipfile.ZipFile(path)
  except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as e:
    raise errors.InputError(
      f'{path} is no archive that can be read ({e}{tars.kind(path)}); make or get'
      ' it again'
    ) from e
  status = path.stat()
  found, members, ids = paths.Found(), [], []
  for member in archive.infolist():
    if not member.is_dir() and (name := found.image(member.filename)):
      _check_member(member, path)
      members.append(member)
      ids.append(name)
  names, order = paths.in_order(ids, path)
  paths.tell(found.left_out(), path)

  def read(number: int) -> bytes:
    member = members[order[number]]
    paths.check_size(member.file_size)
    return archive.read(member)

  return Store(
    path,
    names,
    read,
    lambda numbers: [[status.st_size, status.st_mtime_ns]] * len(numbers),
    (path,),
  )


def _check_member(member: zipfile.ZipInfo, path: pathlib.Path) -> None:
  method = member.compress_type
  cause = ''
  if member.flag_bits & 1:
    cause = 'a password protects it'
  elif method not in _METHODS:
    name = zipfile.compressor_names.get(method, f'method {method}')
    cause = f'its compression is {name}'
  if cause:
    raise errors.InputError(
      f'{path}: {member.filename!r} cannot be read, since {cause}; unpack the'
      ' archive with another program, and give the folder'
    )
