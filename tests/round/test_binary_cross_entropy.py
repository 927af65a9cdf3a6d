"""FedMLH's loss, hashed head and networks compared with NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tff_xc import errors, heads
from tff_xc.data import hashing, sparse
from tff_xc.encoders import mlp
from tff_xc.round import losses, request

RANDOM = np.random.default_rng(0)


def sigmoid(z):
  return 1 / (1 + np.exp(-np.float64(z)))


def reference(logits, hits, tables):
  """Returns the loss of each example: the sum over tables of the mean over a table's buckets."""
  p = sigmoid(logits)
  each = -(hits * np.log(p) + (1 - hits) * np.log(1 - p))
  return tables * each.mean(axis=1)


def step(logits, targets, mask=None):
  slots = logits.shape[1]
  mask = np.ones(slots, bool) if mask is None else mask
  held = request.SelectedRows(np.arange(slots), mask, np.zeros(slots))
  return losses.LocalStep(tf.constant(logits), targets, held, ())


def test_the_loss_is_numpys():
  logits = RANDOM.normal(size=[3, 8]).astype(np.float32)
  # Two labels of one example share a bucket, and one example has no label.
  sets = sparse.LabelSets(tf.constant([0, 4, 4, 5]), tf.constant([0, 5, 0, 6, 7]))
  hits = np.zeros([3, 8])
  hits[0, [0, 5, 6]] = hits[2, 7] = 1
  found = losses.BinaryCrossEntropy(2)(step(logits, sets))
  np.testing.assert_allclose(found, reference(logits, hits, 2), rtol=1e-5)
  one, loss = tf.constant([3, 0, 2]), losses.BinaryCrossEntropy()
  expected = reference(logits, np.eye(8)[[3, 0, 2]], 1)
  np.testing.assert_allclose(loss(step(logits, one)), expected, rtol=1e-5)
  # Padding has no effect.
  found = loss(step(logits, one, np.arange(8) < 4))
  expected = loss(step(logits[:, :4], one))
  np.testing.assert_allclose(found, expected, rtol=1e-6)
  # The loss of large logits is finite.
  logits = np.float32([[1000.0, -1000.0]])
  for target, expected in ((0, 0), (1, 1000)):
    found = loss(step(logits, tf.constant([target])))
    np.testing.assert_allclose(found, [expected])


@pytest.mark.parametrize('score', heads.SCORES)
def test_a_label_is_scored_by_its_buckets(score):
  head = heads.HashedHead(40, 3, 7, score)
  embeddings = RANDOM.normal(size=[5, 3, 4]).astype(np.float32)
  table = head.init(tf.constant([1, 2]), 40, 4).numpy()
  assert table.shape == (21, 5)
  of_tables = []
  logits = np.zeros([5, 21])
  for r in range(3):
    rows = table[7 * r : 7 * (r + 1)]
    z = embeddings[:, r] @ rows[:, :-1].T + rows[:, -1]
    logits[:, 7 * r : 7 * (r + 1)] = z
    of_label = z[:, hashing.buckets(np.arange(40), r, 7)]
    of_tables.append(of_label if score == 'logit' else np.log(sigmoid(of_label)))
  join = np.median if score == 'median' else np.mean
  wanted = join(of_tables, axis=0).T
  found = head.label_scores(embeddings, table)
  np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
  rows = head.rows_of(tf.constant([11]))[0]
  assert list(rows // 7) == [0, 1, 2]
  np.testing.assert_allclose(head.logits(embeddings, table, None), logits, atol=1e-5)
  # Use some rows in any order, like a client that selects rows.
  ids = np.array([20, 3, 3, 9, 0, 14, 1], np.int32)
  found = head.logits(embeddings, tf.constant(table[ids]), tf.constant(ids))
  np.testing.assert_allclose(found, logits[:, ids], atol=1e-5)
  ids = np.array([8, 9], np.int32)  # Two of the tables have no row here.
  found = head.logits(embeddings, tf.constant(table[ids]), tf.constant(ids))
  np.testing.assert_allclose(found, logits[:, ids], atol=1e-5)


@pytest.mark.parametrize('tables', [1, 2, 5, 8])
@pytest.mark.parametrize('score', heads.SCORES)
def test_scores_of_tables_are_joined(score, tables):
  scores = np.round(RANDOM.normal(size=[tables, 60, 7]), 1)  # Some scores are equal.
  wanted = (np.median if score == 'median' else np.mean)(scores, axis=0)
  found = heads.HashedHead(60, tables, 9, score).joined([*map(tf.constant, scores)])
  np.testing.assert_allclose(found, wanted, atol=1e-12)
  with pytest.raises(errors.InputError, match='--bucket_score'):
    heads.HashedHead(60, 65, 9, 'median')


@pytest.mark.parametrize('dense_share', [0.0, 1.0])
@pytest.mark.parametrize('tables', [0, 3])
def test_networks_side_by_side_are_the_networks_alone(tables, dense_share):
  encoder = mlp.build_mlp_encoder(
    num_features=6, hidden_dim=4, num_tables=tables, dense_share=dense_share
  )
  weights = {n: w.numpy() for n, w in encoder.init(tf.constant([3, 4])).items()}
  dense = np.float32([[0, 0.5, 0, 0, 2, 0], [0] * 6, [1, 0, 0, 0, 0, -1]])
  x = sparse.SparseFeatures(
    tf.constant([0, 2, 2, 4]), tf.constant([1, 4, 0, 5]), tf.constant([0.5, 2.0, 1.0, -1.0])
  )
  found, _ = encoder.apply(weights, {}, x, True, None)
  count = tables or 1
  assert found.shape == ((3, count, 4) if tables else (3, 4))
  for r in range(count):
    own = slice(4 * r, 4 * (r + 1))
    h = dense @ weights['hidden0/kernel'][:, own] + weights['hidden0/bias'][own]
    h = np.maximum(h, 0) @ weights['hidden1/kernel'][r] + weights['hidden1/bias'][r]
    of_r = found[:, r] if tables else found
    np.testing.assert_allclose(of_r, np.maximum(h, 0), atol=1e-5)


def test_a_batch_with_many_features_is_a_dense_matrix(monkeypatch):
  dense, scatter = [], tf.scatter_nd
  monkeypatch.setattr(tf, 'scatter_nd', lambda *given: dense.append(1) or scatter(*given))
  kernel = RANDOM.normal(size=[40, 3]).astype(np.float32)
  x = sparse.SparseFeatures(
    tf.constant([0, 3, 5]), tf.constant([1, 4, 7, 4, 39]), tf.constant([0.5, 2.0, -1.0, 1.0, 3.0])
  )

  def gradient(share):
    encoder = mlp.build_mlp_encoder(40, 3, dense_share=share)
    weights = encoder.init(tf.constant([3, 4])) | {'hidden0/kernel': kernel}
    weights = tf.nest.map_structure(tf.convert_to_tensor, weights)
    with tf.GradientTape() as tape:
      tape.watch(weights)
      embeddings, _ = encoder.apply(weights, {}, x, True, None)
    return tape.gradient(embeddings, weights['hidden0/kernel'])

  by_entries = gradient(5 / 80)  # The batch has 5 of 80 entries.
  assert not dense
  np.testing.assert_allclose(gradient(4 / 80), by_entries, rtol=1e-5)
  assert len(dense) == 1
  assert np.count_nonzero(by_entries) > 0


@pytest.mark.parametrize(
  ('features', 'labels', 'tables', 'buckets', 'hidden', 'mlh', 'avg'),
  [
    (300, 3_993, 4, 250, 150, 422_200, 670_743),
    (5_000, 30_938, 4, 1_000, 500, 13_008_000, 18_250_938),
    (5_000, 131_073, 4, 4_000, 1_000, 40_024_000, 137_206_073),
    (10_000, 312_330, 8, 5_000, 1_000, 128_056_000, 323_644_330),
  ],
)
def test_the_papers_parameter_counts(features, labels, tables, buckets, hidden, mlh, avg):
  """The sizes in Table 5 follow from these counts: 4 bytes per number, in units of 2^20 or 2^30."""

  def count(head, tables):
    encoder = mlp.build_mlp_encoder(num_features=features, hidden_dim=hidden, num_tables=tables)
    function = tf.function(lambda: encoder.init(tf.constant([0, 0])))
    shapes = function.get_concrete_function().structured_outputs.values()
    own = sum(w.shape.num_elements() for w in shapes)
    return own + head.num_rows(labels) * head.row_dim(hidden)

  assert count(heads.HashedHead(labels, tables, buckets), tables) == mlh
  assert count(heads.LinearHead(), 0) == avg


@pytest.mark.parametrize(('tables', 'buckets'), [(0, 5), (2, 0), (1024, 3_000_000)])
def test_a_head_without_buckets_or_with_too_many_is_refused(tables, buckets):
  with pytest.raises(errors.InputError, match='at least one of each'):
    heads.HashedHead(40, tables, buckets)
