"""Reads the text files of the Extreme Classification Repository.

There are three forms. Each has a header, then one line for each example; ids
count from 0:

examples  header `N D L`, lines `l1,l2 f:v f:v`; the line of an example without
          labels starts with a space
features  header `N D`, lines `f:v f:v` (`trn_X_Xf.txt`)
labels    header `N L`, lines `l:1 l:1` (`trn_X_Y.txt`)

The reader also accepts: `.gz` of these, Windows line ends, tabs or several
spaces between fields, spaces at a line's end, no newline at the file's end,
blank lines after the last example, ids in any order, signs and exponents. A
repeated label counts once. Reading takes about twice the memory of the result.

scikit-learn's svmlight reader parses blocks of lines. Where a block has a line
that this reader may not or cannot read, `xc_lines` parses it line by line.
"""

import io
import itertools
import os
import pathlib
from collections.abc import Iterator
from collections.abc import Sequence
from typing import BinaryIO
from typing import NamedTuple

import numpy as np
import scipy.sparse
import sklearn.datasets

from datasets import zip_members
from datasets.xc import headers as xc_headers
from datasets.xc import lines as xc_lines
from tff_xc import errors

# Bytes of a block. The reader returns labels as tuples of Python's floats,
# which take far more memory than the result: few of them may live at once.
_BLOCK = 1 << 18


class Table(NamedTuple):
  """A file's content.

  Indices are int32, sorted and distinct within a row. A feature that the file
  gives as 0 is an explicit zero.

  Attributes:
    header: its first line.
    features: float32 [N, D]; None for a file of labels.
    labels: bool [N, L], True where an example has the label; None for a file of
      features.
  """

  header: xc_headers.Header
  features: scipy.sparse.csr_matrix | None
  labels: scipy.sparse.csr_matrix | None


def read(path: str | os.PathLike, form: str = 'examples') -> Table:
  """Reads and checks a whole file.

  A value equals `np.float32(float(text))`, bit for bit.

  Args:
    path: the file, perhaps packed by gzip.
    form: one of `headers.FORMS`.

  Raises:
    errors.InputError: the file is missing or cannot be read; the header does
      not have the numbers of the form; there are more or fewer than N lines; a
      line does not have the form; an id is not below D or L; a feature is
      repeated; a value is not a finite float32. The message names the line.
  """
  path = pathlib.Path(path)
  with xc_headers.opened(path) as file:
    header = xc_headers.parse(file, path, form)
    layout = _layout(header, form)
    blocks = [
      _parse(lines, layout, path, number)
      for number, lines in _blocks(file, header.num_examples, path)
    ]
  pairs = _stacked([pairs for pairs, _ in blocks], layout.num_ids, path)
  if form == 'labels':
    return Table(header, None, pairs.astype(bool))
  if form == 'features':
    return Table(header, pairs, None)
  labels = _stacked([labels for _, labels in blocks], layout.num_labels, path)
  return Table(header, pairs, labels.astype(bool, copy=False))


def _layout(header: xc_headers.Header, form: str) -> xc_lines.Layout:
  if form == 'labels':
    return xc_lines.Layout(False, header.num_labels, noun='label')
  return xc_lines.Layout(
    form == 'examples', header.num_features, header.num_labels
  )


def _blocks(
  file: BinaryIO, expected: int, path
) -> Iterator[tuple[int, list[bytes]]]:
  """Yields the file's next `expected` lines in blocks, and their line numbers.

  Raises:
    errors.InputError: there are fewer lines, or more that are not blank.
  """
  found = 0
  for lines in _grouped(zip_members.lines(file, path, before=1)):
    rest = expected - found
    for number, line in enumerate(lines[rest:], expected + 2):
      if line.strip():
        raise errors.InputError(
          f'{path}, line {number}: the header promises {expected} lines after '
          'it, and here is one more; mend the header, or download the file '
          'again'
        )
    yield found + 2, lines[:rest]
    found += len(lines[:rest])
  if found < expected:
    raise errors.InputError(
      f'{path}: the header promises {expected} lines after it, found {found}; '
      'the file is cut short, download it again'
    )


def _grouped(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
  """Yields lists of lines that have about as many bytes as a block."""
  block, size = [], 0
  for line in lines:
    block.append(line)
    size += len(line)
    if size >= _BLOCK:
      yield block
      block, size = [], 0
  if block:
    yield block


def _parse(
  lines: list[bytes], layout: xc_lines.Layout, path, number: int
) -> tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]:
  """Parses lines of the file, of which the first has this number.

  Returns:
    float32, the lines' pairs of id and value; and bool, their labels.
  """
  try:
    return _svmlight(lines, layout)
  except (ValueError, OverflowError):
    parsed = [
      xc_lines.parse(line, layout, f'{path}, line {i}')
      for i, line in enumerate(lines, number)
    ]
  pairs = _matrix([line.ids for line in parsed], layout.num_ids)
  values = itertools.chain.from_iterable(line.values for line in parsed)
  pairs.data = np.fromiter(values, np.float32, pairs.nnz)
  return pairs, _matrix([line.labels for line in parsed], layout.num_labels)


def _svmlight(lines: list[bytes], layout: xc_lines.Layout):
  """As `_parse`; ValueError or OverflowError if a line may not be right."""
  if not all(xc_lines.is_usual(line, layout) for line in lines):
    raise ValueError('a line is unusual')
  pairs, labels = sklearn.datasets.load_svmlight_file(
    io.BytesIO(b''.join(lines)),
    n_features=layout.num_ids,
    dtype=np.float32,
    multilabel=True,
    zero_based=True,
  )
  if not np.isfinite(pairs.data).all():
    raise ValueError('a value is not finite')
  if layout.holds_label_pairs and (pairs.data != 1).any():
    raise ValueError('a label has another value than 1')
  if max(itertools.chain(*labels), default=-1) >= layout.num_labels:
    raise ValueError('a label is out of range')
  # The reader skips blank lines.
  filled = [bool(line.strip()) for line in lines]
  ends = pairs.indptr[np.cumsum([0, *filled])]
  found = iter(labels)
  return (
    scipy.sparse.csr_matrix(
      (pairs.data, pairs.indices, ends), (len(lines), layout.num_ids)
    ),
    _matrix([next(found) if f else () for f in filled], layout.num_labels),
  )


def _matrix(ids: list[Sequence], num_columns: int) -> scipy.sparse.csr_matrix:
  """Returns bool [k, num_columns], True at the ids of each of k rows."""
  ends = np.cumsum([0, *map(len, ids)])
  flat = np.fromiter(itertools.chain.from_iterable(ids), np.int32, ends[-1])
  matrix = scipy.sparse.csr_matrix(
    (np.ones(len(flat), bool), flat, ends), (len(ids), num_columns)
  )
  matrix.sum_duplicates()
  return matrix


def _stacked(blocks, num_columns: int, path) -> scipy.sparse.csr_matrix:
  entries = sum(block.nnz for block in blocks)
  if entries > xc_headers.LARGEST:
    raise errors.InputError(
      f'{path} has {entries} values or labels, more than 2^31 - 1; split it'
    )
  if not blocks:
    return scipy.sparse.csr_matrix((0, num_columns), dtype=np.float32)
  return scipy.sparse.vstack(blocks, 'csr')
