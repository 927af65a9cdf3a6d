"""Split files: what is accepted, and which line is refused."""

import numpy as np
import pytest
import scipy.sparse

from datasets.splits import listing
from datasets.splits import split_csv
from tff_xc import errors
from tff_xc.data import partition

LABELS = np.array([3, 1, 1, 0, 2])


def read(path, text, labels=LABELS):
  path = path / 'split.csv'
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  found = split_csv.read(path, labels)
  return {
    name: found.of_client(k).tolist() for k, name in enumerate(found.client_ids)
  }


def test_users_that_are_numbers_sort_as_numbers(tmp_path):
  text = 'user_id,image_id,class\n10,0,3\n2,4,2\n10,1,1\n'
  assert list(read(tmp_path, text).items()) == [('2', [4]), ('10', [0, 1])]
  assert list(read(tmp_path, text.replace('2,4', '02,4'))) == ['02', '10']


@pytest.mark.parametrize('zeros', [18, 19, 30, 5000])
def test_numbers_of_any_length_sort_as_numbers(tmp_path, zeros):
  large = '1' + '0' * zeros
  text = f'user_id,image_id,class\n{large},0,3\n9,4,2\n0,1,1\n'
  assert list(read(tmp_path, text)) == ['0', '9', large]


def test_users_that_differ_in_spaces_are_one(tmp_path):
  text = 'user_id,image_id,class\n a ,0,3\na,4,2\n'
  assert read(tmp_path, text) == {'a': [0, 4]}


def test_quotes_spaces_blank_lines_and_other_columns(tmp_path):
  text = (
    '\ufeff"class",note,image_id,user_id\r\n'
    '1,"a, b",2,"an, other"\r\n\r\n   \r\n 0 ,, 3 , bo \r\n'
  )
  assert read(tmp_path, text) == {'an, other': [2], 'bo': [3]}


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('b,0,3', 'line 6: image 0 is in line 2 already'),
    ('b,4,9', "line 6: image 4 has class '9' here and 2 in the data"),
    (',4,2', 'line 6 has no user_id'),
    ('b,5,2', "line 6: image_id is '5'; expected 0 to 4"),
    pytest.param(
      'b,' + '9' * 5000 + ',2', "line 6: image_id is '9{20}';", id='long'
    ),
    ('b,4,2,,x', 'line 6 has 5 fields; expected 3'),
  ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
  text = 'user_id,image_id,class\na,0,3\n\nb,1,1\n"a",2,1\n'
  assert read(tmp_path, text) == {'a': [0, 2], 'b': [1]}
  with pytest.raises(errors.InputError, match=message):
    read(tmp_path, text + line)


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('', 'is empty'),
    (
      'user_id,class\na,1\n',
      "no column 'image_id', it has user_id, class; rename them, or let .*users",
    ),
    ('user_id,image_id,class\n', 'has no images'),
    (b'user_id,image_id,class\n\xff,0,3\n', 'is not UTF-8 text'),
  ],
)
def test_files_that_are_no_splits(tmp_path, text, message):
  with pytest.raises(errors.InputError, match=message):
    read(tmp_path, text)


def test_a_split_is_written_in_one_step(tmp_path):
  path = tmp_path / 'split.csv'
  clients = partition.of_clients({'d': [2], 'a, "b"': [3, 0], 'c': []})
  split_csv.write(path, clients, LABELS)
  assert path.read_text().split('\n')[:3] == [
    'user_id,image_id,class',
    'd,2,1',
    '"a, ""b""",3,0',
  ]
  found = split_csv.read(path, LABELS)
  assert found.client_ids == ['a, "b"', 'd']
  assert found.of_client(0).tolist() == [3, 0]
  with pytest.raises(IndexError):
    split_csv.write(path, partition.of_clients({'a': [9]}), LABELS)
  assert [p.name for p in tmp_path.iterdir()] == ['split.csv']
  assert split_csv.read(path, LABELS).client_ids == found.client_ids


def test_a_split_that_cannot_be_written_is_one_sentence(tmp_path):
  clients = partition.of_clients({'a': [0]})
  with pytest.raises(errors.InputError, match='none is no folder; make it'):
    split_csv.write(tmp_path / 'none' / 'split.csv', clients, LABELS)
  for name in ('', ' a'):
    clients = partition.of_clients({name: [0]})
    with pytest.raises(errors.InputError, match='is empty, or begins'):
      split_csv.write(tmp_path / 'split.csv', clients, LABELS)


def test_examples_with_sets_of_labels_may_be_with_several_users(tmp_path):
  sets = scipy.sparse.csr_matrix(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]))
  clients = partition.of_clients({'a': [0, 1, 0], 'b': [0, 2]})
  path = tmp_path / 'split.csv'
  split_csv.write(path, clients, sets)
  assert path.read_text().splitlines()[1:3] == ['a,0,1 2', 'a,1,']
  found = split_csv.read(path, sets)
  assert found.client_ids == ['a', 'b']
  assert found.numbers.tolist() == [0, 1, 0, 0, 2]
  with pytest.raises(errors.InputError, match="has class '1 2' here and 0 in"):
    split_csv.read(path, sets[[2, 1, 0]])


def test_ids_that_are_text(tmp_path):
  ids = ['cat/1.jpg', 'cat/2, 3.jpg', 'dog/"1".jpg', 'dog/1', 'dog/é']
  clients = partition.of_clients({'10': [4, 0], '9': [2, 1]})
  path = tmp_path / 'split.csv'
  split_csv.write(path, clients, LABELS, listing.texts([ids]))
  found = split_csv.read(path, LABELS, ids)
  assert found.client_ids == ['9', '10']
  assert found.numbers.tolist() == [2, 1, 4, 0]
  split_csv.write_test(
    tmp_path / 'test.csv', np.array([3, 1]), LABELS, listing.texts([ids])
  )
  assert split_csv.read_test(tmp_path / 'test.csv', LABELS, ids).tolist() == [
    3,
    1,
  ]
  assert split_csv.read_test(path, LABELS, ids).tolist() == [4, 0, 2, 1]
  with pytest.raises(
    errors.InputError,
    match="line 2: image_id is 'dog/é'; expected an id of the data, such as",
  ):
    split_csv.read(path, LABELS[:4], ids[:4])
