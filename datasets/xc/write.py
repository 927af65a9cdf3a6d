"""Writes the text files of the Extreme Classification Repository.

The forms are those of `xc_text`, which can read these files.
"""

import itertools
import os
import pathlib
import tempfile
from collections.abc import Iterable
from collections.abc import Iterator
from typing import TextIO

import numpy as np
import scipy.sparse

from datasets.xc import headers as xc_headers

_HEADERS = {
  'examples': ('num_examples', 'num_features', 'num_labels'),
  'features': ('num_examples', 'num_features'),
  'labels': ('num_examples', 'num_labels'),
}


def write(
  path: str | os.PathLike,
  header: xc_headers.Header,
  parts: Iterable[
    tuple[scipy.sparse.csr_matrix | None, scipy.sparse.csr_matrix | None]
  ],
  form: str = 'examples',
  *,
  digits: int = 9,
) -> None:
  """Writes a file in one step: after an error the old file is unchanged.

  Args:
    path: the file.
    header: its first line; not compared with `parts`.
    parts: the examples' features and labels, as in `xc_text.Table`, one part
      after the other, so that a file may be larger than memory. Ignored if the
      form does not hold them.
    form: one of `xc_headers.FORMS`.
    digits: significant digits of values; 9 restore the same float32.
  """
  path = pathlib.Path(path)
  pair = f'%d:%.{digits}g'.__mod__
  with tempfile.NamedTemporaryFile(
    'w',
    encoding='ascii',
    newline='\n',
    dir=path.parent,
    prefix=f'.{path.name}.',
    delete=False,
  ) as file:
    temporary = pathlib.Path(file.name)
    try:
      print(*(getattr(header, name) for name in _HEADERS[form]), file=file)
      for features, labels in parts:
        _write_lines(file, features, labels, form, pair)
      file.close()
      temporary.chmod(0o644)
      os.replace(temporary, path)
    finally:
      temporary.unlink(missing_ok=True)


def _write_lines(file: TextIO, features, labels, form: str, pair) -> None:
  columns = []
  if form == 'examples':
    columns.append(_joined(',', map(str, labels.indices.tolist()), labels))
  if form != 'labels':
    pairs = zip(features.indices.tolist(), features.data.tolist(), strict=True)
    columns.append(_joined(' ', map(pair, pairs), features))
  else:
    pairs = (f'{i}:1' for i in labels.indices.tolist())
    columns.append(_joined(' ', pairs, labels))
  file.writelines(' '.join(row) + '\n' for row in zip(*columns, strict=True))


def _joined(separator: str, entries: Iterator[str], rows) -> Iterator[str]:
  """Joins the entries of each row."""
  for count in np.diff(rows.indptr).tolist():
    yield separator.join(itertools.islice(entries, count))
