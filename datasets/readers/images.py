"""Image stores: a folder of images, a tar, a zip, TFRecords, or a folder of tars or TFRecords.

A store lists its images once, and reads the bytes of an image in place. Tars and TFRecords
are not unpacked (`packed`). Names are sorted by their bytes. So a folder and its archive
have the same names in the same order. The same holds for a folder of folders and a folder of
their tars. If an archive has several images with the same name, the last one is used, as
by tar.
"""

import os
import pathlib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from datasets import examples as examples_lib
from datasets.readers import decode, image_names as names_lib, packed, record_features, zipped
from tff_xc import errors

# The number of images that `some` selects, for a checksum and to notice changed files.
_SAMPLE = 500
ARCHIVES = ('.zip', '.tar', '.tar.gz', '.tgz', '.tar.bz2', '.tar.xz')


class Store(NamedTuple):
  """A list of images, sorted by name."""

  path: pathlib.Path  # The folder or archive.
  names: examples_lib.Texts  # The images' paths in the folder or archive.
  # Takes an image's index and returns its bytes, or raises one of `decode.DAMAGE`. The
  # function is thread-safe.
  read: Callable[[int], bytes]
  # Takes indices, int [k]. Returns for each image the size and times of its file, and its
  # place in the file, if the file has others, too.
  stamp: Callable[[np.ndarray], Sequence[list[int]]]
  # The files that contain the images. Empty: each image is a separate file.
  files: Sequence[pathlib.Path] = ()
  # Whether the names of training images contain their users; see `packed.with_users`.
  has_users: bool = False

  def where(self, number: int) -> str:
    """Returns an image's path, for an error message."""
    [name] = self.names.take(np.array([number]))
    return str(self.path / name)

  def used(self, number: int, use: Callable[[bytes], Any], cure: str) -> Any:
    """Calls `use` with an image's bytes; raises InputError if the image is damaged."""
    try:
      return use(self.read(number))
    except decode.DAMAGE as e:
      raise errors.InputError(
        f'{self.where(number)} is not a readable image{decode.reason(e)}; {cure}'
      ) from e

  def watched(self, numbers: np.ndarray) -> list[pathlib.Path]:
    """Returns the files of these images. If there are many files, returns only some of them."""
    if self.files:
      return list(self.files)
    names = self.names.take(some(numbers))
    return [self.path / name for name in names]


def some(numbers: np.ndarray) -> np.ndarray:
  """Returns at most `_SAMPLE` of these indices, evenly spaced."""
  count = min(_SAMPLE, len(numbers))
  return numbers[np.arange(count) * len(numbers) // max(count, 1)]


def open_store(
  path: str | os.PathLike, features: record_features.Features = record_features.USUAL
) -> Store:
  """Opens a store of images; raises InputError if it has no images."""
  path = pathlib.Path(path)
  if path.is_dir():
    found = _folder(path, features)
  elif not path.is_file():
    raise errors.InputError(
      f'{path} does not exist; give a folder, a .tar, a .zip or a .tfrecord of images'
    )
  elif path.name.lower().endswith('.zip'):
    found = _zip(path)
  elif packed.is_records(path.name):
    found = packed.open_records(path, (), features)
  elif path.name.lower().endswith(names_lib.SUFFIXES):
    one = examples_lib.texts([[path.name]])
    return Store(path.parent, *_of_files(path.parent, one))
  else:
    found = packed.open_tars(path)
  store = Store(path, *found)
  if not len(store.names):
    raise errors.InputError(
      f'{path} has no images ({", ".join(names_lib.SUFFIXES)}); give another folder or archive'
    )
  return store


def is_images(name: str) -> bool:
  """Returns whether `name` is the name of an image, an archive or a TFRecord file."""
  name = name.lower()
  return name.endswith((*ARCHIVES, *names_lib.SUFFIXES)) or packed.is_records(name)


def read(path: str | os.PathLike) -> examples_lib.Examples:
  """Lists the images of a folder or archive with their classes; decodes no image.

  Raises the errors of `open_store` and `image_names.of_ids`.
  """
  store = open_store(path)
  found = names_lib.of_ids(path, store.names)
  return packed.with_users(found) if store.has_users else found


def find(store: Store, ids: examples_lib.Texts) -> np.ndarray:
  """Returns the index of the image with each id, int64 [k], or -1 if there is none.

  Ids may have five forms: paths in the store, paths without the outer folder around all
  images, paths without suffix, file names, and file names without suffix. The function uses
  the first form in which it finds all images. If no form finds all images, it uses the form that
  finds most images. Raises `errors.InputError` if an id names two images.
  """
  best, best_keys = np.full(len(ids), -1), None
  for keys in _forms(store.names.array):
    places = examples_lib.find(examples_lib.Texts(keys), ids)
    if best_keys is None or (places >= 0).sum() > (best >= 0).sum():
      best, best_keys = places, keys
    if (best >= 0).all():
      break
  backwards = examples_lib.find(examples_lib.Texts(best_keys[::-1]), ids)
  last = len(store.names) - 1 - backwards
  if twice := np.flatnonzero((best >= 0) & (best != last)).tolist():
    row = twice[0]
    raise errors.InputError(
      f'{store.path}: the image_id {ids.take(np.array([row]))[0]!r} may be'
      f' {store.where(best[row])} or {store.where(last[row])}; give images by'
      ' their paths, or rename one of names that look the same'
    )
  return best


def _forms(names) -> Iterator:
  """Yields the images' names as Arrow arrays, in each of the forms that `find` describes."""
  import pyarrow.compute

  def cut(array, pattern):
    return pyarrow.compute.replace_substring_regex(array, pattern=pattern, replacement='')

  yield names
  first, last = names[0].as_py(), names[-1].as_py()  # Names are sorted.
  outer = first[: first.find('/') + 1]
  if outer and last.startswith(outer):
    yield pyarrow.compute.utf8_slice_codeunits(names, len(outer))
  yield cut(names, r'\.[A-Za-z]+$')
  base = cut(names, '^.*/')
  yield base
  yield cut(base, r'\.[A-Za-z]+$')


def _folder(path: pathlib.Path, features: record_features.Features) -> tuple:
  """Opens a folder; returns the fields of `Store` except `path`."""
  if files := packed.files_of_tff(path):
    return packed.open_records(path, files, features)
  tars, records, found = [], [], names_lib.Found()

  def images():
    for file in _files(path):
      if name := found.image(file):
        yield name
      elif (name := names_lib.clean(file)) and name.lower().endswith('.tar'):
        tars.append(name)
      elif packed.is_records(file):
        records.append(file.removeprefix('./'))

  names, _ = names_lib.in_order(images(), path)
  if tars and not len(names):
    return packed.open_tars(path, sorted(tars))
  if records and not len(names):
    return packed.open_records(path, sorted(records), features)
  found.tell(path)
  return _of_files(path, names)


def _of_files(path: pathlib.Path, names: examples_lib.Texts) -> tuple:
  """Opens the images `names` in a folder; returns the fields of `Store` except `path`."""

  def read_file(number: int) -> bytes:
    file = path / names.take(np.array([number]))[0]
    packed.check_size(file.stat().st_size)
    return file.read_bytes()

  return (names, read_file, lambda numbers: [_stamp(path / name) for name in names.take(numbers)])


def _stamp(file: pathlib.Path) -> list[int]:
  try:
    status = os.stat(file)
  except OSError:  # For example, the file is a broken link.
    return []
  # A change of permissions changes only the last of the two times.
  return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _files(path: pathlib.Path) -> Iterator[str]:
  """Yields the paths of all files in a folder, following links."""

  def fail(e: OSError):
    raise errors.InputError(
      f'{e.filename} cannot be read ({e.strerror}); check its permissions'
    ) from e

  for folder, below, files in os.walk(path, followlinks=True, onerror=fail):
    below[:] = filter(zipped.is_data, below)  # Folders of the system may be unreadable.
    above = [p for p in pathlib.Path(folder).parents if p.is_relative_to(path)]
    if os.path.realpath(folder) in map(os.path.realpath, above):  # A link leads to a parent.
      below.clear()
      continue
    start = pathlib.Path(folder).relative_to(path).as_posix()
    yield from (f'{start}/{file}' for file in files)


def _zip(path: pathlib.Path) -> tuple:
  """Opens a zip; returns the fields of `Store` except `path`."""
  with zipped.readable(path, 'make or get the zip again'):
    archive = zipfile.ZipFile(path)
  found, members = names_lib.Found(), {}
  for member in archive.infolist():  # If members have the same name, the last one is used.
    if not member.is_dir() and (name := found.image(member.filename)):
      members[name] = member
  names, _ = names_lib.in_order(members, path)
  found.tell(path)

  def read_member(number: int) -> bytes:
    member = members[names.take(np.array([number]))[0]]
    packed.check_size(member.file_size)
    return archive.read(member)

  stamp = _stamp(path)[:2]
  return names, read_member, lambda numbers: [stamp] * len(numbers), (path,)
