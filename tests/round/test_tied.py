"""Features that use class rows: each row is requested, trained and sent once."""

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from tests import tiny_sparse
from tests.algorithms import numpy_fedaws
from tff_xc import classifier, heads
from tff_xc.data import client_data, partition, pool, sparse
from tff_xc.encoders import bag, encoder as encoder_lib, sequence
from tff_xc.round import (
  algorithm,
  examples as examples_lib,
  local_training,
  losses,
  process,
  request,
  tables,
)

N, DIM, RATE, SCALE = 12, 4, 0.5, 4.0
# Clients are lists of (label, feature lists). The last client has no examples.
SHARED = [[(1, [[0, 2], [2]]), (2, [[1]])], [(2, [[1, 5]]), (7, [[7, 2]])], []]
pytestmark = pytest.mark.usefixtures('in_process')


def model():
  encoder = bag.build_bag_encoder(
    num_features=N, feature_dim=DIM, hidden_dims=(), embedding_dim=DIM
  )
  encoder = encoder_lib.tied(encoder, bag.FEATURE)
  return classifier.EmbeddingClassifier(encoder, heads.CosineHead(SCALE), N)


def loss_of(weights, examples):
  """Returns the mean softmax cross entropy over all classes, in float64."""
  table, kernel, bias = weights

  def unit(v):
    return v / (np.linalg.norm(v) + 1e-12)

  total = []
  for x, values, y in examples:
    mean = values @ table[x] / values.sum()
    embedding = unit(kernel @ mean + bias)
    logits = SCALE * np.array([unit(row) @ unit(embedding) for row in table])
    total.append(np.log(np.exp(logits).sum()) - logits[y])
  return np.mean(total)


def gradient(weights, examples):
  """Returns the gradient by central differences."""
  found = []
  for i, part in enumerate(weights):

    def of(moved, i=i):
      return loss_of([*weights[:i], moved, *weights[i + 1 :]], examples)

    found.append(numpy_fedaws.numeric_gradient(of, part, 1e-5))
  return found


def test_a_round_of_tied_rows_is_that_of_numpy():
  """All other rows are negatives, so the softmax is over all classes."""
  of, cohort = model(), tiny_sparse.cohort(SHARED)
  made = process.build_process(
    algorithm.Algorithm(
      of,
      (tables.Table('class', request.OwnAndSampled(N, 7, N)),),
      losses.HeldSoftmax(N, 'negatives', 'held'),
      local_training=local_training.LocalTraining(RATE, batch_size=8),
    ),
    seed=4,
  )
  state = made.initialize()
  assert set(state.weights.tables) == {'class'}
  before = made.get_model_weights(state)
  encoder = [before.encoder[n] for n in ('dense0/kernel', 'dense0/bias')]
  numbers = [np.array(t, np.float64) for t in (before.class_table, *encoder)]
  wanted, count = [part.copy() for part in numbers], 5
  for client in cohort:
    examples = [
      (client.x.ids[a:b], client.x.values[a:b].astype(np.float64), int(y))
      for a, b, y in zip(client.x.row_splits, client.x.row_splits[1:], client.labels, strict=False)
    ]
    if examples:
      for part, g in zip(wanted, gradient(numbers, examples), strict=True):
        part -= RATE * g * len(examples) / count
  output = made.next(state, cohort)
  after = made.get_model_weights(output.state)
  assert output.metrics['class_rows'] == N  # Each row is sent once.
  encoder = [after.encoder[n] for n in ('dense0/kernel', 'dense0/bias')]
  for part, found in zip(wanted, (after.class_table, *encoder), strict=True):
    np.testing.assert_allclose(found, part, atol=1e-5)


def test_a_request_has_the_union_once_and_counts_labels_alone():
  asked = request.OwnAndSampled(30, max_positives=5, negatives=4)
  labels, features = tf.constant([3, 7, 3]), tf.constant([7, 9, 0, 9, 0])
  held = asked.held_rows(labels, tf.constant([1, 2]), features=features)
  ids, counts = (
    held.ids.numpy(),
    dict(zip(*map(np.asarray, (held.ids, held.counts)), strict=True)),
  )
  # A request has space for five distinct ids, and the client has four.
  assert held.mask.numpy().sum() == len({*ids.tolist()}) == 8
  assert {i: counts[i] for i in (0, 3, 7, 9)} == {0: -1, 3: 2, 7: 1, 9: -1}
  shift = losses.negative_correction(held, 30).numpy()[held.mask.numpy()]
  is_drawn = held.counts.numpy()[held.mask.numpy()] == 0
  assert is_drawn.sum() == 4
  np.testing.assert_allclose(shift[is_drawn], np.log((30 - 4) / 4), rtol=1e-6)
  assert not shift[~is_drawn].any()
  with pytest.raises(tf.errors.InvalidArgumentError, match='outside'):
    asked.held_rows(labels, tf.constant([1, 2]), features=tf.constant([30]))


@pytest.mark.parametrize('request_all', [False, True])
def test_the_oldest_item_of_a_history_is_no_class_of_the_client(request_all):
  """In the histories 5, 2, 3 before 4 and 2, 6 before 2, item 5 is never a label."""
  encoder = encoder_lib.tied(
    sequence.build_sequence_encoder(num_items=N, length=3, dim=DIM), sequence.ITEM
  )
  of = classifier.EmbeddingClassifier(encoder, heads.CosineHead(SCALE), N)
  x = sparse.SparseFeatures(
    np.array([0, 3, 5], np.int32),
    np.array([3, 5, 2, 6, 2], np.int32),
    (1 / np.array([1, 3, 2, 1, 2])).astype(np.float32),
  )
  y = np.array([4, 2], np.int32)
  client = tf.nest.map_structure(tf.constant, examples_lib.ClientExamples(x, y, np.int64(0), y))
  asked = request.AllRows(N) if request_all else request.OwnAndSampled(N, 5)
  table = tables.Table('class', asked)
  held = tables.held_rows(of, (table,), client, tf.constant([1, 2]))['class']
  counts = dict(zip(held.ids.numpy().tolist(), held.counts.numpy().tolist(), strict=True))
  assert {i: n for i, n in counts.items() if n} == {2: 2, 3: 1, 4: 1, 6: 1} | (
    {} if request_all else {5: -1}
  )


def test_room_for_a_request_is_of_the_largest_union():
  x = np.zeros([5, 9], np.float32)
  for row, ids in enumerate([[0, 1], [1, 2], [3], [4], [4, 5, 6]]):
    x[row, ids] = 1
  examples = pool.in_memory(scipy.sparse.csr_matrix(x), np.array([2, 3, 8, 4, 4]))
  of_two = partition.Partition(['a', 'b'], np.array([0, 3, 5]), np.arange(5))
  data = client_data.PartitionedClientData(examples, of_two)
  assert data.largest_tied_set == 5  # The ids are 0, 1, 2, 3 and 8.


def test_tables_of_other_sizes_cannot_be_tied():
  encoder = encoder_lib.tied(
    bag.build_bag_encoder(num_features=N, feature_dim=4, embedding_dim=4), bag.FEATURE
  )
  with pytest.raises(ValueError, match='cannot be tied'):
    classifier.EmbeddingClassifier(encoder, heads.CosineHead(), N + 1)
