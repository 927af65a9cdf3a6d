"""Checks HDF5 files before their content is read.

An HDF5 file can include content of other files by external storage, external links and
virtual datasets. It can also declare more values than it contains. With a malicious file,
a program could therefore read any of the user's files, or fill the memory.
"""

import io
import os
import pathlib
import zipfile

from tff_xc import errors, memory

# Datasets of at most this many bytes are not checked against the free memory, because a
# file may have 20,000 of them.
_SMALL = 1 << 20


def check(file, path: str | os.PathLike) -> None:
  """Raises InputError if an open `h5py.File` refers to other files or declares too much data."""
  import h5py

  groups, seen = [file], set()
  while groups:
    group = groups.pop()
    for name in group:
      where = f'{path}: {group.name.rstrip("/")}/{name}'
      link = group.get(name, getlink=True)
      if isinstance(link, h5py.SoftLink):
        continue  # A soft link points into this file, where the loop visits its target.
      if not isinstance(link, h5py.HardLink):
        _refuse(where)
      found = group[name]
      address = h5py.h5o.get_info(found.id).addr
      if address in seen:
        continue
      seen.add(address)
      if isinstance(found, h5py.Group):
        groups.append(found)
      elif isinstance(found, h5py.Dataset):
        _check_dataset(found, where)


def _check_dataset(dataset, where: str) -> None:
  import h5py

  # Fetch the properties once. Each access to h5py's attributes would fetch them again.
  made = dataset.id.get_create_plist()
  if made.get_layout() == h5py.h5d.VIRTUAL or made.get_external_count():
    _refuse(where)
  size = dataset.dtype.itemsize * (dataset.size or 0)
  if size <= _SMALL:
    return
  stored = dataset.id.get_storage_size()
  memory.require_unpacked(size, stored, where, 'get the file again')
  if not stored or (stored < size and not made.get_nfilters()):
    raise errors.InputError(
      f'{where} announces {list(dataset.shape)} values and has not all of them; get the file again'
    )


def _refuse(where: str) -> None:
  raise errors.InputError(f'{where} is in another file, which is not read; copy it into this one')


def check_file(path: str | os.PathLike) -> None:
  """Checks an HDF5 file, or the HDF5 files in a zip archive such as Keras's `.keras`.

  Other files are ignored.
  """
  import h5py

  path = pathlib.Path(path)
  try:
    if zipfile.is_zipfile(path):
      with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
          if member.filename.endswith('.h5'):
            where = f'{path}/{member.filename}'
            memory.require(member.file_size, where, 'get the file again')
            content = io.BytesIO(archive.read(member))
            with h5py.File(content, 'r') as file:
              check(file, where)
    elif h5py.is_hdf5(path):
      with h5py.File(path, 'r') as file:
        check(file, path)
  # A link's name may not be text, and h5py does not know every kind of link.
  except (OSError, RuntimeError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as e:
    raise errors.InputError(f'{path} is damaged ({e}); get it again') from e
