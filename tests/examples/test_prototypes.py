"""An example of your own algorithm: class rows as prototypes, and your own loss.

Copy the code between the lines of dashes, and its imports. The predicted class of an example is the
class with the nearest row. Clients train with label smoothing: a share of each target is spread
over all class rows of the client.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import small_data
from tff_xc.algorithms import fedss
from tff_xc.experiment import training
from tff_xc.measure import evaluation
from tff_xc.round import cohort, losses, request

# ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Prototypes:
  """Logits -scale |g(x) - w_c|^2."""

  scale: float = 1.0

  def num_rows(self, num_labels):
    return num_labels

  def row_dim(self, embedding_dim):
    return embedding_dim

  def init(self, seed, num_labels, embedding_dim):
    return tf.random.stateless_normal([num_labels, embedding_dim], seed)

  def rows_of(self, labels):
    return labels

  def logits(self, embeddings, rows, ids):
    way = embeddings[:, None, :] - rows[None, :, :]
    return -self.scale * tf.reduce_sum(tf.square(way), axis=2)

  def scoring_rows(self, table):
    # The nearest row has the largest g(x) . w_c - |w_c|^2 / 2.
    return table, -tf.reduce_sum(tf.square(table), axis=1) / 2


@dataclasses.dataclass(frozen=True)
class SmoothedSoftmax:
  """Softmax cross entropy with label smoothing over the client's class rows."""

  smoothing: float

  def __call__(self, step):
    mask = tf.cast(step.held.mask, tf.float32)
    logits = step.logits - 1e9 * (1.0 - mask)  # Padding gets no probability.
    log_shares = tf.nn.log_softmax(logits) * mask
    of_target = tf.gather(log_shares, step.targets, axis=1, batch_dims=1)
    of_all = tf.reduce_sum(log_shares, axis=1) / tf.reduce_sum(mask)
    return -(1.0 - self.smoothing) * of_target - self.smoothing * of_all


def smoothed_prototypes(*, model, smoothing=0.1, **arguments):
  """Returns FedSS with prototypes and a smoothed softmax without correction for sampling."""
  model = dataclasses.replace(model, head=Prototypes())
  made = fedss.FedSS.made(model=model, **arguments)
  return dataclasses.replace(made, loss=SmoothedSoftmax(smoothing))


# ---------------------------------------------------------------------------


def test_the_loss_is_that_of_smoothed_targets_over_the_rows_held():
  logits = np.random.default_rng(0).normal(size=[3, 5]).astype(np.float32)
  held = request.SelectedRows(
    ids=tf.range(5), mask=tf.constant([True, True, True, False, True]), counts=tf.ones(5)
  )
  step = losses.LocalStep(tf.constant(logits), tf.constant([0, 2, 4]), held, tf.zeros([3, 2]))
  shares = np.exp(logits[:, [0, 1, 2, 4]].astype(np.float64))
  shares /= shares.sum(axis=1, keepdims=True)
  targets = 0.7 * np.eye(4)[[0, 2, 3]] + 0.3 / 4
  np.testing.assert_allclose(
    SmoothedSoftmax(0.3)(step), -(targets * np.log(shares)).sum(axis=1), 1e-5
  )


def test_the_class_is_that_of_the_nearest_row():
  dataset, model = small_data.images()
  model = smoothed_prototypes(model=model, max_positives=4, negatives=3).model
  weights = model.init(tf.constant([1, 2]))
  evaluator = evaluation.Evaluator(model, dataset, ('top1',))
  embeddings = evaluator.embeddings(weights, dataset.test)
  way = embeddings[:, None] - np.array(weights.class_table)[None]
  np.testing.assert_array_equal(
    evaluator.predict(weights, dataset.test), np.square(way).sum(axis=2).argmin(axis=1)
  )


@pytest.mark.slow
def test_it_learns(in_process, tmp_path):
  dataset, model = small_data.images()
  made = smoothed_prototypes(model=model, max_positives=4, negatives=3)
  made = dataclasses.replace(made, sampling=cohort.UniformClients(6))
  summary = training.train(
    made, dataset, tmp_path / 'run', metrics=('top1',), rounds=150, eval_every=50
  )
  assert summary['final']['top1'] > 0.6
