"""Writes the text files of the Extreme Classification Repository.

The forms are those of `xc_text`, which can read these files.
"""

import itertools
import os
import pathlib
import tempfile
from collections.abc import Iterable
from typing import TextIO

from datasets.xc import text as xc_text
from tff_xc.data import sparse

_HEADERS = {
  'examples': ('num_examples', 'num_features', 'num_labels'),
  'features': ('num_examples', 'num_features'),
  'labels': ('num_examples', 'num_labels'),
}


def write(
  path: str | os.PathLike,
  header: xc_text.Header,
  parts: Iterable[tuple[sparse.SparseFeatures | None, sparse.LabelSets | None]],
  form: str = 'examples',
  *,
  digits: int = 9,
) -> None:
  """Writes a file in one step: after an error the old file is unchanged.

  Args:
    path: the file.
    header: its first line; not compared with `parts`.
    parts: the examples' features and labels, one part after the other, so that
      a file may be larger than memory. Ignored if the form does not hold them.
    form: one of `xc_text.FORMS`.
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
    columns.append([','.join(map(str, row)) for row in _rows(labels)])
  if form != 'labels':
    ids = _rows(features)
    values = _rows(features._replace(ids=features.values))
    columns.append(
      [
        ' '.join(map(pair, zip(*row, strict=True)))
        for row in zip(ids, values, strict=True)
      ]
    )
  else:
    columns.append([' '.join(f'{i}:1' for i in row) for row in _rows(labels)])
  file.writelines(' '.join(row) + '\n' for row in zip(*columns, strict=True))


def _rows(rows) -> list[list]:
  """Returns the ids of each row."""
  ids, splits = rows.ids.tolist(), rows.row_splits.tolist()
  return [ids[start:end] for start, end in itertools.pairwise(splits)]
