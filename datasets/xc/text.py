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
repeated label counts once. Reading takes up to twice the memory of the result.
"""

import gzip
import os
import pathlib
import zlib
from typing import BinaryIO
from typing import NamedTuple

import numpy as np

from datasets.xc import blocks as xc_blocks
from datasets.xc import lines as xc_lines
from tff_xc import errors
from tff_xc.data import sparse

FORMS = ('examples', 'features', 'labels')

# Larger blocks fit neither the processor's cache nor malloc's free lists.
_BLOCK = 1 << 18
_LONGEST_LINE = 1 << 28
_LARGEST = 2**31 - 1


class Header(NamedTuple):
  """The numbers of a file's first line.

  Attributes:
    num_examples: N.
    num_features: D; 0 in a file of labels.
    num_labels: L; 0 in a file of features.
  """

  num_examples: int
  num_features: int
  num_labels: int


class Table(NamedTuple):
  """A file's content.

  Attributes:
    header: its first line.
    features: the features of all examples; None for a file of labels.
    labels: the labels of all examples; None for a file of features.
  """

  header: Header
  features: sparse.SparseFeatures | None
  labels: sparse.LabelSets | None


def read_header(path: str | os.PathLike, form: str = 'examples') -> Header:
  """Reads a file's first line; see `read`."""
  with _opened(pathlib.Path(path)) as file:
    return _header(file, path, form)


def read(path: str | os.PathLike, form: str = 'examples') -> Table:
  """Reads and checks a whole file.

  A value equals `np.float32(float(text))`, bit for bit.

  Args:
    path: the file; a file whose name ends in `.gz` is decompressed.
    form: one of `FORMS`.

  Raises:
    errors.InputError: the file is missing or cannot be read; the header does
      not have the numbers of the form; there are more or fewer than N lines; a
      line does not have the form; an id is not below D or L; a feature is
      repeated; a value is not a finite float32. The message names the line.
  """
  path = pathlib.Path(path)
  with _opened(path) as file:
    header = _header(file, path, form)
    layout = _layout(header, form)
    blocks, lines = [], 0
    while text := _lines(file, path, lines + 2):
      features, labels = _block(text, layout, header, lines, path)
      blocks.append((features, labels))
      lines += len(features.counts)
  if lines < header.num_examples:
    raise errors.InputError(
      f'{path}: the header promises {header.num_examples} lines after it, '
      f'found {lines}; the file is cut short, download it again'
    )
  features = [features for features, _ in blocks]
  if form == 'labels':
    return Table(header, None, _label_sets(features))
  labels = [labels for _, labels in blocks]
  del blocks
  return Table(
    header,
    _sparse_features(features, path),
    _label_sets(labels) if form == 'examples' else None,
  )


class _opened:
  """Opens a file to read; turns any error into an InputError."""

  def __init__(self, path: pathlib.Path):
    self._path = path

  def __enter__(self) -> BinaryIO:
    if not self._path.is_file():
      raise errors.InputError(
        f'{self._path} is no file; give a text file of the Extreme '
        'Classification Repository'
      )
    try:
      is_gzip = self._path.suffix == '.gz'
      self._file = (gzip.open if is_gzip else open)(self._path, 'rb')
    except OSError as e:
      raise self._error(e) from e
    return self._file

  def __exit__(self, kind, error, traceback):
    self._file.close()
    if isinstance(error, OSError | EOFError | zlib.error):
      raise self._error(error) from error

  def _error(self, error):
    return errors.InputError(
      f'{self._path} cannot be read ({error}); check its permissions, or '
      'download it again'
    )


def _header(file: BinaryIO, path, form: str) -> Header:
  if form not in FORMS:
    raise ValueError(f'form is {form!r}, expected one of {FORMS}')
  names = {'examples': 'N D L', 'features': 'N D', 'labels': 'N L'}[form]
  line = file.readline(200)
  fields = line.split()
  wanted = len(names.split())
  if (
    len(fields) != wanted
    or not all(f.isdigit() for f in fields)
    or max(map(int, fields)) > _LARGEST
  ):
    shown = line.rstrip().decode('utf-8', 'backslashreplace')[:60]
    raise errors.InputError(
      f'{path}, line 1: expected the header {names!r} ({wanted} whole numbers '
      f'below 2^31), found {shown!r}; give a file of the Extreme '
      f'Classification Repository that holds {form}'
    )
  numbers = [int(f) for f in fields]
  if form == 'labels':
    numbers.insert(1, 0)
  return Header(*numbers, *([0] if form == 'features' else []))


def _layout(header: Header, form: str) -> xc_lines.Layout:
  if form == 'labels':
    return xc_lines.Layout(False, header.num_labels, noun='label')
  return xc_lines.Layout(
    form == 'examples', header.num_features, header.num_labels
  )


def _lines(file: BinaryIO, path, number: int) -> bytes:
  """Returns the next whole lines; empty at the file's end."""
  rest = b''
  text = file.read(_BLOCK)
  if text and not text.endswith(b'\n'):
    rest = file.readline(_LONGEST_LINE)
  if len(rest) == _LONGEST_LINE:
    raise errors.InputError(
      f'{path}: a line after line {number - 1} is longer than 256 MiB; give a '
      'text file of the Extreme Classification Repository'
    )
  text += rest
  if text and not text.endswith(b'\n'):
    text += b'\n'
  if b'\r' in text:
    text = text.replace(b'\r\n', b'\n')
  return text.replace(b'\t', b' ') if b'\t' in text else text


def _block(
  text: bytes, layout: xc_lines.Layout, header: Header, first: int, path
) -> tuple[xc_blocks.Rows, xc_blocks.Rows]:
  """Parses whole lines, which follow `first` other lines of the file."""
  features, labels, left_out = xc_blocks.parse(text, layout)
  too_many = first + len(features.counts) - header.num_examples
  if too_many <= 0 and not len(left_out):
    return features, labels
  lines = text.split(b'\n')[:-1]
  if too_many > 0:
    kept = max(len(lines) - too_many, 0)
    for number, line in enumerate(lines[kept:], first + kept + 2):
      if line.strip():
        raise errors.InputError(
          f'{path}, line {number}: the header promises {header.num_examples} '
          'lines after it, and here is one more; mend the header, or download '
          'the file again'
        )
    features, labels = _head(features, kept), _head(labels, kept)
    left_out = left_out[left_out < kept]
  mended = [
    xc_lines.parse(lines[i], layout, f'{path}, line {first + i + 2}')
    for i in left_out
  ]
  return (
    _insert(features, left_out, [m.ids for m in mended], mended),
    _insert(labels, left_out, [m.labels for m in mended]),
  )


def _head(rows: xc_blocks.Rows, count: int) -> xc_blocks.Rows:
  """Returns the first `count` lines; the others are empty or not needed."""
  end = int(rows.counts[:count].sum())
  values = None if rows.values is None else rows.values[:end]
  return xc_blocks.Rows(rows.counts[:count], rows.ids[:end], values)


def _insert(rows: xc_blocks.Rows, lines, ids, mended=None) -> xc_blocks.Rows:
  """Fills lines that were empty."""
  if not len(lines):
    return rows
  counts = rows.counts.copy()
  starts = np.cumsum(counts)[lines]
  counts[lines] = [len(i) for i in ids]
  places = np.repeat(starts, counts[lines])
  values = rows.values
  if mended is not None:
    more = np.concatenate([m.values for m in mended])
    values = np.insert(values, places, more)
  return xc_blocks.Rows(
    counts, np.insert(rows.ids, places, np.concatenate(ids)), values
  )


def _splits(parts: list[xc_blocks.Rows]) -> np.ndarray:
  counts = [np.zeros(1, np.int64), *(part.counts for part in parts)]
  return np.cumsum(np.concatenate(counts))


def _label_sets(parts: list[xc_blocks.Rows]) -> sparse.LabelSets:
  empty = np.zeros(0, np.int32)
  return sparse.LabelSets(
    _splits(parts), np.concatenate([empty, *(part.ids for part in parts)])
  )


def _sparse_features(
  parts: list[xc_blocks.Rows], path
) -> sparse.SparseFeatures:
  splits = _splits(parts)
  if splits[-1] > _LARGEST:
    raise errors.InputError(
      f'{path} has {splits[-1]} feature values, more than 2^31 - 1; split it'
    )
  ids = np.concatenate([np.zeros(0, np.int32), *(p.ids for p in parts)])
  values = np.concatenate([np.zeros(0, np.float32), *(p.values for p in parts)])
  return sparse.SparseFeatures(splits.astype(np.int32), ids, values)
