"""The best labels by a head's own scores."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tff_xc import heads
from tff_xc.data import hashing
from tff_xc.measure import evaluation


def best_of_each(scores, k):
  """The definition: float [n, b] sorted whole, ties by label."""
  found = np.full([scores.shape[1], k], -1)
  for example, column in enumerate(scores.T):
    order = np.argsort(-column, kind='stable')
    order = order[np.isfinite(column[order])][:k]
    found[example, : len(order)] = order
  return found


@pytest.mark.parametrize('n', [1, 3, 63, 64, 65, 128, 1000])
@pytest.mark.parametrize('k', [1, 5])
def test_the_best_are_those_of_a_sort_and_ties_go_to_the_lower_label(n, k):
  random = np.random.default_rng(n)
  # Few values, so that most scores tie, within groups and between them.
  scores = random.integers(0, 4, [n, 9]).astype(np.float32)
  scores[:, 0] = 1.0
  scores[:, 5:] *= random.random([n, 4]) < 0.01  # Maxima differ, and tie.
  found = evaluation.top_labels(tf.constant(scores), k)
  assert found.dtype == np.int32
  np.testing.assert_array_equal(found, best_of_each(scores, k))


def test_labels_without_a_finite_score_are_not_returned():
  scores = np.random.default_rng(0).normal(size=[200, 4]).astype(np.float32)
  scores[:, 0] = np.nan
  scores[3:, 1] = -np.inf
  scores[130:, 2] = np.nan  # Of the group of 128 and 129, too.
  found = evaluation.top_labels(tf.constant(scores), 5).numpy()
  assert found[0].tolist() == [-1] * 5
  np.testing.assert_array_equal(found[1], best_of_each(scores, 5)[1])
  assert (found[2] >= 0).all() and (found[2] < 130).all()
  np.testing.assert_array_equal(found[3], best_of_each(scores, 5)[3])


@pytest.mark.parametrize('score', heads.SCORES)
def test_a_search_finds_the_labels_of_the_largest_means(score, monkeypatch):
  head = heads.HashedHead(300, 3, 20, score)
  random = np.random.default_rng(0)
  embeddings = random.normal(size=[23, 3, 4]).astype(np.float32)
  table = head.init(tf.constant([1, 2]), 300, 4).numpy()
  scores = np.zeros([300, 23])
  for r in range(3):
    rows = table[20 * r : 20 * (r + 1)].astype(np.float64)
    z = rows[:, :-1] @ embeddings[:, r].T + rows[:, -1:]
    z = z if score == 'logit' else -np.log1p(np.exp(-z))
    scores += z[hashing.buckets(np.arange(300), r, 20)] / 3
  wanted = best_of_each(scores, 5)  # Some labels share all their buckets.
  sizes = []

  @dataclasses.dataclass(frozen=True)
  class Counted(heads.HashedHead):
    def label_scores(self, embeddings, table):
      tf.py_function(lambda e: sizes.append(len(e)), [embeddings], [])
      return super().label_scores(embeddings, table)

  monkeypatch.setattr(evaluation, '_SCORES', 300 * 10 + 7)
  search = evaluation.LabelSearch(Counted(300, 3, 20, score), 300)
  found = search(embeddings, table, 5)
  np.testing.assert_array_equal(found, wanted)
  assert sizes == [10, 10, 3]  # Memory is bounded by the number of scores.
  assert search(embeddings[:0], table, 5).shape == (0, 5)
  monkeypatch.setattr(evaluation, '_SCORES', 7)
  sizes.clear()
  search(embeddings, table, 1)
  assert sizes == [1] * 23  # An example's scores are never cut.


def test_labels_with_the_same_buckets_tie_exactly():
  head = heads.HashedHead(500, 2, 3)
  rows = head.rows_of(tf.range(500)).numpy()
  scores = head.label_scores(
    np.random.default_rng(0).normal(size=[7, 2, 4]).astype(np.float32),
    head.init(tf.constant([1, 2]), 500, 4),
  ).numpy()
  same = (rows == rows[0]).all(axis=1)
  assert same.sum() > 10
  assert (scores[same] == scores[0]).all()
