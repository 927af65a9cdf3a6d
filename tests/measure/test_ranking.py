"""Metrics compared with simple loops, examples computed by hand, and scikit-learn."""

import fractions
import itertools
import math

import numpy as np
import pytest
import scipy.sparse
from sklearn import metrics

from tff_xc import errors, memory
from tff_xc.data import sparse
from tff_xc.measure import ranking


def naive_order(points, query):
  """Sorts the other integer points by exact squared distance, and then by index."""

  def key(other):
    return (sum((a - b) ** 2 for a, b in zip(points[query], points[other], strict=True)), other)

  return sorted((i for i in range(len(points)) if i != query), key=key)


def maps_of(orders, labels):
  at_10, at_r, recalled = [], [], {1: [], 3: [], 5: []}
  for q, order in enumerate(orders):
    relevant = [int(labels[i] == labels[q]) for i in order]
    total = sum(relevant)

    def average(r, relevant=relevant):
      hits, result = 0, fractions.Fraction(0)
      for i, rel in enumerate(relevant[:r], 1):
        hits += rel
        result += fractions.Fraction(hits * rel, i)
      return result / r

    for k, hits in recalled.items():
      hits.append(any(relevant[:k]))

    at_10.append(average(10))
    if total:
      at_r.append(average(total))

  def mean(found):
    return pytest.approx(float(sum(found) / len(found)), abs=1e-12)

  of_k = {f'retrieval_recall@{k}': mean(hits) for k, hits in recalled.items()}
  return {'map@10': mean(at_10), 'map@r': mean(at_r), **of_k}


def exact_points(embeddings):
  norms = np.sqrt((embeddings.astype(np.float64) ** 2).sum(1, keepdims=True))
  unit = embeddings / (norms + 1e-12)
  return [[fractions.Fraction(round(float(v) * 2**25)) for v in row] for row in unit]


@pytest.mark.parametrize('block', [1, 150, 2**22])
def test_maps_equal_the_naive_loop_with_ties_and_on_random_data(block):
  """The 60 points have few different directions, so nearly all neighbour lists have ties."""
  rng = np.random.default_rng(2)
  # Vectors of these numbers can be normalized exactly.
  x = rng.choice([-1, 0, 1], size=(60, 4)).astype(np.float32)
  x[7] = 0  # A zero embedding stays zero, and has the distance 1 from all unit vectors.
  labels = rng.integers(0, 9, 60)
  labels[3] = 100  # This query has no relevant example.
  points = exact_points(x)
  orders = [naive_order(points, q) for q in range(60)]
  got = ranking.retrieval_scores(x, labels, block)
  assert got == maps_of(orders, labels)
  assert got['map@10'] != pytest.approx(got['map@r'])
  # The order follows exact distances, not rounded ones.
  x = rng.normal(size=(80, 16)).astype(np.float32) * 7
  labels = rng.integers(0, 5, 80)  # Each query has about 15 relevant examples, so R is above 10.
  unit = x.astype(np.float64)
  unit /= np.sqrt((unit**2).sum(1, keepdims=True))
  orders = [naive_order(unit.tolist(), q) for q in range(80)]
  assert ranking.retrieval_scores(x, labels, block) == maps_of(orders, labels)


def test_fewer_than_ten_others_and_what_is_not_finite():
  labels = np.repeat(np.arange(6), 4)  # Retrieval of these small classes is perfect.
  scores = ranking.retrieval_scores(np.eye(6)[labels], labels)
  perfect = dict.fromkeys((f'retrieval_recall@{k}' for k in (1, 3, 5)), 1.0)
  assert scores == pytest.approx({'map@10': 3 / 10, 'map@r': 1.0, **perfect})
  x = np.array([[1, 0], [1, 0.1], [0, 1], [np.nan, 1]], np.float32)
  scores = ranking.retrieval_scores(x, np.array([0, 0, 1, 0]))
  assert scores['map@10'] == pytest.approx((0.1 + 0.1 + 0 + 0) / 4)
  # R is 2 for the three examples of class 0. The query of class 1 is left out.
  assert scores['map@r'] == pytest.approx((0.5 + 0.5 + 0) / 3)
  assert scores['retrieval_recall@1'] == pytest.approx(2 / 4)
  alone = ranking.retrieval_scores(np.eye(3), np.arange(3))
  assert alone['map@10'] == 0.0
  assert np.isnan(alone['map@r'])


def test_confusion_counts_other_classes_apart(monkeypatch):
  class_ids = np.array([40, 7, 13])
  labels = np.array([7, 7, 7, 13, 40, 40])
  predictions = np.array([7, 13, 8, 99, 40, -1])
  expected = np.zeros((3, 4), int)
  for label, prediction in zip(labels, predictions, strict=True):
    row = class_ids.tolist().index(label)
    ids = class_ids.tolist()
    expected[row, ids.index(prediction) if prediction in ids else 3] += 1
  got = ranking.confusion(predictions, labels, class_ids)
  assert got.tolist() == expected.tolist()
  with pytest.raises(ValueError, match='distinct'):
    ranking.confusion([1], [1], [1, 1])
  with pytest.raises(ValueError, match='every label'):
    ranking.confusion([1], [2], [1])
  monkeypatch.setattr(memory, 'free_bytes', lambda: 1000)
  with pytest.raises(errors.InputError, match='12 classes'):
    ranking.confusion([1], [2], range(12))


_RANDOM = np.random.default_rng(0)
LABELS = _RANDOM.integers(0, 62, 3000).astype(np.int32)
GUESSES = np.where(_RANDOM.random(3000) < 0.6, LABELS, _RANDOM.permutation(LABELS))


@pytest.mark.parametrize(
  ('predictions', 'labels'),
  [
    (GUESSES, LABELS),
    (LABELS, LABELS),
    (GUESSES % 2, LABELS % 2),
    # A class counts if only labels or only predictions have it. Other missing classes do not count.
    (GUESSES % 7 * 1000, LABELS % 5 * 1000),
    ([3, 3, 3], [3, 3, 3]),
    ([3, 3, 3], [4, 4, 4]),
    ([1, 1, 1, 1], [1, 0, 1, 1]),
    ([1, 0, 0, 1], [0, 1, 1, 0]),
    ([-1, 5, -1], [5, 5, 0]),  # -1 means that there is no prediction.
    ([7], [7]),
  ],
)
def test_they_are_those_of_scikit_learn(predictions, labels):
  found = ranking.single_label_scores(predictions, labels)
  f1 = metrics.f1_score(labels, predictions, average='macro', zero_division=0)
  assert found == {
    'macro_f1': pytest.approx(f1, abs=1e-12),
    'mcc': pytest.approx(metrics.matthews_corrcoef(labels, predictions), abs=1e-12),
  }


def test_many_examples_and_none():
  labels = np.arange(200_000) % 2  # Products of the counts must not overflow.
  found = ranking.single_label_scores(np.roll(labels, 50_001), labels)
  assert found == {'macro_f1': 0.0, 'mcc': -1.0}
  assert ranking.accuracy([1, 2, -1, 3], [1, 2, 0, 0]) == 0.5
  for score in (ranking.accuracy, ranking.single_label_scores):
    for predictions, labels in (([], []), ([1], [1, 2])):
      with pytest.raises(ValueError, match='as many'):
        score(predictions, labels)


def test_top_k_is_scikit_learns():
  scores = np.random.default_rng(3).normal(size=[300, 9])
  top = np.argsort(-scores, axis=1)[:, :6]
  labels = LABELS[:300] % 9
  for k in (1, 5):
    expected = metrics.top_k_accuracy_score(labels, scores, k=k, labels=range(9))
    assert ranking.top_accuracy(top, labels, k) == pytest.approx(expected)
  assert ranking.top_accuracy([[-1, -1]], [0], 2) == 0.0


def label_sets(*sets):
  ids = np.array([label for s in sets for label in sorted(s)], np.int32)
  splits = np.cumsum([0] + [len(s) for s in sets])
  shape = len(sets), ids.max(initial=0) + 1
  return scipy.sparse.csr_matrix((np.ones(len(ids), bool), ids, splits), shape)


def naive_of_sets(top, sets, weights, k):
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
    set(random.choice(classes, random.integers(0, 9), replace=False).tolist()) for _ in range(200)
  ]
  sets[0] = sets[77] = sets[199] = set()
  top = np.stack([random.permutation(classes)[:8] for _ in sets])
  top[5, 2:] = -1  # Here, only two classes can be ranked.
  propensity = sparse.Propensity(random.integers(0, 50, classes), 400, a=a, b=b)
  weights = [1 + (math.log(400) - 1) * (b + 1) ** a / (n + b) ** a for n in propensity.label_counts]
  got = ranking.label_set_scores(top, label_sets(*sets), propensity)
  for k in (1, 3, 5):
    p, ndcg, psp = naive_of_sets(top.tolist(), sets, weights, k)
    assert got[f'p@{k}'] == pytest.approx(p, abs=1e-12)
    assert got[f'ndcg@{k}'] == pytest.approx(ndcg, abs=1e-12)
    assert got[f'psp@{k}'] == pytest.approx(psp, abs=1e-12)
    assert got[f'psp@{k}'] != pytest.approx(got[f'p@{k}'])
    there = [i for i, labels in enumerate(sets) if labels]
    one_hot = np.zeros([2, len(sets), classes + 1], bool)
    for i, (ranked, labels) in enumerate(zip(top[:, :k], sets, strict=True)):
      one_hot[0, i, [*labels]] = one_hot[1, i, ranked] = True
    true, predicted = one_hot[:, there, :classes]
    assert got[f'recall@{k}'] == pytest.approx(
      metrics.recall_score(true, predicted, average='samples')
    )
    assert got[f'hit@{k}'] == pytest.approx((true & predicted).any(1).mean())


def test_refuses_what_has_no_value():
  top, empty = np.zeros((2, 3), int), label_sets(set(), set())
  for labels, ks, told in (
    (label_sets({1}), (1,), 'as many'),
    (empty, (1,), 'not empty'),
    (label_sets({1}, {2}), (1, 3, 5), '3 ranks'),
  ):
    with pytest.raises(ValueError, match=told):
      ranking.label_set_scores(top, labels, ks=ks)
  with pytest.raises(ValueError, match='at least 3'):
    ranking.inverse_propensities(sparse.Propensity(np.ones(3), 2))


def test_frequent_and_infrequent_parts_add_up():
  """Labels 0 and 1 have at least 1 % of the examples, and other labels fewer."""
  propensity = sparse.Propensity(np.array([40, 10, 9, 1, 0]), 1000)
  assert np.flatnonzero(ranking.frequent(propensity)).tolist() == [0, 1]
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


def naive_distances(rows):
  rows = rows.astype(np.float64)
  unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
  return [math.dist(a, b) for a, b in itertools.combinations(unit, 2)]


def test_distances_of_classes_are_those_of_a_naive_loop():
  random = np.random.default_rng(0)
  rows = random.normal(size=(40, 7)).astype(np.float32) * 5
  for ids, kept in ((None, rows), ([6, 1, 20, 6, 1], rows[[1, 6, 20]])):
    found = ranking.class_distances(rows, ids)
    wanted = naive_distances(kept)
    assert found == pytest.approx((min(wanted), np.mean(wanted)), rel=1e-7)
  collapsed = np.repeat(random.normal(size=(1, 9)), 50, axis=0)
  assert ranking.class_distances(collapsed) == (0.0, 0.0)
  collapsed[7] *= -1
  assert ranking.class_distances(collapsed) == (0.0, pytest.approx(2 * 49 / (50 * 49 / 2)))
  # The sample is always the same, and has no repetition.
  some = ranking.class_distances(rows, sample=20)
  assert some == ranking.class_distances(rows, sample=20)
  assert some != ranking.class_distances(rows, sample=20, seed=1)
  assert some[0] > 0
  # The distances are undefined without two finite rows.
  rows = np.eye(3)
  for ids in ([0], [2, 2], []):
    assert np.isnan(ranking.class_distances(rows, np.array(ids, int))).all()
  rows[1] = np.nan
  assert np.isnan(ranking.class_distances(rows)).all()
  assert ranking.class_distances(rows, [0, 2])[0] == pytest.approx(2**0.5)


@pytest.mark.parametrize('spread', [1e-3, 1e-9])
@pytest.mark.parametrize('clusters', [1, 3])
def test_nearly_equal_rows_keep_their_digits(spread, clusters):
  random = np.random.default_rng(1)
  centres = random.normal(size=(clusters, 20))
  rows = np.repeat(centres, 30, axis=0)
  rows += spread * random.normal(size=rows.shape)
  expected = naive_distances(rows)
  smallest, mean = ranking.class_distances(rows)
  # Rows are exact to 1e-16, which is 1e-7 of the smallest spread.
  assert smallest == pytest.approx(min(expected), rel=1e-5)
  assert mean == pytest.approx(np.mean(expected), rel=1e-6)
  assert smallest < 10 * spread
