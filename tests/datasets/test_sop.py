"""The lists of Stanford Online Products, and the clients of this data set."""

import math

import pytest

from datasets import sop
from datasets.splits import rules
from tests.datasets import sop_on_disk as on_disk
from tff_xc import errors


@pytest.mark.parametrize('size', [1, 5, 100])
def test_clients_are_chunks_of_the_list_sorted_by_class_and_the_test_has_others(tmp_path, size):
  train, test = on_disk.lists()
  found = sop.read(on_disk.write(tmp_path, train, test))
  clients = rules.deal('sop', found.some(found.train), examples_per_client=size).train
  assert len(clients) == math.ceil(37 / size)
  in_order = sorted(train, key=lambda row: row[1])
  for k in range(len(clients)):
    images = found.ids_of(found.train[clients.of_client(k)])
    assert sorted(images) == sorted(row[3] for row in in_order[k * size : (k + 1) * size])
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
