"""FedProto compared with NumPy: prototypes, their weights, and classes without a prototype."""

import numpy as np
import pytest
import tensorflow as tf

from tests import registered, tiny
from tests.algorithms import numpy_fedss, test_fedavg
from tests.round import test_robust
from tff_xc import errors, heads
from tff_xc.algorithms import fedproto
from tff_xc.measure import search
from tff_xc.round import local_training, personal, randomness

pytestmark = pytest.mark.usefixtures('in_process')

RATE, N, DIM = 0.1, 12, tiny.DIM
# Two clients of a round have class 3, with 1 and 3 examples. Class 0 occurs in two rounds.
COHORTS = [
  tiny.cohort(labels, seed)
  for seed, labels in enumerate(
    ([[0, 0, 3, 5], [3, 3, 3, 7]], [[0, 1, 3], [], [5, 5, 9]], [[9, 3, 0], [1, 1, 7]])
  )
]


RAW = tiny.model(head=heads.LinearHead(bias=False))


def process(**given):
  given = {'local_training': test_fedavg.FULL_BATCH, **given}
  return tiny.process('fedproto', max_positives=4, **given)


def steps_of_client(kernel, bias, prototypes, client, weight, unit):
  """Returns the encoder after two full-batch steps. `prototypes` are by class."""
  known = np.array([label in prototypes for label in client.labels])
  own = [c for c in np.unique(client.labels) if c in prototypes]
  as_compared = numpy_fedss.normalised if unit else np.asarray
  scale = 4.0 if unit else 2.0  # The logits are half of this number times the squared distance.
  for _ in range(2):
    e = client.x @ kernel + bias
    compared, by_e = as_compared(e), np.zeros_like(e)
    for i in np.flatnonzero(known):
      away = np.array([compared[i] - as_compared(prototypes[c]) for c in own])
      p = np.exp(-scale / 2 * (away**2).sum(1))
      p /= p.sum()
      place = own.index(client.labels[i])
      p[place] -= 1
      by_e[i] = -scale * p @ away + weight * 2 * away[place]
    if unit:
      by_e = numpy_fedss.back_through_norm(e, by_e)
    by_e /= len(e)
    kernel, bias = kernel - RATE * client.x.T @ by_e, bias - RATE * by_e.sum(0)
  return kernel, bias


def reference(kernel, bias, weight, unit):
  """Returns the encoder, and the prototypes by class, after all cohorts."""
  prototypes = {}
  for clients in COHORTS:
    encoders, sent = [], {}
    for client in (c for c in clients if len(c.labels)):
      own = steps_of_client(kernel, bias, prototypes, client, weight, unit)
      encoders.append((len(client.labels), *own))
      embeddings = client.x @ own[0] + own[1]
      if unit:
        embeddings = numpy_fedss.normalised(embeddings)
      for label in np.unique(client.labels):
        of = embeddings[client.labels == label]
        sent.setdefault(label, []).append((len(of), of.mean(0)))
    total = sum(count for count, *_ in encoders)
    kernel, bias = (sum(e[0] / total * e[i] for e in encoders) for i in (1, 2))
    for label, each in sent.items():
      count = sum(c for c, _ in each)
      prototypes[label] = sum(c / count * mean for c, mean in each)
  return kernel, bias, prototypes


@pytest.mark.parametrize(
  ('unit', 'weight'),
  [(True, 2.0), *(pytest.param(False, w, marks=pytest.mark.slow) for w in (0.0, 0.5))],
)
def test_three_rounds_equal_the_numpy_reference(unit, weight):
  """A cosine head compares vectors of norm 1. A linear head compares unscaled embeddings."""
  model = tiny.model() if unit else RAW
  learning = process(prototype_weight=weight, model=model)
  first = tiny.as_numpy(learning.initialize().weights)
  found = tiny.as_numpy(tiny.weights_after(learning, 3, COHORTS.__getitem__))
  kernel, bias, prototypes = reference(*first[:2], weight, unit)
  np.testing.assert_allclose(found[0], kernel, atol=2e-5)
  np.testing.assert_allclose(found[1], bias, atol=2e-5)
  assert np.abs(kernel - first[0]).max() > 0.05
  table = np.zeros([N, DIM + 1])
  for label, mean in prototypes.items():
    table[label] = *mean, 1
  np.testing.assert_allclose(found[2], table, atol=5e-5)


def test_at_a_rate_of_zero_rows_are_the_means_of_classes():
  """A client's means cover all its examples, for all sizes of batches."""
  still = local_training.LocalTraining(0.0, 2)
  made = fedproto.FedProto.made(model=RAW, max_positives=4, local_training=still)
  state, sent = test_robust.first_state(made), test_robust.Sent(made)
  kernel, bias, table = tiny.as_numpy(state.weights)
  assert not table.any()
  for client in COHORTS[0]:
    changes, _ = sent.changes(state, client)
    np.testing.assert_array_equal(changes['kernel'], 0)
    embeddings = client.x @ kernel + bias
    for label, number in zip(*np.unique(client.labels, return_counts=True), strict=True):
      mean = embeddings[client.labels == label].mean(0)
      np.testing.assert_allclose(changes['class'][label], [*mean, number], atol=1e-5)


@pytest.mark.slow
def test_a_class_without_examples_in_a_round_keeps_its_prototype():
  learning = process()
  state, _ = tiny.run(learning, 1, lambda _: COHORTS[0])
  [client, _] = COHORTS[0]
  some = client._replace(x=client.x[:2], labels=client.labels[:2])  # Only examples of class 0.
  after = learning.next(state, [some]).state.weights.class_table
  before = state.weights.class_table
  moved = np.any(np.asarray(after) != np.asarray(before), axis=1)
  assert np.flatnonzero(moved).tolist() == [0]


def test_a_dropped_client_sends_no_prototype():
  learning = process(prototype_weight=2.0)  # As in the test of three rounds.
  bad = COHORTS[0][1]
  bad = bad._replace(x=np.full_like(bad.x, np.nan))
  with_it, without = (
    learning.next(learning.initialize(), clients).state.weights
    for clients in ([COHORTS[0][0], bad], COHORTS[0][:1])
  )
  tiny.assert_same_weights(with_it, without, 0.0)


def test_the_nearest_prototype_is_best_and_a_class_without_one_never_is():
  random = np.random.default_rng(0)
  table = np.zeros([6, 4], np.float32)
  seen = [0, 2, 3, 5]
  table[seen] = np.c_[random.normal(3.0, 1.0, [4, 3]), np.ones(4)]
  e = random.normal(1.0, 2.0, [50, 3]).astype(np.float32)
  head = heads.PrototypeHead()
  far = np.square(e[:, None] - table[None, seen, :3]).sum(2)
  order = np.array(seen)[far.argsort(1)]
  rows, bias = head.scoring_rows(tf.constant(table))
  found = search.top_k(e, np.asarray(rows), 6, np.asarray(bias))
  np.testing.assert_array_equal(found[:, :4], order)
  assert (found[:, 4:] == -1).all()
  logits = np.asarray(head.logits(e, tf.constant(table), None))
  np.testing.assert_array_equal((-logits).argsort(1)[:, :4], order)
  of_seen = logits[:, seen] - np.square(e).sum(1, keepdims=True)
  np.testing.assert_allclose(of_seen, -far, rtol=1e-4, atol=1e-3)
  unit = heads.PrototypeHead(5.0, unit=True)
  table[seen, :3] *= 7
  rows, bias = unit.scoring_rows(tf.constant(table))
  found = search.top_k(e, np.asarray(rows), 6, np.asarray(bias))
  logits = np.asarray(unit.logits(e, tf.constant(table), None))
  np.testing.assert_array_equal(found[:, :4], (-logits).argsort(1)[:, :4])
  cosines = numpy_fedss.normalised(e) @ numpy_fedss.normalised(table[seen, :3]).T
  np.testing.assert_allclose(logits[:, seen] + 2.5, 5 * cosines, atol=1e-4)
  assert not head.init(tf.constant([0, 1]), 6, 3).numpy().any()


def test_it_warns_of_clients_of_one_class_and_has_no_rows_to_adapt():
  cls = fedproto.FedProto
  assert 'alike' in cls().warnings(10, 1)[0]
  assert not cls().warnings(10, 2)
  for given in ({}, {'contrastive_weight': 1.0}):
    made = registered.algorithm('fedproto', **given)
    for part in ('head', 'rows'):
      with pytest.raises(errors.InputError, match='do not train class'):
        personal.build(made, 3, part)


@pytest.mark.parametrize(
  'given',
  [
    {'weight_decay': 0.1, 'client_optimizer': 'adam'},
    *(pytest.param(g, marks=pytest.mark.slow) for g in ({}, {'weight_decay': 0.1})),
  ],
)
def test_a_client_adapts_its_encoder_alone(given):
  made = registered.algorithm('fedproto', **given)
  weights = made.model.init(tf.constant([0, 1]))
  rows = np.random.default_rng(0).normal(size=weights.class_table.shape)
  rows[:, -1] = 1  # All classes have a prototype.
  weights.tables['class'] = tf.constant(rows, tf.float32)
  seed = randomness.round_seed(tf.constant([0, 0]), 0)
  after = personal.build(made, 3)(weights, COHORTS[0][0], seed)
  np.testing.assert_array_equal(after.class_table, weights.class_table)
  assert not np.allclose(after.encoder['kernel'], weights.encoder['kernel'])
