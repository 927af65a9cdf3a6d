"""Compares ranking metrics with naive loops, including ties."""

import fractions

import numpy as np
import pytest

from tff_xc.measure import ranking


def naive_top1(embeddings, table, bias):
  predictions = []
  for x in embeddings.astype(np.float64):
    best, best_class = -np.inf, -1
    for c, row in enumerate(table.astype(np.float64)):
      score = sum(a * b for a, b in zip(x, row, strict=True)) + bias[c]
      if score > best:
        best, best_class = score, c
    predictions.append(best_class)
  return predictions


def naive_order(points, query):
  """Sorts other integer points by exact squared distance, then by index."""

  def key(other):
    return (
      sum(
        (a - b) ** 2 for a, b in zip(points[query], points[other], strict=True)
      ),
      other,
    )

  return sorted((i for i in range(len(points)) if i != query), key=key)


def naive_maps(orders, labels):
  at_10, at_r = [], []
  for q, order in enumerate(orders):
    relevant = [int(labels[i] == labels[q]) for i in order]
    total = sum(relevant)

    def average(r, relevant=relevant):
      hits, result = 0, fractions.Fraction(0)
      for i, rel in enumerate(relevant[:r], 1):
        hits += rel
        result += fractions.Fraction(hits * rel, i)
      return result / r

    at_10.append(average(10))
    if total:
      at_r.append(average(total))
  return sum(at_10) / len(at_10), sum(at_r) / len(at_r)


# Unit vectors whose normalised form is exact: sign patterns of 4 components.
def sign_vectors(rng, count):
  return rng.choice([-1, 0, 1], size=(count, 4)).astype(np.float32)


def exact_points(embeddings):
  norms = np.sqrt((embeddings.astype(np.float64) ** 2).sum(1, keepdims=True))
  unit = embeddings / (norms + 1e-12)
  return [
    [fractions.Fraction(round(float(v) * 2**25)) for v in row] for row in unit
  ]


@pytest.mark.parametrize('block', [1, 7, 64, 2**22])
@pytest.mark.parametrize('with_bias', [False, True])
def test_top1_equals_the_naive_loop(block, with_bias):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(23, 5)).astype(np.float32)
  table = rng.normal(size=(31, 5)).astype(np.float32)
  table[20] *= 100
  bias = rng.normal(size=31).astype(np.float32) * with_bias
  got = ranking.predict_top1(x, table, bias if with_bias else None, block)
  assert got.dtype == np.int32
  assert got.tolist() == naive_top1(x, table, bias)


@pytest.mark.parametrize('block', [1, 100, 2**22])
def test_top1_of_equal_rows_is_the_lowest(block):
  """A BLAS may give equal columns different last bits; they must still tie."""
  rng = np.random.default_rng(1)
  x = rng.normal(size=(50, 67)).astype(np.float32)
  distinct = rng.normal(size=(13, 67)).astype(np.float32)
  table = np.concatenate([distinct] * 9)
  predictions = ranking.predict_top1(x, table, block=block)
  assert predictions.max() < 13
  assert predictions.tolist() == ranking.predict_top1(x, distinct).tolist()
  assert not ranking.predict_top1(x, np.zeros((9, 67))).any()


def test_top1_with_a_bias_that_masks_keeps_its_resolution():
  x = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
  table = np.array([[9, 9], [1, 0.999999], [0.999999, 1]], np.float32)
  bias = np.array([-1e9, 0, 0], np.float32)
  assert ranking.predict_top1(x, table, bias).tolist() == [1, 2]


def test_top1_never_predicts_what_is_not_finite():
  x = np.array([[1.0, 1.0], [np.nan, 1.0], [-1.0, -1.0]], np.float32)
  table = np.array([[np.nan, 1], [np.inf, 1], [1, 1], [2, 2]], np.float32)
  assert ranking.predict_top1(x, table).tolist() == [3, -1, 2]
  assert ranking.predict_top1(x, table[:2]).tolist() == [-1, -1, -1]


def test_top1_refuses_shapes_that_do_not_fit():
  with pytest.raises(ValueError, match='dimensions'):
    ranking.predict_top1(np.ones((2, 3)), np.ones((4, 5)))
  with pytest.raises(ValueError, match='biases'):
    ranking.predict_top1(np.ones((2, 3)), np.ones((4, 3)), np.ones(3))


def test_accuracy():
  assert ranking.accuracy([1, 2, -1, 3], [1, 2, 0, 0]) == 0.5
  with pytest.raises(ValueError, match='at least one'):
    ranking.accuracy([], [])
  with pytest.raises(ValueError, match='as many'):
    ranking.accuracy([1], [1, 2])


@pytest.mark.parametrize('block', [1, 150, 2**22])
def test_maps_equal_the_naive_loop_with_ties(block):
  """60 points have few directions, so nearly every neighbour list has ties."""
  rng = np.random.default_rng(2)
  x = sign_vectors(rng, 60)
  x[7] = 0  # A zero embedding stays zero and lies 1 from every unit vector.
  labels = rng.integers(0, 9, 60)
  labels[3] = 100  # A query with no relevant example.
  points = exact_points(x)
  orders = [naive_order(points, q) for q in range(60)]
  assert ranking.nearest_neighbours(x, 12, block).tolist() == [
    order[:12] for order in orders
  ]
  at_10, at_r = naive_maps(orders, labels)
  got = ranking.retrieval_scores(x, labels, block)
  assert got.map_at_10 == pytest.approx(float(at_10), abs=1e-12)
  assert got.map_at_r == pytest.approx(float(at_r), abs=1e-12)
  assert got.map_at_10 != pytest.approx(got.map_at_r)


def test_maps_equal_the_naive_loop_on_random_data():
  """The order follows true distances, not the fixed-point form."""
  rng = np.random.default_rng(3)
  x = rng.normal(size=(80, 16)).astype(np.float32) * 7
  labels = rng.integers(0, 5, 80)  # About 15 relevant: R above 10.
  unit = x.astype(np.float64)
  unit /= np.sqrt((unit**2).sum(1, keepdims=True))
  orders = [naive_order(unit.tolist(), q) for q in range(80)]
  at_10, at_r = naive_maps(orders, labels)
  assert ranking.map_at_10(x, labels) == pytest.approx(float(at_10), abs=1e-12)
  assert ranking.map_at_r(x, labels) == pytest.approx(float(at_r), abs=1e-12)


def test_equal_embeddings_tie_whatever_their_place():
  """Copies of a point are all at distance 0; the lowest index comes first."""
  rng = np.random.default_rng(4)
  x = np.concatenate([rng.normal(size=(17, 67)).astype(np.float32)] * 5)
  neighbours = ranking.nearest_neighbours(x, 4)
  for q in range(len(x)):
    copies = [i for i in range(q % 17, len(x), 17) if i != q]
    assert neighbours[q].tolist() == copies
  collapsed = ranking.nearest_neighbours(np.ones((40, 67), np.float32), 3)
  assert collapsed[0].tolist() == [1, 2, 3]
  assert collapsed[39].tolist() == [0, 1, 2]


def test_perfect_retrieval_of_small_classes_is_below_one():
  labels = np.repeat(np.arange(6), 4)
  x = np.eye(6, dtype=np.float32)[labels]
  scores = ranking.retrieval_scores(x, labels)
  assert scores.map_at_10 == pytest.approx(3 / 10)
  assert scores.map_at_r == pytest.approx(1.0)


def test_fewer_than_ten_others_and_what_is_not_finite():
  x = np.array([[1, 0], [1, 0.1], [0, 1], [np.nan, 1]], np.float32)
  labels = np.array([0, 0, 1, 0])
  assert ranking.nearest_neighbours(x, 5).tolist() == [
    [1, 2, -1, -1, -1],
    [0, 2, -1, -1, -1],
    [1, 0, -1, -1, -1],
    [-1, -1, -1, -1, -1],
  ]
  scores = ranking.retrieval_scores(x, labels)
  assert scores.map_at_10 == pytest.approx((0.1 + 0.1 + 0 + 0) / 4)
  # R is 2 for the three examples of class 0; class 1's query is dropped.
  assert scores.map_at_r == pytest.approx((0.5 + 0.5 + 0) / 3)
  alone = ranking.retrieval_scores(np.eye(3), np.arange(3))
  assert alone.map_at_10 == 0.0
  assert np.isnan(alone.map_at_r)


def test_confusion_counts_other_classes_apart():
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
  assert got.sum() == 6
  with pytest.raises(ValueError, match='distinct'):
    ranking.confusion([1], [1], [1, 1])
  with pytest.raises(ValueError, match='not among'):
    ranking.confusion([1], [2], [1])
