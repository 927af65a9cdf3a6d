"""Tables in all formats have the same columns. Errors name the line of the table."""

import gzip
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasets.readers import tables, zipped
from tests.datasets import tables_on_disk
from tff_xc import errors

ROWS = [('a, b', '7', 'x'), ('é', '10', 'y'), ('a, b', '9', 'x')]
NAMES = ('user', 'item', 'kind')


def write(folder, form):
  frame = pd.DataFrame(ROWS, columns=list(NAMES))
  frame['unused'] = 1.5
  if not form.startswith(('.csv', '.tsv')):
    frame['item'] = frame['item'].astype(int)
  if form == '.parquet':
    frame['kind'] = frame['kind'].astype('category')
  return tables_on_disk.write(folder / f'table{form}', frame)


@pytest.mark.parametrize('form', [*tables.FORMS, '.csv.gz', '.tsv.gz', '.jsonl.gz'])
@pytest.mark.parametrize('rows', [1, 1000])
def test_every_form_has_the_same_columns(form, rows, tmp_path, monkeypatch):
  monkeypatch.setattr(tables, '_ROWS', rows)
  monkeypatch.setattr(tables, '_PARQUET_ROWS', rows)
  path = write(tmp_path, form)
  found = list(tables.batches(path, NAMES))
  assert len(found) == (3 if rows == 1 else 1)
  for place, name in enumerate(NAMES):
    values = [value for batch in found for value in batch.texts(name)]
    assert values == [row[place] for row in ROWS]
  first = 1 if form in ('.jsonl', '.ndjson', '.parquet', '.jsonl.gz') else 2
  last = found[-1].where(-1)
  noun = 'row' if form == '.parquet' else 'line'
  assert last == f'{path}, {noun} {first + 2}'


def test_blank_lines_and_line_breaks_in_fields_count_as_lines(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('user\n"a\nb"\n\n c \n')
  [batch] = tables.batches(path, ['user'])
  assert batch.texts('user') == ['a\nb', 'c']
  assert batch.where(1) == f'{path}, line 5'


@pytest.mark.parametrize(
  ('name', 'content', 'message'),
  [
    ('a.csv', 'user,item\n1,2\n3\n', 'line 3 has 1 field;'),
    ('a.csv', 'user,item\n1,"2\n3,4\n', 'line 2,.*until line 3'),
    ('a.csv', 'user,item\n1,2\n3,"4"5\n', 'line 3'),
    ('a.csv', 'user;item\n', "'user'.*user;item"),
    ('a.csv', 'user,item,user\n', "'user' twice"),
    ('a.csv', '', 'a.csv is empty'),
    ('a.csv', 'user\n', "'item', it has user; add it"),
    ('a.csv', b'user,item\n\xff,1\n', '0xff.* UTF-8, or give'),
    ('a.csv.gz', b'user,item\n1,2\n', 'gzip'),
    ('a.csv.gz', gzip.compress(b'user,item\n1,2\n', mtime=0)[:-9], 'cannot be read'),
    ('a.tsv', 'user,item\n', "'user'"),
    ('a.jsonl', '{"user": 1, "item": 2}\n\n{"user": 1', 'line 3 is no JSON'),
    ('a.jsonl', b'{"user": "\xfc"}', 'UTF-8'),
    pytest.param('a.jsonl', '[' * 10**5, 'line 1 is no JSON', id='deep'),
    ('a.jsonl', '[1]\n', r"line 1 is '\[1\]'"),
    ('a.jsonl', '{"user": 1}\n', "no column 'item'"),
    ('a.jsonl', '{"user": 1, "item": 2.5}', "'item' is 2.5"),
    ('a.jsonl', '{"user": null, "item": 2}', "'user' is None"),
    ('a.jsonl', '{"user": [1], "item": 2}', r"'user' is \[1\]"),
    ('a.parquet', b'PAR1', 'no Parquet'),
  ],
)
def test_bad_tables(name, content, message, tmp_path):
  path = tmp_path / name
  path.write_bytes(content if isinstance(content, bytes) else content.encode())
  with pytest.raises(errors.InputError, match=message) as e:
    [batch.texts(name) for batch in tables.batches(path, ['user', 'item']) for name in NAMES[:2]]
  assert '\n' not in str(e.value)
  assert str(e.value).startswith(str(path))


def test_bad_parquet(tmp_path):
  path = tmp_path / 'a.parquet'
  frame = pd.DataFrame({'user': ['a', None], 'item': [1.5, 2.0]})
  both = pa.table([frame['user'][:1], frame['user'][:1]], ['user', 'user'])
  for table, column, message in (
    (pa.table(frame), 'user', "row 2: 'user' is None"),
    (pa.table(frame), 'item', "row 1: 'item' is 1.5"),
    (pa.table(frame), 'class', "'class'"),
    (both, 'user', "'user' twice"),
    (pa.table({'user': [[1], [2]]}), 'user', "row 1: 'user' is array"),
  ):
    pq.write_table(table, path)
    with pytest.raises(errors.InputError, match=message):
      [batch.texts(column) for batch in tables.batches(path, [column])]


@pytest.mark.parametrize('form', ['.parquet', '.jsonl'])
def test_whole_floats_and_bools_are_text(tmp_path, form):
  frame = pd.DataFrame({'user': [True, False], 'item': [-3.0, 2.0]})
  path, bad = tmp_path / f'a{form}', tmp_path / f'b{form}'
  if form == '.parquet':
    frame.to_parquet(path)
    pq.write_table(pa.table({'user': [2.0, float('nan')]}), bad)
  else:
    path.write_text('{"user": true, "item": -3.0}\n{"user": false, "item": 2e0}\n')
    bad.write_text('{"user": 2.0}\n{"user": NaN}\n')
  [batch] = tables.batches(path, ['user', 'item'])
  assert batch.texts('user') == ['true', 'false']
  assert batch.texts('item') == ['-3', '2']
  assert pd.Series(batch.columns['item']).tolist() == [-3, 2]
  assert tables.header(path) == ['user', 'item']
  with pytest.raises(errors.InputError, match=r'(row|line) 2.* (nan|NaN)'):
    [batch.texts('user') for batch in tables.batches(bad, ['user'])]


@pytest.mark.parametrize(
  ('kind', 'value', 'expected'),
  [
    (pa.int64(), 2**53 + 1, 2**53 + 1),
    (pa.decimal128(38, 2), 1, 1),
    (pa.list_(pa.float32()), [1.5], [1.5]),
    (pa.date32(), 3_000_000, np.datetime64(3_000_000, 'D')),
    (pa.timestamp('ns'), 1, np.datetime64(1, 'ns')),
    (pa.dictionary(pa.int32(), pa.string()), 'a', 'a'),
  ],
)
def test_values_of_parquet(kind, value, expected, tmp_path):
  path = tmp_path / 'a.parquet'
  pq.write_table(pa.table({'x': pa.array([value], kind)}), path)
  [batch] = tables.batches(path, ['x'])
  assert next(iter(batch.columns['x'])) == expected


@pytest.mark.parametrize('form', ['.csv', '.tsv', '.jsonl', '.parquet'])
def test_names_are_the_same_text_in_every_form(form, tmp_path):
  """In pandas, a column of whole numbers with a missing value becomes a column of floats."""
  texts = ['2.0', '-7.0', '0.0', '1.10', '1.1', '02.0', '2.00', '1e5', 'v2.0']
  path = tables_on_disk.write(tmp_path / f'a{form}', pd.DataFrame({'class': texts}))
  [batch] = tables.batches(path, ['class'])
  found = ['2', '-7', '0', *texts[3:]]
  assert batch.texts('class') == found


def test_long_fields(tmp_path, monkeypatch):
  path = tmp_path / 'a.csv'
  path.write_text(f'user,text\n1,{"x" * 140_000}\n')
  [batch] = tables.batches(path, ['user', 'text'])
  assert len(batch.texts('text')[0]) == 140_000
  monkeypatch.setattr(zipped, 'LONGEST_LINE', 1000)
  other = tmp_path / 'a.jsonl'
  other.write_text('{"user": 1}\n{"user": 1, "text": "' + 'x' * 2000)
  for bad in (path, other):
    with pytest.raises(errors.InputError, match=r'line 2 .* 1,000'):
      list(tables.batches(bad, ['user']))


@pytest.mark.parametrize('archive', [False, True])
def test_gzip_is_known_by_its_bytes(tmp_path, archive):
  path, content = tmp_path / 'a.csv', gzip.compress(b'\xef\xbb\xbfuser\n1\n')
  path.write_bytes(content)
  if archive:
    path = tmp_path / 'z.zip' / 'a.csv'
    with zipfile.ZipFile(path.parent, 'w') as file:
      file.writestr('a.csv', content)
  [batch] = tables.batches(path, ['user'])
  assert batch.texts('user') == ['1']
