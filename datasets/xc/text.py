"""Reads the text files of the Extreme Classification Repository.

There are three file formats. Each has a header and then a line per example. N, D and L are
the numbers of examples, features and labels. Labels l and features f are numbers from 0, and
v is the value of a feature.

examples  header `N D L`, lines `l1,l2 f:v f:v`; the line of an example without
          labels starts with a space
features  header `N D`, lines `f:v f:v` (`trn_X_Xf.txt`)
labels    header `N L`, lines `l:1 l:1` (`trn_X_Y.txt`)

The reader also accepts:

- `.gz` files and Windows line ends,
- tabs or several spaces, between fields and at a line's end,
- a missing newline at the file's end, and blank lines after the last example,
- labels and features in any order,
- values with signs and exponents.

A repeated label counts once.
"""

import codecs
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse

from datasets import examples as examples_lib
from datasets.readers import parsed_cache, zipped
from datasets.xc import sets
from tff_xc import errors, wording

# Increase this when the result of `parse`, which is cached, changes.
VERSION = 6

_LINES = 1024  # The number of lines that are parsed at a time.
_ARRAYS = ('data', 'indices', 'indptr')  # The arguments of a csr_matrix.
# The patterns match a text in at most one way, so that rejecting a long line takes linear
# time. (Possessive quantifiers need Python 3.11.)
_NUMBER = rb'[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?'
_PAIRS = rb'((?:\s*\d+:%b(?:\s+\d+:%b)*)?)\s*' % (_NUMBER, _NUMBER)
_LABELS = rb'\d+(?:,\d+)*'
_LINE = re.compile(rb'()' + _PAIRS)
_LABELLED_LINE = re.compile(rb'((?:%b(?=\s|\Z))?)%b' % (_LABELS, _PAIRS))
_INFINITE = 2.0**128 - 2.0**103  # float32 rounds this number and larger ones to infinity.


class Part(NamedTuple):
  """N examples: features float32 [N, D] and labels bool [N, n], both in CSR format.

  `features` or `labels` is None if a file does not contain them. Column indices are int32,
  sorted and distinct within a row. A feature with the value 0 in the file is an explicit zero.
  """

  features: scipy.sparse.csr_matrix | None
  labels: scipy.sparse.csr_matrix | None

  def some(self, rows: np.ndarray | slice) -> 'Part':
    """Returns the examples with the indices `rows`, which have features and labels."""
    return Part(self.features[rows], self.labels[rows])


def read(path: str | os.PathLike, form: str = 'examples') -> Part:
  """Reads and checks a whole file. Later calls memory-map it, read-only, from the cache.

  A value equals `np.float32(float(text))`, bit for bit. `form` is one of `sets.FORMS`.
  Raises `errors.InputError` if the file or its header has a different format, the number of
  lines is not N, a feature is not below D or a label is not below L, a feature is repeated,
  or a value is not a finite float32. The error message names the line.
  """
  header = sets.read_header(path, form)
  arrays = parsed_cache.of_files(
    path,
    form,
    VERSION,
    [path],
    lambda: parse(path, form),
    form=form,
    header=list(header),
  )
  found = {
    part: scipy.sparse.csr_matrix(
      tuple(arrays[f'{part}.{name}'] for name in _ARRAYS), shape, copy=False
    )
    for part, shape in _shapes(header, form).items()
  }
  return Part(found.get('features'), found.get('labels'))


def parse(path: str | os.PathLike, form: str) -> dict[str, np.ndarray]:
  """Reads a file and returns the arrays of its matrices; see `read`."""
  with sets.open_file(path) as file:
    header = sets.parse_header(file, path, form)
    shapes = _shapes(header, form)
    kinds = {'features': np.float32, 'labels': bool}
    parts = {
      part: [scipy.sparse.csr_matrix((0, size), dtype=kinds[part])]
      for part, (_, size) in shapes.items()
    }
    for numbers, lines in _blocks(file, path, header.num_examples, _LINES):
      for part, matrix in _matrices(lines, shapes, path, numbers).items():
        parts[part].append(matrix)
  whole = {part: scipy.sparse.vstack(matrices, 'csr') for part, matrices in parts.items()}
  return {f'{part}.{name}': getattr(whole[part], name) for part in whole for name in _ARRAYS}


def blocks(path: str | os.PathLike, description, size: int) -> Iterator[examples_lib.Block]:
  """Yields blocks of the lines `l,l f:v f:v` or `f:v f:v` for a trained model.

  The file may have a header `N D L` or `N D`. D and L must then equal the model's numbers of
  features and labels.
  """
  wanted = description.preprocessing['num_features'], description.num_classes
  shapes = {'features': (0, wanted[0]), 'labels': (0, wanted[1])}
  with sets.open_file(path) as file:
    if file.peek(3).startswith(codecs.BOM_UTF8):
      file.read(3)
    fields = file.peek(200).split(b'\n', 1)[0].split()
    expected, first = None, 1
    if len(fields) in (2, 3) and all(field.isdigit() for field in fields):
      expected, *found = map(int, fields)
      if tuple(found) != wanted[: len(found)]:
        raise errors.InputError(
          f'{path}, line 1 names {found[0]:,} features and {sum(found[1:]):,} labels, and the'
          f' model has {wanted[0]:,} and {wanted[1]:,}; give data with the same numbers'
        )
      file.readline()
      first = 2
    for numbers, lines in _blocks(file, path, expected, size, first):
      found = _matrices(lines, shapes, path, numbers)
      x = examples_lib.bags(found['features'])
      yield examples_lib.Block(list(map(str, numbers)), x, found['labels'])


def _shapes(header: sets.Header, form: str) -> dict[str, tuple[int, int]]:
  """Returns the shapes of the matrices of a file."""
  sizes = {'features': header.num_features, 'labels': header.num_labels}
  return {
    part: (header.num_examples, size) for part, size in sizes.items() if form in ('examples', part)
  }


def _blocks(
  file, path, expected: int | None, size: int, first: int = 2
) -> Iterator[tuple[tuple[int, ...], tuple[bytes, ...]]]:
  """Yields the next lines with their line numbers, at most `size` at a time.

  The file must have `expected` more lines. If `expected` is None, it may have any number of
  lines, and empty lines are ignored. `first` is the line number of the next line.
  """

  def lines():
    found = 0
    for number, line in enumerate(file, first):
      if found == expected and line.strip():
        raise errors.InputError(
          f'{path}, line {number}: the header promises {wording.count(expected, "line")}, and'
          ' it has more; mend the header, or download the file again'
        )
      if found != expected and (expected is not None or line.strip(b'\r\n')):
        found += 1
        yield number, line
    if found < (expected or 0):
      raise errors.InputError(
        f'{path}: the header promises {wording.count(expected, "line")}, found {found}; '
        'the file is cut short, download it again'
      )

  every = lines()
  with zipped.readable(path, sets.ADVICE):
    while block := list(itertools.islice(every, size)):
      yield tuple(zip(*block, strict=True))


def _matrices(lines: list[bytes], shapes, path, numbers: Sequence[int]) -> dict:
  """Parses lines to a matrix for each of `shapes`; raises InputError for the first bad line."""
  found = _parsed(lines, shapes)
  if found is not None:
    return found
  number, line = next(
    (number, line)
    for number, line in zip(numbers, lines, strict=True)
    if _parsed([line], shapes) is None
  )
  text = line.decode('utf-8', 'backslashreplace').strip()
  forms = {'features': 'feature:value', 'labels': 'label:1'}
  expected = ' and '.join(f'{part} below {shapes[part][1]:,}, each once' for part in shapes)
  form = 'label,label feature:value' if len(shapes) == 2 else forms[min(shapes)]
  raise errors.InputError(
    f'{path}, line {number}: {text[:60]!r} is not of the form {form}, with finite'
    f' values and {expected}; mend the line, or download the file again'
  )


def _parsed(lines: list[bytes], shapes) -> dict | None:
  """Parses lines to a matrix for each of `shapes`; returns None if a line is bad."""
  pattern = _LABELLED_LINE if len(shapes) == 2 else _LINE
  matches = list(map(pattern.fullmatch, lines))
  if None in matches:
    return None
  pair_texts = [match[2] for match in matches]
  pairs = _numbers(b' '.join(pair_texts).replace(b':', b' ')).reshape(-1, 2)
  ids, values = pairs.T
  counts = [text.count(b':') for text in pair_texts]
  found = {}
  if 'features' in shapes:
    if not (np.abs(values) < _INFINITE).all():
      return None
    found['features'] = _matrix(ids, values.astype(np.float32), counts, shapes['features'][1])
    if found['features'] is None or not found['features'].has_canonical_format:
      return None
    values = np.ones(0)
    label_texts = [match[1] for match in matches]
    ids = _numbers(b' '.join(label_texts).replace(b',', b' '))
    counts = [text.count(b',') + bool(text) for text in label_texts]
  if 'labels' in shapes:
    truth = np.ones(len(ids), bool)
    found['labels'] = _matrix(ids, truth, counts, shapes['labels'][1])
    if found['labels'] is None or (values != 1).any():
      return None
    found['labels'].sum_duplicates()
  return found


def _numbers(text: bytes) -> np.ndarray:
  """Parses the numbers in a text to float64, with the same results as `float`."""
  # For a blank text, NumPy would return a number.
  return np.fromstring(text, sep=' ') if text.strip() else np.zeros(0)


def _matrix(
  ids: np.ndarray, values: np.ndarray, counts: list[int], num_columns: int
) -> scipy.sparse.csr_matrix | None:
  """Returns a matrix whose rows have `counts` entries, or None if a column index is too large."""
  if ids.max(initial=-1) >= num_columns:
    return None
  ends = np.cumsum([0, *counts], dtype=np.int32)
  matrix = scipy.sparse.csr_matrix((values, ids.astype(np.int32), ends), (len(counts), num_columns))
  matrix.sort_indices()
  return matrix
