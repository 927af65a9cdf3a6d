"""Procedural bags of words."""

import numpy as np
import pytest

from datasets.procedural import words as sparse_words
from tff_xc import errors


def same(a, b):
  """Compares matrices, entry by entry."""
  for name in ('indptr', 'indices', 'data'):
    np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
  assert a.dtype == b.dtype
  assert a.shape == b.shape


def train(words, numbers):
  part = sparse_words.TRAIN
  return words.features(part, numbers), words.label_sets(part, numbers)


def test_an_example_follows_from_its_number_alone():
  words, again = (sparse_words.Words(sparse_words.Options(seed=4)) for _ in range(2))
  numbers = np.array([17, 3, 9000, 17])
  x, y = train(words, numbers)
  # These numbers must not change, so that runs stay comparable.
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


@pytest.mark.parametrize('name', sparse_words._RANGES)
def test_arguments_are_checked(name):
  _, most = sparse_words._RANGES[name]
  for value in (-1, most + 1, float('nan')):
    with pytest.raises(errors.InputError, match=f'{name} is'):
      sparse_words.load(**{name: value})
  with pytest.raises(errors.InputError, match='num_classes is'):
    sparse_words.load(num_classes=10**7, examples_per_class=1000)
  assert sparse_words.load(num_classes=2, test_examples=0).test is None
