"""The lists of Stanford Online Products, and the clients of this data set."""

import math

import pytest

from datasets import sop
from datasets.splits import rules
from tests.datasets import sop_on_disk as on_disk
from tff_xc import errors


def naive_clients(train, size):
  """Sorts images by class in a stable order, and cuts the list into clients."""
  in_order = sorted(train, key=lambda row: row[1])
  return [in_order[i : i + size] for i in range(0, len(in_order), size)]


def clients(found, size):
  numbers = found.train
  split = rules.deal('sop', found.some(numbers), examples_per_client=size)
  return [found.ids_of(numbers[split.train.of_client(k)]) for k in range(len(split.train))]


@pytest.mark.parametrize('size', [1, 5, 100])
def test_clients_are_chunks_of_the_list_sorted_by_class(tmp_path, size):
  train, test = on_disk.lists()
  found = sop.read(on_disk.write(tmp_path, train, test))
  dealt = clients(found, size)
  assert len(dealt) == math.ceil(37 / size)
  for images, expected in zip(dealt, naive_clients(train, size), strict=True):
    assert sorted(images) == sorted(row[3] for row in expected)


def test_the_test_list_is_of_other_classes(tmp_path):
  train, test = on_disk.lists()
  found = sop.read(on_disk.write(tmp_path, train, test))
  assert found.class_names == [str(c) for c in range(1, 7)]
  assert list(found.ids) == [row[3] for row in train + test]
  assert found.labels.tolist() == [row[1] - 1 for row in train + test]
  assert found.train.tolist() == list(range(len(train)))
  assert len(found.retrieval) == len(test)
  assert found.retrieval_class_names == ['7', '8', '9']
  assert found.test is None


@pytest.mark.parametrize(
  ('change', 'said'),
  [
    (lambda t: 'id ' + t, 'expected lines .image_id class_id'),
    (lambda t: t.replace(' 3 ', ' three ', 1), 'expected lines'),
    (lambda t: t + '99 4 1\n', 'expected lines'),
    (lambda t: t + t.splitlines()[1] + '\n', 'listed twice'),
    (lambda t: t + '99 8 1 a/b.JPG\n', 'in both lists'),
    (lambda t: t.splitlines()[0], 'expected lines'),
    (lambda t: t[:50] + '\udcff', 'expected lines'),
    (None, r'has no Ebay_train\.txt; give'),
  ],
)
def test_a_malformed_list_is_refused_in_a_sentence(tmp_path, change, said):
  path = on_disk.write(tmp_path, *on_disk.lists())
  file = path / 'Ebay_train.txt'
  text = file.read_text()
  file.unlink()
  if change:
    file.write_text(change(text), errors='surrogateescape')
  with pytest.raises(errors.InputError, match=said):
    sop.read(path)
