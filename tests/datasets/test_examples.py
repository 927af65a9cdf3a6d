"""The table of all examples: training and test examples, ids and fingerprint."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse

from datasets import examples


def of(names, label, users=None, user_names=()):
  labels = np.full(len(names), label, np.int32)
  if users is not None:
    users = np.array(users, np.int32)
  ids = examples.texts([names])
  return examples.Examples(labels, ['x', 'y'], ids, users, user_names)


def test_parts_that_were_read_apart_become_one_table():
  found = examples.of_parts(
    of(['a', 'b'], 0, [1, -1], ['ann', 'bob']), of(['c'], 1, [0], ['eve']), of(['d', 'e'], 1)
  )
  assert found.labels.tolist() == [0, 0, 1, 3, 3]
  assert list(found.ids) == list('abcde')
  assert found.users.tolist() == [1, -1, 2, -1, -1]
  assert found.test_user_names == ['eve']
  assert found.retrieval_class_names == ['x', 'y']
  assert found.train.tolist() == [0, 1]
  assert (found.test.tolist(), found.retrieval.tolist()) == ([2], [3, 4])
  # Folders of splits store this fingerprint.
  assert found.fingerprint() == {
    'examples': 2,
    'classes': 2,
    'test_examples': 1,
    'retrieval_examples': 2,
    'checksum': '55e3a5ad44531fd0',
  }


def test_parts_with_sets_of_labels_and_numbers_as_ids():
  sets = scipy.sparse.csr_matrix(np.array([[1, 0, 1], [0, 0, 0]], bool))
  part = examples.of_labels(sets)
  found = examples.of_parts(part, part)
  assert found.has_sets and len(found) == 4
  assert found.ids_of(found.test) == [0, 1]
  assert (found.labels[found.test] != sets).nnz == 0


def test_some_examples_and_some_classes():
  whole = of(['a', 'b', 'c'], 1, [0, 1, 0], ['ann', 'bob'])
  some = whole.some(np.array([2, 0]))
  assert some.ids_of(np.arange(2)) == [0, 1]
  assert some.users.tolist() == [0, 0]
  kept = whole.of_classes(np.array([1]))
  assert (kept.labels.tolist(), kept.class_names) == ([0, 0, 0], ['y'])
  assert whole.of_classes(np.array([0])).labels.tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
  'changes',
  [
    {'labels': np.array([0, 0], np.int32)},
    {'class_names': ['x', 'z']},
    {'ids': examples.texts([['a', 'c']])},
    {'users': np.array([0, 1], np.int32)},
    {'user_names': ['ann', 'eve']},
    {'positions': np.zeros([2, 2])},
    {'test': np.array([1])},
    {'retrieval': np.array([1])},
  ],
)
def test_whatever_differs_has_another_fingerprint(changes):
  whole = of(['a', 'b'], 1, [0, 0], ['ann', 'bob'])
  changed = dataclasses.replace(whole, **changes)
  assert changed.fingerprint() != whole.fingerprint()
  again = dataclasses.replace(whole, facts={'seen': 1})
  assert again.fingerprint() == whole.fingerprint()


def test_ids_are_found_as_texts_and_as_numbers():
  wanted = examples.texts([['b', 'x', '1', '007', '9' * 5000]])
  found = examples.find(examples.texts([['a', 'b', '1', 'b']]), wanted)
  assert found.tolist() == [1, -1, 2, -1, -1]
  assert examples.find(range(9), wanted).tolist() == [-1, -1, 1, 7, -1]
  twice = np.array([7, 1, 7])
  assert examples.find(twice, wanted).tolist() == [-1, -1, 1, 0, -1]
