"""Personal models, compared with NumPy and with the round of a single client."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import tiny, tiny_sparse
from tests.algorithms import numpy_fedss
from tff_xc import errors
from tff_xc.algorithms import registry
from tff_xc.options import schedules
from tff_xc.round import (
  algorithm as algorithm_lib,
  examples as examples_lib,
  local_training,
  personal,
  process as process_lib,
  randomness,
)

N, RATE = 12, 0.1
FULL_BATCH = local_training.LocalTraining(RATE, 64, 1)
[CLIENT] = tiny.cohort([[3, 5, 3, 8]])


def made(name, **arguments):
  arguments = {'model': tiny.model(), 'local_training': FULL_BATCH, **arguments}
  return registry.get(name).made(**arguments)


def seed_of(round_number=0, seed=0):
  return randomness.round_seed(tf.constant([seed, 0]), round_number)


def initial(algorithm):
  return algorithm.model.init(tf.constant([0, 0]))


@pytest.mark.parametrize(
  ('method', 'part', 'steps'),
  [
    ('fedavg', 'all', 1),
    ('fedavg', 'rows', 3),
    ('posonly', 'all', 3),
    pytest.param('fedavg', 'head', 3, marks=pytest.mark.slow),
    pytest.param('posonly', 'rows', 1, marks=pytest.mark.slow),
  ],
)
def test_steps_equal_the_numpy_reference(method, part, steps):
  more = {} if method == 'fedavg' else {'max_positives': 4}
  algorithm = made(method, **more)
  before = initial(algorithm)
  after = personal.build(algorithm, steps, part)(before, CLIENT, seed_of())
  kernel, bias, table = start = tiny.as_numpy(before)
  own = np.unique(CLIENT.labels)
  held = own if method == 'posonly' else np.arange(N)
  target = np.searchsorted(held, CLIENT.labels)
  moving = np.isin(held, own) if part == 'rows' else np.ones(len(held))
  rows, terms = table[held], np.ones([len(target), len(held)], bool)
  for _ in range(steps):
    _, *gradients = numpy_fedss.loss_and_gradients(
      kernel, bias, rows, CLIENT.x, target, terms, np.zeros(len(held)), 4.0
    )
    if part == 'all':
      kernel, bias = (w - RATE * g for w, g in zip((kernel, bias), gradients, strict=False))
    rows = rows - RATE * gradients[2] * moving[:, None]
  table = start[2].copy()
  table[held] = rows
  for found, expected in zip(tiny.as_numpy(after), (kernel, bias, table), strict=True):
    np.testing.assert_allclose(found, expected, atol=2e-6)
  assert not np.allclose(after.class_table, before.class_table)


def test_with_weight_decay_other_rows_stay_as_they_are():
  training = local_training.LocalTraining(RATE, 2, weight_decay=0.1)
  algorithm = made('fedavg', local_training=training)
  before = initial(algorithm)
  after = personal.build(algorithm, 5, 'rows')(before, CLIENT, seed_of())
  moved = np.any(after.class_table != before.class_table, axis=1)
  assert np.flatnonzero(moved).tolist() == [3, 5, 8]
  tf.nest.map_structure(np.testing.assert_array_equal, after.encoder, before.encoder)


SELECTS = {'max_positives': 4, 'server_momentum': 0.0, 'negatives': 3}


@pytest.mark.slow
@pytest.mark.usefixtures('in_process')
@pytest.mark.parametrize(
  ('method', 'more'),
  [
    ('fedss', SELECTS),
    ('fedir', {'class_probabilities': np.arange(1, N + 1)}),
    ('fedprox', {'prox_mu': 0.5}),
    ('moon', {}),
    ('scaffold', {'num_clients': 3}),
  ],
)
def test_it_is_the_model_after_a_round_of_one_client(method, more):
  training = local_training.LocalTraining(RATE, 2, 2)  # The clients have four examples.
  algorithm = made(method, local_training=training, **more)
  process = process_lib.build_process(algorithm)
  state = process.initialize()
  before = process.get_model_weights(state)
  value = CLIENT
  if algorithm.client_state:
    kept = examples_lib.nothing_kept(algorithm.client_state.spec)
    value = value._replace(state=kept)
  next_state = process.next(state, [value]).state
  after = personal.build(algorithm, 4)(before, CLIENT, seed_of())
  tf.nest.map_structure(
    lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
    after,
    process.get_model_weights(next_state),
  )
  assert not np.allclose(after.class_table, before.class_table)


def test_a_rate_of_zero_changes_nothing():
  algorithm = made('fedss', **SELECTS)
  before = initial(algorithm)
  after = personal.build(algorithm, 3, learning_rate=0.0)(before, CLIENT, seed_of())
  tf.nest.map_structure(np.testing.assert_array_equal, after, before)


@pytest.mark.slow
def test_feature_rows_that_it_requests_move_as_those_of_a_whole_table():
  model = tiny_sparse.model()
  [client] = tiny_sparse.cohort([[(2, [[1, 4]]), (5, [[4, 7], [1]])]])
  whole = made('fedss', model=model, **SELECTS)
  [name] = model.encoder.tables
  own, before = algorithm_lib.own_rows(whole, name, 5), initial(whole)
  for part in personal.PARTS:
    found, expected = (
      personal.build(each, 2, part)(before, client, seed_of()) for each in (own, whole)
    )
    tf.nest.map_structure(np.testing.assert_array_equal, found, expected)
    moved = np.any(found.tables[name] != before.tables[name], axis=1)
    assert set(np.flatnonzero(moved)) <= {1, 4, 7}
    assert moved.any() == (part == 'all')


def test_rows_that_nobody_trains_are_no_part():
  for term in (0.0, 1.0):  # MOON's term wraps the loss.
    algorithm = made('fedaws_baseline2', max_positives=4, contrastive_weight=term)
    with pytest.raises(errors.InputError, match='personalize_part=head'):
      personal.build(algorithm, 1, 'head')


def test_steps_have_the_constant_rate_whatever_the_schedule():
  ended = dataclasses.replace(FULL_BATCH, schedule=schedules.Schedule('step', 1, 0.0))
  ends = [
    personal.build(algorithm, 2)(initial(algorithm), CLIENT, seed_of(5))
    for algorithm in (made('fedavg'), made('fedavg', local_training=ended))
  ]
  tiny.assert_same_weights(*ends, 0.0)
