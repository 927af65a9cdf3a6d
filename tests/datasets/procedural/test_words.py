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


def test_a_million_classes_cost_what_their_examples_do():
  dataset = sparse_words.load(num_classes=10**6, examples_per_class=0.1, num_features=300_000)
  train = dataset.train
  held = np.unique(np.concatenate([train.labels(c) for c in train.client_ids]))
  assert len(held) == len(train.client_ids) < 60_000
  x, y = train.examples(train.client_ids[-1])
  assert x.shape[0] == len(y)
  assert dataset.propensity.label_counts.shape == (10**6,)
  assert dataset.propensity.num_examples == 100_000


@pytest.mark.parametrize('name', sparse_words._RANGES)
def test_arguments_are_checked(name):
  _, most = sparse_words._RANGES[name]
  for value in (-1, most + 1, float('nan')):
    with pytest.raises(errors.InputError, match=f'{name} is'):
      sparse_words.load(**{name: value})
  with pytest.raises(errors.InputError, match='num_classes is'):
    sparse_words.load(num_classes=10**7, examples_per_class=1000)
  assert sparse_words.load(num_classes=2, test_examples=0).test is None
