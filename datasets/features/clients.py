"""One's own rows of features as federated data: CSV, Parquet or `.npz`.

Classes of a table are numbered in the order of their names, whole numbers as
numbers. Features are standardised by the rows that clients hold: less their
mean, over their standard deviation. (A deployed system would compute both from
the clients' sums.)
"""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Sequence

import numpy as np

from datasets import arrays as arrays_lib
from datasets import examples as examples_lib
from datasets.features import table as table_lib
from datasets.splits import inputs
from datasets.splits import own
from tff_xc import errors
from tff_xc import wording
from tff_xc.data import client_data
from tff_xc.data import fingerprint
from tff_xc.data import pool as pool_lib

# Rows at a time.
_ROWS = 1 << 14


def load(
  path: str | os.PathLike,
  choice: own.Choice,
  columns: table_lib.Columns = table_lib.DEFAULT,
  *,
  standardise: bool = True,
) -> client_data.FederatedDataset:
  """Loads rows of features.

  Args:
    path: a table, see `features.table`, or a .npz, see `datasets.arrays`.
    choice: the clients and the test; its `test_file` is a second table.
    columns: of the table.
    standardise: whether to standardise features.

  Returns:
    The data set; `x` is float32 [D].

  Raises:
    errors.InputError: a file is missing or damaged, lacks a column, or has a
      feature that is no finite number; there are fewer than two classes.
  """
  path = pathlib.Path(path)
  if path.suffix.lower() == '.npz':
    if columns != table_lib.DEFAULT:
      raise errors.InputError(
        f'{path} has arrays and no columns; leave out --label_column,'
        ' --user_column, --id_column, --test_column and --feature_columns'
      )
    return _of_arrays(path, choice, standardise)
  table = table_lib.read(path, columns)
  data = _labelled(table, path, columns)
  if choice.test_file:
    if data.test is not None:
      raise errors.InputError(
        f'{path} has test rows, marked by {columns.test!r}; leave out'
        ' --test_file or --test_column'
      )
    own.check_test_file(choice.test_file, path)
    table, data = _with_test(table, choice.test_file, path, columns)
    choice = choice._replace(test_file='')
  clients, test, held_out = own.parts(
    data, choice, str(path), 'name --user_column, or '
  )
  _tell(path, table.features, standardise)
  [x] = _scaled([table.x], clients.numbers, standardise)
  pool = pool_lib.in_memory(x, data.labels)
  return client_data.FederatedDataset(
    name=path.name.partition('.')[0],
    num_classes=len(data.class_names),
    train=client_data.PartitionedClientData(pool, clients),
    test=None if test is None else pool.subset(test),
    exact=False,  # Processors add in different orders.
    source_checksum=_checksum(table.x, data.labels, test),
    class_names=data.class_names,
    held_out=held_out,
  )


def _tell(path, features: Sequence[str], standardise: bool) -> None:
  """Says on stderr which columns are features: an unnamed id would be one."""
  names = ', '.join(features)
  names = names if len(names) < 200 else f'{names[:200]} ...'
  how = ', standardised by the training rows' if standardise else ''
  found = wording.count(len(features), 'feature')
  print(f'{path}: {found}{how}: {names}', file=sys.stderr)


def _labelled(table, path, columns) -> examples_lib.Examples:
  """Returns the rows of a table without their features."""
  classes = _codes(table.labels)
  if len(classes[1]) < 2:
    raise errors.InputError(
      f'{path}: the column {columns.label!r} has one class only; give at least'
      ' two classes'
    )
  ids = range(len(table.labels))
  if table.ids:
    ids = examples_lib.texts([table.ids])
    if len(set(table.ids)) < len(ids):
      raise errors.InputError(
        f'{path}: two rows have one id; name another --id_column'
      )
  users = (None, ())
  if table.users:
    found = examples_lib.Codes()
    found.add(table.users)
    users = inputs.named_users(found)
  test = None if table.is_test is None else np.flatnonzero(table.is_test)
  return examples_lib.Examples(*classes, ids, *users, test)


def _with_test(table, test_file: str, path, columns):
  """Returns the rows of both files; the second has the test rows."""
  test_columns = columns._replace(user='', id='', test='')
  test = table_lib.read(test_file, test_columns, table.features)
  if test.x.shape[1] != table.x.shape[1]:
    raise errors.InputError(
      f'{test_file} has {test.x.shape[1]} features and {path}'
      f' {table.x.shape[1]}; give rows of one form'
    )
  size = len(table.labels)
  data = _labelled(
    table._replace(labels=table.labels + test.labels), path, columns
  )
  extra = len(test.labels)
  if data.users is not None:
    nobody = np.full(extra, -1, np.int32)
    data = dataclasses.replace(data, users=np.append(data.users, nobody))
  if not table.ids:
    data = dataclasses.replace(data, ids=range(size))
  both = table._replace(x=np.concatenate([table.x, test.x]))
  test = np.arange(size, size + extra)
  return both, dataclasses.replace(data, test=test)


def _codes(names: Sequence[str]) -> tuple[np.ndarray, list[str]]:
  """Returns each row's place among the sorted names, int32, and the names."""
  found = examples_lib.Codes()
  found.add(names)
  return examples_lib.sorted_codes(found)


def read_arrays(path: str | os.PathLike) -> dict[str, np.ndarray]:
  """Reads a .npz of features and checks it; errors are those of `load`."""
  arrays = arrays_lib.read(path)
  for part in arrays_lib.present(arrays):
    _check_rows(arrays[f'{part}x'], f'{path}: {part}x')
  return arrays


def _of_arrays(path, choice, standardise: bool) -> client_data.FederatedDataset:
  arrays = read_arrays(path)
  if choice.test_file:
    raise errors.InputError(
      f'--test_file={choice.test_file}: the test rows of {path} are its arrays'
      ' test_x and test_y; leave the flag out'
    )
  present = arrays_lib.present(arrays)
  raw = [arrays[f'{part}x'] for part in present]
  parts = arrays_lib.parts(path, arrays, choice)
  labels = [arrays[f'{part}y'] for part in present]
  scaled = _scaled(raw, parts.clients.numbers, standardise)
  for part, x in zip(present, scaled, strict=True):
    arrays[f'{part}x'] = x
  return arrays_lib.federated(
    path,
    arrays,
    parts,
    exact=False,  # Processors add in different orders.
    source_checksum=_checksum(*raw, *labels, parts.test),
  )


def _check_rows(x: np.ndarray, what: str) -> None:
  if x.ndim != 2 or not x.shape[1] or x.dtype.kind not in 'fiub':
    raise errors.InputError(
      f'{what} is {x.dtype} {list(x.shape)}; expected numbers [N, D], a row of D'
      ' features for each example; images are --task=images'
    )
  for start in range(0, len(x), _ROWS):
    block = x[start : start + _ROWS].astype(np.float64)
    bad = np.argwhere(~(np.abs(block) <= np.finfo(np.float32).max))
    if len(bad):
      row, column = bad[0]
      raise errors.InputError(
        f'{what}[{start + row}, {column}] is {block[row, column]}; expected'
        ' finite numbers: mend it, or leave the row out'
      )


def _scaled(parts: list, rows: np.ndarray, standardise: bool) -> list:
  """Returns float32 copies; `rows` of the first part set mean and deviation."""
  mean, deviation = 0.0, 1.0
  if standardise and len(rows):
    first = parts[0][rows[0]].astype(np.float64)
    mean = _mean(parts[0], rows, lambda x: x)
    deviation = np.sqrt(_mean(parts[0], rows, lambda x: (x - mean) ** 2))
    # The mean of equal numbers is rounded, so that they seem to deviate from it.
    varies = _mean(parts[0], rows, lambda x: x != first) > 0
    deviation = np.where(varies & (deviation > 0), deviation, 1.0)
  return [_shifted(x, mean, deviation) for x in parts]


def _mean(x: np.ndarray, rows: np.ndarray, value) -> np.ndarray:
  """Returns float64 [D], the mean of `value` over rows."""
  blocks = np.array_split(rows, -(-len(rows) // _ROWS))
  return sum(value(x[b].astype(np.float64)).sum(0) for b in blocks) / len(rows)


def _shifted(x: np.ndarray, mean, deviation) -> np.ndarray:
  scaled = np.empty(x.shape, np.float32)
  for start in range(0, len(x), _ROWS):
    block = x[start : start + _ROWS].astype(np.float64)
    scaled[start : start + _ROWS] = (block - mean) / deviation
  return scaled


def _checksum(*values: np.ndarray | None) -> str:
  return fingerprint.checksum(np.zeros(0) if v is None else v for v in values)
