"""Where CIFAR-10 and CIFAR-100 lie on disk, and in which form.

Importing this imports neither NumPy nor TensorFlow.
"""

import dataclasses
import os
import pathlib

from tff_xc import errors

# The forms of the files.
BINARY, PYTHON, PREPARED = 'binary', 'python', 'prepared'


@dataclasses.dataclass(frozen=True)
class Layout:
  """The differences between the files of the two sets.

  Attributes:
    num_classes: n.
    train: names of the training files, without '.bin', in their order.
    test: the name of the test file.
    binary: the folder of the binary version.
    python: the folder of the Python version.
    archives: the distributed archives of these two versions.
    label_bytes: label bytes of a binary record; the last one is the class.
    labels_key: the key of the classes in a pickle.
  """

  num_classes: int
  train: tuple[str, ...]
  test: str
  binary: str
  python: str
  archives: tuple[str, str]
  label_bytes: int
  labels_key: str


LAYOUTS = {
  'cifar10': Layout(
    num_classes=10,
    train=tuple(f'data_batch_{i}' for i in range(1, 6)),
    test='test_batch',
    binary='cifar-10-batches-bin',
    python='cifar-10-batches-py',
    archives=('cifar-10-binary.tar.gz', 'cifar-10-python.tar.gz'),
    label_bytes=1,
    labels_key='labels',
  ),
  'cifar100': Layout(
    num_classes=100,
    train=('train',),
    test='test',
    binary='cifar-100-binary',
    python='cifar-100-python',
    archives=('cifar-100-binary.tar.gz', 'cifar-100-python.tar.gz'),
    label_bytes=2,
    labels_key='fine_labels',
  ),
}


def find(data_dir: str | os.PathLike, name: str) -> tuple[pathlib.Path, str]:
  """Finds a set in `data_dir` or `data_dir`/`name`; opens nothing.

  Args:
    data_dir: the folder, archive or prepared directory, or its parent.
    name: 'cifar10' or 'cifar100'.

  Returns:
    A folder or an archive, and its form.

  Raises:
    errors.InputError: nothing is found.
  """
  data_dir, layout = pathlib.Path(data_dir), LAYOUTS[name]
  places = [data_dir, data_dir / name]
  for place in places:
    for folder, archive, form in zip(
      *((layout.binary, layout.python), layout.archives, (BINARY, PYTHON)),
      strict=True,
    ):
      for path in (place, place / folder, place / archive):
        if path.name in (folder, archive) and path.exists():
          return path, form
    if prepared := _prepared(place, name):
      return prepared, PREPARED
  raise errors.InputError(_not_found(places, name, layout))


def _prepared(place: pathlib.Path, name: str) -> pathlib.Path | None:
  """Returns the newest version that TFDS prepared: `place`, or a folder in it."""
  place = place.absolute()  # A relative path such as `.` has no useful name.
  versions = [place, *sorted(place.glob('*'), key=_version, reverse=True)]
  for path in versions:
    if (path / 'dataset_info.json').is_file() and name in (
      path.parent.name,
      place.name,
    ):
      return path
  return None


def _version(path: pathlib.Path) -> list[int]:
  parts = path.name.split('.')
  return [int(p) for p in parts] if all(p.isdecimal() for p in parts) else []


def _not_found(places, name: str, layout: Layout) -> str:
  for place in places:
    mosaics = name == 'cifar10' and list(place.glob('*.webp'))
    if mosaics and (place / 'unpack.py').is_file():
      return (
        f'{place} holds {name} as mosaics; run `python'
        f' {place / "unpack.py"} OUT` and give --data_dir=OUT'
      )
  return (
    f'{places[0]} has no {name}: neither {layout.binary}, {layout.python},'
    f' {" or ".join(layout.archives)}, nor a directory {name}/3.0.2 prepared by'
    ' TensorFlow Datasets; put one of them there, from'
    ' https://www.cs.toronto.edu/~kriz/cifar.html, or give another --data_dir'
  )
