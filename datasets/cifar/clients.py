"""CIFAR-10 and CIFAR-100 over clients: by class, or by a published split.

Krizhevsky: Learning multiple layers of features from tiny images, 2009. 50,000
training and 10,000 test images of 10 or 100 classes, 32x32 in colour. FedAwS
uses one class per client. The files `federated_train_alpha_*.csv` of Hsu, Qi
and Brown (FedVC, FedIR) deal the images to 100 clients by a Dirichlet
distribution.
"""

import csv
import os
import pathlib

import numpy as np

from datasets import arrays
from datasets.cifar import files as cifar_files
from tff_xc import errors
from tff_xc.data import client_data

_COLUMNS = ('user_id', 'image_id', 'class')
_SHARDS_SEED = 20090408


def load(
  data_dir: str | os.PathLike,
  name: str = 'cifar10',
  *,
  partition: str | os.PathLike = 'class',
  clients_per_class: int = 1,
  expected: cifar_files.Counts = cifar_files.OFFICIAL,
) -> client_data.FederatedDataset:
  """Loads the set into memory, 180 MB, and deals its images to clients.

  Args:
    data_dir: the directory that holds `cifar-10-batches-bin`,
      `cifar-10-batches-py`, one of their archives, or TFDS's `cifar10/3.0.2`;
      for CIFAR-100 `cifar-100-binary` and so on.
    name: 'cifar10', or 'cifar100' with its 100 fine classes.
    partition: 'class' for clients of one class each, or the path of a CSV
      `user_id,image_id,class` with image ids in the official order.
    clients_per_class: clients that share each class evenly; the same images go
      to the same client in every run.
    expected: the numbers of images that the files must have.

  Returns:
    The data set; `x` is uint8 [32, 32, 3], `test` the official test images.
    Clients by class are 'class/0' to 'class/9' (CIFAR-100: 'class/00' and so
    on), or 'class/0/0', 'class/0/1' if several share a class. With a CSV, its
    user ids name the clients.

  Raises:
    errors.InputError: a bad argument; data that are missing, damaged or
      incomplete; a split that does not fit them.
  """
  if name not in cifar_files.LAYOUTS:
    raise errors.InputError(
      f'{name!r} is no CIFAR; take {" or ".join(cifar_files.LAYOUTS)}'
    )
  by_class = str(partition) == 'class'
  if not by_class and clients_per_class != 1:
    raise errors.InputError(
      f'clients_per_class is {clients_per_class}, but {partition} says whose'
      " each image is; leave it out, or take partition='class'"
    )
  n = cifar_files.LAYOUTS[name].num_classes
  share = expected.train // n
  if not 1 <= clients_per_class <= share:
    raise errors.InputError(
      f'clients_per_class is {clients_per_class}; {name} has {share:,} images'
      f' of each class, take 1 to {share:,}'
    )
  splits = cifar_files.read(data_dir, name, expected)
  x, y = splits.train
  if by_class:
    owners = _by_class(y, n, clients_per_class)
  else:
    images, owners = _by_file(pathlib.Path(partition), y)
    x, y = x[images], y[images]
  return client_data.FederatedDataset(
    name=name,
    num_classes=n,
    train=arrays.Owners(x, y, owners),
    test=lambda: splits.test,
  )


def _by_class(y: np.ndarray, n: int, clients: int) -> np.ndarray:
  """Returns each image's owner; the owners' names sort in class order."""
  random = np.random.default_rng(_SHARDS_SEED)
  owners = np.empty(len(y), object)
  for label in range(n):
    images = np.flatnonzero(y == label)
    client = f'class/{label:0{len(str(n - 1))}}'
    owners[images] = client
    if clients > 1:
      parts = np.array_split(random.permutation(images), clients)
      for i, part in enumerate(parts):
        owners[part] = f'{client}/{i:0{len(str(clients - 1))}}'
  return owners.astype(str)


def _by_file(path: pathlib.Path, y: np.ndarray):
  """Returns the images of a split file, int [k], and their owners, [k]."""
  lines = _read_lines(path)
  images, users, seen = [], [], {}
  for number, (user, image, label) in lines:
    where = f'{path}, line {number}'
    if not image.isdecimal() or int(image) >= len(y):
      raise errors.InputError(
        f'{where}: image_id is {image!r}; expected 0 to {len(y) - 1}: mend it'
      )
    image = int(image)
    if label != str(y[image]):
      raise errors.InputError(
        f'{where}: image {image} has class {label!r} here and {y[image]} in the'
        ' data, so the image order differs from the official one (or the file'
        ' belongs to the other CIFAR); give the official files as --data_dir'
      )
    if image in seen:
      raise errors.InputError(
        f'{where}: image {image} is in line {seen[image]} already; give each'
        ' image to one user'
      )
    if not user:
      raise errors.InputError(f'{where} has no user_id; name the user')
    seen[image] = number
    images.append(image)
    users.append(user)
  if not images:
    raise errors.InputError(f'{path} has no images; give a line for each')
  owners = np.array(users)
  if all(user.isdecimal() and user == str(int(user)) for user in set(users)):
    owners = owners.astype(np.int64)  # As numbers, 2 sorts before 10.
  return np.array(images), owners


def _read_lines(path: pathlib.Path) -> list[tuple[int, list[str]]]:
  """Returns (line number, [user_id, image_id, class]) for every line."""
  if not path.is_file():
    raise errors.InputError(
      f"{path} is no file; partition is 'class' or the path of a CSV"
      f' {",".join(_COLUMNS)}'
    )
  try:
    with path.open(newline='', encoding='utf-8-sig') as file:
      reader = csv.reader(file)
      header = next(reader, [])
      if not set(_COLUMNS) <= set(header):
        raise errors.InputError(
          f'{path}, line 1 is {",".join(header)!r}; expected the columns'
          f' {",".join(_COLUMNS)}: give a split file of CIFAR'
        )
      places = [header.index(column) for column in _COLUMNS]
      lines = []
      for row in reader:
        if row and len(row) != len(header):
          raise errors.InputError(
            f'{path}, line {reader.line_num} has {len(row)} fields; expected'
            f' {len(header)}, as in line 1: mend the line'
          )
        if row:
          lines.append((reader.line_num, [row[i].strip() for i in places]))
      return lines
  except (UnicodeDecodeError, csv.Error) as e:
    raise errors.InputError(
      f'{path} is no CSV text ({e}); give a split file of CIFAR'
    ) from e
