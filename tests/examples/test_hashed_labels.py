"""Your own algorithm, 2: sets of labels, hashed into 4 tables of 50 rows.

Copy the part between the lines, and its imports. 120 labels share 200 rows;
clients train binary cross entropy on the rows that they request, and a label's
score is the mean of the log probabilities of its rows.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import small_data
from tff_xc.experiment import cohort
from tff_xc.experiment import training
from tff_xc.measure import evaluation
from tff_xc.round import algorithm
from tff_xc.round import local_training
from tff_xc.round import optimizers
from tff_xc.round import request
from tff_xc.round import tables

# ---------------------------------------------------------------------------

TABLES, BUCKETS = 4, 50


@dataclasses.dataclass(frozen=True)
class HashedHead:
  """Row r B + h_r(l) belongs to label l in table r.

  Attributes:
    num_labels: n.
  """

  num_labels: int

  def num_rows(self, num_labels):
    return TABLES * BUCKETS

  def row_dim(self, embedding_dim):
    return embedding_dim

  def init(self, seed, num_labels, embedding_dim):
    shape = [self.num_rows(num_labels), embedding_dim]
    return tf.random.stateless_normal(shape, seed, stddev=0.1)

  def rows_of(self, labels):
    table = tf.range(TABLES)
    hashed = (labels[:, None] * (2 * table + 3) + 17 * table) % BUCKETS
    return BUCKETS * table + hashed

  def logits(self, embeddings, rows, ids):
    return tf.matmul(embeddings, rows, transpose_b=True)

  def scoring_rows(self, table):
    return None  # A label's score is no inner product.

  def label_scores(self, embeddings, table):
    logits = tf.transpose(self.logits(embeddings, table, None))
    rows = self.rows_of(tf.range(self.num_labels))
    return tf.reduce_mean(tf.gather(tf.math.log_sigmoid(logits), rows), axis=1)


def bucket_loss(step):
  """Mean binary cross entropy of an example's rows among those held."""
  size, slots = tf.shape(step.logits)[0], tf.shape(step.logits)[1]
  example = tf.ragged.row_splits_to_segment_ids(
    step.targets.row_splits, out_type=tf.int32
  )
  places = tf.stack([example, step.targets.ids], axis=1)
  hits = tf.scatter_nd(places, tf.ones(tf.shape(places)[:1]), [size, slots])
  losses = tf.nn.sigmoid_cross_entropy_with_logits(
    labels=tf.minimum(hits, 1.0), logits=step.logits
  )
  held = tf.cast(step.held.mask, tf.float32)
  return tf.reduce_sum(losses * held, axis=1) / tf.reduce_sum(held)


def hashed_labels(model, max_positives, negatives=60):
  """Clients request the rows of their labels, and some others."""
  rows = request.OwnAndSampled(model.num_rows, max_positives, negatives)
  return algorithm.Algorithm(
    model,
    (tables.Table('class', rows, optimizer=optimizers.TorchAdam(0.3)),),
    bucket_loss,
    local_training=local_training.LocalTraining(1.0, 8),
    weighting='uniform',
    encoder_optimizer=optimizers.TorchAdam(0.03),
  )


# ---------------------------------------------------------------------------


@pytest.fixture(scope='module')
def made():
  dataset, model = small_data.text(120, HashedHead(120))
  most = TABLES * dataset.train.largest_label_set
  return dataset, model, hashed_labels(model, most)


@pytest.mark.slow
def test_it_learns_sets_of_labels(made, in_process, tmp_path):
  dataset, model, algorithm_ = made
  algorithm_ = dataclasses.replace(
    algorithm_, sampling=cohort.UniformClients(5)
  )
  summary = training.train(
    algorithm_,
    dataset,
    tmp_path / 'run',
    metrics=('p@1', 'p@3'),
    rounds=80,
    eval_every=20,
  )
  shares = np.sort(np.asarray(dataset.test.y.mean(axis=0)).ravel())
  assert summary['final']['p@3'] > 2 * shares[-3:].mean()
  assert model.num_rows == 200
  assert summary['bytes_saving_vs_fullsoftmax'] > 0
  assert summary['class_rows_requested_mean'] < 150


def test_labels_are_ranked_by_the_heads_own_scores(made):
  dataset, model, _ = made
  weights = model.init(tf.constant([1, 2]))
  evaluator = evaluation.Evaluator(model, dataset, ('p@1',))
  found = evaluator.predict(weights, dataset.test)
  logits = evaluator.embeddings(weights, dataset.test) @ np.array(
    weights.class_table
  ).T.astype(np.float64)
  scores = np.zeros([len(found), 120])
  for label in range(120):
    rows = model.head.rows_of(tf.constant([label])).numpy()[0]
    assert list(rows // BUCKETS) == [0, 1, 2, 3]
    scores[:, label] = -np.log1p(np.exp(-logits[:, rows])).mean(axis=1)
  best = scores.max(axis=1)
  np.testing.assert_allclose(scores[np.arange(len(found)), found], best)
  none = np.zeros(0, np.int64)
  assert evaluator.predict(weights, dataset.test, none).shape == (0,)
