"""Compares label-set metrics with hand-worked examples and naive loops."""

import math

import numpy as np
import pytest
import scipy.sparse

from tff_xc.data import sparse
from tff_xc.measure import ranking


def label_sets(*sets):
  ids = np.array([label for s in sets for label in sorted(s)], np.int32)
  splits = np.cumsum([0] + [len(s) for s in sets])
  shape = len(sets), ids.max(initial=0) + 1
  return scipy.sparse.csr_matrix((np.ones(len(ids), bool), ids, splits), shape)


def test_worked_by_hand():
  top = np.array([[4, 2, 0], [1, 0, 3], [2, 1, 0]])
  labels = label_sets({0, 4}, {3}, set())
  propensity = sparse.Propensity(np.array([9, 5, 5, 2, 1]), 20)
  got = ranking.label_set_scores(top, labels, propensity, (1, 3))
  assert got['p@1'] == pytest.approx(1 / 2)  # The third has no label.
  assert got['p@3'] == pytest.approx((2 / 3 + 1 / 3) / 2)
  assert got['pc@3'] == pytest.approx((2 / 2 + 1 / 1) / 2)
  first = (1 + 1 / 2) / (1 + 1 / math.log2(3))  # Hits at ranks 1 and 3.
  assert got['ndcg@1'] == pytest.approx(1 / 2)
  assert got['ndcg@3'] == pytest.approx((first + 1 / 2) / 2)
  c = (math.log(20) - 1) * 2.5**0.55
  w = [1 + c * (count + 1.5) ** -0.55 for count in (9, 5, 5, 2, 1)]
  assert ranking.inverse_propensities(propensity) == pytest.approx(w)
  assert got['psp@1'] == pytest.approx(w[4] / (w[4] + w[3]))
  assert got['psp@3'] == pytest.approx(1.0)


def naive(top, sets, weights, k):
  """Computes a metric by loops over examples and ranks."""
  precision, gain, gained, possible, kept = 0.0, 0.0, 0.0, 0.0, 0
  for ranked, labels in zip(top, sets, strict=True):
    if not labels:
      continue
    kept += 1
    hits = [c in labels for c in ranked[:k]]
    precision += sum(hits) / k
    dcg = sum(h / math.log2(r + 2) for r, h in enumerate(hits))
    ideal = sum(1 / math.log2(r + 2) for r in range(min(k, len(labels))))
    gain += dcg / ideal
    gained += sum(weights[c] for c in ranked[:k] if c in labels) / k
    best = sorted((weights[c] for c in labels), reverse=True)
    possible += sum(best[:k]) / k
  return precision / kept, gain / kept, gained / possible


@pytest.mark.parametrize(('a', 'b'), [(0.55, 1.5), (0.5, 0.4), (0.6, 2.6)])
def test_equal_the_naive_loops(a, b):
  random = np.random.default_rng(0)
  classes = 30
  sets = [
    set(random.choice(classes, random.integers(0, 9), replace=False).tolist())
    for _ in range(200)
  ]
  sets[0] = sets[77] = sets[199] = set()
  top = np.stack([random.permutation(classes)[:8] for _ in sets])
  top[5, 2:] = -1  # A table with two classes that can be ranked.
  propensity = sparse.Propensity(random.integers(0, 50, classes), 400, a=a, b=b)
  weights = [
    1 + (math.log(400) - 1) * (b + 1) ** a / (n + b) ** a
    for n in propensity.label_counts
  ]
  got = ranking.label_set_scores(top, label_sets(*sets), propensity)
  assert set(got) == {
    f'{name}@{k}{part}'
    for k in (1, 3, 5)
    for name, part in (
      *((name, '') for name in ('p', 'ndcg', 'pc', 'psp')),
      ('pc', '_frequent'),
      ('pc', '_infrequent'),
    )
  }
  for k in (1, 3, 5):
    p, ndcg, psp = naive(top.tolist(), sets, weights, k)
    assert got[f'p@{k}'] == pytest.approx(p, abs=1e-12)
    assert got[f'ndcg@{k}'] == pytest.approx(ndcg, abs=1e-12)
    assert got[f'psp@{k}'] == pytest.approx(psp, abs=1e-12)
    assert got[f'psp@{k}'] != pytest.approx(got[f'p@{k}'])


def test_the_ideal_ranking_scores_one():
  sets = label_sets({1, 5, 2, 7, 3, 0}, {4})
  counts = np.array([5, 100, 3, 7, 9, 1, 50, 2])
  top = np.array([[5, 7, 2, 0, 3], [4, 0, 1, 2, 3]])
  got = ranking.label_set_scores(top, sets, sparse.Propensity(counts, 1000))
  for k in (1, 3, 5):
    assert got[f'psp@{k}'] == pytest.approx(1.0)
    assert got[f'ndcg@{k}'] == pytest.approx(1.0)
  assert got['p@5'] == pytest.approx((1 + 1 / 5) / 2)


def test_equal_counts_make_psp_a_ratio_of_hits():
  top = np.array([[0, 1, 2], [3, 4, 5]])
  labels = label_sets({0, 4, 5}, {0, 3})
  propensity = sparse.Propensity(np.full(6, 3), 100)
  got = ranking.label_set_scores(top, labels, propensity, (1, 3))
  assert got['psp@1'] == pytest.approx(1.0)
  assert got['psp@3'] == pytest.approx(2 / 5)


def test_ids_that_are_missing_hit_nothing():
  """An id of -1 must not count as the previous example's last class."""
  top = np.array([[9, -1, -1], [8, -1, -1]])
  got = ranking.label_set_scores(top, label_sets({9}, {9}), ks=(1, 3))
  assert got == pytest.approx(
    {
      **{'p@1': 0.5, 'ndcg@1': 0.5, 'pc@1': 0.5},
      **{'p@3': 1 / 6, 'ndcg@3': 0.5, 'pc@3': 0.5},
    }
  )


def test_single_labels():
  sets = ranking.single_labels(np.array([3, 0, 3]))
  assert sets.indptr.tolist() == [0, 1, 2, 3]
  top = np.array([[3, 1, 2], [1, 0, 2], [0, 1, 2]])
  got = ranking.label_set_scores(top, sets, ks=(1, 3))
  assert got['p@1'] == pytest.approx(1 / 3)
  assert got['p@3'] == pytest.approx(2 / 9)


def test_refuses_what_has_no_value():
  top = np.zeros((2, 3), int)
  with pytest.raises(ValueError, match='as many'):
    ranking.label_set_scores(top, label_sets({1}), ks=(1,))
  with pytest.raises(ValueError, match='not empty'):
    ranking.label_set_scores(top, label_sets(set(), set()), ks=(1,))
  with pytest.raises(ValueError, match='3 ranks'):
    ranking.label_set_scores(top, label_sets({1}, {2}))
  with pytest.raises(ValueError, match='at least 3'):
    ranking.inverse_propensities(sparse.Propensity(np.ones(3), 2))


def test_frequent_and_infrequent_parts_add_up():
  """Labels 0 and 1 have 1 % of the examples or more; the others less."""
  propensity = sparse.Propensity(np.array([40, 10, 9, 1, 0]), 1000)
  assert list(ranking.frequent(propensity)) == [
    True,
    True,
    False,
    False,
    False,
  ]
  top = np.array([[0, 2, 4], [3, 1, 0], [4, 0, 1]])
  labels = label_sets({0, 2, 3, 4}, {1}, {2})
  got = ranking.label_set_scores(top, labels, propensity, (1, 3))
  assert got['pc@1_frequent'] == pytest.approx(1 / 3)
  assert got['pc@1_infrequent'] == 0
  assert got['pc@3_frequent'] == pytest.approx((1 / 3 + 1) / 3)
  assert got['pc@3_infrequent'] == pytest.approx((2 / 3) / 3)
  for k in (1, 3):
    parts = got[f'pc@{k}_frequent'] + got[f'pc@{k}_infrequent']
    assert got[f'pc@{k}'] == pytest.approx(parts)
