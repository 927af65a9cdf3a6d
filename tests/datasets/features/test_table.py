"""Tables of features: CSV, JSON lines and Parquet."""

import gzip
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from datasets import tables
from datasets.features import table as table_lib
from datasets.splits import inputs
from tff_xc import errors
from tff_xc import memory

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


def written(folder, frame=FRAME, suffix='.csv'):
  path = folder / f'mine{suffix}'
  if suffix == '.parquet':
    frame.to_parquet(path)
  elif suffix == '.jsonl':
    frame.to_json(path, orient='records', lines=True)
  elif suffix == '.csv.gz':
    with gzip.open(path, 'wt') as file:
      frame.to_csv(file, index=False)
  else:
    frame.to_csv(
      path, index=False, sep='\t' if 'tsv' in suffix.lower() else ','
    )
  return path


@pytest.mark.parametrize(
  'suffix', ['.csv', '.tsv', '.TSV', '.csv.gz', '.parquet', '.jsonl']
)
def test_every_form_holds_the_same(tmp_path, suffix):
  found = table_lib.read(written(tmp_path, suffix=suffix), table_lib.DEFAULT)
  assert found.features == ['weight', 'count']
  assert found.x.dtype == np.float64
  np.testing.assert_array_equal(found.x, FRAME[['weight', 'count']])
  assert found.labels == ['10', '9', '10', '9']
  assert found.users == ['ann', 'bob', 'ann', 'cy']
  assert (found.ids, found.is_test) == ([], None)
  assert table_lib.header(written(tmp_path, suffix=suffix)) == list(FRAME)


def test_columns_may_be_named(tmp_path):
  columns = table_lib.Columns(
    label='colour', user='class', id='count', test='part', features=('weight',)
  )
  frame = FRAME.assign(colour=['NA', 'b', 'b', 'a'])
  found = table_lib.read(written(tmp_path, frame), columns)
  assert found.labels == ['NA', 'b', 'b', 'a']
  assert found.users == ['10', '9', '10', '9']
  assert found.ids == ['1', '2', '3', '4']
  assert found.is_test.tolist() == [False, True, False, False]
  assert found.x.shape == (4, 1)


def test_a_column_of_lists_is_many_features(tmp_path):
  vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
  frame = FRAME.assign(vector=list(vectors))
  path = written(tmp_path, frame, '.parquet')
  found = table_lib.read(path, table_lib.DEFAULT)
  assert found.features == ['weight', 'count', 'vector']
  np.testing.assert_array_equal(found.x[:, 2:], vectors)
  gap = FRAME.assign(vector=[None, *vectors[1:]])
  with pytest.raises(errors.InputError, match="lists of column 'vector'"):
    table_lib.read(written(tmp_path, gap, '.parquet'), table_lib.DEFAULT)
  both = pa.table([pa.array(['a', 'b']), [1, 2], [3, 4]], ['class', 'x', 'x'])
  pyarrow.parquet.write_table(both, path)
  with pytest.raises(errors.InputError, match="'x' twice"):
    table_lib.read(path, table_lib.DEFAULT)
  ragged = FRAME.assign(vector=[[1.0], [1.0, 2.0], [1.0], [1.0]])
  path = written(tmp_path, ragged, '.parquet')
  with pytest.raises(
    errors.InputError, match="'vector' are not numbers of one"
  ):
    table_lib.read(path, table_lib.DEFAULT)


def test_rows_are_read_in_parts(tmp_path, monkeypatch):
  monkeypatch.setattr(tables, '_ROWS', 3)
  for suffix, place in (('.csv', 'line 5'), ('.parquet', 'row 4')):
    path = written(tmp_path, suffix=suffix)
    found = table_lib.read(path, table_lib.DEFAULT)
    np.testing.assert_array_equal(found.x[:, 1], [1, 2, 3, 4])
    # A later part's error names the row of the file.
    bad = written(tmp_path, FRAME.assign(weight=[1, 2, 3, np.inf]), suffix)
    with pytest.raises(errors.InputError, match=f"{place}: 'weight' is 'inf'"):
      table_lib.read(bad, table_lib.DEFAULT)


def test_lists_and_objects_of_json(tmp_path):
  path = tmp_path / 'a.jsonl'
  rows = [
    {'class': i > 1, 'user_id': i / 1, 'v': [i, 1], 'x': i > 0, 'o': {'a': i}}
    for i in range(4)
  ]
  path.write_text('\n'.join(map(json.dumps, rows)))
  found = table_lib.read(path, table_lib.DEFAULT)
  assert found.labels == ['false', 'false', 'true', 'true']
  assert found.users == ['0', '1', '2', '3']
  assert found.features == ['v', 'x']
  assert found.x.tolist() == [[0, 1, 0], [1, 1, 1], [2, 1, 1], [3, 1, 1]]


@pytest.mark.parametrize('suffix', ['.csv', '.parquet', '.jsonl'])
@pytest.mark.parametrize(
  'classes', [[True, False, True, False], ['b', 'a', 'b', 'a'], [3, 1, 3, 1]]
)
def test_splits_and_training_read_alike(tmp_path, suffix, classes):
  frame = FRAME.assign(**{'class': classes, 'user_id': [2.0, 1.0, 2.0, 3.0]})
  path = written(tmp_path, frame, suffix)
  trained = table_lib.read(path, table_lib.DEFAULT)
  listed = inputs.read(path, inputs.Columns())
  names = [listed.class_names[label] for label in listed.labels]
  assert names == trained.labels
  users = [listed.user_names[user] for user in listed.users]
  assert users == trained.users


def test_an_index_without_a_name_is_no_feature(tmp_path):
  path = tmp_path / 'a.csv'
  FRAME.to_csv(path)
  found = table_lib.read(path, table_lib.DEFAULT)
  assert found.features == ['weight', 'count']


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
  path = written(tmp_path, FRAME.assign(part=marks), suffix)
  columns = table_lib.DEFAULT._replace(test='part')
  found = table_lib.read(path, columns)
  assert found.is_test.tolist() == [True, False, False, True]
  assert found.features == ['weight', 'count']


@pytest.mark.parametrize(
  ('changes', 'columns', 'message'),
  [
    ({}, {'label': 'label'}, "no column 'label', it has user_id, class, weight"),
    ({}, {'user': 'u'}, "no column 'u'"),
    ({}, {'features': ('weight', 'x')}, "no column 'x'"),
    ({}, {'features': ('class', 'weight')}, "'class' is given twice, or is the"),
    ({}, {'features': ('weight', 'weight')}, "'weight' is given twice"),
    ({}, {'features': ('colour',)}, "line 2: 'colour' is 'red'; expected a finite"),
    ({'weight': ['1', '', '3', '4']}, {}, "line 3: 'weight' is ''; expected a"),
    ({'weight': ['1', 'nan', '3', '4']}, {}, "line 3: 'weight' is 'nan'"),
    ({'weight': [1.0, 2.0, 1e300, 4.0]}, {}, "line 4: 'weight' is '1e[+]300'"),
    ({'class': ['a', ' ', 'b', 'c']}, {}, "line 3: 'class' is ''; expected class"),
    ({'user_id': ['a', 'b', 'c', '']}, {}, "line 5: 'user_id' is ''; expected user"),
    ({'part': ['train', 'x', '', '0']}, {'test': 'part'}, "line 3: 'part' is 'x'; expected test"),
    ({'weight': ['a'] * 4, 'count': ['b'] * 4}, {}, 'no column of numbers beside'),
  ],
)  # fmt: skip
def test_bad_cells_and_columns_are_named(tmp_path, changes, columns, message):
  path = written(tmp_path, FRAME.assign(**changes))
  columns = table_lib.DEFAULT._replace(**columns)
  with pytest.raises(errors.InputError, match=message):
    table_lib.read(path, columns)


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('a.txt', b'', r'is no table; give \.csv, \.tsv'),
    ('a.csv', None, 'is no file'),
    ('a.csv', b'', 'is empty; give a table'),
    ('a.csv', b'class,x\n', 'has no rows'),
    ('a.csv', b'class,x\na,1\nb,2,3,4\n', 'line 3 has 4 fields; expected 2'),
    ('a.csv', b'class,x\na,1,5\nb,2,6\n', 'line 2 has 3 fields; expected 2'),
    ('a.csv', b'class,x\na,1\nb\nc,2\n', 'line 3 has 1 fields; expected 2'),
    ('a.csv', b'class,x\n\xff\xfe\x00,1\n', 'is not UTF-8 text'),
    (
      'a.csv',
      b'class,x, class\na,1,2\nb,2,3\n',
      "names the column 'class' twice",
    ),
    ('a.csv.gz', b'no', 'gzip'),
    ('a.parquet', b'PAR1 no PAR1', 'is no Parquet file that can be read'),
  ],
)
def test_damaged_files_are_refused(tmp_path, name, content, message):
  if content is not None:
    (tmp_path / name).write_bytes(content)
  with pytest.raises(errors.InputError, match=message):
    table_lib.read(tmp_path / name, table_lib.DEFAULT)


def test_columns_without_numbers_are_read_once(tmp_path, monkeypatch):
  """A text of 100,000 characters in each row would fill the memory."""
  asked = []
  batches = tables.batches

  def watched(path, required, optional=(), raw=()):
    asked.append(set(raw))
    return batches(path, required, optional, raw)

  monkeypatch.setattr(tables, 'batches', watched)
  path = written(tmp_path, FRAME.assign(text='not a number'), '.csv')
  found = table_lib.read(path, table_lib.DEFAULT)
  assert 'text' in asked[0]
  assert asked[-1] == set(found.features)


def test_a_table_larger_than_memory_is_refused(tmp_path, monkeypatch):
  monkeypatch.setattr(memory, 'free_bytes', lambda: 10)
  with pytest.raises(errors.InputError, match='memory'):
    table_lib.read(written(tmp_path), table_lib.DEFAULT)


def test_a_long_cell_is_not_shown_whole(tmp_path):
  frame = FRAME.assign(weight=['1', '1' * 1000, '2', '3'])
  with pytest.raises(errors.InputError, match='weight') as e:
    table_lib.read(written(tmp_path, frame), table_lib.DEFAULT)
  assert len(str(e.value)) < 400
