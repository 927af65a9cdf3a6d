"""Compares FedSS and its baselines with NumPy, and tests special cases."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import sameness, tiny
from tests.algorithms import numpy_fedss
from tests.round import test_robust
from tff_xc import classifier, errors, heads
from tff_xc.algorithms import fedss
from tff_xc.round import (
  local_training,
  losses,
  optimizers,
  process as process_lib,
  randomness,
  request,
)

pytestmark = pytest.mark.usefixtures('tff_worker')

N = 12
COHORTS = (
  tiny.cohort([[0, 0, 3, 5], [7, 3], [11, 11, 11]], seed=1),
  tiny.cohort([[1, 2, 2], [3, 4, 5, 9, 9]], seed=2),
  tiny.cohort([[10], [0, 1, 2, 3], [6, 6]], seed=3),
)
FULL_BATCH = local_training.LocalTraining(0.1, 64, 2)


def cohort_of(round_number):
  return COHORTS[round_number]


def held_ids(negatives, client, round_number, seed=0, equal_negatives=False):
  """Returns the ids that a client requests, sampled as in the round."""
  chosen = request.OwnAndSampled(N, 4, negatives, equal_negatives=equal_negatives).held_rows(
    tf.constant(client.labels),
    randomness.client_seed(
      randomness.round_seed(tf.constant([seed, 0]), round_number),
      client.client_id,
      randomness.Purpose.NEGATIVES,
    ),
  )
  return chosen.ids.numpy()[chosen.mask.numpy()]


def processed(method, **given):
  return tiny.process(method, max_positives=4, local_training=FULL_BATCH, **given)


EQUAL = {'equal_negatives': True}


@pytest.mark.parametrize(
  ('method', 'negatives', 'correction', 'more'),
  [
    ('fedss', 4, 'negatives', {}),
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in (
        ('posonly', 0, 'none', {}),
        ('negonly', 2, 'negatives', EQUAL),
        ('fedss', 4, 'none', {}),
        # Another test covers this loss, and FedSS covers this sampling.
        ('negonly', 4, 'negatives', {}),
        ('negonly', 10, 'negatives', EQUAL),
      )
    ),
  ],
)
def test_three_rounds_equal_the_numpy_reference(method, negatives, correction, more):
  own = {'negatives': negatives, 'softmax_correction': correction}
  process = processed(method, **(own if negatives else {}), **more)
  state = process.initialize()
  weights = tiny.as_numpy(state.weights)
  velocity = [np.zeros_like(w) for w in weights]
  for round_number, cohort in enumerate(COHORTS):
    clients = []
    for client in cohort:
      held = held_ids(negatives, client, round_number, **more)
      own_classes = len(np.unique(client.labels))
      drawn = negatives + (own_classes - 1 if more else 0)
      assert len(held) == min(own_classes + drawn, N)
      deltas = numpy_fedss.train_client(
        method, weights, held, client.x, client.labels, correct=correction == 'negatives'
      )
      clients.append((held, deltas, len(client.labels)))
    weights, velocity = numpy_fedss.server_round(
      weights, velocity, clients, learning_rate=1.0, momentum=0.9
    )
    state = process.next(state, cohort).state
  tiny.assert_near(tiny.as_numpy(process.get_model_weights(state)), weights)


def test_a_client_of_posonly_equals_the_numpy_reference():
  """The server is FedSS's."""
  made = fedss.PosOnly.made(model=tiny.model(), max_positives=4, local_training=FULL_BATCH)
  state, sent = test_robust.first_state(made), test_robust.Sent(made)
  weights = tiny.as_numpy(state.weights)
  for client in COHORTS[0]:
    changes, weight = sent.changes(state, client)
    held = np.unique(client.labels)
    *expected, rows = numpy_fedss.train_client(
      'posonly', weights, held, client.x, client.labels, correct=False
    )
    table = np.zeros_like(weights[2])
    table[held] = rows
    found = [changes[name] for name in ('kernel', 'bias', 'class')]
    tiny.assert_near(found, [*expected, table])
    assert weight == len(client.labels)


def test_equal_negatives_of_clients_of_one_class_are_m():
  plain, equal = (request.OwnAndSampled(N, 1, 4, equal_negatives=equal) for equal in (False, True))
  for label in range(N):
    y, seed = tf.fill([1 + label % 3], label), tf.constant([7, label])
    a, b = (draws.held_rows(y, seed) for draws in (plain, equal))
    tf.nest.map_structure(np.testing.assert_array_equal, a, b)
    assert a.mask.numpy().sum() == 5
    # There are also 5 rows if a client may have more classes.
    several = request.OwnAndSampled(N, 3, 4, equal_negatives=True)
    assert several.held_rows(y, seed).mask.numpy().sum() == 5


@pytest.mark.slow
@pytest.mark.parametrize('correction', ['negatives', 'none'])
def test_all_other_classes_as_negatives_is_full_softmax(correction):
  sampled = tiny.process('fedss', max_positives=4, negatives=N - 1, softmax_correction=correction)
  full = tiny.process('fullsoftmax')
  state, metrics = tiny.run(sampled, 3, cohort_of)
  assert metrics['class_rows'] == N
  tiny.assert_same_weights(
    sampled.get_model_weights(state), tiny.weights_after(full, 3, cohort_of), 1e-5
  )


@pytest.mark.slow
def test_posonly_is_fedss_without_negatives():
  posonly = fedss.PosOnly.made(model=tiny.model(), max_positives=4, local_training=FULL_BATCH)
  none = dataclasses.replace(posonly, loss=losses.HeldSoftmax(N, 'negatives', 'held'))
  weights = [
    tiny.weights_after(process_lib.build_process(made), 2, cohort_of) for made in (posonly, none)
  ]
  tiny.assert_same_weights(*weights, 0)


@pytest.mark.slow
def test_padding_is_inert():
  weights = [
    tiny.weights_after(tiny.process('fedss', max_positives=slots, negatives=3), 2, cohort_of)
    for slots in (4, 9)
  ]
  tiny.assert_same_weights(*weights, 1e-6)


@pytest.mark.slow
def test_one_seed_is_one_run_and_another_seed_another():
  shared = {'max_positives': 4, 'negatives': 3}
  of_0, of_0_again, of_6 = (
    np.asarray(tiny.weights_after(process, 2, cohort_of).class_table)
    for process in (tiny.process('fedss', **shared, **of) for of in ({}, {}, {'seed': 6}))
  )
  np.testing.assert_array_equal(of_0, of_0_again)
  assert not np.allclose(of_0, of_6)


def test_centralized_is_one_client_on_sgd():
  made = fedss.Centralized.made(model=tiny.model(N), local_training=FULL_BATCH)
  client = tiny.cohort([[0, 4, 4, 7, 9]])[0]
  state = test_robust.first_state(made)
  weights = tiny.as_numpy(state.weights)
  expected = numpy_fedss.train_client(
    'fedss', weights, np.arange(N), client.x, client.labels, correct=False
  )
  changes, _ = test_robust.Sent(made).changes(state, client)
  tiny.assert_near([changes[name] for name in ('kernel', 'bias', 'class')], expected)
  # The server adds these changes.
  [table] = made.tables
  plain = optimizers.build_sgd(1.0)
  assert sameness.same(made.encoder_optimizer, plain)
  assert sameness.same(table.optimizer, optimizers.Dense(plain))


def test_the_rounds_metrics_are_means_over_the_cohort():
  """Loss and accuracy are those before both steps of a client."""
  process = processed('fedss', negatives=4, softmax_correction='negatives')
  received = tiny.as_numpy(process.initialize().weights)
  losses, correct = [], []
  for client in COHORTS[0]:
    held = held_ids(4, client, 0)
    own = np.unique(client.labels)
    terms, shift = numpy_fedss.terms_and_shift('fedss', held, own, client.labels, N, True)
    target = [int(np.flatnonzero(held == label)[0]) for label in client.labels]
    for steps in (0, 1):
      *deltas, moved = numpy_fedss.train_client(
        'fedss', received, held, client.x, client.labels, correct=True, epochs=steps
      )
      kernel, bias = (w + delta for w, delta in zip(received, deltas, strict=False))
      rows = received[2][held] + moved
      loss, *_ = numpy_fedss.loss_and_gradients(
        kernel, bias, rows, client.x, np.array(target), terms, shift, 4.0
      )
      unit = numpy_fedss.normalised(client.x @ kernel + bias)
      best = (unit @ numpy_fedss.normalised(rows).T).argmax(axis=1)
      losses.append(loss * len(client.labels) / 2)
      correct.append((best == target).sum() / 2)
  _, metrics = tiny.run(process, 1, cohort_of)
  examples = sum(len(c.labels) for c in COHORTS[0])
  assert sum(correct) > 0
  np.testing.assert_allclose(metrics['loss'], sum(losses) / examples, rtol=1e-5)
  np.testing.assert_allclose(metrics['local_accuracy'], sum(correct) / examples)
  rows = [len(np.unique(c.labels)) + 4 for c in COHORTS[0]]
  np.testing.assert_allclose(metrics['class_rows'], np.mean(rows), rtol=1e-6)
  assert metrics['class_rows_largest'] == max(rows)
  assert metrics['examples'] == examples
  assert metrics['clients'] == len(COHORTS[0])


def test_as_many_negatives_as_classes_is_refused():
  with pytest.raises(errors.InputError, match=r'--negatives=12.*fullsoftmax'):
    fedss.build_fedss(model=tiny.model(N), max_positives=4, negatives=N)


def test_the_number_of_classes_may_be_a_numpy_integer():
  model = classifier.EmbeddingClassifier(tiny.linear_encoder(), heads.CosineHead(4.0), np.int64(6))
  algorithm = fedss.FedSS(negatives=3).algorithm(model, max_positives=4)
  seed = randomness.client_seed(
    randomness.round_seed(tf.constant([0, 0]), 0), tf.constant(1, tf.int64), 0
  )
  held = algorithm.tables[0].request.held_rows(tf.constant([0, 1, 2, 5]), seed)
  assert {*held.ids.numpy()} == {*range(6)}
