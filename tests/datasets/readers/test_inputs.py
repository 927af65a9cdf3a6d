"""How the program recognizes the type of an input, and which of its files it lists."""

import re
import shutil

import numpy as np
import pytest

from datasets import cifar
from datasets.leaf import sets
from datasets.readers import inputs, tables
from tests.datasets import cifar_on_disk as cifar_on_disk, images_on_disk
from tests.datasets.leaf import on_disk as leaf_on_disk
from tff_xc import errors


def read(path, **columns):
  return inputs.read(path, tables.Columns(**columns))


def of_users(found, part='train'):
  names = [*found.user_names, *found.test_user_names, None]
  return [names[user] for user in found.users[getattr(found, part)]]


def labels_of_test(found):
  return found.labels[found.test]


TABLE = 'user_id,image_id,class\nb,x,10\na,y,9\nNA,z,10\nb,w,2\n'


def test_a_table(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text(TABLE)
  found = read(path)
  assert found.class_names == ['2', '9', '10']
  assert found.labels.tolist() == [2, 1, 2, 0]
  assert of_users(found) == ['b', 'a', None, 'b']
  assert found.ids_of(np.array([3, 0])) == ['w', 'x']
  assert found.test is None


def test_columns_of_a_table(tmp_path):
  path = tmp_path / 'a.tsv'
  path.write_text('item\twho\tclass\n1\t7\tcat\n2\t7\tdog\n2\t8\tcat\n')
  found = read(path)
  assert (found.users, found.ids) == (None, range(3))
  found = read(path, user='who', label='item')
  assert of_users(found) == ['7', '7', '8']
  assert found.class_names == ['1', '2']
  for columns, message in (
    ({'id': 'item'}, r"line 4 has the id '2', as .*line 3"),
    ({'user': 'owner'}, "no column 'owner', .* --label_column"),
    ({'label': 'label'}, "no column 'label', it has"),
  ):
    with pytest.raises(errors.InputError, match=message):
      read(path, **columns)


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('c,v,', 'line 6 has no class'),
    (',v,2', 'line 6 has no user'),
    ('c,,2', 'line 6 has no id'),
    ('c,x,2', "line 6 has the id 'x', as .* line 2"),
    ('c,caf\u00e9,2\nc,cafe\u0301,2', 'line 7 has the id'),
  ],
)
def test_bad_lines(line, message, tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text(TABLE + line)
  with pytest.raises(errors.InputError, match=message):
    read(path)


@pytest.mark.parametrize('name', list(cifar.LAYOUTS))
def test_the_official_cifars(name, tmp_path, monkeypatch):
  monkeypatch.setattr(cifar, 'OFFICIAL', cifar_on_disk.COUNTS[name])
  (_, y), (_, test_y) = cifar_on_disk.tiny(name)
  layout = cifar.LAYOUTS[name]
  content = cifar_on_disk.files(name, 'binary')
  cifar_on_disk.write(tmp_path, content)
  archive = tmp_path / 'archive' / layout.places['binary'][1]
  archive.parent.mkdir()
  cifar_on_disk.archive(archive, content)
  monkeypatch.chdir(tmp_path / layout.places['binary'][0])
  for path in (tmp_path, tmp_path / layout.places['binary'][0], archive, '.'):
    found = read(path)
    np.testing.assert_array_equal(found.labels, np.append(y, test_y))
    assert found.ids_of(found.train) == list(range(len(y)))
    assert found.ids_of(found.test) == list(range(len(test_y)))
    assert len(found.class_names) == layout.num_classes


def test_extreme_classification_text(tmp_path):
  (tmp_path / 'a_train.txt').write_text('3 4 5\n1,2 0:1\n 1:1\n4 2:1\n')
  alone = read(tmp_path)
  assert alone.has_sets
  assert alone.labels.toarray().nonzero()[1].tolist() == [1, 2, 4]
  assert alone.class_names == list('01234')
  assert alone.test is None
  (tmp_path / '._a_train.txt').write_bytes(b'\0\5\26\7')  # A hidden file of macOS.
  assert read(tmp_path).fingerprint() == alone.fingerprint()
  (tmp_path / 'a_test.txt').write_text('1 4 5\n3 0:1\n')
  for path in (tmp_path, tmp_path / 'a_train.txt'):
    assert labels_of_test(read(path)).indices.tolist() == [3]
  (tmp_path / 'a_test.txt').write_text('1 4 6\n3 0:1\n')
  with pytest.raises(errors.InputError, match=r'has 6 labels and a_train\.txt 5'):
    read(tmp_path)
  (tmp_path / 'trn_X_Y.txt').write_text('1 5\n2:1\n')
  with pytest.raises(errors.InputError, match='give one of these as --input'):
    read(tmp_path)
  assert read(tmp_path / 'trn_X_Y.txt').labels.indices.tolist() == [2]


def test_columns_of_what_is_no_table_and_too_many_labels(tmp_path):
  (tmp_path / 'a_train.txt').write_text('1 5 2000000000\n2 2:1\n')
  for columns in ({'label': 'c'}, {'label': ''}, {'user': ''}):
    [(role, name)] = columns.items()
    with pytest.raises(errors.InputError, match=f'--{role}_column={name} names'):
      read(tmp_path, **columns)
  with pytest.raises(errors.InputError, match='at most 16,777,216 classes'):
    read(tmp_path)


@pytest.mark.parametrize(
  ('name', 'why'),
  [
    ('train.txt', "expected the header 'N D L'"),
    ('metadata.json', '"users"'),
    ('train/metadata.json', 'has only one of the parts'),
  ],
)
def test_images_beside_a_file_of_another_form(name, why, tmp_path, capsys):
  for image in ('cat/1.png', 'dog/2.png'):
    (tmp_path / image).parent.mkdir()
    (tmp_path / image).write_bytes(b'')
  (tmp_path / name).parent.mkdir(exist_ok=True)
  (tmp_path / name).write_text('{}')
  assert read(tmp_path).class_names == ['cat', 'dog']
  assert re.search(f'is taken for images .*{why}', capsys.readouterr().err)
  shutil.rmtree(tmp_path / 'dog')
  with pytest.raises(errors.InputError, match=why):  # Images of only one class.
    read(tmp_path)


def test_tfrecords(tmp_path):
  image = images_on_disk.photograph(0)
  made = [images_on_disk.example(image=image, label=i % 2, user=f'u{i % 3}') for i in range(4)]
  path = images_on_disk.write_records(tmp_path / 'a' / 'mine.TFRecord', made)
  for given in (path, path.parent):
    found = read(given)
    assert found.class_names == ['0', '1']
    assert sorted(of_users(found)) == ['u0', 'u0', 'u1', 'u2']


def test_npz(tmp_path):
  path = tmp_path / 'a.npz'
  y = np.array([0, 3, 1], np.uint8)
  np.savez(path, y=y, client=np.array(['b', 'a', 'b']), test_y=np.array([4]))
  found = read(path)
  assert found.labels.tolist() == [0, 3, 1, 4]
  assert found.labels.dtype == np.int32
  assert of_users(found) == ['b', 'a', 'b']
  assert labels_of_test(found).tolist() == [4]
  assert len(found.class_names) == 5
  with path.open('wb') as file:
    np.save(file, y)
  with pytest.raises(errors.InputError, match='one array without a name'):
    read(path)


def test_leaf(tmp_path):
  users = {'b': leaf_on_disk.writer(1, 3), 'a': leaf_on_disk.writer(2, 2)}
  leaf_on_disk.write(tmp_path / 'train' / 'data.json', users)
  leaf_on_disk.write(tmp_path / 'test' / 'data.json', {'c': leaf_on_disk.writer(40, 4)})
  found = read(tmp_path)
  dataset = sets.load('femnist', tmp_path)
  assert of_users(found) == ['b'] * 3 + ['a'] * 2
  np.testing.assert_array_equal(found.labels[:5], dataset.train.pool.labels[:5])
  np.testing.assert_array_equal(labels_of_test(found), dataset.test.labels)
  # The examples' numbers in the pool of the task.
  assert found.ids_of(found.test) == [5, 6, 7, 8]
  assert of_users(found, 'test') == ['c'] * 4
  assert found.class_names == list(map(str, range(44)))
  shutil.rmtree(tmp_path / 'test')
  (tmp_path / 'train').rename(tmp_path / 'all_data')
  for path in (tmp_path, tmp_path / 'all_data' / 'data.json'):
    assert of_users(read(path)) == ['b'] * 3 + ['a'] * 2
    assert read(path).test is None


@pytest.mark.parametrize(
  ('y', 'names', 'labels'),
  [
    (['b', ' ', 'a'], [' ', 'a', 'b'], [2, 0, 1]),
    ([1.0, 0.0], ['0', '1'], [1, 0]),
    (['3', '1'], ['0', '1', '2', '3'], [3, 1]),
    ([1 << 20, 7], ['7', '1048576'], [1, 0]),
  ],
)
def test_leafs_labels(y, names, labels, tmp_path):
  path = tmp_path / 'a.json'
  leaf_on_disk.write(path, {'nobody': ([], []), 'u': (y, y)})
  found = read(path)
  assert found.class_names == names
  assert found.labels.tolist() == labels
  assert of_users(found) == ['u'] * len(y)


@pytest.mark.parametrize(
  ('users', 'message'),
  [
    ({'u': (['x'], [0.5])}, r"user 'u': the label is 0\.5"),
    ({'u': (['x'], [True])}, "user 'u': the label is True"),
    ({}, 'has no examples'),
  ],
)
def test_leafs_other_labels_and_no_users(users, message, tmp_path):
  leaf_on_disk.write(tmp_path / 'a.json', users)
  with pytest.raises(errors.InputError, match=message):
    read(tmp_path / 'a.json')


def test_other_inputs(tmp_path):
  (tmp_path / 'a.docx').write_text('')
  (tmp_path / 'a.csv').write_text('class\n')
  for name, message in (
    ('a.docx', 'is of no known kind; give a folder, .csv'),
    ('none', 'none does not exist'),
    ('a.csv', r'a\.csv has no examples'),
  ):
    with pytest.raises(errors.InputError, match=message):
      read(tmp_path / name)
