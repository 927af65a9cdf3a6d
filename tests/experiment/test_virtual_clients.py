"""FedVC: who is drawn, which examples, and how many steps a client takes."""

import collections
import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests import small_data
from tests import tiny
from tff_xc import classifier
from tff_xc import errors
from tff_xc.algorithms import fedavg
from tff_xc.algorithms import moon
from tff_xc.data import client_data
from tff_xc.data import partition
from tff_xc.data import pool
from tff_xc.experiment import cohort
from tff_xc.round import local_training
from tff_xc.round import process

SIZES = (5, 0, 1, 3, 2)
_ROUNDS = 4000


def dataset(sizes=SIZES):
  """Example k of client i is 100 i + k; a client has the classes i and 9."""
  owners = np.repeat(np.arange(len(sizes)), sizes)
  places = np.concatenate([np.arange(size) for size in sizes])
  y = np.where(places == 0, 9, owners)
  clients = {f'c{i}': np.flatnonzero(owners == i) for i in range(len(sizes))}
  train = client_data.PartitionedClientData(
    pool.in_memory((100 * owners + places).astype(np.int32), y),
    partition.of_clients(clients),
  )
  return client_data.FederatedDataset('sizes', 10, train)


def draws(clients, examples, replace=False, seed=7, data=None):
  sampling = cohort.VirtualClients(clients, examples, replace)
  return sampling.cohorts(data or dataset(), seed)


def drawn_ids(clients, replace=False):
  """Returns the clients of all rounds, int [rounds, K], without their examples."""
  draw = draws(clients, 1, replace)
  each = [draw(r).client_ids for r in range(_ROUNDS)]
  return np.array([[int(name[1:]) for name in ids] for ids in each])


def inclusion(sizes, count):
  """Returns each client's probability to be among `count` successive draws."""
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
  assert expected[1] == 0  # It has no examples.
  shares = np.bincount(ids.ravel(), minlength=len(SIZES)) / _ROUNDS
  # Four standard errors; of two draws, the largest is in 0.77; uniform: 0.5.
  error = np.sqrt(expected * (1 - expected) / _ROUNDS)
  assert (np.abs(shares - expected) <= 4 * error + 1e-12).all()


def test_with_replacement_every_draw_is_in_proportion():
  ids = drawn_ids(3, replace=True)
  shares = np.bincount(ids.ravel(), minlength=len(SIZES)) / ids.size
  np.testing.assert_allclose(shares, np.array(SIZES) / 11, atol=0.02)
  # Two draws of three agree with probability 1 - (all differ).
  q = np.array(SIZES) / 11
  differ = sum(
    q[list(t)].prod() for t in itertools.permutations(range(len(q)), 3)
  )
  repeats = np.mean([len(set(row)) < 3 for row in ids])
  assert repeats == pytest.approx(1 - differ, abs=0.03)


def test_a_client_drawn_twice_has_other_examples_and_another_id():
  draw = draws(6, 3, replace=True, data=dataset((50, 1)))
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
      client, own = int(e.client_id), set(e.x - 100 * int(e.client_id))
      assert len(e.x) == len(e.y) == 3
      assert own <= set(range(SIZES[client]))
      if SIZES[client] >= 3:
        assert len(own) == 3
      seen[client].add(tuple(e.x))
      # The rows that it requests are those of all its examples.
      np.testing.assert_array_equal(
        np.sort(e.all_y), np.sort([9] + (SIZES[client] - 1) * [client])
      )
  assert len(seen[0]) > 30  # Of 60 orders of 3 among 5.
  assert {len(set(x)) for x in seen[4]} == {
    1,
    2,
  }  # Of its two, with repetition.


def test_cohorts_depend_on_seed_and_round_alone():
  one, two, other = (draws(3, 4, seed=seed) for seed in (7, 7, 8))
  as_lists = lambda found: [(int(e.client_id), [*e.x]) for e in found.examples]
  assert as_lists(one(5)) == as_lists(two(5))
  assert as_lists(one(4)) == as_lists(two(4))
  assert any(as_lists(one(r)) != as_lists(other(r)) for r in range(3))


@pytest.mark.parametrize(
  ('clients', 'replace', 'sizes'),
  [(5, False, SIZES), (1, False, (0, 0)), (1, True, (0, 0))],
)
def test_too_few_clients_with_examples_are_refused(clients, replace, sizes):
  found = np.count_nonzero(sizes)
  message = f'{found} clients with examples; give --clients_per_round={found}'
  if not found:
    message = 'the data have no clients with examples'
  with pytest.raises(errors.InputError, match=message):
    draws(clients, 1, replace, data=dataset(sizes))


def algorithm(model=None, batch_size=4, **changes):
  training = local_training.LocalTraining(0.1, batch_size, 3, steps=7)
  model = model or tiny.model()
  made = fedavg.fedavg(model=model, local_training=training)
  return cohort.virtual_clients(made, **changes)


def test_the_option_changes_sampling_weighting_and_epochs():
  made = algorithm(clients_per_round=2, examples=8, replace=True)
  assert made.sampling == cohort.VirtualClients(2, 8, True)
  assert made.weighting == 'uniform'
  training = made.local_training
  assert (training.epochs, training.steps, training.batch_size) == (1, 0, 4)


def test_what_does_not_fit_is_refused():
  with pytest.raises(ValueError, match='no multiple'):
    algorithm(clients_per_round=2, examples=10)
  keeps = moon.moon(model=tiny.model())
  cohort.virtual_clients(keeps, 2, 32)
  with pytest.raises(ValueError, match='replacement'):
    cohort.virtual_clients(keeps, 2, 32, replace=True)


@pytest.mark.parametrize(
  ('examples', 'batch_size'),
  [(12, 4), pytest.param(3, 3, marks=pytest.mark.slow)],
)
def test_every_client_takes_exactly_n_over_b_steps(
  examples, batch_size, in_process
):
  """The encoder counts the steps; the clients have 1 to 10 examples."""
  dataset, model = small_data.images()
  plain = model.encoder
  sizes = np.array([1, 2, 3, 5, 8, 10])
  kept = np.concatenate([10 * i + np.arange(n) for i, n in enumerate(sizes)])
  clients = partition.of_owners(kept // 10, kept)
  train = client_data.PartitionedClientData(dataset.train.pool, clients)

  def apply(weights, state, x, training, seed):
    embeddings, _ = plain.apply(weights, {}, x, training, seed)
    return embeddings, collections.OrderedDict(steps=state['steps'] + 1.0)

  counting = dataclasses.replace(
    plain,
    apply=apply,
    init_non_trainable=lambda seed: collections.OrderedDict(
      steps=tf.constant(0.0)
    ),
  )
  made = algorithm(
    classifier.EmbeddingClassifier(counting, model.head, 8),
    batch_size,
    clients_per_round=6,
    examples=examples,
  )
  drawn = made.sampling.cohorts(dataclasses.replace(dataset, train=train), 0)(0)
  learning = process.build_process(made)
  assert len(drawn.examples) == 6
  for client in drawn.examples:
    output = learning.next(learning.initialize(), [client])
    steps = output.state.weights.encoder_state['steps']
    assert float(steps) == examples / batch_size


def test_with_equal_clients_that_all_take_part_fedvc_is_fedavg(in_process):
  """Up to the order of examples, which full batches do not show."""
  dataset, model = small_data.images()
  training = local_training.LocalTraining(0.5, 10)
  plain = fedavg.fedavg(model=model, local_training=training)
  plain = dataclasses.replace(plain, sampling=cohort.UniformClients(6))
  virtual = cohort.virtual_clients(plain, 6, 10)
  found = []
  for made in (plain, virtual):
    learning = process.build_process(made)
    draw = made.sampling.cohorts(dataset, 3)
    found.append(
      tiny.weights_after(learning, 2, lambda r, draw=draw: [*draw(r).examples])
    )
  tiny.assert_same_weights(*found, 1e-5)
