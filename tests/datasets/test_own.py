"""The user's own rows of features, in tables and `.npz` files."""

import json
import types
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from datasets import own as own_data
from datasets.readers import rows, tables
from datasets.splits import deal
from tests.datasets import tables_on_disk
from tff_xc import errors, memory
from tff_xc.data import fingerprint

FRAME = pd.DataFrame(
  {
    'user_id': ['ann', 'bob', 'ann', 'cy'],
    'class': ['10', '9', '10', '9'],
    'weight': [1.5, -2.0, 1e6, 0.25],
    'colour': ['red', 'NA', 'None', ''],
    'count': [1, 2, 3, 4],
    'part': ['train', 'Test', '', '0'],
  }
)
X = np.random.default_rng(0).normal(5.0, 3.0, (12, 3))
Y = np.arange(12) % 3
OWNERS = np.array(['u10', 'u9', 'u10', 'u1'] * 3)


def written(folder, frame=FRAME, suffix='.csv'):
  return tables_on_disk.write(folder / f'mine{suffix}', frame)


def read(path, **columns):
  """Returns the features, their names, and the other columns by meaning."""
  x, names, data = rows.read(path, rows.DEFAULT._replace(**columns))
  return types.SimpleNamespace(
    x=x,
    features=names,
    labels=[data.class_names[label] for label in data.labels],
    users=[] if data.users is None else [data.user_names[user] for user in data.users],
    ids=list(data.ids),
    test=data.test,
  )


def refused(path, match, **columns):
  with pytest.raises(errors.InputError, match=match):
    read(path, **columns)


@pytest.mark.parametrize('suffix', ['.csv', '.tsv', '.TSV', '.csv.gz', '.parquet', '.jsonl'])
def test_every_form_holds_the_same(tmp_path, suffix):
  path = written(tmp_path, suffix=suffix)
  found = read(path)
  assert found.features == ['weight', 'count']
  assert found.x.dtype == np.float64
  np.testing.assert_array_equal(found.x, FRAME[['weight', 'count']])
  assert found.labels == ['10', '9', '10', '9']
  assert found.users == ['ann', 'bob', 'ann', 'cy']
  assert (found.ids, found.test) == ([0, 1, 2, 3], None)
  assert rows.header(path) == list(FRAME)


def test_a_table_in_a_zip(tmp_path):
  with zipfile.ZipFile(tmp_path / 'a.zip', 'w') as archive:
    archive.write(written(tmp_path), 'b.csv')
  assert read(tmp_path / 'a.zip' / 'b.csv').features == ['weight', 'count']


@pytest.mark.parametrize('index', ['id', ['a', 'b'], 'count', 'user_id'])
def test_the_index_of_pandas_is_no_feature(tmp_path, index):
  frame = FRAME.assign(id=[7, 5, 6, 4], a=0, b=[3, 1, 2, 0])
  frame.set_index(index).to_parquet(tmp_path / 'a.parquet')
  found = read(tmp_path / 'a.parquet')
  wanted = ['weight', 'count', 'id', 'a', 'b']
  names = [index] if isinstance(index, str) else index
  assert found.features == [name for name in wanted if name not in names]
  assert sorted(found.users) == ['ann', 'ann', 'bob', 'cy']
  frame.to_csv(tmp_path / 'a.csv')  # The index column has no name.
  assert read(tmp_path / 'a.csv').features == wanted


def test_columns_may_be_named(tmp_path):
  frame = FRAME.assign(colour=['NA', 'b', 'b', 'a'])
  roles = {'label': 'colour', 'user': 'class', 'id': 'count', 'test': 'part'}
  found = read(written(tmp_path, frame), features=('weight',), **roles)
  assert found.labels == ['NA', 'b', 'b', 'a']
  assert found.users == ['10', '9', '10', '9']
  assert found.ids == ['1', '2', '3', '4']
  assert found.test.tolist() == [1]
  assert found.x.shape == (4, 1)


def test_a_column_of_lists_is_many_features(tmp_path):
  vectors = np.arange(12, dtype=np.float32).reshape(4, 3)

  def parquet(vector):
    return written(tmp_path, FRAME.assign(vector=vector), '.parquet')

  found = read(parquet(list(vectors)))
  assert found.features == ['weight', 'count', 'vector']
  np.testing.assert_array_equal(found.x[:, 2:], vectors)
  ragged = [[1.0], [1.0, 2.0], [1.0], [1.0]]
  for wrong in ([None, *vectors[1:]], ragged):
    refused(parquet(wrong), "'vector'")
  both = pa.table([pa.array(['a', 'b']), [1, 2], [3, 4]], ['class', 'x', 'x'])
  pyarrow.parquet.write_table(both, tmp_path / 'mine.parquet')
  refused(tmp_path / 'mine.parquet', "'x'")


def test_lists_of_another_length_in_a_later_batch(tmp_path, monkeypatch):
  monkeypatch.setattr(tables, '_ROWS', 1)
  for first, then in (
    ('"v": [1]', '"v": [1, 2]'),
    ('"v": [1], "w": [2, 3]', '"v": [1, 2], "w": [3]'),
  ):
    (tmp_path / 'a.jsonl').write_text(f'{{"class": 1, {first}}}\n{{"class": 2, {then}}}\n')
    refused(tmp_path / 'a.jsonl', "line 2 .*'v'.*length")


def test_lists_and_objects_of_json(tmp_path):
  rows = [
    {'class': i > 1, 'user_id': i / 1, 'v': [i, 1], 'x': i > 0, 'o': {'a': i}} for i in range(4)
  ]
  (tmp_path / 'a.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  found = read(tmp_path / 'a.jsonl')
  assert found.labels == ['false', 'false', 'true', 'true']
  assert found.users == ['0', '1', '2', '3']
  assert found.features == ['v', 'x']
  assert found.x.tolist() == [[0, 1, 0], [1, 1, 1], [2, 1, 1], [3, 1, 1]]
  (tmp_path / 'a.jsonl').write_text('\n'.join(f'{{"class": 1, "v": {v}}}' for v in (1, 2, 10**400)))
  refused(tmp_path / 'a.jsonl', 'finite')


def test_a_column_with_decimal_commas_is_told(tmp_path, capsys):
  (tmp_path / 'a.tsv').write_text('class\tv\tx\na\t0,5\t1\nb\t1,5\t2\n')
  assert read(tmp_path / 'a.tsv').features == ['x']
  assert "'v' is '0,5'" in capsys.readouterr().err


@pytest.mark.parametrize(
  ('suffix', 'marks'),
  [
    ('.csv', ['True', 'False', '', '1']),
    ('.parquet', [True, False, False, True]),
    ('.parquet', [1.0, 0.0, None, 1.0]),
    ('.jsonl', [True, False, None, 'test']),
  ],
)
def test_marks_of_the_test_in_every_form(tmp_path, suffix, marks):
  found = read(written(tmp_path, FRAME.assign(part=marks), suffix), test='part')
  assert found.test.tolist() == [0, 3]
  assert found.features == ['weight', 'count']


@pytest.mark.parametrize(
  ('changes', 'columns', 'message'),
  [
    ({}, {'label': 'label'}, "'label', it has user_id, class, weight"),
    ({}, {'user': 'u'}, "no column 'u'"),
    ({}, {'features': ('weight', 'x')}, "no column 'x'"),
    ({}, {'features': ('class', 'weight')}, 'given twice, or'),
    ({}, {'features': ('weight', 'weight')}, 'is given twice'),
    ({}, {'features': ('colour',)}, "line 2: 'colour' is 'red'"),
    ({'weight': ['1', '', '3', '4']}, {}, "line 3: 'weight' is ''"),
    ({'weight': ['1', 'nan', '3', '4']}, {}, "line 3: 'weight' is 'nan'"),
    ({'weight': [1.0, 2.0, 1e300, 4.0]}, {}, "line 4: 'weight' is '1e[+]300'"),
    ({'class': ['a', ' ', 'b', 'c']}, {}, "line 3 has no class, its 'class'"),
    ({'user_id': ['a', 'b', 'c', '']}, {}, "line 5 has no user, its 'user_id'"),
    ({'part': ['', 'x', '', '0']}, {'test': 'part'}, "line 3: 'part' is 'x'"),
    ({'weight': ['a'] * 4, 'count': ['b'] * 4}, {}, 'no column of numbers'),
  ],
)
def test_bad_cells_and_columns_are_named(tmp_path, changes, columns, message):
  refused(written(tmp_path, FRAME.assign(**changes)), message, **columns)


def test_damaged_files_are_refused(tmp_path, monkeypatch):
  refused(tmp_path / 'a.csv', 'is no file')
  for name, content, message in (
    ('a.txt', '', r'\.csv, \.tsv'),
    ('a.csv', 'class,x\n', 'no rows'),
    ('a.csv', 'class,x, class\na,1,2\nb,2,3\n', "'class' twice"),
  ):
    (tmp_path / name).write_text(content)
    refused(tmp_path / name, message)
  monkeypatch.setattr(memory, 'free_bytes', lambda: 10)
  refused(written(tmp_path), 'memory')


# Federated data sets of rows.


def load(path, *choice, columns=rows.DEFAULT, **more):
  return own_data.load_rows(path, deal.Choice(*map(str, choice)), columns, **more)


def csv(path, x=X, y=Y, users=OWNERS, **more):
  columns = {f'f{i}': x[:, i] for i in range(x.shape[1])}
  frame = pd.DataFrame({'class': [f'c{k}' for k in y], **columns, **more})
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
  dataset = load(csv(tmp_path / 'mine.csv'))
  said = capsys.readouterr().err
  assert '3 features, standardised' in said
  assert 'f0, f1, f2' in said
  assert dataset.train.client_ids == ['u1', 'u10', 'u9']
  assert dataset.class_names == ['c0', 'c1', 'c2']
  assert dataset.train.numbers('u10').tolist() == [0, 2, 4, 6, 8, 10]
  assert dataset.train.pool.spec.shape == (3,)
  assert dataset.test is None


def test_features_are_standardised_by_the_training_rows_only(tmp_path):
  part = np.where(np.arange(12) % 4 == 3, 'test', 'train')
  path = csv(tmp_path / 'mine.csv', constant=np.full(12, 7.0), part=part)
  columns = rows.DEFAULT._replace(test='part')
  dataset = load(path, columns=columns)
  assert dataset.train.client_ids == ['u10', 'u9']
  x, trained = examples(dataset.train.pool), X[np.arange(12) % 4 < 3]
  assert x.dtype == np.float32
  expected = (X - trained.mean(0)) / trained.std(0)
  np.testing.assert_allclose(x[:, :3], expected, rtol=1e-5, atol=1e-6)
  assert (x[:, 3] == 0).all()
  np.testing.assert_array_equal(examples(dataset.test), x[3::4])
  plain = load(path, columns=columns, standardise=False)
  np.testing.assert_allclose(examples(plain.train.pool)[:, :3], X, rtol=1e-6)


def test_a_constant_feature_is_not_scaled(tmp_path):
  # In floating point, the mean of three times 0.1 is not 0.1.
  x = np.array([[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]])
  arrays = {'x': x, 'test_x': x + 0.5, 'y': Y[:3], 'test_y': Y[:3]}
  dataset = load(npz(tmp_path / 'a.npz', client=OWNERS[:3], **arrays))
  np.testing.assert_allclose(examples(dataset.train.pool)[:, 0], 0, atol=1e-9)
  np.testing.assert_allclose(examples(dataset.test)[:, 0], 0.5)


@pytest.mark.parametrize('users', [OWNERS, None])
def test_a_second_table_is_the_test(tmp_path, users):
  path = csv(tmp_path / 'mine.csv', users=users)
  test = csv(tmp_path / 'test.csv', X[:2] + 1, np.array([3, 0]), None)
  dataset = load(path, '' if users is not None else 'class', test)
  assert dataset.class_names == ['c0', 'c1', 'c2', 'c3']
  assert sorted(dataset.train.partition.numbers) == list(range(12))
  assert dataset.test.labels.tolist() == [3, 0]
  if users is not None:
    assert not len(dataset.held_out.numbers)  # These rows belong to no client.
  expected = (X[:2] + 1 - X.mean(0)) / X.std(0)
  np.testing.assert_allclose(examples(dataset.test), expected, rtol=1e-5)
  split = tmp_path / 's.csv'  # Row 12 is the first test row, which a split cannot name.
  split.write_text('user_id,image_id,class\na,1,c1\na,12,c3\n')
  with pytest.raises(errors.InputError, match="'12'"):
    load(path, split, test)
  narrow = csv(tmp_path / 'narrow.csv', X[:2, :2], Y[:2])
  for other, message in ((narrow, r"narrow\.csv .*'f2'"), (path, 'training')):
    with pytest.raises(errors.InputError, match=message):
      load(path, '', other)


@pytest.mark.parametrize('dtype', [np.float64, np.float16, np.int32, np.uint8, bool])
def test_arrays_of_any_numbers(tmp_path, dtype):
  x = (X * 10).astype(dtype)
  more = {'test_x': x[:4], 'retrieval_x': x, 'retrieval_y': Y}
  dataset = load(npz(tmp_path / 'mine.npz', x=x, **more))
  deviation = x.std(0, dtype=np.float64)
  deviation = np.where(deviation > 0, deviation, 1)
  expected = (x - x.mean(0, dtype=np.float64)) / deviation
  for pool in (dataset.train.pool, dataset.retrieval):
    np.testing.assert_allclose(examples(pool), expected, rtol=1e-4, atol=1e-5)
  assert dataset.train.client_ids == ['u1', 'u10', 'u9']
  assert len(dataset.test) == 4
  sample = own_data.load_rows(tmp_path / 'mine.npz', deal.Choice(test_examples=2)).test
  assert len(sample) == len(examples(sample)) == 2


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'x': X[..., None], 'test_x': X[:4, :, None]}, '--task=images'),
    ({'x': X.astype(str), 'test_x': X[:4].astype(str)}, 'numbers'),
    ({'x': np.where(X[5, 2] == X, np.nan, X)}, r'x\[5, 2\]'),
    ({'test_x': X[:4] + np.inf}, r'test_x\[0, 0\] is inf'),
    ({'client': None}, 'client, or .*--split'),
  ],
)
def test_bad_arrays_are_refused(tmp_path, changes, message):
  with pytest.raises(errors.InputError, match=message):
    load(npz(tmp_path / 'mine.npz', **changes))


def test_bad_choices_are_refused(tmp_path):
  part = csv(tmp_path / 'p.csv', part=['test'] * 12)
  marked = {'columns': rows.DEFAULT._replace(test='part')}
  arrays = npz(tmp_path / 'a.npz')
  for path, message, choice, more in (
    (csv(tmp_path / 'a.csv', y=0 * Y), 'one class', (), {}),
    (csv(tmp_path / 'b.csv', image_id=['a'] * 12), 'has the id', (), {}),
    (part, '--test_file', ('', part), marked),
    (arrays, '--test_file', ('', part), {}),
    (arrays, 'no columns', (), marked),
  ):
    with pytest.raises(errors.InputError, match=message):
      load(path, *choice, **more)


def test_other_numbers_are_other_data(tmp_path):
  def of(path):
    return fingerprint.fingerprint(load(path))

  first = of(csv(tmp_path / 'a.csv'))
  assert of(csv(tmp_path / 'b.csv')) == first
  x = X.copy()
  x[11, 0] += 1e-9
  other = of(csv(tmp_path / 'c.csv', x))
  assert [n for n in first if first[n] != other[n]] == ['source_checksum']
