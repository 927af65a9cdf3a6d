"""FedSS with other schedules of negatives, compared with NumPy, and on several threads."""

import collections
import dataclasses
import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from tests import tiny
from tests.algorithms import numpy_fedss
from tff_xc import errors
from tff_xc.algorithms import fedss
from tff_xc.round import local_training, randomized, randomness, request, tables

M = 4
SLOW = pytest.mark.slow
COHORTS = (
  tiny.cohort([[0, 0, 3, 5], [7, 3], [11, 11, 11]], seed=1),
  tiny.cohort([[1, 2, 2], [3, 4, 5, 9, 9], [8]], seed=2),
  tiny.cohort([[10], [0, 1, 2, 3], [6, 6]], seed=3),
)
FULL_BATCH = local_training.LocalTraining(0.1, 64, 2)
SCHEDULES = {
  'sticky': {},
  'partial': {'negatives_renewed': 0.5},
  'randomized': {'request_epsilon': 1.5, 'negatives_renewed': 0.3},
}


def process(schedule, **more):
  return tiny.process(
    'fedss',
    max_positives=4,
    negatives=M,
    local_training=FULL_BATCH,
    negatives_schedule=schedule,
    **SCHEDULES[schedule],
    **more,
  )


def held_ids(schedule, client, round_number):
  made = fedss.FedSS.made(
    model=tiny.model(),
    max_positives=4,
    negatives=M,
    negatives_schedule=schedule,
    **SCHEDULES[schedule],
  )
  seed = randomness.round_seed(tf.constant([0, 0]), round_number)
  who = client.client_id, randomness.Purpose.NEGATIVES
  held = made.tables[0].request.held_rows(
    tf.constant(client.labels),
    randomness.client_seed(seed, *who),
    lasting=randomness.lasting(seed, *who),
  )
  return held.ids.numpy()[held.mask.numpy()]


@pytest.fixture(params=['in_process', pytest.param('worker', marks=SLOW)])
def runtime(request):
  request.getfixturevalue({'worker': 'tff_worker'}.get(request.param, request.param))


@pytest.mark.parametrize(
  'schedule',
  [
    # This schedule includes all features that are tested here.
    pytest.param(name, marks=[SLOW] * (name != 'randomized'))
    for name in SCHEDULES
  ],
)
@pytest.mark.usefixtures('runtime')
def test_three_rounds_equal_the_numpy_reference(schedule):
  made = process(schedule)
  state = made.initialize()
  weights = tiny.as_numpy(state.weights)
  velocity, missed = [np.zeros_like(w) for w in weights], 0
  for round_number, cohort in enumerate(COHORTS):
    clients = []
    for client in cohort:
      held = held_ids(schedule, client, round_number)
      # Examples whose class was not requested are left out.
      kept = np.isin(client.labels, held)
      missed += (~kept).sum()
      if schedule != 'randomized':
        assert len(held) == len(np.unique(client.labels)) + M
      if not kept.any():
        continue
      x, y = client.x[kept], client.labels[kept]
      deltas = numpy_fedss.train_client('fedss', weights, held, x, y, correct=True)
      clients.append((held, deltas, len(y)))
    weights, velocity = numpy_fedss.server_round(
      weights, velocity, clients, learning_rate=1.0, momentum=0.9
    )
    output = made.next(state, cohort)
    state = output.state
    assert output.metrics['examples'] == sum(size for *_, size in clients)
  assert (missed > 0) == (schedule == 'randomized')
  tiny.assert_near(tiny.as_numpy(made.get_model_weights(state)), weights)


def of_run(client, round_number, randomness_='private', schedule='fresh', made=None):
  """Returns the ids that a client requests in a round, in their order."""
  made = made or fedss.FedSS.made(
    model=tiny.model(),
    max_positives=4,
    negatives=M,
    negatives_schedule=schedule,
    request_randomness=randomness_,
  )
  seed = randomness.round_seed(tf.constant([0, 0]), round_number)
  value = tf.nest.map_structure(tf.constant, client_value(client))
  held = tables.held_rows(made.model, made.tables, value, seed)
  found = held['class']
  return found.ids.numpy()[found.mask.numpy()].tolist()


def client_value(number):
  return tiny.cohort([[3, 5, 5]])[0]._replace(client_id=np.int64(number))


def test_a_server_that_knows_the_seed_knows_the_own_classes():
  """The server can reverse the shuffle. Before the shuffle, the client's own classes come first."""
  ids = of_run(6, 2, 'reproducible')
  seed = randomness.round_seed(tf.constant([0, 0]), 2)
  client = tf.constant(6, tf.int64)
  of_client = randomness.client_seed(seed, client, randomness.Purpose.NEGATIVES)

  def first_two(ids):
    order = tf.random.experimental.stateless_shuffle(
      tf.range(len(ids)), randomness.step_seed(of_client, 1)
    ).numpy()
    return {ids[place] for place in np.flatnonzero(order < 2)}

  assert first_two(ids) == {3, 5}
  # The first two ids are the own classes by chance, in one of 15 cases.
  private = [of_run(6, 2, 'private') for _ in range(10)]
  assert len({*map(tuple, private)}) > 5
  assert sum(first_two(ids) == {3, 5} for ids in private) < 8


@pytest.mark.parametrize('randomness_', ['reproducible', 'private'])
def test_sticky_negatives_stay_and_differ_between_clients(randomness_):
  made = fedss.FedSS.made(
    model=tiny.model(),
    max_positives=4,
    negatives=M,
    negatives_schedule='sticky',
    request_randomness=randomness_,
  )
  found = [of_run(1, r, made=made) for r in range(4)]
  assert len({frozenset(ids) for ids in found}) == 1
  assert len({*map(tuple, found)}) > 1  # The order of the ids differs, so it reveals nothing.
  others = {frozenset(of_run(c, 0, made=made)) for c in range(2, 6)}
  assert len(others) > 1
  assert 'Secret' in repr(made) or randomness_ == 'reproducible'
  assert not made.tables[0].request.secret or not any(
    str(number) in repr(made) for number in made.tables[0].request.secret
  )


def test_partial_negatives_are_renewed_by_a_share_in_each_round():
  made = request.OwnAndSampled(200, 4, 40, schedule='partial', renewed=0.1)
  own, of = tf.constant([3, 90]), tf.constant([8, 1])

  def negatives(round_number):
    lasting = randomness.Lasting(of, tf.constant(round_number))
    held = made.held_rows(own, tf.constant([round_number, 2]), lasting=lasting)
    found = {*held.ids.numpy()[held.mask.numpy()]}
    assert len(found) == 42
    assert found >= {3, 90}
    return found - {3, 90}

  found = [negatives(r) for r in range(60)]
  assert {len(b - a) for a, b in itertools.pairwise(found)} == {4}
  assert not found[0] & found[10]
  # After all classes were requested once, the requests begin again.
  assert len({*itertools.chain(*found)}) == 198


def test_the_share_is_of_all_negatives_of_a_client():
  made = request.OwnAndSampled(2000, 41, 10, equal_negatives=True, schedule='partial', renewed=0.2)
  own = tf.range(41)

  def negatives(round_number):
    lasting = randomness.Lasting(tf.constant([8, 1]), tf.constant(round_number))
    held = made.held_rows(own, tf.constant([round_number, 2]), lasting=lasting)
    return {*held.ids.numpy()[held.mask.numpy()]} - {*range(41)}

  found = [negatives(r) for r in range(3)]
  assert {len(each) for each in found} == {50}
  assert {len(b - a) for a, b in itertools.pairwise(found)} == {10}


@pytest.mark.slow
def test_windows_are_samples_without_replacement():
  def draw(i):
    return request.window(tf.stack([i, 3]), 3, tf.constant(7), tf.constant(2.5, tf.float64))

  times = 4200
  drawn = tf.function(
    lambda: tf.map_fn(draw, tf.range(times), fn_output_signature=tf.TensorSpec([3], tf.int32))
  )().numpy()
  counts = collections.Counter(tuple(sorted(ids)) for ids in drawn.tolist())
  assert len(counts) == 35
  assert all(len({*ids}) == 3 for ids in counts)
  expected = times / 35
  # 65.2 is the 99.9 % quantile of chi-squared with 34 degrees of freedom.
  assert sum((c - expected) ** 2 / expected for c in counts.values()) < 65.2


@pytest.mark.slow
def test_randomized_requests_have_their_probabilities():
  n, r, clients = 100, 12, 200
  made = randomized.Randomized(n, 5, 20, epsilon=2.0, renewed=0.2)
  own = np.isin(np.arange(n), [4, 50, 99])
  ask = tf.function(
    lambda a, b: made.held_rows(
      tf.constant([4, 50, 99]), b, lasting=randomness.Lasting(a, tf.constant(0))
    )
  )
  times = np.zeros([clients, n], int)
  for c in range(clients):
    for i in range(r):
      held = ask(tf.constant([c, 1]), tf.constant([c, 2 + i]))
      ids = held.ids.numpy()[held.mask.numpy()]
      assert len({*ids}) == len(ids)
      times[c, ids] += 1
  for of_class, which in ((own, 0), (~own, 1)):
    found = np.bincount(times[:, of_class].ravel(), minlength=r + 1)
    expected = np.array(
      [math.comb(r, k) * math.exp(made.response.log_likelihoods(k, r)[which]) for k in range(r + 1)]
    )
    assert expected.sum() == pytest.approx(1)
    # The classes of a client are nearly independent, so allow four standard deviations.
    count = found.sum()
    spread = 4 * np.sqrt(count * expected * (1 - expected)) + 2
    assert (np.abs(found - count * expected) < spread).all()


@pytest.mark.parametrize(
  ('changes', 'word'),
  [
    ({'negatives_renewed': 0.5}, 'negatives_schedule'),
    ({'negatives_schedule': 'sticky', 'request_epsilon': 1.0}, 'epsilon'),
  ],
)
def test_what_does_not_go_together_is_refused(changes, word):
  with pytest.raises(errors.InputError, match=word):
    fedss.FedSS.resolve(changes, {})


def test_too_small_an_epsilon_warns():
  made = fedss.FedSS(negatives=5, negatives_schedule='randomized', request_epsilon=2.0)
  [told] = made.warnings(2028, 50)
  assert 'request_epsilon' in told
  assert not dataclasses.replace(made, negatives=300).warnings(2028, 50)
