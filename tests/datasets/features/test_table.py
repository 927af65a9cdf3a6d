"""Tables of features: CSV, TSV and Parquet."""

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from datasets.features import table as table_lib
from tff_xc import errors

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
  elif suffix == '.csv.gz':
    with gzip.open(path, 'wt') as file:
      frame.to_csv(file, index=False)
  else:
    frame.to_csv(
      path, index=False, sep='\t' if 'tsv' in suffix.lower() else ','
    )
  return path


@pytest.mark.parametrize(
  'suffix', ['.csv', '.tsv', '.TSV', '.csv.gz', '.parquet']
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
  with pytest.raises(errors.InputError, match="two columns 'x'"):
    table_lib.read(path, table_lib.DEFAULT)
  ragged = FRAME.assign(vector=[[1.0], [1.0, 2.0], [1.0], [1.0]])
  path = written(tmp_path, ragged, '.parquet')
  with pytest.raises(
    errors.InputError, match="'vector' are not numbers of one"
  ):
    table_lib.read(path, table_lib.DEFAULT)


def test_rows_are_read_in_parts(tmp_path, monkeypatch):
  monkeypatch.setattr(table_lib, '_ROWS', 3)
  for suffix in ('.csv', '.parquet'):
    path = written(tmp_path, suffix=suffix)
    found = table_lib.read(path, table_lib.DEFAULT)
    np.testing.assert_array_equal(found.x[:, 1], [1, 2, 3, 4])
    # A later part's error names the row of the file.
    bad = written(tmp_path, FRAME.assign(weight=[1, 2, 3, np.inf]), suffix)
    with pytest.raises(errors.InputError, match="row 4: 'weight' is 'inf'"):
      table_lib.read(bad, table_lib.DEFAULT)


@pytest.mark.parametrize(
  ('changes', 'columns', 'message'),
  [
    ({}, {'label': 'label'}, "no column 'label', it has user_id, class, weight"),
    ({}, {'user': 'u'}, "no column 'u'"),
    ({}, {'features': ('weight', 'x')}, "no column 'x'"),
    ({}, {'features': ('class', 'weight')}, "'class' is given twice, or is the"),
    ({}, {'features': ('weight', 'weight')}, "'weight' is given twice"),
    ({}, {'features': ('colour',)}, "row 1: 'colour' is 'red'; expected a finite"),
    ({'weight': ['1', '', '3', '4']}, {}, "row 2: 'weight' is ''; expected a"),
    ({'weight': ['1', 'nan', '3', '4']}, {}, "row 2: 'weight' is 'nan'"),
    ({'weight': [1.0, 2.0, 1e300, 4.0]}, {}, "row 3: 'weight' is '1e[+]300'"),
    ({'class': ['a', ' ', 'b', 'c']}, {}, "'class', row 2 is ''; expected class"),
    ({'user_id': ['a', 'b', 'c', '']}, {}, "'user_id', row 4 is ''; expected user"),
    ({'part': ['train', 'x', '', '0']}, {'test': 'part'}, "row 2 is 'x'; expected test"),
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
    ('a.csv', b'', 'is no CSV text'),
    ('a.csv', b'class,x\n', 'has no rows'),
    ('a.csv', b'class,x\na,1\nb,2,3,4\n', 'Expected 2 fields in line 3, saw 4'),
    ('a.csv', b'class,x\na,1,5\nb,2,6\n', 'more fields than line 1'),
    ('a.csv', b'class,x\na,1\nb\nc,2\n', "row 2: 'x' is"),
    ('a.csv', b'class,x\n\xff\xfe\x00,1\n', 'is not UTF-8 text'),
    ('a.csv', b'class,x, class\na,1,2\nb,2,3\n', "two columns 'class'"),
    ('a.csv.gz', b'no', 'is no CSV text'),
    ('a.parquet', b'PAR1 no PAR1', 'is no Parquet file that can be read'),
  ],
)
def test_damaged_files_are_refused(tmp_path, name, content, message):
  if content is not None:
    (tmp_path / name).write_bytes(content)
  with pytest.raises(errors.InputError, match=message):
    table_lib.read(tmp_path / name, table_lib.DEFAULT)
