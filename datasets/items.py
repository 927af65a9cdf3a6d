"""Loads the item histories of users, for models that predict each user's next item.

A table (`datasets.readers.tables`) has a row for each time that a user bought, watched or
rated an item. Users are clients, and items are both classes and features. An example is
one item of a user. The features of the example are the items that the user took before,
with the weights 1, 1/2, 1/3 and so on, newest first. A user's first item is not an
example, because the user took no item before.
"""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from datasets import examples as examples_lib, item_baselines
from datasets.readers import rows, tables
from datasets.splits import hold_out
from tff_xc import errors, memory, wording
from tff_xc.data import client_data, partition, pool as pool_lib

LAST, TIME = 'last', 'time'
# The column names that need no flag.
_USUAL = {
  'user': ('user_id', 'user', 'userId'),
  'item': ('item_id', 'item', 'itemId', 'movieId'),
  'time': ('time', 'timestamp', 'date'),
}
_TRAIN, _VALIDATION, _TEST = range(3)
# A user with fewer items has no validation example, because no training example would be
# left.
_LEAST = 4
_ENTRY_BYTES = 40  # The bytes of memory that one item of an example's features needs.


class Columns(NamedTuple):
  """The columns of a table. '' stands for the first of the `_USUAL` names in the table."""

  user: str = ''
  item: str = ''
  time: str = ''  # In a table without a time column, later rows are later in time.


class Options(NamedTuple):
  """How histories become training, validation and test examples."""

  history: int = 20  # The largest number of earlier items in an example's features.
  # 'last': the test items are the last item of each user with at least two items. 'time':
  # the test items are the latest `test_fraction` of all users' items.
  test: str = LAST
  test_fraction: float = 0.1
  # If true, a user's later rows with the same item are ignored, and rankings leave out the
  # items that the user already has.
  leave_out_seen: bool = True
  classes: str = ''  # A file with all item names, one per line; '': the table's items.
  # Whether to hold out the items just before the test items. The scores on the held-out items
  # decide which round is the best.
  validation: bool = True
  # If true, an example is a sequence of up to `history` + 1 successive items of a user, and
  # all items except the first are targets. If false, an example has one target.
  sequences: bool = False
  # The largest number of test examples, and of validation examples. If there are more, a
  # random sample is used. 0: no limit.
  most_tested: int = 10_000


class Histories(NamedTuple):
  """The items of each user, in the order of their times."""

  users: np.ndarray  # int32 [N], ascending.
  items: np.ndarray  # int32 [N].
  times: np.ndarray  # int64 or float64 [N], ascending for each user.
  user_names: list[str]
  item_names: list[str]


def load(
  path: str | os.PathLike, options: Options, columns: Columns
) -> client_data.FederatedDataset:
  """Loads a table; raises the errors of `read` and `federated`."""
  found = read(path, columns)
  if options.classes:
    places, names = examples_lib.listed(found.item_names, options.classes)
    found = found._replace(items=places[found.items], item_names=names)
  dataset = federated(str(path), found, options)
  name = pathlib.Path(path).name.partition('.')[0]
  how = {**dataset.preprocessing, 'columns': columns_of(path, columns)}
  dataset = dataclasses.replace(dataset, name=name, preprocessing=how)
  return told(path, found, dataset, options)


def told(
  name: str | os.PathLike, found: Histories, dataset: client_data.FederatedDataset, options: Options
) -> client_data.FederatedDataset:
  """Prints a summary; returns the data set with the scores of `item_baselines`."""
  dataset = dataclasses.replace(dataset, baselines=baselines(found, options))
  tests = wording.count(len(dataset.test), 'test example')
  if dataset.validation is not None:
    tests += f', {len(dataset.validation):,} for validation'
  print(f'{name}: {counts(found)}, {tests}; scores without training:', file=sys.stderr)
  for line in wording.baselines(dataset.baselines):
    print(f'  {line}', file=sys.stderr)
  if idle := len(found.user_names) - len(dataset.train.partition):
    takes = 'takes' if idle == 1 else 'take'
    print(
      f'{wording.count(idle, "user")} of {name} with too few items {takes} no part in training',
      file=sys.stderr,
    )
  return dataset


def counts(found: Histories) -> str:
  """Says how many users, items and rows there are."""
  sizes = len(found.user_names), len(found.item_names), len(found.items)
  return ', '.join(map(wording.count, sizes, ('user', 'item', 'row')))


def read(path: str | os.PathLike, columns: Columns, least: int = 2, advice: str = '') -> Histories:
  """Reads a table; times are numbers or dates (ISO 8601).

  Raises `errors.InputError` if the file is missing or damaged, lacks a column, has a row
  without a user, item or time, or has fewer than `least` different items. `advice` is passed
  to `columns_of`.
  """
  named = columns_of(path, columns, advice)
  users, items, times = examples_lib.Codes(), examples_lib.Codes(), []
  kinds: set[str] = set()
  for batch in tables.batches(path, list(named.values())):
    for codes, role in ((users, 'user'), (items, 'item')):
      codes.add(batch.texts(named[role], role))
    if 'time' in named:
      times.append(_times(batch, named['time'], kinds))
  of_users, user_names = examples_lib.sorted_codes(users)
  of_items, item_names = examples_lib.sorted_codes(items)
  if not item_names:
    raise errors.InputError(f'{path} has no rows; give a table with some')
  if len(item_names) < least:
    raise errors.InputError(
      f'{path} has {wording.count(len(item_names), "item")}; give a table of at least {least} items'
    )
  at = np.concatenate(times) if times else np.arange(len(of_users))
  order = np.lexsort((np.arange(len(at)), at, of_users))
  parts = (part[order] for part in (of_users, of_items, at))
  return Histories(*parts, user_names, item_names)


def columns_of(path: str | os.PathLike, columns: Columns, advice: str = '') -> dict[str, str]:
  """Returns a table's column names by role: 'user', 'item' and, if the table has it, 'time'.

  If a column is missing, the error message ends with `advice`. If `advice` is '', the
  message says which flag names the column.
  """
  header, named = tables.header(path), {}
  for role, given in columns._asdict().items():
    told = advice or f'name it with --{role}_column'
    if given:
      tables.present(path, header, [given], told)
      named[role] = given
      continue
    usual = [name for name in _USUAL[role] if name in header]
    if usual:
      named[role] = usual[0]
    elif role != 'time':
      tables.present(path, header, [_USUAL[role][0]], told)
  if len({*named.values()}) < len(named):
    raise errors.InputError(
      f'{path}: user, item and time are the columns {", ".join(named.values())};'
      ' name a column for each'
    )
  return named


def _times(batch: tables.Batch, column: str, kinds: set[str]) -> np.ndarray:
  """Returns the rows' times as int64 or float64.

  Adds 'dates' or 'numbers' to `kinds`; raises InputError if the set then has both.
  """
  values = batch.columns[column]
  values = pd.Series(values, dtype=object if isinstance(values, list) else None)
  is_date = values.dtype.kind == 'M'
  found = values if is_date else rows.parsed(values)
  if is_date or found.isna().all():
    is_date = True
    found = pd.to_datetime(values, errors='coerce', format='ISO8601', utc=True)
  kinds.add('dates' if is_date else 'numbers')
  if found.isna().any() or len(kinds) > 1:
    row = int(found.isna().argmax())
    raise errors.InputError(
      f'{batch.where(row)}: {column!r} is {str(values[row])[:40]!r}; expected numbers in all rows,'
      ' or dates such as 2024-05-31 in all rows'
    )
  return found.astype('int64' if is_date else found.dtype).to_numpy()


def federated(name: str, found: Histories, options: Options) -> client_data.FederatedDataset:
  """Makes a data set in which each user with training examples is a client.

  Raises `errors.InputError` if there are no training examples or no test examples.
  """
  if options.leave_out_seen:
    found = first_times(found)
  users, items = found.users, found.items
  starts, parts = _parted(found, options)
  if not (parts == _TEST).any() and options.test == TIME:
    raise errors.InputError(
      f'{name} has no test example: too many of its items have the last time of all;'
      ' give finer times, a larger --test_share, or --test_split=last'
    )
  of = np.flatnonzero(np.arange(len(items)) > starts)
  starts, parts = starts[of], parts[of]
  is_train, is_test = parts == _TRAIN, parts == _TEST
  for part, has in (('training', is_train), ('test', is_test)):
    if not has.any():
      raise errors.InputError(
        f'{name} has no {part} example: no user has'
        f' {"two items outside" if part == "training" else "an item before one of"}'
        ' the test; give longer histories, or another --test_split'
        f'{", or --leave_out_seen=false to count repeats" * options.leave_out_seen}'
        f'{", or --hold_out_validation=false" * options.validation}'
      )
  n = len(found.item_names)
  owners = users[of]
  recent = np.maximum(starts, of - options.history)
  bags = pool_lib.Ranges(items, recent, of, n)
  largest = int(np.bincount(owners, bags.lengths * is_train).max())
  memory.require(
    _ENTRY_BYTES * largest,
    f'{name}: the items before each training example of one user',
    'lower --history, or leave the user with most rows out',
  )
  pool = pool_lib.Pool(
    items[of],
    pool_lib.SPARSE,
    lambda numbers: bags.some(numbers).matrix(True, not options.sequences),
    bags.lengths,
    num_features=n,
    is_sequences=options.sequences,
  )
  if options.leave_out_seen:
    seen = bags._replace(starts=np.where(is_train, of, starts))
    pool = dataclasses.replace(pool, seen=seen)
  elif not options.sequences:  # Repeated items of an example share one entry.
    sizes = [np.diff(block.x.indptr) for block in pool.blocks()]
    pool = dataclasses.replace(pool, entries=np.concatenate(sizes))
  if options.sequences:
    # Keep every `history`-th training example of a user, counted from the last one. Then
    # each item except the user's first one is a target once.
    numbers = np.flatnonzero(is_train)
    ends = np.searchsorted(owners[numbers], owners[numbers], 'right')
    is_train[numbers] = (ends - 1 - np.arange(len(numbers))) % options.history == 0
  training = np.unique(owners[is_train])
  place = np.full(len(found.user_names), -1)
  place[training] = np.arange(len(training))
  ids = [found.user_names[user] for user in training.tolist()]

  def part(has):
    return partition.of_places(np.where(has, place[owners], -1), ids)

  tested = hold_out.sample(np.flatnonzero(is_test), options.most_tested)
  held = hold_out.sample(np.flatnonzero(parts == _VALIDATION), options.most_tested)
  return client_data.FederatedDataset(
    name=name,
    num_classes=n,
    train=client_data.PartitionedClientData(pool, part(is_train)),
    test=pool.subset(tested),
    validation=pool.subset(held) if len(held) else None,
    held_out=part(is_test),
    class_names=found.item_names,
    preprocessing={
      'history': options.history,
      'leave_out_seen': options.leave_out_seen,
      **({'sequences': True} if options.sequences else {}),
    },
  )


def _parted(found: Histories, options: Options) -> tuple[np.ndarray, np.ndarray]:
  """Returns two arrays, int [N], for the N items of all users.

  The first array says for each item at which index its user's items start. The second array
  has _TRAIN, _VALIDATION or _TEST.
  """
  sizes = np.bincount(found.users, minlength=len(found.user_names))
  ends = np.cumsum(sizes)[found.users]
  starts = ends - sizes[found.users]
  if options.test == TIME:
    share = 1 - options.test_fraction
    moment = np.quantile(found.times, share, method='lower')
    before = found.times[found.times <= moment]
    earlier = np.quantile(before, share, method='lower')
    is_test, is_held = found.times > moment, found.times > earlier
  else:
    left = ends - np.arange(len(found.items))
    is_test = (left == 1) & (ends - starts >= 2)
    is_held = (left == 2) & (ends - starts >= _LEAST)
  parts = np.where(is_held & options.validation, _VALIDATION, _TRAIN)
  return starts, np.where(is_test, _TEST, parts)


def first_times(found: Histories) -> Histories:
  """Keeps only the first time that a user took each item."""
  keys = found.users.astype(np.int64) * len(found.item_names) + found.items
  kept = np.sort(np.unique(keys, return_index=True)[1])
  columns = {name: getattr(found, name)[kept] for name in Histories._fields[:3]}
  return found._replace(**columns)


def of_model(path: str | os.PathLike, description, class_names) -> Histories:
  """Reads a table for a trained model, and numbers the items as the model does.

  `class_names` are the names of the model's items; None: the names are numbers. The
  function leaves out rows with items that the model does not know, and prints how many.
  """
  how, n = description.preprocessing, description.num_classes
  header, named = tables.header(path), how.get('columns') or {}
  usual = ', '.join(named.get(role, role) for role in Columns._fields)
  there = {role: column for role, column in named.items() if column in header}
  found = read(path, Columns(**there), 1, f'name the columns {usual}')
  names, nfc = list(class_names or map(str, range(n))), examples_lib.nfc
  # A name in the same Unicode form is preferred.
  numbers = {nfc(name): i for i, name in enumerate(names)}
  numbers |= {name: i for i, name in enumerate(names)}
  places = [numbers.get(name, numbers.get(nfc(name), -1)) for name in found.item_names]
  of_model = np.array(places, np.int32)[found.items]
  kept = of_model >= 0
  if unknown := int((~kept).sum()):
    does = 'has an item' if unknown == 1 else 'have items'
    print(
      f'warning: {path}: {wording.count(unknown, "row")} {does} that the model does not know;'
      ' left out',
      file=sys.stderr,
    )
  found = found._replace(
    users=found.users[kept], items=of_model[kept], times=found.times[kept], item_names=range(n)
  )
  return first_times(found) if how['leave_out_seen'] else found


def blocks(found: Histories, description, size: int) -> Iterator[examples_lib.Block]:
  """Yields the users that `of_model` returned, in blocks of at most `size` users.

  A model predicts the next item of each user.
  """
  how, total = description.preprocessing, len(found.user_names)
  ends = np.cumsum(np.bincount(found.users, minlength=total))
  starts = np.append(0, ends[:-1])
  recent = np.maximum(starts, ends - how['history'])
  bags = pool_lib.Ranges(found.items, recent, ends, len(found.item_names))
  for first in range(0, total, size):
    users = slice(first, first + size)
    some = bags.some(users)
    x = some.matrix(True, summed=not how.get('sequences'))
    seen = some._replace(starts=starts[users]).matrix() if how['leave_out_seen'] else None
    yield examples_lib.Block(found.user_names[users], examples_lib.bags(x), None, seen=seen)


def baselines(found: Histories, options: Options) -> dict[str, dict[str, float]]:
  """Returns the scores of `item_baselines`.

  The baselines count all training rows. These rows include users' first items, which are
  not examples.
  """
  found = first_times(found) if options.leave_out_seen else found
  starts, parts = _parted(found, options)
  places = np.arange(len(found.items))
  tested = np.flatnonzero((parts == _TEST) & (places > starts))
  tested = hold_out.sample(tested, options.most_tested)
  before = pool_lib.Ranges(found.items, starts[tested], tested, len(found.item_names))
  return item_baselines.scores(
    found.users, found.items, parts == _TRAIN, before, found.items[tested], options.leave_out_seen
  )
