"""Splits in the forms in which they are published, by `--split`."""

import csv
import io
import zipfile

import numpy as np
import pytest

from datasets.splits import published_files
from datasets.splits import split_csv
from datasets.splits import split_folder
from datasets.splits import split_path
from tasks import own_data
from tff_xc import errors

TRAIN = [
  ('user_id', 'image_id', 'class'),
  ('7', 'aa', '10'),
  ('7', 'bb', '2'),
  ('12', 'cc', '2'),
]
TEST = [('image_id', 'class'), ('dd', '10')]
# TFF's: a column of users for each split; NA is nobody.
MERGED = [
  ('image_id', 'class', 'user_120k', 'geo_100'),
  ('aa', '10', '7', '89c'),
  ('bb', '2', '7', 'NA'),
  ('cc', '2', '12', '89c'),
]
# iNaturalist's zips have the class of their source, too.
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
  found = {}
  train = split.train
  ids = train.ids.take(np.arange(len(train)))
  for name, user, label in zip(ids, train.users, train.labels, strict=True):
    if user >= 0:
      key = train.user_names[user]
      found.setdefault(key, []).append((name, split.class_names[label]))
  return found


BY_USER = {'7': [('aa', '10'), ('bb', '2')], '12': [('cc', '2')]}


@pytest.mark.parametrize('rows', [TRAIN, LABELLED])
def test_a_zip_as_it_is_published(rows, tmp_path):
  path = zipped(tmp_path / 'a.zip', federated_train=rows, test=TEST)
  own_data.check({'split': str(path), 'test_file': '', 'test_fraction': 0})
  split = split_folder.read(path)
  assert clients(split) == BY_USER
  assert split.class_names == ['2', '10']
  assert split.test.ids.take(np.arange(1)) == ['dd']


def test_one_of_several_splits_of_a_zip(tmp_path):
  path = zipped(tmp_path / 'geo.zip', federated_train_100=TRAIN, test=TEST)
  split = split_folder.read(path / 'federated_train_100.csv', path / 'test.csv')
  assert clients(split) == BY_USER
  assert len(split.test) == 1
  with pytest.raises(
    errors.InputError, match=r'geo.zip/set/federated_train_100'
  ):
    split_folder.read(path)


@pytest.mark.parametrize(
  ('user', 'expected'),
  [
    ('user_120k', BY_USER),
    ('geo_100', {'89c': [('aa', '10'), ('cc', '2')]}),
  ],
)
def test_one_column_of_several(user, expected, tmp_path):
  path = tmp_path / 'iNaturalist_train.csv'
  path.write_text(text(MERGED))
  name = f'{path}:{user}'
  own_data.check({'split': name, 'test_file': '', 'test_fraction': 0})
  assert clients(split_folder.read(name)) == expected
  labels = np.array([10, 2, 2])
  if user == 'user_120k':
    found = split_csv.read(name, labels, ['aa', 'bb', 'cc'])
    assert found.client_ids == ['7', '12']
    assert found.sizes.tolist() == [2, 1]


def test_a_column_that_is_not_named(tmp_path):
  path = tmp_path / 'iNaturalist_train.csv'
  path.write_text(text(MERGED))
  for name in (str(path), f'{path}:geo_5'):
    with pytest.raises(errors.InputError, match=r'such as .*csv:user_120k$'):
      split_folder.read(name)


def test_a_file_whose_name_has_a_colon(tmp_path):
  path = tmp_path / 'a:geo_100'
  path.write_text(text(TRAIN))
  assert split_path.parse(path) == (path, 'user_id')
  assert clients(split_folder.read(path)) == BY_USER


@pytest.mark.parametrize('name', ['none', 'none:geo_100', 'a.zip/none.csv'])
def test_a_split_that_is_not_there(name, tmp_path):
  zipped(tmp_path / 'a.zip', federated_train=TRAIN)
  path = str(tmp_path / name)
  with pytest.raises(errors.InputError, match='does not exist'):
    own_data.check({'split': path, 'test_file': '', 'test_fraction': 0})


def test_a_damaged_zip(tmp_path):
  path = tmp_path / 'a.zip'
  path.write_bytes(b'PK')
  with pytest.raises(errors.InputError, match='no zip that can be read'):
    split_folder.read(path)


def test_a_name_that_two_members_have(tmp_path):
  path = tmp_path / 'a.zip'
  with zipfile.ZipFile(path, 'w') as file:
    for folder in 'xy':
      file.writestr(f'{folder}/federated_train.csv', text(TRAIN))
  with pytest.raises(
    errors.InputError, match='name one of them with its folder'
  ):
    split_folder.read(path)
  assert clients(split_folder.read(path / 'x/federated_train.csv')) == BY_USER


def test_a_published_file_is_known(tmp_path, capsys, monkeypatch):
  path = zipped(tmp_path / 'mine.zip', federated_train=TRAIN, test=TEST)
  known = {published_files.md5(path): ('b.zip', 'the split B')}
  monkeypatch.setattr(published_files, 'FILES', known)
  split_folder.read(path)
  said = capsys.readouterr().err
  assert said.startswith(f'note: {path} is the split B, as published (md5 ')
  split_folder.read(path / 'federated_train.csv')
  assert capsys.readouterr().err == said
  split_folder.read(path, zipped(tmp_path / 'b.zip', test=TEST) / 'test.csv')
  assert 'b.zip is named as the split B, and is another' in (
    capsys.readouterr().err
  )


def test_other_files_are_not_spoken_of(tmp_path, capsys):
  path = tmp_path / 'federated_train.csv'
  path.write_text(text(TRAIN))
  split_folder.read(tmp_path)
  split_folder.read(path)
  assert not capsys.readouterr().err
