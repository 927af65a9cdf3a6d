"""FedMLH compared with NumPy: every client trains R networks, each with its own Adam."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import tiny
from tests.algorithms import numpy_fedavg
from tff_xc import classifier, heads
from tff_xc.algorithms import fedavg, fedmlh
from tff_xc.data import hashing, sparse
from tff_xc.encoders import encoder as encoder_lib, mlp
from tff_xc.round import examples, local_training, process

pytestmark = pytest.mark.usefixtures('in_process_context', 'built_once')

FEATURES, HIDDEN, LABELS, TABLES, BUCKETS = 6, 4, 11, 3, 5
ADAM = local_training.LocalTraining(0.05, 64, 2, optimizer_name='adam')
MODEL = classifier.EmbeddingClassifier(
  mlp.build_mlp_encoder(FEATURES, HIDDEN), heads.LinearHead(), LABELS, label_sets=True
)


def client(number, label_sets):
  """Returns a client, and its examples as dense arrays (x, y)."""
  random = np.random.default_rng(number)
  x = random.normal(size=[len(label_sets), FEATURES])
  x = np.float32(x * (random.random(x.shape) < 0.6))
  y = np.zeros([len(label_sets), LABELS], bool)
  for i, labels in enumerate(label_sets):
    y[i, labels] = True
  at, ids = np.nonzero(x)

  def splits(a):
    return np.int32(np.cumsum([0, *(a != 0).sum(axis=1)]))

  labels = sparse.LabelSets(splits(y), np.int32(np.nonzero(y)[1]))
  features = sparse.SparseFeatures(splits(x), np.int32(ids), x[at, ids])
  made = examples.ClientExamples(features, labels, np.int64(number), labels.ids)
  return made, (np.float64(x), y)


COHORTS = (
  (client(0, [[0, 3], [3], [7, 8, 9]]), client(1, [[1], []])),
  (client(2, [[10, 2]]), client(3, [[5], [5, 6], [4], [0]])),
)


def gradients(weights, x, hits):
  """Returns the gradients of a network's mean cross entropy."""
  (k0, b0, k1, b1, table), rows = weights, len(x)
  h0 = np.maximum(x @ k0 + b0, 0)
  h1 = np.maximum(h0 @ k1 + b1, 0)
  ones = np.ones([rows, 1])
  z = np.concatenate([h1, ones], 1) @ table.T
  by_z = (1 / (1 + np.exp(-z)) - hits) / (rows * len(table))
  by_h1 = (by_z @ table[:, :-1]) * (h1 > 0)
  by_h0 = (by_h1 @ k1.T) * (h0 > 0)
  by_table = by_z.T @ np.concatenate([h1, ones], 1)
  return [x.T @ by_h0, by_h0.sum(0), h0.T @ by_h1, by_h1.sum(0), by_table]


def train(weights, x, hits):
  adam = numpy_fedavg.Server('adam', 0.05)
  for _ in range(2):
    weights = adam(weights, gradients(weights, x, hits))
  return weights


def networks(weights, tables):
  """Returns a list of weights for each network, float64."""
  encoder = [np.float64(w) for w in weights.encoder.values()]
  table = np.float64(weights.class_table)

  def of(r):
    return slice(HIDDEN * r, HIDDEN * (r + 1))

  return [
    [
      encoder[0][:, of(r)],
      encoder[1][of(r)],
      encoder[2][r],
      encoder[3][r, 0],
      table.reshape(tables, -1, HIDDEN + 1)[r],
    ]
    for r in range(tables)
  ]


def hits_of(y, r):
  buckets = hashing.buckets(np.arange(LABELS), r, BUCKETS)
  return np.stack([y[:, buckets == b].any(1) for b in range(BUCKETS)], 1)


@pytest.mark.parametrize(
  ('name', 'tables', 'hits'),
  [('fedmlh', TABLES, hits_of), pytest.param('fedavg', 1, lambda y, r: y, marks=pytest.mark.slow)],
)
def test_two_rounds_equal_the_reference(name, tables, hits):
  if name == 'fedmlh':
    made = fedmlh.build_fedmlh(
      model=MODEL, hash_tables=TABLES, hash_buckets=BUCKETS, local_training=ADAM
    )
  else:
    made = fedavg.build_fedavg(model=MODEL, local_training=ADAM, weighting='uniform')
  state = made.initialize()
  wanted = networks(state.weights, tables)
  for cohort in COHORTS:
    trained = [[train(wanted[r], x, hits(y, r)) for r in range(tables)] for _, (x, y) in cohort]
    wanted = [
      [np.mean(each, axis=0) for each in zip(*of_r, strict=True)]
      for of_r in zip(*trained, strict=True)
    ]
    output = made.next(state, [c for c, _ in cohort])
    state = output.state
  found = networks(state.weights, tables)
  tiny.assert_near(tf.nest.flatten(found), tf.nest.flatten(wanted), 3e-4)
  assert np.isfinite(output.metrics['loss'])


@pytest.mark.slow
def test_all_buckets_selected_are_all_buckets():
  """If all buckets are selected, training equals training without selection."""
  arguments = {
    'model': MODEL, 'hash_tables': TABLES, 'hash_buckets': BUCKETS,
    'local_training': ADAM,
  }  # fmt: skip
  selected = fedmlh.FedMLH.made(
    **arguments, select_buckets=True, bucket_negatives=14, max_positives=5
  )
  cohort = [c for c, _ in COHORTS[0]]
  ends = [
    tiny.weights_after(process.build_process(made), 1, lambda _: cohort)
    for made in (fedmlh.FedMLH.made(**arguments), selected)
  ]
  tiny.assert_same_weights(*ends, 2e-3)


def test_the_batched_networks_are_the_networks_one_after_the_other():
  batched = mlp.build_mlp_encoder(FEATURES, HIDDEN, TABLES)
  plain = mlp.build_mlp_encoder(FEATURES, HIDDEN)
  looped = encoder_lib.side_by_side(dataclasses.replace(plain, copies=None), TABLES)
  weights = looped.init(tf.constant([1, 2]))

  def of(name):
    return [weights[f'copy{r}/{name}'] for r in range(TABLES)]

  joined = {
    'hidden0/kernel': tf.concat(of('hidden0/kernel'), 1),
    'hidden0/bias': tf.concat(of('hidden0/bias'), 0),
    'hidden1/kernel': tf.concat(of('hidden1/kernel'), 0),
    'hidden1/bias': tf.concat(of('hidden1/bias'), 0),
  }
  x = tf.nest.map_structure(tf.constant, COHORTS[0][0][0].x)
  seed = tf.constant([0, 0])
  a, _ = looped.apply(weights, {}, x, True, seed)
  b, _ = batched.apply(joined, {}, x, True, seed)
  np.testing.assert_allclose(a, b, atol=1e-6)
  assert a.shape == (3, TABLES, HIDDEN)
