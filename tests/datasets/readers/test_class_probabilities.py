"""Files of class probabilities, and which files are refused."""

import gzip

import numpy as np
import pytest

from datasets.readers import class_probabilities
from tff_xc import errors


def read(tmp_path, content, num_classes=4, names=None):
  path = tmp_path / 'p.csv'
  path.write_bytes(content if isinstance(content, bytes) else content.encode())
  return class_probabilities.read(path, num_classes, names)


@pytest.mark.parametrize(
  'content',
  [
    'class,probability\n1,0.25\n3,0.75\n',
    'class,weight\n3,3\n1,1\n0,0\n',
    '\ufeffweight,name,class\r\n"3",x, 3\r\n\r\n1e0,"y,z",1\r\n',
    'class,weight\n1.0,1\n3.0,3.0\n',
    gzip.compress(b'class,weight\n1,1\n3,3\n', mtime=0),
  ],
)
def test_probabilities_are_normalised(tmp_path, content):
  np.testing.assert_allclose(read(tmp_path, content), [0, 0.25, 0, 0.75])


NAMES = ['cat', 'dog', 'a,b', 'ü']


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    ('class,p\n0,1\n', 'expected the columns'),
    ('class,weight,probability\n0,1,1\n', 'expected the columns'),
    ('class,class,weight\n0,1,2\n', "'class' twice"),
    ('class,weight\n4,1\n', "line 2: '4'"),
    ('class,weight\n1.5,1\n', "line 2: '1.5'"),
    ('class,weight\n,1\n', "line 2: '' has"),
    (f'class,weight\n{"9" * 5000},1\n', "line 2: '9999"),
    ('class,weight\n1,1\n\n1,2\n', "line 4: '1'"),
    ('class,weight\n1,-1\n', "line 2: '1' has '-1'"),
    ('class,weight\n1,nan\n', "line 2: '1' has 'nan'"),
    ('class,weight\n1,"0,5"\n', "line 2: '1' has '0,5'"),
    ('class,weight\n1,0\n', 'sum 0.0'),
    ('class,weight\n0,1e308\n1,1e308\n', 'sum inf'),
    ('class,weight\ncat,1\n1,2\n', "line 2: 'cat'"),
    ('class,weight\ndog,1\ncat,2\ndog,3\n', "line 4: 'dog'"),
  ],
)
@pytest.mark.filterwarnings('error')
def test_a_malformed_file_is_one_sentence(tmp_path, content, message):
  with pytest.raises(errors.InputError, match=message) as found:
    read(tmp_path, content, names=NAMES)
  assert 'p.csv' in str(found.value)
  assert '\n' not in str(found.value)


@pytest.mark.parametrize(
  ('names', 'lines', 'expected'),
  [
    (NAMES, 'dog,1\n"a,b",3\n', [0, 0.25, 0.75, 0]),
    (NAMES, '1,1\n2,3\n', [0, 0.25, 0.75, 0]),
    (NAMES, 'u\u0308,1\n', [0, 0, 0, 1]),
    (['cat', 'u\u0308'], '\u00fc,1\n', [0, 1]),
    # Class names that are numbers are names, not indices.
    (['2', '7', '9', '10'], '9,1\n2,3\n', [0.75, 0, 0.25, 0]),
    (['1', '2', '3', '4'], '4,1\n1,3\n', [0.75, 0, 0, 0.25]),
    (['1', '2', '3', '4'], '0,1\n1,3\n', [0.25, 0.75, 0, 0]),
  ],
)
def test_classes_may_have_the_names_of_the_data(tmp_path, names, lines, expected):
  found = read(tmp_path, f'class,probability\n{lines}', len(names), names)
  np.testing.assert_allclose(found, expected)


def test_a_file_that_is_not_there_is_refused(tmp_path):
  with pytest.raises(errors.InputError, match='cannot be read'):
    class_probabilities.read(tmp_path / 'none.csv', 3)
