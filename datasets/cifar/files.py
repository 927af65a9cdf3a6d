"""CIFAR-10 and CIFAR-100 as their owners, or TFDS, write them to disk.

Four forms are read: the official binary and Python versions, each unpacked or
as the `.tar.gz` that is distributed, and a directory that TensorFlow Datasets
has prepared. Nothing is downloaded and nothing is written.
"""

import io
import os
import pathlib
import pickle
import tarfile
from typing import NamedTuple

import numpy as np

from tff_xc import errors

SIDE = 32
_PIXELS = 3 * SIDE * SIDE
# The forms of the files.
BINARY, PYTHON, PREPARED = 'binary', 'python', 'prepared'


class Layout(NamedTuple):
  """The differences between the files of the two sets."""

  num_classes: int
  train: tuple[str, ...]  # Names, without '.bin', in their order.
  test: str
  places: dict[str, tuple[str, str]]  # By form, the folder and the archive.
  label_bytes: int  # Of a binary record; the last one is the class.
  labels_key: str  # Of a pickle.


LAYOUTS = {
  'cifar10': Layout(
    num_classes=10,
    train=tuple(f'data_batch_{i}' for i in range(1, 6)),
    test='test_batch',
    places={
      BINARY: ('cifar-10-batches-bin', 'cifar-10-binary.tar.gz'),
      PYTHON: ('cifar-10-batches-py', 'cifar-10-python.tar.gz'),
    },
    label_bytes=1,
    labels_key='labels',
  ),
  'cifar100': Layout(
    num_classes=100,
    train=('train',),
    test='test',
    places={
      BINARY: ('cifar-100-binary', 'cifar-100-binary.tar.gz'),
      PYTHON: ('cifar-100-python', 'cifar-100-python.tar.gz'),
    },
    label_bytes=2,
    labels_key='fine_labels',
  ),
}


class Counts(NamedTuple):
  """The required numbers of images; each class has an equal share of them."""

  train: int = 50_000
  test: int = 10_000


OFFICIAL = Counts()
Part = tuple[np.ndarray, np.ndarray]


def find(data_dir: str | os.PathLike, name: str) -> tuple[pathlib.Path, str]:
  """Returns a folder or an archive, and its form; opens nothing.

  `data_dir` is the folder, archive or prepared directory, or its parent. Raises
  `errors.InputError` if nothing is found.
  """
  data_dir, layout = pathlib.Path(data_dir), LAYOUTS[name]
  places = data_dir, data_dir / name
  for place in places:
    for form, names in layout.places.items():
      for path in (place, *map(place.joinpath, names)):
        if path.name in names and path.exists():
          return path, form
    place = place.absolute()  # A relative path such as `.` has no useful name.
    versions = sorted(place.glob('*'), key=_version, reverse=True)
    for path in (place, *versions):
      is_named = name in (path.parent.name, place.name)
      if is_named and (path / 'dataset_info.json').is_file():
        return path, PREPARED
  (binary, binaries), (python, pythons) = layout.places.values()
  raise errors.InputError(
    f'{data_dir} has no {name}: neither {binary}, {python}, {binaries} or {pythons},'
    f' nor a directory {name}/3.0.2 prepared by TensorFlow Datasets; put one of them'
    ' there, from https://www.cs.toronto.edu/~kriz/cifar.html, or give another'
    ' --data_dir'
  )


def _version(path: pathlib.Path) -> list[int]:
  parts = path.name.split('.')
  return [int(p) for p in parts] if all(p.isdecimal() for p in parts) else []


def read(data_dir: str | os.PathLike, name: str, expected: Counts = OFFICIAL) -> tuple[Part, Part]:
  """Reads the first form that `find` finds, which must have so many images.

  Returns the training and the test images in the order of the source: uint8 [k,
  32, 32, 3], and their classes, int32 [k]. Raises `errors.InputError` if nothing
  is found, or it is damaged or incomplete.
  """
  path, form = find(data_dir, name)
  n = LAYOUTS[name].num_classes
  if form == PREPARED:
    parts = [_prepared(path, n, *part) for part in expected._asdict().items()]
  else:
    parts = _official(path, form == BINARY, LAYOUTS[name], expected)
  for part, (_, y) in zip(('training', 'test'), parts, strict=True):
    counts, share = np.bincount(y, minlength=n), len(y) // n
    if len(wrong := np.flatnonzero(counts != share)):
      raise errors.InputError(
        f'{path}: class {wrong[0]} has {counts[wrong[0]]:,} {part} images;'
        f' expected {share:,} as of every class: get the data anew'
      )
  train, test = ((np.ascontiguousarray(x), y.astype(np.int32)) for x, y in parts)
  return train, test


def _official(path: pathlib.Path, is_binary: bool, layout: Layout, expected: Counts) -> list[Part]:
  """Reads a folder or an archive of the official files."""
  names = [n + '.bin' * is_binary for n in (*layout.train, layout.test)]
  sizes = [expected.train // len(layout.train)] * len(layout.train)
  if path.is_file():
    contents = _of_archive(path, names)
  else:
    there = [name for name in names if (path / name).is_file()]
    contents = {name: (path / name).read_bytes() for name in there}
  parts = []
  for name, size in zip(names, [*sizes, expected.test], strict=True):
    where = str(path / name)
    if name not in contents:
      raise errors.InputError(
        f'{path} has no {name}; expected {", ".join(names)}: get {path.name} anew'
      )
    parse = parse_binary if is_binary else parse_pickle
    x, y = parse(contents.pop(name), where, layout, size)
    errors.check_labels(y, layout.num_classes, where)
    # Red, green and blue planes, one after the other.
    parts.append((x.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), y))
  x, y = map(np.concatenate, zip(*parts[:-1], strict=True))
  return [(x, y), parts[-1]]


def _of_archive(path: pathlib.Path, names: list[str]) -> dict[str, bytes]:
  """Reads an archive in its own order, since seeking back unpacks it again."""
  contents = {}
  try:
    with tarfile.open(path, 'r:gz') as archive:
      for member in archive:
        name = pathlib.PurePosixPath(member.name).name
        if member.isfile() and name in names:
          contents[name] = archive.extractfile(member).read()
  except (tarfile.TarError, OSError, EOFError, ValueError) as e:
    raise errors.InputError(f'{path} is no whole .tar.gz ({e}); get it anew') from e
  return contents


def parse_binary(content: bytes, where: str, layout: Layout, size: int) -> Part:
  """Returns uint8 [size, 3072] and int64 [size] of a file of records."""
  record = layout.label_bytes + _PIXELS
  if len(content) != size * record:
    raise errors.InputError(
      f'{where} has {len(content):,} bytes; expected {size * record:,}, which'
      f' is {size:,} records of {record:,} bytes: get the file anew'
    )
  records = np.frombuffer(content, np.uint8).reshape(size, record)
  labels = records[:, layout.label_bytes - 1].astype(np.int64)
  return records[:, layout.label_bytes :], labels


def parse_pickle(content: bytes, where: str, layout: Layout, size: int) -> Part:
  """As `parse_binary`, of a pickle, without running code from it."""
  try:
    batch = _ArraysOnly(io.BytesIO(content), encoding='bytes').load()
    # Python 2 wrote bytes for keys.
    batch = {k if isinstance(k, str) else k.decode(): v for k, v in batch.items()}
  except Exception as e:  # A damaged pickle raises nearly anything.
    reason = ' '.join(str(e).split()) or type(e).__name__
    raise errors.InputError(
      f'{where} is no pickle of plain arrays ({reason}); get the file anew from its owners'
    ) from e
  x, y = batch.get('data'), batch.get(layout.labels_key)
  if (
    not isinstance(x, np.ndarray)
    or (x.dtype, x.shape) != (np.uint8, (size, _PIXELS))
    or not isinstance(y, list)
    or list(map(type, y)) != [int] * size
  ):
    raise errors.InputError(
      f"{where}: expected 'data', uint8 {[size, _PIXELS]}, and"
      f' {layout.labels_key!r}, a list of {size:,} integers: get the file anew'
    )
  return x, np.array(y)


def _encode(text: str, encoding: str = 'latin1') -> bytes:
  """Makes bytes from text as Python 3's old pickle protocols store them."""
  if encoding != 'latin1':
    raise pickle.UnpicklingError(f'bytes encoded as {encoding}')
  return text.encode('latin1')


_reconstruct = np.core.multiarray._reconstruct
_ALLOWED = {
  ('numpy.core.multiarray', '_reconstruct'): _reconstruct,
  ('numpy._core.multiarray', '_reconstruct'): _reconstruct,
  ('numpy', 'ndarray'): np.ndarray,
  ('numpy', 'dtype'): np.dtype,
  ('_codecs', 'encode'): _encode,
}


class _ArraysOnly(pickle.Unpickler):
  """Refuses functions: a pickle may name any, and a reader would call it."""

  def find_class(self, module: str, name: str):
    if (module, name) not in _ALLOWED:
      raise pickle.UnpicklingError(f'it calls for {module}.{name}')
    return _ALLOWED[module, name]


def _prepared(path: pathlib.Path, n: int, split: str, size: int) -> Part:
  """Reads a split that TFDS prepared, in the official order where it has ids.

  TFDS shuffles the examples; their ids, 'train_00000' and so on, count in the
  official order. Versions before 3.0.1 have no ids.
  """
  where = f'{path}, split {split}'
  try:
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(path)
    data = builder.as_dataset(split=split, batch_size=-1, shuffle_files=False)
    found = dict(tfds.as_numpy(data))
  except ModuleNotFoundError:
    raise  # The commands say how to get it.
  except Exception as e:  # TFDS and TensorFlow have no common exception.
    reason = (str(e).strip() or type(e).__name__).split('\n')[0]
    raise errors.InputError(
      f'{path}: TensorFlow Datasets cannot read split {split} ({reason});'
      ' prepare it anew, or give the official files'
    ) from e
  shapes = {k: list(v.shape) for k, v in found.items()}
  wanted = {'image': [size, SIDE, SIDE, 3], 'label': [size]}
  if any(shapes.get(key) != shape for key, shape in wanted.items()):
    raise errors.InputError(
      f'{where} has {shapes}; expected {wanted}: prepare it anew with TensorFlow Datasets'
    )
  x, y = found['image'], found['label'].astype(np.int64)
  errors.check_labels(y, n, where)
  if 'id' in found:
    order = np.argsort(found['id'], kind='stable')
    x, y = x[order], y[order]
  return x, y
