"""Scores of single clients, compared with loops, and the properties of clients."""

import numpy as np
import pytest
import scipy.sparse

from tff_xc import errors
from tff_xc.data import client_data, partition, pool as pool_lib
from tff_xc.measure import client_scores

N = 5


def _pool(y):
  x = np.arange(y.shape[0], dtype=np.float32)[:, None]
  return pool_lib.in_memory(x, y)


@pytest.mark.parametrize('sets', [False, True])
def test_shares_equal_a_loop(sets):
  random = np.random.default_rng(0)
  y = random.integers(0, N, 60)
  if sets:  # Some examples have no label.
    y = scipy.sparse.csr_matrix(random.random((60, N)) < 0.3)
  best = random.integers(-1 if sets else 0, N, 60)
  places = random.integers(-1, 6, 60)
  places[places == 2] = -1  # Client 2 has no examples.
  held = partition.of_places(places, [f'c{k}' for k in range(6)])
  found = client_scores.top1(_pool(y), held, lambda numbers: best[numbers])
  for client, score in enumerate(found):
    hits = []
    for number in held.of_client(client):
      labels = y[number].indices if sets else [y[number]]
      if len(labels):
        hits.append(best[number] in labels)
    assert (np.isnan(score) and not hits) or score == np.mean(hits)


def test_statistics_leave_out_who_has_none():
  scores = np.array([np.nan, *np.arange(1, 21) / 20])
  found = client_scores.statistics(np.random.default_rng(0).permutation(scores))
  expected = {
    'mean': 0.525,
    'median': 0.525,
    'p10': 0.145,
    'worst': 0.075,
    'std': np.std(np.arange(1, 21) / 20),
  }
  assert found == pytest.approx(expected)
  assert client_scores.statistics(np.array([0.5]))['worst'] == 0.5
  assert all(np.isnan([*client_scores.statistics(scores[:1]).values()]))


def test_groups_are_apart_and_whole():
  values = np.array([1, 1, 1, 2, 2, 3, 4, 8, 9, 9, 9, 30])
  found = list(client_scores.groups(values))
  assert 2 <= len(found) <= 4
  np.testing.assert_array_equal(sum(inside for *_, inside in found), 1)
  for least, most, inside in found:
    assert (values[inside].min(), values[inside].max()) == (least, most)
  assert found[0][1] < found[1][0]
  assert not list(client_scores.groups(np.full(20, 3)))


def _set(**more):
  y = np.arange(12) % 4
  train = {'a': [0, 1, 4], 'b': [5], 'c': []}
  return client_data.FederatedDataset(
    name='mine',
    num_classes=4,
    train=client_data.PartitionedClientData(_pool(y), partition.of_clients(train)),
    **more,
  )


HELD = partition.of_clients({'a': [8, 2], 'b': [], 'c': [3]})
UNSEEN = client_data.Unseen(partition.of_clients({'u': [6]}), partition.of_clients({'u': [10, 7]}))


def test_clients_are_counted():
  frame = client_scores.clients(_set(held_out=HELD, unseen=UNSEEN))
  assert frame.to_numpy().tolist() == [
    ['a', 'trained', 3, 2, 3],
    ['b', 'trained', 1, 0, 1],
    ['c', 'trained', 0, 1, 1],
    ['u', 'unseen', 1, 2, 2],
  ]
  assert client_scores.clients(_set(unseen=UNSEEN))['client'].tolist() == ['u']
  with pytest.raises(errors.InputError, match='client_test_fraction'):
    client_scores.clients(_set())


def test_the_same_clients_are_drawn_by_seed():
  names = [f'{k}' for k in range(40)]
  dataset = _set(held_out=partition.of_clients({n: [k % 12] for k, n in enumerate(names)}))

  def draw(count, seed):
    return client_scores.drawn(dataset, count, seed)

  first = draw(10, 0).client_ids
  assert len(set(first)) == 10
  assert draw(10, 0).client_ids == first != draw(10, 1).client_ids
  assert draw(40, 3).client_ids == names
  for few, word in ((_set(held_out=HELD), '=2 or fewer'), (_set(), 'too')):
    with pytest.raises(errors.InputError, match=word):
      client_scores.drawn(few, 3, 0)
