"""A split rule of ten lines makes clients of images, drawings and text alike.

A rule is a function from the labels of all training examples to a partition.
Copy `halves` to write another.
"""

import numpy as np
import pytest

from datasets import examples
from datasets.splits import split_files
from datasets.xc import clients as xc
from datasets.xc import sets as xc_sets
from tests.datasets import test_omniglot as omniglot_on_disk
from tests.datasets.cifar import on_disk as cifar_on_disk
from tff_xc.data import partition
from tff_xc.experiment import cohort


def halves(labels: np.ndarray) -> partition.Partition:
  """Each class has two clients, which take its examples in turn."""
  clients = {}
  for label in np.unique(labels):
    numbers = np.flatnonzero(labels == label)
    clients[f'{label}/first'] = numbers[::2]
    clients[f'{label}/second'] = numbers[1::2]
  return partition.of_clients(clients)


def cifar(folder):
  files = cifar_on_disk.files('cifar10', 'binary')
  return cifar_on_disk.load(cifar_on_disk.write(folder, files))


def omniglot(folder):
  omniglot_on_disk.write_npz(folder)
  return omniglot_on_disk.load(folder)


def text(folder):
  lines = [f'{i % 3} {i}:1 9:0.5' for i in range(8)]
  lines[4] = ' 4:1'  # It has no label, so no rule sees it.
  for part in ('train', 'test'):
    path = folder / f'eurlex_{part}.txt'
    path.write_text('\n'.join(['8 10 3', *lines]))
  return xc.load('eurlex-4k', folder, counts=xc_sets.Counts(8, 8, 10, 3))


@pytest.mark.parametrize('load', [cifar, omniglot, text])
def test_a_rule_makes_the_clients_of_any_set(load, tmp_path):
  given = load(tmp_path)
  dataset = given.repartitioned(halves)
  train = dataset.train
  held = np.sort(train.partition.numbers)
  np.testing.assert_array_equal(held, np.arange(len(given.train.pool)))
  for client_id in train.client_ids:
    label, half = client_id.split('/')
    x, y = train.examples(client_id)
    assert set(y) == {int(label)}
    assert x.shape[0] == len(y) == len(train.numbers(client_id))
    other = {'first': 'second', 'second': 'first'}[half]
    assert abs(len(y) - len(train.numbers(f'{label}/{other}'))) <= 1
  drawn = cohort.UniformClients(3).cohorts(dataset, seed=0)(0)
  for value, name in zip(drawn.examples, drawn.client_ids, strict=True):
    np.testing.assert_array_equal(value.y, train.labels(name))
  # A split file makes the same clients.
  path, data = tmp_path / 'split.csv', examples.of_labels(train.pool.y)
  split_files.write(path, train.partition, data)
  again = dataset.repartitioned(
    lambda labels: split_files.partition(path, data, 'the set')
  ).train
  assert sorted(again.client_ids) == sorted(train.client_ids)
  for client_id in again.client_ids:
    np.testing.assert_array_equal(
      again.numbers(client_id), train.numbers(client_id)
    )
