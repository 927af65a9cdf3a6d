"""Loads the user's own arrays and tables of numbers as federated data.

The module standardizes features with the mean and standard deviation of the clients'
training rows. (A deployed system would compute both from sums over clients.)
`datasets.photographs` loads image files, and `datasets.xc` loads sparse text.
"""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from datasets import examples as examples_lib
from datasets.readers import arrays as arrays_lib, decode, rows
from datasets.splits import deal
from tff_xc import errors, wording
from tff_xc.data import client_data, fingerprint, pool


def load_images(
  path: str | os.PathLike, choice: deal.Choice = deal.USERS, *, side: int = 0
) -> client_data.FederatedDataset:
  """Loads a .npz file of images.

  If `choice.classes` is a file, its names are the classes. Otherwise, the number of classes
  is the largest label plus one. Images are scaled and cropped to squares of `side` pixels, as
  by `decode.square`. If `side` is 0, the square has the shorter side of the images. Raises
  `errors.InputError` if the file is missing or damaged, lacks an array, or has an array of
  the wrong shape, dtype or range.
  """
  path = pathlib.Path(path)
  arrays = arrays_lib.read_images(path)
  shape = arrays['x'].shape[1:3]
  side = side or min(shape)
  if shape != (side, side):
    for part in arrays_lib.present(arrays):
      images = [decode.fitted_array(x, side) for x in arrays[f'{part}x']]
      arrays[f'{part}x'] = np.stack(images)
  names = arrays_lib.listed(arrays, choice.classes)
  found = _parts(path, arrays, choice, names)
  return _federated(path.stem, arrays, found, class_names=names)


def load_rows(
  path: str | os.PathLike,
  choice: deal.Choice,
  columns: rows.Columns = rows.DEFAULT,
  *,
  standardise: bool = True,
  bounds: Mapping[str, tuple[float, float]] | None = None,
) -> client_data.FederatedDataset:
  """Loads features from a table or a .npz file; `x` is float32 [D].

  `choice.test_file` is a second table, with the test rows. If `bounds` is given, features are
  not standardized but scaled linearly. `bounds` maps the name of a column to the two values
  that become -1 and 1. The key '' stands for all other columns. Raises `errors.InputError` if
  a file is missing or damaged, lacks a column, has a feature that is not a finite number, or
  has fewer than two classes.
  """
  path = pathlib.Path(path)
  name, names = path.name.partition('.')[0], []
  if path.suffix.lower() == '.npz':
    name = path.stem
    if columns != rows.DEFAULT or choice.test_file:
      raise errors.InputError(
        f'{path} has arrays, its test rows are test_x and test_y, and no columns; leave out'
        ' --test_file, --label_column, --user_column, --id_column, --test_column and'
        ' --feature_columns'
      )
    arrays = arrays_lib.read_features(path)
    class_names = arrays_lib.listed(arrays, choice.classes)
    found = _parts(path, arrays, choice, class_names)
  else:
    x, names, data = _of_tables(path, choice.test_file, columns)
    data = data.listed(choice.classes)
    arrays, class_names = {'x': x, 'y': data.labels}, data.class_names
    rest = choice._replace(test_file='')
    found = deal.parts(data, rest, str(path), 'name --user_column, or ')
    # Print the features, so that users notice an id column that became a feature.
    shown = ', '.join(names)
    shown = shown if len(shown) < 200 else f'{shown[:200]} ...'
    how = ', standardised by the training rows' if standardise else ''
    how = ', scaled by --feature_bounds' if bounds else how
    print(f'{path}: {wording.count(len(names), "feature")}{how}: {shown}', file=sys.stderr)
  present = arrays_lib.present(arrays)
  raw = [arrays[f'{part}x'] for part in present]
  source = [*raw, *(arrays[f'{part}y'] for part in present)]
  source.append(np.zeros(0) if found.test is None else found.test)
  preprocessing = {'columns': names, 'label': columns.label} if names else {}
  moments = 0.0, 1.0
  if standardise and len(numbers := found.clients.numbers):
    size = raw[0].shape[1]
    moments = _of_bounds(bounds, names, size, path) if bounds else _moments(raw[0], numbers)
    named = zip(('mean', 'deviation'), moments, strict=True)
    preprocessing |= {name: of_all.tolist() for name, of_all in named}
  for part, x in zip(present, raw, strict=True):
    arrays[f'{part}x'] = _scaled(x, *moments)
  return _federated(
    name,
    arrays,
    found,
    exact=False,  # The order of additions, and so rounding, depends on the processor.
    source_checksum=fingerprint.checksum(source),
    class_names=class_names,
    preprocessing=preprocessing,
  )


def _parts(
  path: pathlib.Path, arrays: arrays_lib.Arrays, choice: deal.Choice, class_names: list[str] | None
) -> deal.Parts:
  """Assigns the rows of the array x to clients and to the test set.

  If the file has the arrays test_x and test_y, the test set of the result is None, and
  these arrays are replaced by the sample of `choice.test_examples`.
  """
  of_x = {name: arrays[name] for name in ('y', 'client') if name in arrays}
  data = arrays_lib.examples(path, of_x, class_names)
  if 'test_y' in arrays:
    data = dataclasses.replace(data, test=np.zeros(0, np.int64))
  found = deal.parts(data, choice, str(path), 'add an array client, or ')
  if 'test_y' not in arrays:
    return found
  kept = deal.sampled(np.arange(len(arrays['test_y'])), choice, str(path))
  for name in ('test_x', 'test_y'):
    arrays[name] = arrays[name][kept]
  return deal.Parts(found.clients)


def _federated(
  name: str, arrays: arrays_lib.Arrays, found: deal.Parts, **more
) -> client_data.FederatedDataset:
  """Makes a data set from checked arrays and the result of `deal.parts`.

  `more` has the other fields of the data set.
  """
  train, test, retrieval = (
    pool.in_memory(arrays[f'{part}x'], arrays[f'{part}y']) if f'{part}x' in arrays else None
    for part in arrays_lib.PARTS
  )
  names = more.get('class_names')
  return client_data.FederatedDataset(
    name=name,
    num_classes=int(arrays['y'].max()) + 1 if names is None else len(names),
    train=client_data.PartitionedClientData(train, found.clients),
    test=test if found.test is None else train.subset(found.test),
    retrieval=retrieval,
    held_out=found.held_out,
    **more,
  )


def _of_tables(
  path: pathlib.Path, test_file: str, columns: rows.Columns
) -> tuple[np.ndarray, list[str], examples_lib.Examples]:
  """Reads a table of training rows and, unless `test_file` is '', a table of test rows.

  Returns the features of all rows, the names of the features, and the examples.
  """
  x, names, data = rows.read(path, columns)
  if test_file:
    if data.test is not None:
      raise errors.InputError(
        f'{path} has test rows, marked by {columns.test!r}; leave out --test_file or --test_column'
      )
    deal.check_test_file(test_file, path)
    more, _, other = rows.read(test_file, columns._replace(user='', id='', test=''), names)
    if more.shape[1] != x.shape[1]:
      raise errors.InputError(
        f'{test_file} has {more.shape[1]} features and {path} {x.shape[1]}; give rows of one form'
      )
    x = np.concatenate([x, more])
    class_names = examples_lib.in_order({*data.class_names, *other.class_names})
    parts = [part.numbered(class_names) for part in (data, other)]
    nobody = np.full(len(other), -1, np.int32)
    data = dataclasses.replace(
      parts[0],
      labels=np.concatenate([part.labels for part in parts]),
      users=None if data.users is None else np.append(data.users, nobody),
      test=len(data) + np.arange(len(other)),
    )
  where = f'{path}: the column {columns.label!r}'
  examples_lib.require_two(len(data.class_names), where, 'give at least two')
  return x, names, data


def _moments(x: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the mean and the standard deviation of the rows at the indices `numbers`.

  Both are float64 [D]. A constant feature gets the deviation 1.
  """

  def mean_of(value: Callable) -> np.ndarray:
    blocks = np.array_split(numbers, -(-len(numbers) // arrays_lib.ROWS))
    return sum(value(x[b].astype(np.float64)).sum(0) for b in blocks) / len(numbers)

  first = x[numbers[0]].astype(np.float64)
  mean = mean_of(lambda x: x)
  deviation = np.sqrt(mean_of(lambda x: (x - mean) ** 2))
  # Rounding of the mean may give a constant feature a deviation above 0.
  varies = mean_of(lambda x: x != first) > 0
  return mean, np.where(varies & (deviation > 0), deviation, 1.0)


def _of_bounds(bounds, names: Sequence[str], size: int, path):
  """Returns the midpoint and half the width of each feature's bounds, float64 [D]."""
  # Features from arrays and from list columns have no names.
  names = names if len(names) == size else [''] * size
  wrong = [name for name in bounds if name and name not in names]
  wrong += [name for name in names if not {name, ''} & bounds.keys()]
  if wrong:
    raise errors.InputError(
      f'--feature_bounds: {wording.shown(wrong[0])!r} is not a single feature of {path}, or'
      ' has no bounds; give LOW:HIGH for all features, or NAME=LOW:HIGH for each'
    )
  pairs = np.array([bounds.get(name) or bounds[''] for name in names])
  return pairs.mean(axis=1), (pairs[:, 1] - pairs[:, 0]) / 2


def _scaled(x: np.ndarray, mean, deviation) -> np.ndarray:
  """Returns (x - mean) / deviation as float32."""
  new = np.empty(x.shape, np.float32)
  for start in range(0, len(x), arrays_lib.ROWS):
    part = slice(start, start + arrays_lib.ROWS)
    new[part] = (x[part].astype(np.float64) - mean) / deviation
  return new
