"""Finds the best labels of each example by a head's own scores.

For heads whose scores are no inner products (`heads.Head.scoring_rows`). Scores
are computed for a block of examples at a time, so memory depends neither on the
number of examples nor, beyond one row of scores, on that of labels.
"""

import numpy as np
import tensorflow as tf

from tff_xc import heads

# The most scores in memory at once; an example has n.
_SCORES = 2**25
_EXAMPLES = 256
# Neighbouring labels of which the largest score is found first.
_GROUP = 64


class Search:
  """The search of one head; it is traced once."""

  def __init__(self, head: heads.Head, num_labels: int):
    self._head, self._num_labels = head, num_labels
    self._of_block = tf.function(
      self._best, autograph=False, reduce_retracing=True
    )

  def __call__(
    self, embeddings: np.ndarray, table: tf.Tensor, k: int
  ) -> np.ndarray:
    """Returns int32 [e, k], each example's best labels as in `top_k`.

    Args:
      embeddings: float32 [e, ...].
      table: float32 [rows, row_dim].
      k: at least 1.
    """
    table = tf.convert_to_tensor(table)
    at_once = max(1, min(_SCORES // self._num_labels, _EXAMPLES))
    best = np.empty([len(embeddings), k], np.int32)
    for start in range(0, len(embeddings), at_once):
      block = slice(start, start + at_once)
      best[block] = self._of_block(embeddings[block], table, k)
    return best

  def _best(self, embeddings, table, k: int) -> tf.Tensor:
    scores = self._head.label_scores(embeddings, table)
    return top_k(tf.ensure_shape(scores, [self._num_labels, None]), k)


def top_k(scores: tf.Tensor, k: int) -> tf.Tensor:
  """Returns int32 [b, k], the labels of the k largest scores; ties by label.

  A label without a finite score is not returned. If fewer than k remain, the
  row ends in -1.

  The k best labels are in the k groups of neighbouring labels with the largest
  maxima (of equal ones, the first). Only the labels of these groups are sorted.

  Args:
    scores: float32 [n, b], with a static n.
    k: at least 1.
  """
  n, size = scores.shape[0], tf.shape(scores)[1]
  maxima = _group_maxima(scores)
  groups = tf.math.top_k(tf.transpose(maxima), min(k, maxima.shape[0])).indices
  # In ascending order, because of equal scores `tf.math.top_k` takes the first.
  starts = _GROUP * tf.sort(groups, axis=1)
  labels = tf.reshape(starts[:, :, None] + tf.range(_GROUP), [size, -1])
  examples = tf.broadcast_to(tf.range(size)[:, None], tf.shape(labels))
  places = tf.stack([tf.minimum(labels, n - 1), examples], axis=2)
  of_labels = _finite_or_least(tf.gather_nd(scores, places))
  of_labels = tf.where(labels < n, of_labels, -float('inf'))
  best = tf.math.top_k(of_labels, min(k, n))
  found = tf.gather(labels, best.indices, batch_dims=1)
  found = tf.where(tf.math.is_finite(best.values), found, -1)
  return tf.pad(found, [[0, 0], [0, k - min(k, n)]], constant_values=-1)


def _group_maxima(scores):
  """Returns float32 [groups, b]; the last group may have fewer labels."""
  n, size = scores.shape[0], tf.shape(scores)[1]
  whole = n - n % _GROUP
  groups = tf.reshape(scores[:whole], [whole // _GROUP, _GROUP, size])
  maxima = tf.reduce_max(groups, axis=1)
  if whole < n:
    rest = tf.reduce_max(scores[whole:], axis=0, keepdims=True)
    maxima = tf.concat([maxima, rest], axis=0)
  return _finite_or_least(maxima)


def _finite_or_least(scores):
  return tf.where(tf.math.is_finite(scores), scores, -float('inf'))
