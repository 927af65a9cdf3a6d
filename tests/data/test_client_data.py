"""A pool and a partition as TFF's client data, and the properties of both."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from tff_xc import errors
from tff_xc.data import client_data, partition, pool

X = np.arange(6 * 2 * 2, dtype=np.uint8).reshape(6, 2, 2)
BAGS = scipy.sparse.csr_matrix(np.triu(np.arange(24).reshape(6, 4)), dtype='f4')
Y = np.array([2, 0, 1, 1, 2, 0])
SETS = scipy.sparse.csr_matrix(np.tril(np.ones([6, 3]), -1) > 0)
CLIENTS = {'bo': [4, 0, 2], 'al': [], 'cy': [1, 5]}


def train(x=X, y=Y, clients=CLIENTS):
  return client_data.PartitionedClientData(pool.in_memory(x, y), partition.of_clients(clients))


def dense(element):
  """Returns x and y of an element as lists. x becomes a dense row."""
  x, y = element['x'], element['y']
  if isinstance(x, dict):
    row = np.zeros(4, np.float32)
    row[x['ids']] = x['values']
    x = row
  return x.tolist(), y.tolist()


@pytest.mark.parametrize('x', [X, BAGS], ids=['dense', 'sparse'])
@pytest.mark.parametrize('y', [Y, SETS], ids=['labels', 'sets'])
def test_as_client_data_of_tff(x, y):
  clients = train(x, y)
  assert clients.client_ids == ['bo', 'al', 'cy']
  for client_id, numbers in CLIENTS.items():
    expected_x = (x.toarray() if x is BAGS else x)[numbers].tolist()
    expected_y = [SETS[i].indices.tolist() if y is SETS else Y[i] for i in numbers]
    for found in (
      clients.create_tf_dataset_for_client(client_id),
      clients.serializable_dataset_fn(tf.constant(client_id)),
      clients.preprocess(lambda d: d).create_tf_dataset_for_client(client_id),
    ):
      assert found.element_spec == clients.element_type_structure
      rows = [dense(element) for element in found.as_numpy_iterator()]
      assert [x for x, _ in rows] == expected_x
      assert [y for _, y in rows] == expected_y


def test_labels_are_known_without_reading():
  whole = pool.in_memory(X, Y)
  clients = client_data.PartitionedClientData(
    dataclasses.replace(whole, read=None), partition.of_clients(CLIENTS)
  )
  dataset = client_data.FederatedDataset('x', 3, clients)
  assert dataset.train.labels('bo').tolist() == [2, 2, 1]
  assert clients.largest_label_set == 2
  assert clients.classes.tolist() == [0, 1, 2]
  assert train(y=SETS).largest_label_set == 3
  assert train(y=SETS).classes.tolist() == [0, 1, 2]


def test_a_label_out_of_range_names_the_client():
  for y in (Y, SETS):
    with pytest.raises(errors.InputError) as e:
      client_data.FederatedDataset('x', 2, train(y=y))
    for part in ('client bo', 'label 2 ', '[0, 2)'):
      assert part in str(e.value)
  client_data.FederatedDataset('x', 2, train(clients={'cy': [1, 5]}))
  test = pool.in_memory(X, Y - 1)
  with pytest.raises(errors.InputError, match='test examples: label -1'):
    client_data.FederatedDataset('x', 3, train(), test)


@pytest.mark.parametrize('y', [Y, SETS], ids=['labels', 'sets'])
def test_other_clients_have_the_same_training_examples(y):
  clients = train(y=y, clients={'a': [3, 0], 'b': [1, 2]})
  held = partition.of_clients({'a': [4], 'b': [5]})
  test = clients.pool.subset(np.array([4, 5]))
  dataset = client_data.FederatedDataset('x', 3, clients, test, held_out=held)
  found = dataset.repartitioned(
    lambda labels: partition.of_owners(np.arange(labels.shape[0])[::-1] // 2)
  )
  assert found.train.numbers('0').tolist() == [2, 3]
  assert found.train.numbers('1').tolist() == [0, 1]
  assert found.held_out is None


def test_the_largest_set_of_features():
  ids = [[0, 1], [0, 2], [0, 1, 2, 3], [3], [], [1]]
  splits = np.cumsum([0, *map(len, ids)])
  flat = np.concatenate(ids).astype(np.int32)
  x = scipy.sparse.csr_matrix((np.ones(len(flat)), flat, splits))
  found = train(x, Y, {'a': [0, 1], 'b': [2], 'c': [3, 5], 'd': [4], 'e': []})
  assert found.largest_feature_set() == 4
  assert found.largest_feature_set(1) == 4
  found = train(x, Y, {'a': [0, 1], 'c': [3, 5]})
  assert found.largest_feature_set() == 3
  assert found.largest_feature_set(1) == 2
  assert train(x, Y, {'d': [4]}).largest_feature_set() == 1


@pytest.mark.parametrize(
  ('offsets', 'numbers', 'message'),
  [
    ([1, 2, 3], [0, 1, 2], 'ascend from 0'),
    ([0, 4, 3], [0, 1, 2], 'ascend from 0'),
    ([0, 1, 3.0], [0, 1, 2], 'offsets is float64'),
    ([0, 1, 3], [[0, 1, 2]], r'numbers is int64 \[1, 3\]'),
    ([0, 3], [0, 1, 2], '2 offsets'),
  ],
)
def test_partitions_are_checked(offsets, numbers, message):
  with pytest.raises(ValueError, match=message):
    partition.Partition(['a', 'b'], np.array(offsets), np.array(numbers))
  with pytest.raises(ValueError, match='one id'):
    partition.Partition(['a', 'a'], np.zeros(3, int), np.zeros(0, int))
  with pytest.raises(ValueError, match='example 0 to 6'):
    train(clients={'a': [0, 6]})
  with pytest.raises(ValueError, match="'a' is float64"):
    partition.of_clients({'a': [0.7, 1.2]})
  with pytest.raises(errors.InputError, match='any examples'):
    _ = train(clients={'a': []}).largest_label_set
  some = partition.of_owners(np.array(['b', 'a', 'b']))
  assert some.client_ids == ['a', 'b']
  assert some.of_client(1).tolist() == [0, 2]
  assert some.owners().tolist() == [0, 1, 1]
  assert partition.of_owners(np.array([10, 2, 10])).client_ids == ['2', '10']
  made = partition.Partition(['a'], np.array([0, 2], np.int32), [1, 0])
  assert made.offsets.dtype == made.numbers.dtype == np.int64
  assert partition.of_clients({'a': []}).numbers.dtype == np.int64
