"""Cohorts are functions of (seed, round): uniform, pooled, FedVC's, and read ahead."""

import collections
import dataclasses
import itertools
import threading
import time

import numpy as np
import pytest
import scipy.sparse

from tests import sameness, small_data
from tff_xc import errors
from tff_xc.algorithms import fedavg
from tff_xc.data import client_data, partition, pool, sparse
from tff_xc.experiment import ahead
from tff_xc.round import cohort

LABELS = {'a': [0, 1, 1], 'b': [], 'c': [2], 'd': [3, 3, 3, 3], 'e': [0, 4]}


def made(x, y, clients):
  """Returns the data set of these examples. `clients` maps clients to numbers of examples."""
  train = client_data.PartitionedClientData(pool.in_memory(x, y), partition.of_clients(clients))
  return client_data.FederatedDataset('letters', 10, train)


def dataset(labels=None, bags=False, sets=None):
  """Returns a data set: example k of client i is the number 10 i + k, or a bag of features."""
  labels = labels or LABELS
  x = [10 * i + k for i, y in enumerate(labels.values()) for k in range(len(y))]
  x = np.array(x, np.int32)
  y = np.concatenate([np.zeros(0, int), *labels.values()]).astype(int)
  owners = np.repeat(np.arange(len(labels)), [len(y) for y in labels.values()])
  clients = {name: np.flatnonzero(owners == i) for i, name in enumerate(labels)}
  if bags:
    ids = np.stack([x // 10, x + 100], 1).ravel()
    splits = np.arange(0, 2 * len(x) + 1, 2)
    x = scipy.sparse.csr_matrix((np.ones(len(ids), np.float32), ids, splits), (len(x), 200))
  if sets is not None:
    x, y = np.arange(len(x)), sets
  return made(x, y, clients)


def uniform(data, clients, seed, examples=0):
  return cohort.UniformClients(clients, examples).cohorts(data, seed)


def pooled(data, examples, seed):
  return cohort.IidBatches(examples, steps=1).cohorts(data, seed)


@pytest.mark.parametrize('kind', ['uniform', 'virtual'])
def test_cohorts_depend_on_seed_and_round_alone(kind):
  def draw(seed):
    return uniform(dataset(), 3, seed) if kind == 'uniform' else draws(3, 4, seed=seed)

  def found(c):
    return [(int(e.client_id), [*e.x]) for e in c.examples]

  one, two, other = map(draw, (7, 7, 8))
  for r in (5, 4):
    assert found(one(r)) == found(two(r))
  assert len({str(found(one(r))) for r in range(20)}) > 3
  assert any(found(one(r)) != found(other(r)) for r in range(3))


def test_a_client_may_draw_some_of_its_examples_for_a_round():
  draw, again = (uniform(dataset({'d': [3, 3, 4, 4], 'e': [0, 4]}), 2, 5, 3) for _ in 'ab')
  seen = set()
  for round_number in range(30):
    few, many = sorted(draw(round_number).examples, key=lambda e: len(e.labels))
    np.testing.assert_array_equal(few.x, [10, 11])
    assert len(set(many.x)) == 3
    np.testing.assert_array_equal(many.labels, np.where(many.x < 2, 3, 4))
    np.testing.assert_array_equal(many.all_labels, [3, 3, 4, 4])
    seen.add(tuple(sorted(many.x)))
  assert len(seen) == 4
  for a, b in zip(again(7).examples, draw(7).examples, strict=True):
    np.testing.assert_array_equal(a.x, b.x)


def test_clients_without_examples_are_skipped_and_nobody_is_one_empty_client():
  everyone = uniform(dataset(), 5, seed=0)(0)
  assert (everyone.skipped, len(everyone.examples)) == (1, 4)
  for bags in (False, True):
    nobody = uniform(dataset({'a': [], 'b': []}, bags), 2, seed=0)(0)
    assert nobody.skipped == 2
    [empty] = nobody.examples
    assert len(empty.labels) == len(empty.x.ids if bags else empty.x) == 0


def test_more_clients_than_there_are_are_refused():
  message = 'the data have 5 clients; give --clients_per_round=5 or fewer'
  with pytest.raises(errors.InputError, match=message):
    uniform(dataset(), 6, seed=0)
  for clients, replace, sizes, message in (
    (5, False, SIZES, '4 clients with examples; give --clients_per_round=4'),
    (1, False, (0, 0), 'the data have no clients with examples'),
    (1, True, (0, 0), 'the data have no clients with examples'),
  ):
    with pytest.raises(errors.InputError, match=message):
      draws(clients, 1, replace, data=sized(sizes))


def test_pooled_rounds_walk_through_shuffled_passes():
  draw = pooled(dataset(), 4, seed=3)
  everything = sorted([0, 1, 2, 20, 30, 31, 32, 33, 40, 41])
  drawn = [draw(r).examples[0] for r in range(5)]
  seen = np.concatenate([value.x for value in drawn])
  assert sorted(seen[:10]) == sorted(seen[10:]) == everything
  assert list(seen[:10]) != list(seen[10:])
  labels = np.concatenate([value.labels for value in drawn])
  by_example = dict(zip(seen, labels, strict=True))
  assert [by_example[x] for x in (0, 2, 33, 41)] == [0, 1, 3, 4]
  # A round may have more examples than the data set.
  counts = np.bincount(pooled(dataset(), 25, seed=3)(1).examples[0].x)
  assert counts.sum() == 25
  assert set(counts[counts > 0]) <= {2, 3}


@pytest.mark.parametrize('sampling', [cohort.UniformClients(5), cohort.IidBatches(4, 2)])
def test_examples_are_read_when_they_are_asked_for(sampling):
  data, read = dataset(), []
  whole, train = data.train.pool, data.train
  train.pool = dataclasses.replace(whole, read=lambda n: read.append(n.tolist()) or whole.read(n))
  drawn = sampling.cohorts(data, 0)(0)
  assert read == []
  last = drawn.examples[len(drawn.examples) - 1]
  [numbers] = read
  assert len(numbers) == len(last.labels)
  if drawn.client_ids:
    name = train.client_ids[int(last.client_id)]
    assert name == drawn.client_ids[-1]
    assert numbers == train.numbers(name).tolist()


def test_batches_of_the_average_client_of_too_many_examples_and_of_none():
  draw = cohort.IidBatches(3).cohorts(dataset(), 0)
  assert len(draw(0).examples[0].labels) == 3  # The batch has 10 / 5 examples.
  with pytest.raises(errors.InputError, match='10,000,000'):
    cohort.IidBatches(10**6, 11).cohorts(dataset(), 0)
  for clients, steps in itertools.product(({}, {'a': [], 'b': []}), (0, 1)):
    nobody_has = made(np.arange(3), np.arange(3), clients)
    with pytest.raises(errors.InputError, match='any examples'):
      cohort.IidBatches(2, steps).cohorts(nobody_has, 0)


def test_sets_of_labels():
  sets = scipy.sparse.csr_matrix(np.random.default_rng(0).random((10, 5)) < 0.4)
  data = dataset(sets=sets)
  for value in uniform(data, 5, 0, examples=2)(0).examples:
    numbers = data.train.partition.of_client(int(value.client_id))
    np.testing.assert_array_equal(value.all_labels, sets[numbers].indices)
    assert isinstance(value.labels, sparse.LabelSets)
    np.testing.assert_array_equal(value.labels.ids, sets[value.x].indices)
    assert len(value.labels.row_splits) == min(len(numbers), 2) + 1


SIZES = (5, 0, 1, 3, 2)
_ROUNDS = 4000


def sized(sizes=SIZES):
  """Returns clients with these numbers of examples. Client i has the classes 9 and i."""
  return dataset({f'c{i}': [9, *[i] * n][:n] for i, n in enumerate(sizes)})


def draws(clients, examples, replace=False, seed=7, data=None):
  sampling = cohort.VirtualClients(clients, examples, replace)
  return sampling.cohorts(data or sized(), seed)


def drawn_ids(clients, replace=False):
  """Returns the clients of all rounds, int [rounds, K], without reading examples."""
  draw = draws(clients, 1, replace)
  each = [draw(r).client_ids for r in range(_ROUNDS)]
  return np.array([[int(name[1:]) for name in ids] for ids in each])


def inclusion(sizes, count):
  """Returns each client's probability to be among the first `count` draws."""
  found = np.zeros(len(sizes))
  for order in itertools.permutations(range(len(sizes)), count):
    p, left = 1.0, sum(sizes)
    for client in order:
      p, left = p * sizes[client] / left, left - sizes[client]
      if not p:
        break
    found[list(order)] += p
  return found


@pytest.mark.parametrize('count', [1, 2, 3])
def test_clients_are_drawn_successively_in_proportion_to_their_examples(count):
  ids = drawn_ids(count)
  assert all(len(set(row)) == count for row in ids)
  expected = inclusion(SIZES, count)
  assert expected.sum() == pytest.approx(count)
  assert expected[1] == 0  # This client has no examples.
  shares = np.bincount(ids.ravel(), minlength=len(SIZES)) / _ROUNDS
  # Allow four standard errors. With two draws, the largest client has probability 0.77; uniform
  # sampling would give 0.5.
  error = np.sqrt(expected * (1 - expected) / _ROUNDS)
  assert (np.abs(shares - expected) <= 4 * error + 1e-12).all()


def test_with_replacement_every_draw_is_in_proportion():
  ids, q = drawn_ids(3, replace=True), np.array(SIZES) / 11
  shares = np.bincount(ids.ravel(), minlength=len(SIZES)) / ids.size
  np.testing.assert_allclose(shares, q, atol=0.02)
  # At least two of three draws agree with probability 1 - P(all differ).
  differ = sum(q[list(t)].prod() for t in itertools.permutations(range(5), 3))
  repeats = np.mean([len(set(row)) < 3 for row in ids])
  assert repeats == pytest.approx(1 - differ, abs=0.03)


def test_a_client_drawn_twice_has_other_examples_and_another_id():
  draw = draws(6, 3, replace=True, data=sized((50, 1)))
  found = 0
  for round_number in range(20):
    drawn = draw(round_number)
    assert len({int(e.client_id) for e in drawn.examples}) == 6
    big = [e for e in drawn.examples if int(e.client_id) % 2 == 0]
    found += len({tuple(e.x) for e in big}) == len(big) > 1
    assert drawn.client_ids.count('c0') == len(big)
  assert found > 15


def test_a_client_draws_without_replacement_where_it_has_enough():
  draw = draws(4, 3)
  seen = collections.defaultdict(set)
  for round_number in range(60):
    for e in draw(round_number).examples:
      client, own = int(e.client_id), set(e.x - 10 * int(e.client_id))
      assert len(e.x) == len(e.labels) == 3
      assert own <= set(range(SIZES[client]))
      if SIZES[client] >= 3:
        assert len(own) == 3
      seen[client].add(tuple(e.x))
      # The client requests the rows of all its examples.
      held = [9] + (SIZES[client] - 1) * [client]
      np.testing.assert_array_equal(np.sort(e.all_labels), np.sort(held))
  assert len(seen[0]) > 30  # There are 60 ordered samples of 3 among 5 examples.
  # This client has two examples, so its draws repeat.
  assert {len(set(x)) for x in seen[4]} == {1, 2}


def algorithm(**given):
  """Returns FedAvg with these options about participation."""
  return fedavg.FedAvg.made(model=small_data.images()[1], **given)


def test_options_change_who_takes_part_weights_and_epochs():
  plain = algorithm(clients_per_round=2, local_epochs=3, batch_size=4)
  assert plain.sampling == cohort.UniformClients(2)
  assert (plain.local_training.epochs, plain.weighting) == (3, 'examples')
  made = algorithm(
    clients_per_round=2,
    batch_size=4,
    virtual_client_size=8,
    virtual_client_replace=True,
    client_failure_rate=0.2,
  )
  assert made.sampling == cohort.Dropout(cohort.VirtualClients(2, 8, True), 0.2)
  training = made.local_training
  assert (training.epochs, training.steps, training.batch_size) == (1, 0, 4)
  assert made.weighting == 'uniform'
  with pytest.raises(errors.InputError, match='not a multiple'):
    algorithm(virtual_client_size=10, batch_size=4)


GIVEN = {'clients_per_round': 6, 'batch_size': 10, 'client_learning_rate': 0.5}


def test_with_equal_clients_that_all_take_part_fedvc_trains_as_fedavg_on_the_same_examples():
  sized, _ = small_data.images()
  plain, virtual = algorithm(**GIVEN), algorithm(**GIVEN, virtual_client_size=10)
  # Clients with equal numbers of examples have equal weights.
  alike = [dataclasses.replace(a, sampling=None, weighting='uniform') for a in (plain, virtual)]
  assert sameness.same(*alike)
  drawn = [a.sampling.cohorts(sized, 3)(0).examples for a in (plain, virtual)]
  for one, other in zip(*(sorted(c, key=lambda e: int(e.client_id)) for c in drawn), strict=True):
    assert int(one.client_id) == int(other.client_id)
    assert len(one.labels) == len(other.labels) == 10
    rows = [np.c_[e.x.reshape(10, -1), e.labels].tolist() for e in (one, other)]
    assert sorted(rows[0]) == sorted(rows[1])


CLIENTS = 6


class Source:
  """Cohorts of `CLIENTS` values that record which values are read, and by which threads."""

  def __init__(self, size=10, bad=None):
    self.read, self.threads, self._size, self._bad = [], set(), size, bad
    self._changed = threading.Condition()

  def of(self, round_number):
    def value(place):
      with self._changed:
        self.read.append((round_number, place))
        self.threads.add(threading.current_thread().name.rpartition('_')[0])
        self._changed.notify_all()
      if (round_number, place) == self._bad:
        raise errors.InputError('a.jpg is damaged')
      return np.full(self._size, 100 * round_number + place, np.uint8)

    return cohort.Cohort(cohort.Values(value, range(CLIENTS)), round_number, ('a',))

  def wait(self, count):
    """Waits until `count` values are read, and checks a moment later that no more were read."""
    with self._changed:
      assert self._changed.wait_for(lambda: len(self.read) >= count, 10)
    time.sleep(0.02)
    assert len(self.read) == count


def test_values_are_those_of_the_cohort_and_the_next_round_is_read():
  source = Source()
  with ahead.Ahead(source.of, 3) as cohorts:
    for number in range(3):
      drawn = cohorts(number)
      assert (drawn.skipped, drawn.client_ids) == (number, ('a',))
      assert len(drawn.examples) == CLIENTS
      for place in range(CLIENTS):
        value = drawn.examples[place]
        assert (value == 100 * number + place).all()
        left = 3 * CLIENTS - (number * CLIENTS + place + 1)
        source.wait(3 * CLIENTS - max(left - ahead._AHEAD_CLIENTS, 0))
  assert sorted(source.read) == sorted(set(source.read))  # Each value is read once.
  assert 'tff_xc_prefetch' in source.threads
  assert not any(t.name.startswith('tff_xc_prefetch') for t in threading.enumerate())


@pytest.mark.parametrize(('most', 'read'), [(250, 3), (99, 1)])
def test_the_bound_in_bytes_holds(most, read, monkeypatch):
  monkeypatch.setattr(ahead, '_AHEAD_BYTES', most)
  source = Source(size=100)
  with ahead.Ahead(source.of, 3) as cohorts:
    cohorts(0).examples[0]
    source.wait(read)


def test_any_order_a_second_time_and_an_error_where_the_value_is_used():
  with ahead.Ahead(Source(bad=(1, 1)).of, 3) as cohorts:
    examples = cohorts(0).examples
    for place in (3, 1, 5, 1, 0, 2, 4):
      assert examples[place][0] == place
    examples = cohorts(1).examples
    assert examples[0][0] == 100
    with pytest.raises(errors.InputError, match='is damaged'):
      examples[1]
