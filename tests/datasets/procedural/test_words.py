"""Procedural bags of words."""

import numpy as np
import pytest
import scipy.sparse

from datasets.procedural import words as sparse_words
from tff_xc import errors

D = 50_000


def same(a, b):
  """Compares matrices, entry by entry."""
  for name in ('indptr', 'indices', 'data'):
    np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
  assert a.dtype == b.dtype
  assert a.shape == b.shape


def everything(pool):
  return pool.examples(np.arange(len(pool)))


def train(words, numbers):
  part = sparse_words.TRAIN
  return words.features(part, numbers), words.label_sets(part, numbers)


def test_the_nearest_mean_of_a_class_is_nearly_always_right():
  dataset = sparse_words.load(num_classes=300, test_examples=500)
  train = dataset.train
  means = [train.examples(c).x.mean(0) for c in train.client_ids]
  means = scipy.sparse.csr_matrix(np.concatenate(means))
  classes = np.array([train.labels(c)[0] for c in train.client_ids])
  # Words that many classes share carry no information.
  known = np.bincount(means.indices, minlength=D)
  means = means.multiply(np.log(len(classes) / np.maximum(known, 1))).tocsr()
  norm = np.sqrt(means.multiply(means).sum(1))
  x, y = everything(dataset.test)
  score = (x @ means.T).toarray() / np.asarray(norm).T
  top = classes[score.argmax(1)]
  hits = y[np.arange(len(top)), top]
  assert np.mean(hits) > 0.9
  assert np.bincount(y.indices).max() < 500 * 0.6


def test_examples_have_the_shape_asked_for():
  words = sparse_words.Words(sparse_words.Options(words_per_example=20, labels_per_example=4))
  x, y = train(words, np.arange(2000))
  assert (x.dtype, y.dtype) == (np.float32, bool)
  assert (x.shape, y.shape) == ((2000, D), (2000, 1000))
  sizes, labels = np.diff(x.indptr), np.diff(y.indptr)
  assert sizes.min() >= 5 and sizes.max() <= 30
  assert (labels.min(), labels.max()) == (1, 7)
  assert 3 < labels.mean() < 4
  for found, limit in ((x, D), (y, 1000)):
    assert found.indices.min() >= 0
    assert found.indices.max() < limit
    falls = np.flatnonzero(np.diff(found.indices) <= 0) + 1
    assert np.isin(falls, found.indptr).all()
  np.testing.assert_allclose(x.multiply(x).sum(1), 1, rtol=1e-6)
  kept = words.train_labels[:2000]
  assert y[np.arange(2000), kept].all()


def test_an_example_follows_from_its_number_alone():
  words, again = (sparse_words.Words(sparse_words.Options(seed=4)) for _ in range(2))
  numbers = np.array([17, 3, 9000, 17])
  x, y = train(words, numbers)
  # The same as in runs of before.
  assert (x[0].indices.sum(), x[0].nnz) == (446_867, 32)
  assert y[0].indices.tolist() == [234, 413]
  for i, number in enumerate(numbers):
    one, labels = train(again, [number])
    same(one, x[i])
    same(labels, y[i])
  other = sparse_words.Words(sparse_words.Options(seed=5))
  assert train(other, numbers)[0].indices.tolist() != x.indices.tolist()
  test = words.features(sparse_words.TEST, numbers)
  assert test.indices.tolist() != x.indices.tolist()


def test_chunks_do_not_show(monkeypatch):
  words = sparse_words.Words(sparse_words.Options(num_classes=50))
  whole, counts = train(words, np.arange(100)), words.label_counts()
  monkeypatch.setattr(sparse_words, '_CHUNK', 7)
  for a, b in zip(whole, train(words, np.arange(100)), strict=True):
    same(a, b)
  np.testing.assert_array_equal(counts, words.label_counts())
  x, y = train(words, [])
  assert (x.shape, y.shape) == ((0, D), (0, 50))


def test_labels_are_as_frequent_as_their_rank_says():
  words = sparse_words.Words(sparse_words.Options(num_classes=500, examples_per_class=100))
  kept = np.sort(np.bincount(words.train_labels, minlength=500))[::-1]
  assert kept.sum() == len(words.train_labels) == 50_000
  expected = 50_000 / np.arange(1, 501)
  expected *= 50_000 / expected.sum()
  assert np.abs(kept - expected).max() <= 1
  counts = words.label_counts()
  _, y = train(words, np.arange(50_000))
  np.testing.assert_array_equal(counts, np.bincount(y.indices, minlength=500))
  rank = np.argsort(-np.bincount(words.train_labels, minlength=500))
  assert (np.diff(counts[rank[[0, 3, 20, 100, 400]]]) < 0).all()
  test = words.label_sets(sparse_words.TEST, np.arange(10_000))
  share = np.bincount(test.indices, minlength=500)[rank[:5]] / 10_000
  np.testing.assert_allclose(share, counts[rank[:5]] / 50_000, rtol=0.1)


def test_labels_of_a_group_occur_together():
  def of(size):
    return sparse_words.Words(sparse_words.Options(num_classes=43, label_group_size=size))

  grouped, plain = of(10), of(0)
  np.testing.assert_array_equal(grouped.train_labels, plain.train_labels)
  for part in (sparse_words.TRAIN, sparse_words.TEST):
    numbers = np.arange(430)
    y = grouped.label_sets(part, numbers)
    apart = plain.label_sets(part, numbers)

    def groups(y):
      return [{*(row.indices // 10)} for row in y]

    assert all(len(found) == 1 for found in groups(y))
    assert sum(len(found) > 1 for found in groups(apart)) > 200
    assert y.getnnz(axis=1).max() > 2
  # As often as in the whole: a commoner label is the commoner one in its group.
  counts = np.bincount(grouped.train_labels, minlength=43)[:10]
  beside = grouped.label_counts()[:10]
  assert np.corrcoef(counts, beside)[0, 1] > 0.9
  kept = grouped.train_labels[:430]
  assert train(grouped, np.arange(430))[1][np.arange(430), kept].all()
  # A group of all labels is none.
  of_all = of(43).label_sets(sparse_words.TEST, np.arange(430))
  same(of_all, plain.label_sets(sparse_words.TEST, np.arange(430)))


def test_a_million_classes_cost_what_their_examples_do():
  dataset = sparse_words.load(num_classes=10**6, examples_per_class=0.1, num_features=300_000)
  train = dataset.train
  held = np.unique(np.concatenate([train.labels(c) for c in train.client_ids]))
  assert len(held) == len(train.client_ids) < 60_000
  x, y = train.examples(train.client_ids[-1])
  assert x.shape[0] == len(y)
  assert dataset.propensity.label_counts.shape == (10**6,)
  assert dataset.propensity.num_examples == 100_000


def test_clients_of_several_classes_and_shares_of_a_class():
  def total(**options):
    train = sparse_words.load(num_classes=100, **options).train
    parts = [train.numbers(c) for c in train.client_ids]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), range(1000))
    return len(parts)

  assert total() == 100
  assert total(classes_per_client=7) == 15
  assert 200 < total(clients_per_class=4) <= 400


@pytest.mark.parametrize('name', sparse_words._RANGES)
def test_arguments_are_checked(name):
  _, most = sparse_words._RANGES[name]
  for value in (-1, most + 1, float('nan')):
    with pytest.raises(errors.InputError, match=f'{name} is'):
      sparse_words.load(**{name: value})
  with pytest.raises(errors.InputError, match='num_classes is'):
    sparse_words.load(num_classes=10**7, examples_per_class=1000)
  assert sparse_words.load(num_classes=2, test_examples=0).test is None
