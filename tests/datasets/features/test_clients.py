"""Rows of features as federated data."""

import numpy as np
import pytest

from datasets.features import clients
from datasets.features import table as table_lib
from datasets.splits import own
from tests.datasets.features import test_table
from tff_xc import errors
from tff_xc.data import fingerprint

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(5.0, 3.0, (12, 3))
Y = np.arange(12) % 3
OWNERS = np.array(['u10', 'u9', 'u10', 'u1'] * 3)


def csv(path, x=X, y=Y, users=OWNERS, **more):
  columns = {f'f{i}': x[:, i] for i in range(x.shape[1])}
  frame = test_table.pd.DataFrame(
    {'class': [f'c{k}' for k in y], **columns, **more}
  )
  if users is not None:
    frame['user_id'] = users[: len(x)]
  frame.to_csv(path, index=False)
  return path


def npz(path, **changes):
  arrays = {'x': X, 'y': Y, 'client': OWNERS, 'test_x': X[:4], 'test_y': Y[:4]}
  arrays = {k: v for k, v in {**arrays, **changes}.items() if v is not None}
  np.savez(path, **arrays)
  return path


def examples(pool):
  return pool.examples(np.arange(len(pool))).x


def test_users_of_a_table_are_clients(tmp_path, capsys):
  dataset = clients.load(csv(tmp_path / 'mine.csv'), own.USERS)
  said = capsys.readouterr().err
  assert '3 features, standardised by the training rows: f0, f1, f2' in said
  assert dataset.train.client_ids == ['u1', 'u10', 'u9']
  assert dataset.class_names == ['c0', 'c1', 'c2']
  assert dataset.train.numbers('u10').tolist() == [0, 2, 4, 6, 8, 10]
  assert dataset.train.pool.spec.shape == (3,)
  assert dataset.test is None


def test_the_user_na_is_nobody_as_in_make_splits(tmp_path):
  users = np.where(np.arange(12) < 3, 'NA', OWNERS)
  dataset = clients.load(csv(tmp_path / 'mine.csv', users=users), own.USERS)
  assert dataset.train.client_ids == ['u1', 'u10', 'u9']
  assert sorted(dataset.train.partition.numbers) == list(range(3, 12))


def test_columns_of_arrays_are_refused(tmp_path):
  columns = table_lib.DEFAULT._replace(label='item')
  with pytest.raises(errors.InputError, match='arrays and no columns; leave'):
    clients.load(npz(tmp_path / 'mine.npz'), own.USERS, columns)


def test_features_are_standardised_by_the_training_rows_only(tmp_path):
  part = np.where(np.arange(12) % 4 == 3, 'test', 'train')
  path = csv(tmp_path / 'mine.csv', constant=np.full(12, 7.0), part=part)
  columns = table_lib.DEFAULT._replace(test='part')
  dataset = clients.load(path, own.USERS, columns)
  assert dataset.train.client_ids == ['u10', 'u9']
  trains = np.sort(dataset.train.partition.numbers)
  x = examples(dataset.train.pool)
  assert x.dtype == np.float32
  rows = X[trains]
  expected = (X - rows.mean(0)) / rows.std(0)
  np.testing.assert_allclose(x[:, :3], expected, rtol=1e-5, atol=1e-6)
  assert (x[:, 3] == 0).all()
  np.testing.assert_array_equal(examples(dataset.test), x[3::4])
  plain = clients.load(path, own.USERS, columns, standardise=False)
  np.testing.assert_allclose(examples(plain.train.pool)[:, :3], X, rtol=1e-6)


def test_a_constant_feature_is_not_scaled(tmp_path):
  # The mean of three 0.1 is not 0.1 in floating point.
  x = np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]])
  arrays = {'x': x, 'test_x': x + 0.5, 'y': Y[:3], 'test_y': Y[:3]}
  path = npz(tmp_path / 'a.npz', client=OWNERS[:3], **arrays)
  dataset = clients.load(path, own.USERS)
  np.testing.assert_allclose(examples(dataset.train.pool)[:, 0], 0, atol=1e-9)
  np.testing.assert_allclose(examples(dataset.test)[:, 0], 0.5)


def test_a_second_table_is_the_test(tmp_path):
  path = csv(tmp_path / 'mine.csv')
  test = csv(tmp_path / 'test.csv', X[:2] + 1, np.array([3, 0]), None)
  choice = own.Choice(test_file=str(test))
  dataset = clients.load(path, choice)
  assert dataset.class_names == ['c0', 'c1', 'c2', 'c3']
  assert dataset.test.y.tolist() == [3, 0]
  expected = (X[:2] + 1 - X.mean(0)) / X.std(0)
  np.testing.assert_allclose(examples(dataset.test), expected, rtol=1e-5)
  narrow = csv(tmp_path / 'narrow.csv', X[:2, :2], Y[:2])
  with pytest.raises(
    errors.InputError, match=r"narrow\.csv has no column 'f2'"
  ):
    clients.load(path, own.Choice(test_file=str(narrow)))
  with pytest.raises(errors.InputError, match='is the file of the training'):
    clients.load(path, own.Choice(test_file=str(path)))


@pytest.mark.parametrize('by', ['row', 'id', 'name'])
def test_a_split_of_rows(tmp_path, by):
  ids = {} if by == 'row' else {'image_id': [f'r{i}' for i in range(12)]}
  path = csv(tmp_path / 'mine.csv', users=None, **ids)
  name = (lambda i: f'r{i}') if ids else str
  class_ = (lambda i: f'c{Y[i]}') if by == 'name' else lambda i: Y[i]
  folder = tmp_path / 'splits'
  folder.mkdir()
  (folder / 'federated_train.csv').write_text(
    'user_id,image_id,class\n'
    + ''.join(f'{i % 2},{name(i)},{class_(i)}\n' for i in range(8))
  )
  (folder / 'test.csv').write_text(f'image_id,class\n{name(9)},{class_(9)}\n')
  if by != 'name':
    names = ''.join(f'{k},c{k},1\n' for k in range(3))
    (folder / 'classes.csv').write_text(f'class,name,count\n{names}')
  dataset = clients.load(path, own.Choice(str(folder)))
  assert dataset.train.client_ids == ['0', '1']
  assert dataset.train.numbers('1').tolist() == [1, 3, 5, 7]
  np.testing.assert_array_equal(
    dataset.test.examples(np.array([0])).x[0], examples(dataset.train.pool)[9]
  )
  other = csv(tmp_path / 'other.csv', y=(Y + 1) % 3, users=None, **ids)
  with pytest.raises(
    errors.InputError, match=r"class 'c0' here and 'c1' in .*other"
  ):
    clients.load(other, own.Choice(str(folder)))
  short = csv(
    tmp_path / 's.csv', X[:3], Y[:3], None, **{k: v[:3] for k, v in ids.items()}
  )
  with pytest.raises(
    errors.InputError, match=f"image_id '{name(3)}', and .* no such"
  ):
    clients.load(short, own.Choice(str(folder)))


def test_without_users_the_ways_out_are_named(tmp_path):
  path = csv(tmp_path / 'mine.csv', users=None)
  with pytest.raises(
    errors.InputError, match='name --user_column, or give --split'
  ):
    clients.load(path, own.USERS)
  dataset = clients.load(path, own.Choice('class', test_fraction=0.25))
  assert len(dataset.train.client_ids) == 3
  assert len(dataset.test) == 3


@pytest.mark.parametrize(
  'dtype', [np.float64, np.float16, np.int32, np.uint8, bool]
)
def test_arrays_of_any_numbers(tmp_path, dtype):
  x = (X * 10).astype(dtype)
  path = npz(
    tmp_path / 'mine.npz', x=x, test_x=x[:4], retrieval_x=x, retrieval_y=Y
  )
  dataset = clients.load(path, own.USERS)
  deviation = np.where(
    x.std(0, dtype=np.float64) > 0, x.std(0, dtype=np.float64), 1
  )
  expected = (x - x.mean(0, dtype=np.float64)) / deviation
  for pool in (dataset.train.pool, dataset.retrieval):
    np.testing.assert_allclose(examples(pool), expected, rtol=1e-4, atol=1e-5)
  assert dataset.train.client_ids == ['u1', 'u10', 'u9']
  assert len(dataset.test) == 4


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'x': np.zeros([12, 4, 4]), 'test_x': np.zeros([4, 4, 4])}, 'are --task=images'),
    ({'x': X.astype(str), 'test_x': X[:4].astype(str)}, 'expected numbers'),
    ({'x': np.where(np.arange(36).reshape(12, 3) == 17, np.nan, X)}, r'x\[5, 2\] is nan; expected finite'),
    ({'test_x': X[:4] + np.inf}, r'test_x\[0, 0\] is inf'),
    ({'client': None}, 'add an array client, or give --split'),
  ],
)  # fmt: skip
def test_bad_arrays_are_refused(tmp_path, changes, message):
  with pytest.raises(errors.InputError, match=message):
    clients.load(npz(tmp_path / 'mine.npz', **changes), own.USERS)


def test_bad_tables_are_refused(tmp_path):
  path = csv(tmp_path / 'one.csv', y=np.zeros(12, int))
  with pytest.raises(errors.InputError, match="'class' has one class only"):
    clients.load(path, own.USERS)
  path = csv(tmp_path / 'ids.csv', image_id=['a'] * 12)
  with pytest.raises(errors.InputError, match='two rows have one id'):
    clients.load(path, own.USERS)
  path = csv(tmp_path / 'p.csv', part=['test'] * 12)
  columns = table_lib.DEFAULT._replace(test='part')
  with pytest.raises(errors.InputError, match='leave out --test_file'):
    clients.load(path, own.Choice(test_file=str(path)), columns)
  with pytest.raises(errors.InputError, match='leave the flag out'):
    clients.load(npz(tmp_path / 'a.npz'), own.Choice(test_file=str(path)))


def test_other_numbers_are_other_data(tmp_path):
  of = lambda path: fingerprint.fingerprint(clients.load(path, own.USERS))
  first = of(csv(tmp_path / 'a.csv'))
  assert of(csv(tmp_path / 'b.csv')) == first
  x = X.copy()
  x[11, 0] += 1e-9
  other = of(csv(tmp_path / 'c.csv', x))
  assert [n for n in first if first[n] != other[n]] == ['source_checksum']
