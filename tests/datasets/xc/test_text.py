"""The text files of the Extreme Classification Repository."""

import gzip
import types

import numpy as np
import pytest
import scipy.sparse

from datasets.xc import sets as xc_sets, text as xc_text
from tff_xc import errors

# Examples without labels, without features, and without both.
EXAMPLES = '4 7 5\n0,3 1:0.5 6:2\n 2:0.123456 3:1\n4 \n \n'


def written(folder, text, name='some.txt'):
  path = folder / name
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  return path


def naive(text):
  """Returns rows of (labels, {id: value}), parsed by simple code."""
  rows = []
  for line in text.split('\n')[1:]:
    labels, _, rest = line.partition(' ')
    pairs = (pair.split(':') for pair in rest.split())
    rows.append(
      (
        sorted(int(i) for i in labels.split(',') if i),
        dict(sorted((int(i), np.float32(float(v))) for i, v in pairs)),
      )
    )
  return rows


def rows_of(table):
  features, labels = table.features, table.labels
  rows = []
  for i in range(labels.shape[0]):
    a, b = features.indptr[i : i + 2]
    c, d = labels.indptr[i : i + 2]
    pairs = zip(features.indices[a:b], features.data[a:b], strict=True)
    rows.append((labels.indices[c:d].tolist(), dict(pairs)))
  return rows


def same(a, b):
  assert a.shape == b.shape
  for name in ('data', 'indices', 'indptr'):
    x, y = getattr(a, name), getattr(b, name)
    np.testing.assert_array_equal(x, y)
    assert x.dtype == y.dtype


def test_examples_with_and_without_labels_and_features(tmp_path):
  table = xc_text.read(written(tmp_path, EXAMPLES))
  splits, ids = np.int32([0, 2, 2, 3, 3]), np.int32([0, 3, 4])
  same(table.labels, scipy.sparse.csr_matrix((np.ones(3, bool), ids, splits), (4, 5)))
  splits, ids = np.int32([0, 2, 4, 4, 4]), np.int32([1, 6, 2, 3])
  values = np.float32([0.5, 2, 0.123456, 1])
  same(table.features, scipy.sparse.csr_matrix((values, ids, splits), (4, 7)))


@pytest.mark.parametrize(
  'text',
  [
    EXAMPLES.replace('\n', '\r\n'),
    EXAMPLES.replace(' 6:2', '\t6:2\t'),
    EXAMPLES.replace(' 6:2', '   6:2  ').replace(' 7', '  7 '),
    EXAMPLES.replace('0,3 1:0.5 6:2', '3,0,3 6:2 1:0.5'),
    EXAMPLES.replace('0.5', '+5e-1').replace('6:2', '6:2.'),
    EXAMPLES.replace('0,3', '00000000000000000000000000,3'),
    EXAMPLES[:-1],
    EXAMPLES + '\n\n  \n',
    EXAMPLES.replace(' 2:0.1', '2:0.1'),
    EXAMPLES.replace('4 \n \n', '4\n\n'),
  ],
)
def test_same_content_in_other_clothes(tmp_path, text):
  table = xc_text.read(written(tmp_path, text))
  plain = xc_text.read(written(tmp_path, EXAMPLES, 'plain.txt'))
  assert rows_of(table) == rows_of(plain)


def test_values_are_rounded_as_python_and_numpy_do(tmp_path):
  # The midpoint of two float32 numbers, and numbers near it, of all lengths.
  middle = '1.000000059604644775390625'
  texts = [middle[:k] for k in range(3, 27)] + [middle + '1', '-0.0', '1e-46']
  texts += ['16777217', '16777219', '9007199254740993', '123456789012345678']
  texts += ['3.4028235e38', '-3.4028235677973362e38', '.5', '5.', '1E5', '1e-05']
  expected = np.array([np.float32(float(v)) for v in texts])
  pairs = (f'{i}:{v}' for i, v in enumerate(texts))
  text = f'1 {len(texts)} 1\n ' + ' '.join(pairs)
  values = xc_text.read(written(tmp_path, text)).features.data
  np.testing.assert_array_equal(values.view('i4'), expected.view('i4'))


@pytest.mark.parametrize('block', [7, 64, 1 << 18])
def test_equals_a_naive_parser_wherever_blocks_end(tmp_path, monkeypatch, block):
  monkeypatch.setattr(xc_text, '_LINES', block)
  rng = np.random.default_rng(1)
  lines = ['300 90000 40']
  for i in range(300):
    labels = rng.permutation(40)[: rng.integers(0, 5)]
    ids = rng.permutation(90000)[: rng.integers(0, 9)]
    if i % 7:
      ids.sort()
    pairs = [f'{f}:{rng.normal():.{i % 9}e}' for f in ids]
    lines.append(','.join(map(str, labels)) + ' ' + ' '.join(pairs))
  text = '\n'.join(lines)
  assert rows_of(xc_text.read(written(tmp_path, text))) == naive(text)


SHAPES = {
  'examples': {'features': (1, 100), 'labels': (1, 50)},
  'features': {'features': (1, 100)},
  'labels': {'labels': (1, 100)},
}


@pytest.mark.parametrize(
  ('start', 'often', 'end'),
  [
    (b'1', b' 12:0.25', b' x'),
    (b'1', b' ', b'x'),
    (b'', b'1,', b'x'),
    (b'1 1:', b'1', b'x'),
    (b'1 1:1e', b'1', b'x'),
  ],
)
def test_a_long_bad_line_is_refused_in_linear_time(start, often, end):
  """A parser with quadratic time would take minutes."""
  line = start + often * 10**5 + end
  assert xc_text._parsed([line], SHAPES['examples']) is None


def test_gzip_under_any_name_and_a_byte_order_mark(tmp_path):
  content = b'\xef\xbb\xbf' + EXAMPLES.encode()
  path = written(tmp_path, gzip.compress(content))
  assert rows_of(xc_text.read(path))[0] == ([0, 3], {1: 0.5, 6: 2})
  path.write_bytes(path.read_bytes()[:-12])
  with pytest.raises(errors.InputError, match='cannot be read'):
    xc_text.read(path)
  path = written(tmp_path, content, 'some.txt.gz')
  with pytest.raises(errors.InputError, match='cannot be read'):
    xc_sets.read_header(path)
  path = written(tmp_path, content)
  assert xc_text.read(path).labels.shape == (4, 5)
  how = types.SimpleNamespace(preprocessing={'num_features': 7}, num_classes=5)
  for text in (content, content.replace(b'4 7 5\n', b'')):
    path.write_bytes(text)
    [block] = xc_text.blocks(path, how, 9)
    assert block.labels.shape == (4, 5)


@pytest.mark.parametrize(
  ('old', 'new', 'message'),
  [
    ('4 7 5', '4 7', "line 1: .*'N D L'"),
    ('4 7 5', '4 7 9999999999', 'line 1: '),
    ('4 7 5\n', '', 'line 1: '),
    ('4 7 5', '5 7 5', '5 lines, found 4'),
    ('4 7 5', '2 7 5', 'line 4: .* 2 lines'),
    ('6:2', '7:2', 'line 2: .*below 7'),
    ('6:2', '9' * 30 + ':2', 'line 2: '),
    ('3:1', '-3:1', 'line 3: .*-3:1'),
    ('4 \n', '5 \n', 'line 4: .*labels below 5'),
    *(('0,3', labels, 'line 2: ') for labels in ('0,-3', '0, 3', '0 3')),
    *(
      ('6:2', pair, 'line 2: ')
      for pair in ('6:2:3', '6:0x1', '6:2 # two', '6:1_0', '1:2', '6:\0\0')
    ),
    *(('6:2', f'6:{v}', 'finite') for v in ('nan', '3.4028235677973367e38')),
    ('4 \n', 'é \n', 'line 4: '),
    ('features', '1 7 5\n1:1\n', "line 1: .*'N D'"),
    ('features', '1 7\n3 1:1\n', 'line 2: .*form feature:value'),
    ('features', '2 7\n1:1\n', '2 lines'),
    ('labels', '1 5\n7:1\n', 'line 2: .*form label:1'),
    ('labels', '1 5\n3:0.5\n', 'line 2: '),
    ('labels', '1 5\n3,4\n', 'line 2: '),
    ('examples', '', 'line 1'),
  ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path, old, new, message):
  form, text = old, new
  if old not in SHAPES:
    assert EXAMPLES.count(old) == 1
    form, text = 'examples', EXAMPLES.replace(old, new)
  path = written(tmp_path, text)
  for _ in range(2):  # A file with an error is not cached.
    with pytest.raises(errors.InputError, match=message) as caught:
      xc_text.read(path, form)
  assert str(path) in str(caught.value)
  assert '\n' not in str(caught.value)


@pytest.mark.parametrize('name', ['delicious', 'bibtex'])
def test_real_files_equal_a_naive_parser(data_dir, name):
  path = data_dir / 'xc' / f'{name}_test.txt'
  if not path.is_file():
    pytest.skip(f'no {path}')
  text = path.read_text().rstrip('\n')
  assert rows_of(xc_text.read(path)) == naive(text)


@pytest.mark.parametrize(
  ('form', 'text'),
  [
    ('examples', EXAMPLES),
    ('features', '3 7\n1:0.5\n\n2:1 3:1\n'),
    ('labels', '3 5\n1:1\n\n2:1 3:1\n'),
    ('examples', '0 7 5\n'),
    ('examples', '2 7 5\n \n \n'),
  ],
)
def test_the_second_time_nothing_is_parsed(tmp_path, monkeypatch, form, text):
  path = written(tmp_path, text)
  first = xc_text.read(path, form)
  monkeypatch.setattr(xc_text, 'parse', None)
  second = xc_text.read(path, form)
  for before, after in zip(first, second, strict=True):
    assert (before is None) == (after is None)
    if before is not None:
      same(before, after)
  assert list(tmp_path.iterdir()) == [path]
  monkeypatch.setattr(xc_text, 'VERSION', xc_text.VERSION + 1)
  with pytest.raises(TypeError, match='not callable'):
    xc_text.read(path, form)
