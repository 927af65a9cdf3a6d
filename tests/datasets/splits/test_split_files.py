"""Splits in files: their formats, which files are accepted, and which line an error names."""

import csv
import dataclasses
import io
import zipfile

import numpy as np
import pytest
import scipy.sparse

from datasets import examples as examples_lib
from datasets.splits import deal, split_files
from tasks import own_data
from tff_xc import errors
from tff_xc.data import partition

LABELS = np.array([3, 1, 1, 0, 2])


def of(labels, ids=None):
  found = examples_lib.of_labels(labels)
  if not ids:
    return found
  return dataclasses.replace(found, ids=examples_lib.texts([ids]))


DATA = of(LABELS)


def partition_of(path, data=DATA):
  return split_files.partition(path, data, 'the data')


def read(path, text, data=DATA):
  path = path / 'split.csv'
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  found = partition_of(path, data)
  return {name: found.of_client(k).tolist() for k, name in enumerate(found.client_ids)}


@pytest.mark.parametrize(
  ('lines', 'expected'),
  [
    (['10,0,3', '2,4,2', '10,1,1'], [('2', [4]), ('10', [0, 1])]),
    (['10,0,3', '02,4,2'], [('02', [4]), ('10', [0])]),
    ([' a ,0,3', 'a,4,2'], [('a', [0, 4])]),
    (['1' + '0' * 5000 + ',0,3', '9,4,2'], [('9', [4]), ('1' + '0' * 5000, [0])]),
  ],
)  # fmt: skip
def test_users_sort_as_numbers_and_do_not_differ_in_spaces(tmp_path, lines, expected):
  found = read(tmp_path, '\n'.join(['user_id,image_id,class', *lines]))
  assert list(found.items()) == expected


def test_quotes_spaces_blank_lines_and_other_columns(tmp_path):
  text = (
    '\ufeff"class",note,image_id,user_id\r\n1,"a, b",2,"an, other"\r\n\r\n   \r\n 0 ,, 3 , bo \r\n'
  )
  assert read(tmp_path, text) == {'an, other': [2], 'bo': [3]}


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('b,0,3', "line 6 has the id '0', as .*line 2 has"),
    ('b,00,3', "line 6 has the example '00', as .*line 2 has"),
    ('b,4,9', "line 6: example '4' has class '9' here and '2' in the data"),
    ('b,5,2', "line 6 has the image_id '5'"),
    pytest.param('b,' + '9' * 5000 + ',2', 'line 6 has the image', id='long'),
  ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
  text = 'user_id,image_id,class\na,0,3\n\nb,1,1\n"a",2,1\n'
  assert read(tmp_path, text) == {'a': [0, 2], 'b': [1]}
  with pytest.raises(errors.InputError, match=message):
    read(tmp_path, text + line)


def test_a_split_is_written_in_one_step(tmp_path):
  path = tmp_path / 'split.csv'
  clients = partition.of_clients({'d': [2], 'a, "b"': [3, 0], 'c': []})
  split_files.write(path, clients, DATA)
  assert path.read_text().split('\n')[:3] == ['user_id,image_id,class', 'd,2,1', '"a, ""b""",3,0']
  found = partition_of(path)
  assert found.client_ids == ['a, "b"', 'd']
  assert found.of_client(0).tolist() == [3, 0]
  for client, where, error in (
    ('a', 9, IndexError),
    ('a ', 0, errors.InputError),
    ('NA', 0, errors.InputError),
  ):
    with pytest.raises(error):
      split_files.write(path, partition.of_clients({client: [where]}), DATA)
  assert [p.name for p in tmp_path.iterdir()] == ['split.csv']
  assert partition_of(path).client_ids == found.client_ids


def test_of_a_set_of_labels_a_line_has_one(tmp_path):
  sets = of(scipy.sparse.csr_matrix(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]], bool)))
  path = tmp_path / 'split.csv'
  split_files.write(path, partition.of_clients({'a': [0, 1], 'b': [2]}), sets)
  assert path.read_text().splitlines()[1:3] == ['a,0,1 2', 'a,1,']
  path.write_text('user_id,image_id,class\na,0,2\na,2,0\n')
  assert deal.parts(sets, deal.Choice(str(path)), '').clients.numbers.tolist() == [0, 2]
  path.write_text('user_id,image_id,class\na,0,2\na,2,1\n')
  with pytest.raises(errors.InputError, match="line 3: example '2'"):
    deal.parts(sets, deal.Choice(str(path)), '')


TRAIN = [('user_id', 'image_id', 'class'), ('7', 'aa', '10'), ('7', 'bb', '2'), ('12', 'cc', '2')]
TEST = [('image_id', 'class'), ('dd', '10')]
# TFF's format has a column of users for each split. NA means that the example has no user.
MERGED = [
  ('image_id', 'class', 'user_120k', 'geo_100'),
  ('aa', '10', '7', '89c'),
  ('bb', '2', '7', 'NA'),
  ('cc', '2', '12', '89c'),
]
# iNaturalist's zips also contain the class of the source.
LABELLED = [(*row, 'label' if not i else str(i)) for i, row in enumerate(TRAIN)]


def text(rows):
  out = io.StringIO()
  csv.writer(out).writerows(rows)
  return out.getvalue()


def zipped(path, **members):
  with zipfile.ZipFile(path, 'w') as file:
    file.writestr('__MACOSX/set/._federated_train.csv', b'\0')
    file.writestr('.ipynb_checkpoints/federated_train.csv', b'\0')
    for name, rows in members.items():
      file.writestr(f'set/{name}.csv', text(rows))
  return path


def clients(split):
  found, data = {}, split.examples
  names = data.ids_of(data.train)
  for name, i in zip(names, data.train, strict=True):
    if data.users[i] >= 0:
      key, label = data.user_names[data.users[i]], data.labels[i]
      found.setdefault(key, []).append((name, data.class_names[label]))
  return found


BY_USER = {'7': [('aa', '10'), ('bb', '2')], '12': [('cc', '2')]}


def checked(split):
  """Reads a split after checking it as a task's flags."""
  own_data.check({'split': str(split), 'test_file': '', 'test_fraction': 0})
  return split_files.read(split)


@pytest.mark.parametrize('rows', [TRAIN, LABELLED])
def test_zips_as_they_are_published(rows, tmp_path):
  path = zipped(tmp_path / 'a.zip', federated_train=rows, test=TEST)
  split = checked(path)
  assert clients(split) == BY_USER
  assert split.examples.class_names == ['2', '10']
  assert split.examples.ids_of(split.examples.test) == ['dd']
  # The zip contains several splits, and one is read.
  path = zipped(tmp_path / 'geo.zip', federated_train_100=rows, test=TEST)
  split = split_files.read(path / 'federated_train_100.csv', path / 'test.csv')
  assert clients(split) == BY_USER
  assert len(split.examples.test) == 1
  with pytest.raises(errors.InputError, match=r'geo.zip/set/federated_train_100'):
    split_files.read(path)


def test_one_column_of_several(tmp_path):
  path = tmp_path / 'iNaturalist_train.csv'
  path.write_text(text(MERGED))
  by_cell = {'89c': [('aa', '10'), ('cc', '2')]}
  for user, expected in (('user_120k', BY_USER), ('geo_100', by_cell)):
    assert clients(checked(f'{path}:{user}')) == expected
  data = of(np.array([10, 2, 2]), ['aa', 'bb', 'cc'])
  for user, names in (('user_120k', ['7', '12']), ('geo_100', ['89c', 'NA'])):
    assert partition_of(f'{path}:{user}', data).client_ids == names
  for name in (str(path), f'{path}:geo_5'):
    with pytest.raises(errors.InputError, match=r'FILE\.csv:COLUMN'):
      split_files.read(name)


@pytest.mark.parametrize(
  ('user', 'owners'),
  [
    ('user_120k', ['12', '7', None, None]),
    ('geo_100', [None, '89c', None, '89c']),
    ('user_id', [None] * 4),  # The test has no column of this name.
  ],
)
def test_test_examples_have_the_users_of_the_column_that_is_chosen(user, owners, tmp_path):
  rows = [(*row, of) for row, of in zip(MERGED, ['user_id', *'abc'], strict=True)]
  (tmp_path / 'federated_train.csv').write_text(text(rows))
  test = [
    ('geo_100', 'user_120k', 'class', 'image_id'),
    ('NA', '12', '2', 'dd'),
    ('89c', '7', '10', 'ee'),
    ('5', '99', '2', 'ff'),  # Users that occur only in the test count as no user.
    ('89c', 'NA', '2', 'gg'),
  ]
  if user != 'user_id':
    test = [(*row, of) for row, of in zip(test, ['user_id', *'abca'], strict=True)]
  (tmp_path / 'test.csv').write_text(text(test))
  found = split_files.read(f'{tmp_path}:{user}').examples
  names = [*found.user_names, None]
  assert [names[i] for i in found.users[found.test]] == owners


@pytest.mark.parametrize('name', ['none', 'none:geo_100', 'a.zip/none.csv'])
def test_a_split_that_is_not_there(name, tmp_path):
  zipped(tmp_path / 'a.zip', federated_train=TRAIN)
  with pytest.raises(errors.InputError, match='does not exist'):
    checked(tmp_path / name)


def test_a_damaged_zip_and_a_name_that_two_members_have(tmp_path):
  path = tmp_path / 'a.zip'
  path.write_bytes(b'PK')
  with pytest.raises(errors.InputError, match='cannot be read'):
    split_files.read(path)
  with zipfile.ZipFile(path, 'w') as file:
    for folder in 'xy':
      file.writestr(f'{folder}/federated_train.csv', text(TRAIN))
  with pytest.raises(errors.InputError, match='with its folder'):
    split_files.read(path)
  assert clients(split_files.read(path / 'x/federated_train.csv')) == BY_USER
