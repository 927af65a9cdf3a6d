"""A cache of parsed files of the Extreme Classification Repository.

`parsed_cache` keeps the arrays of an `xc_text.Table`, one cache for each path
and form.
"""

import os
import pathlib

import scipy.sparse

from datasets import parsed_cache
from datasets.xc import headers as xc_headers
from datasets.xc import text as xc_text

# Increase this when the files of a cache or the result of `xc_text` change.
VERSION = 4

_ARRAYS = ('data', 'indices', 'indptr')  # the arguments of a csr_matrix


def read(path: str | os.PathLike, form: str = 'examples') -> xc_text.Table:
  """Reads a file through its cache, as `parsed_cache.arrays` does.

  Args:
    path: the text file.
    form: one of `xc_headers.FORMS`.

  Returns:
    The file's content. Its arrays are read-only.

  Raises:
    errors.InputError: as `xc_text.read`.
  """
  path = pathlib.Path(path)
  header = xc_headers.read_header(path, form)

  def fill(store: parsed_cache.Store) -> None:
    for name, array in _arrays(xc_text.read(path, form)).items():
      store.append(name, array)

  arrays = parsed_cache.arrays(
    cache_path(path, form),
    parsed_cache.describe_files(
      VERSION, [path], form=form, header=list(header)
    ),
    fill,
  )
  examples = header.num_examples
  return xc_text.Table(
    header,
    _matrix(arrays, 'features', (examples, header.num_features)),
    _matrix(arrays, 'labels', (examples, header.num_labels)),
  )


def cache_path(path: str | os.PathLike, form: str = 'examples') -> pathlib.Path:
  """Returns the folder of a file's cache."""
  return parsed_cache.path(path, form)


def _arrays(table: xc_text.Table) -> dict:
  """Returns the table's arrays by name."""
  return {
    f'{part}.{name}': getattr(getattr(table, part), name)
    for part in ('features', 'labels')
    for name in _ARRAYS
    if getattr(table, part) is not None
  }


def _matrix(
  arrays, part: str, shape: tuple[int, int]
) -> scipy.sparse.csr_matrix | None:
  parts = [arrays.get(f'{part}.{name}') for name in _ARRAYS]
  if parts[0] is None:
    return None
  return scipy.sparse.csr_matrix(tuple(parts), shape, copy=False)
