"""CIFAR-10 and CIFAR-100, split by class, by a Dirichlet distribution, or by a file.

Krizhevsky: Learning multiple layers of features from tiny images, 2009. Both data sets
have 50,000 training and 10,000 test images, in colour, of 32x32 pixels. CIFAR-10 has 10
classes, and CIFAR-100 has 100 classes. FedAwS gives one class to each client. Hsu, Qi and
Brown (FedVC, FedIR) split the images among 100 clients with a Dirichlet distribution, and
publish their splits as `federated_train_alpha_*.csv`.

The module reads the official binary and Python versions, each unpacked or as the
distributed `.tar.gz`. It also reads a directory that TensorFlow Datasets has prepared. It
downloads nothing and writes nothing.
"""

import io
import os
import pathlib
import pickle
import tarfile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tff_xc import errors

if TYPE_CHECKING:
  from tff_xc.data import client_data

SIDE = 32
_PIXELS = 3 * SIDE * SIDE
# The file formats.
BINARY, PYTHON, PREPARED = 'binary', 'python', 'prepared'


class Layout(NamedTuple):
  """The file names and the record format of CIFAR-10 or CIFAR-100."""

  num_classes: int
  train: tuple[str, ...]  # The names of the training files, in order, without '.bin'.
  test: str
  places: dict[str, tuple[str, str]]  # The folder and the archive of each file format.
  label_bytes: int  # The number of label bytes in a binary record. The last one is the class.
  labels_key: str  # The key of the labels in a pickle.


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
  """The required numbers of images. All classes must have equally many images."""

  train: int = 50_000
  test: int = 10_000


OFFICIAL = Counts()
Part = tuple[np.ndarray, np.ndarray]


def load(
  data_dir: str | os.PathLike,
  name: str = 'cifar10',
  *,
  split: str | os.PathLike = 'class',
  clients_per_class: int = 1,
  concentration: float = 1.0,
  num_clients: int = 100,
  seed: int = 0,
  expected: Counts = OFFICIAL,
) -> 'client_data.FederatedDataset':
  """Loads the data set into memory (180 MB), and assigns its training images to clients.

  `x` is uint8 [32, 32, 3], and the test set is the official one. `split` is one of:

  - 'class': a client has one class, and `clients_per_class` clients share each class
    evenly. Client ids are 'class/0' or 'class/0/0'.
  - 'dirichlet': a Dirichlet split with `concentration`, `num_clients` and `seed`.
  - Another rule of `rules.parse`, such as 'iid:100', with `seed`.
  - The path of a CSV file with the columns `user_id,image_id,class`, or of a folder that
    has this file as `federated_train.csv`. An image id is the image's index in the official
    order.

  Raises `errors.InputError` if the data are missing, damaged or incomplete, or if the split
  does not fit the data.
  """
  # These modules import TensorFlow, which `read` does not need.
  from datasets import examples as examples_lib
  from datasets.splits import rules, split_files
  from tff_xc.data import client_data, pool

  train, test = (pool.in_memory(*part) for part in read(data_dir, name, expected))
  n = LAYOUTS[name].num_classes
  examples = examples_lib.of_labels(train.labels, n)
  if str(split) == 'class':
    shared = {'clients_per_class': clients_per_class}
    clients = rules.deal('classes_per_client', examples, **shared).train
  elif str(split) == 'dirichlet':
    skew = {'concentration': concentration, 'clients': num_clients}
    clients = rules.deal('dirichlet', examples, seed, **skew).train
  elif found := rules.parse(str(split)):
    rule, settings = found
    clients = rules.deal(rule, examples, seed, **settings).train
  else:
    clients = split_files.partition(split, examples, name)
  return client_data.FederatedDataset(
    name=name, num_classes=n, train=client_data.PartitionedClientData(train, clients), test=test
  )


def find(data_dir: str | os.PathLike, name: str) -> tuple[pathlib.Path, str]:
  """Returns the folder or archive of the data set `name`, and its format; opens no file.

  `data_dir` is the folder, the archive or the directory that TensorFlow Datasets prepared,
  or the parent of one of these. Raises `errors.InputError` if the data set is missing.
  """
  data_dir, layout = pathlib.Path(data_dir), LAYOUTS[name]
  for place in (data_dir, data_dir / name):
    place = place.absolute()  # A relative path such as `.` has no useful name.
    for form, names in layout.places.items():
      for path in (place, *map(place.joinpath, names)):
        if path.name in names and path.exists():
          return path, form
    for path in (place, *sorted(place.glob('*'), reverse=True)):
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


def read(data_dir: str | os.PathLike, name: str, expected: Counts = OFFICIAL) -> tuple[Part, Part]:
  """Reads the files that `find` finds, which must have the `expected` numbers of images.

  Returns the training set and the test set. Each is a pair of images, uint8 [k, 32, 32, 3],
  and classes, int32 [k], in the order of the files. Raises `errors.InputError` if the files
  are missing, damaged or incomplete.
  """
  path, form = find(data_dir, name)
  layout = LAYOUTS[name]
  try:
    if form == PREPARED:
      parts = [_prepared(path, part) for part in ('train', 'test')]
    else:
      parts = _official(path, form == BINARY, layout)
    for (x, labels), size in zip(parts, expected, strict=True):
      counts = np.bincount(labels, minlength=layout.num_classes).tolist()
      if len(x) != size or counts != [size // layout.num_classes] * layout.num_classes:
        raise ValueError(f'{len(x):,} images, expected {size:,} and as many of every class')
  except ModuleNotFoundError:
    raise  # The command will tell the user how to install the module.
  except Exception as e:  # Damaged files raise errors of almost any type.
    reason = ' '.join(str(e).split())[:200] or type(e).__name__
    raise errors.InputError(f'{path} is no whole copy of {name} ({reason}); get it anew') from e
  train, test = ((np.ascontiguousarray(x), labels.astype(np.int32)) for x, labels in parts)
  return train, test


def _official(path: pathlib.Path, is_binary: bool, layout: Layout) -> list[Part]:
  """Reads a folder or an archive of the official files."""
  names = [n + '.bin' * is_binary for n in (*layout.train, layout.test)]
  contents = {}
  if path.is_file():
    # Read the files in the archive's order, because seeking back would unpack it again.
    with tarfile.open(path, 'r:gz') as archive:
      for member in archive:
        name = pathlib.PurePosixPath(member.name).name
        if member.isfile() and name in names:
          contents[name] = archive.extractfile(member).read()
  else:
    contents = {name: (path / name).read_bytes() for name in names}
  parse = _parse_binary if is_binary else _parse_pickle
  parts = [parse(contents[name], layout) for name in names]
  train = tuple(map(np.concatenate, zip(*parts[:-1], strict=True)))
  # The files store an image as a red, a green and a blue plane, one after the other.
  return [
    (x.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), labels) for x, labels in (train, parts[-1])
  ]


def _parse_binary(content: bytes, layout: Layout) -> Part:
  """Parses a file of records into pixels, uint8 [k, 3072], and labels, uint8 [k]."""
  records = np.frombuffer(content, np.uint8).reshape(-1, layout.label_bytes + _PIXELS)
  return records[:, layout.label_bytes :], records[:, layout.label_bytes - 1]


def _parse_pickle(content: bytes, layout: Layout) -> Part:
  """Parses a pickle like `_parse_binary`, without running code from the pickle."""
  batch = _ArraysOnly(io.BytesIO(content), encoding='bytes').load()
  # Python 2 wrote the keys as bytes.
  batch = {k if isinstance(k, str) else k.decode(): v for k, v in batch.items()}
  x, labels = np.asarray(batch['data']), np.asarray(batch[layout.labels_key])
  if x.dtype != np.uint8 or x.shape != (len(labels), _PIXELS):
    raise ValueError(f'data is {x.dtype} {list(x.shape)}')
  return x, labels


_reconstruct = np.core.multiarray._reconstruct
_ALLOWED = {
  ('numpy.core.multiarray', '_reconstruct'): _reconstruct,
  ('numpy._core.multiarray', '_reconstruct'): _reconstruct,
  ('numpy', 'ndarray'): np.ndarray,
  ('numpy', 'dtype'): np.dtype,
  # Old pickle protocols of Python 3 store bytes as text.
  ('_codecs', 'encode'): str.encode,
}


class _ArraysOnly(pickle.Unpickler):
  """Allows only the functions in `_ALLOWED`, because a pickle may call any function."""

  def find_class(self, module: str, name: str):
    if (module, name) not in _ALLOWED:
      raise pickle.UnpicklingError(f'it calls for {module}.{name}')
    return _ALLOWED[module, name]


def _prepared(path: pathlib.Path, split: str) -> Part:
  """Reads the split 'train' or 'test' of a directory that TensorFlow Datasets prepared.

  TensorFlow Datasets shuffles the examples. Their ids, 'train_00000' and so on, restore the
  official order. Versions before 3.0.1 have no ids; their examples remain shuffled.
  """
  import tensorflow_datasets as tfds

  builder = tfds.builder_from_directory(path)
  data = builder.as_dataset(split=split, batch_size=-1, shuffle_files=False)
  found = dict(tfds.as_numpy(data))
  x, labels = found['image'], found['label']
  if x.shape[1:] != (SIDE, SIDE, 3):
    raise ValueError(f'images are {list(x.shape)}')
  if 'id' in found:
    order = np.argsort(found['id'], kind='stable')
    x, labels = x[order], labels[order]
  return x, labels
