"""CIFAR-10 and CIFAR-100 over clients: by class, by Dirichlet, or a given split.

Krizhevsky: Learning multiple layers of features from tiny images, 2009. 50,000
training and 10,000 test images of 10 or 100 classes, 32x32 in colour. FedAwS
uses one class per client. Hsu, Qi and Brown (FedVC, FedIR) deal the images to
100 clients by a Dirichlet distribution; their files
`federated_train_alpha_*.csv` are such splits.
"""

import os

from datasets import examples as examples_lib
from datasets.cifar import files as cifar_files
from datasets.splits import rules, split_files
from tff_xc import errors
from tff_xc.data import client_data, pool


def load(
  data_dir: str | os.PathLike,
  name: str = 'cifar10',
  *,
  split: str | os.PathLike = 'class',
  clients_per_class: int = 1,
  concentration: float = 1.0,
  num_clients: int = 100,
  seed: int = 0,
  expected: cifar_files.Counts = cifar_files.OFFICIAL,
) -> client_data.FederatedDataset:
  """Loads the set into memory, 180 MB, and deals its images to clients.

  `x` is uint8 [32, 32, 3], and the test the official one. `split` is 'class' for
  clients of one class each, of which `clients_per_class` share each class evenly
  ('class/0' or 'class/0/0'); 'dirichlet', of which are `concentration`,
  `num_clients` and `seed`; or the path of a CSV `user_id,image_id,class` with
  image ids in the official order, or of a folder with such a
  `federated_train.csv`. Raises `errors.InputError` for a bad argument, data that
  are missing, damaged or incomplete, and a split that does not fit them.
  """
  if name not in cifar_files.LAYOUTS:
    raise errors.InputError(f'{name!r} is no CIFAR; take {" or ".join(cifar_files.LAYOUTS)}')
  n = cifar_files.LAYOUTS[name].num_classes
  share = expected.train // n
  if str(split) != 'class' and clients_per_class != 1:
    raise errors.InputError(
      f'clients_per_class is {clients_per_class}, but {split} says whose'
      " each image is; leave it out, or take split='class'"
    )
  if not 1 <= clients_per_class <= share:
    raise errors.InputError(
      f'clients_per_class is {clients_per_class}; {name} has {share:,} images'
      f' of each class, take 1 to {share:,}'
    )
  parts = cifar_files.read(data_dir, name, expected)
  train, test = (pool.in_memory(*part) for part in parts)
  examples = examples_lib.of_labels(train.y, n)
  if str(split) == 'class':
    of_class = {'clients_per_class': clients_per_class}
    clients = rules.deal('classes_per_client', examples, **of_class).train
  elif str(split) == 'dirichlet':
    skew = {'concentration': concentration, 'clients': num_clients}
    clients = rules.deal('dirichlet', examples, seed, **skew).train
  else:
    clients = split_files.partition(split, examples, name)
  return client_data.FederatedDataset(
    name=name, num_classes=n, train=client_data.PartitionedClientData(train, clients), test=test
  )
