"""What a trained model may be given: photographs, tables and text, in blocks.

A `description.Description` says what the model takes. Images are decoded and fitted as
at reading (`datasets.images`); rows of a table keep the numbers of the file, sparse
text its features, and lines their characters, since the model has its own mean, hash
and alphabet (`tff_xc.predictor`).
Memory does not depend on the number of examples. Labels are what the files say: the
folders of images, a column of a table, the labels of sparse text.
"""

import array
import concurrent.futures
import functools
import itertools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse

from datasets import features, items, tables, zip_members
from datasets.images import decode, store as store_lib
from datasets.xc import sets, text
from tff_xc import errors, wording
from tff_xc.data import description as description_lib, pool as pool_lib

# Sparse features that are the items which a user had.
_HISTORIES = 'histories'
_ARGUMENTS = {
  description_lib.IMAGES: 'images: a folder, a .tar, a .zip, or single files',
  description_lib.ROWS: f'rows of numbers: {", ".join(tables.FORMS)}',
  description_lib.SPARSE: 'sparse text: lines of feature:value',
  description_lib.CHARACTERS: 'text: lines of characters',
  _HISTORIES: f'a table of users and their items: {", ".join(tables.FORMS)}',
}
_NOUNS = {
  description_lib.IMAGES: 'image',
  description_lib.ROWS: 'row',
  description_lib.SPARSE: 'line',
  description_lib.CHARACTERS: 'line',
}


class Block(NamedTuple):
  """Some examples."""

  names: list[str]  # An image's path; the number of a line or row in its file.
  raw: tuple[np.ndarray, ...]  # The arguments of `predictor.Predictor`.
  # Of each example the names that its label may have, the likeliest first; for
  # sparse text bool [b, n]; None: no labels.
  labels: list[tuple[str, ...]] | scipy.sparse.csr_matrix | None
  # Of images, the name of the one that each lies in.
  folders: Sequence[str] = ()
  # What tells an example from all others, whatever paths lead to it.
  keys: Sequence = ()
  # Of images that cannot be read and are left out: (place in the block with them, name,
  # why). A block may have nothing else.
  damaged: Sequence[tuple[int, str, str]] = ()
  # bool [b, n], the classes that are no answer; None: all may be.
  seen: scipy.sparse.csr_matrix | None = None


class Inputs(NamedTuple):
  """All examples."""

  noun: str  # 'image', 'row' or 'line'.
  count: int | None  # None: unknown.
  blocks: Iterator[Block]
  # Returns the pixels of an image by its number among those of the blocks that were
  # read; None: no images.
  image: Callable[[int], np.ndarray] | None = None
  most_seen: int = 0  # Of all blocks, the most classes that are no answer.


def read(
  paths: Sequence[str],
  description: description_lib.Description,
  label_column: str = '',
  size: int = 256,
  corrupt: str = '',
  class_names: Sequence[str] | None = None,
) -> Inputs:
  """Opens inputs of one kind; blocks have at most `size` examples.

  Of histories an example is a user, and `class_names` are the model's items.
  `label_column` of a table; empty: that of the training table, if it is there. `corrupt` of images: 'skip'
  or '', those that cannot be read are left out; 'fail', they are an error. Raises
  `errors.InputError`, here or later, for what is missing, damaged, or no input of
  this model.
  """
  if not paths:
    raise errors.InputError(
      f'no input; give {_ARGUMENTS[_kind(description)]}, which the model takes'
    )
  for path in paths:
    _check_kind(path, description)
  if label_column and description.kind != description_lib.ROWS:
    raise errors.InputError(
      f'--label_column={label_column}: only rows of numbers have labels in a column; leave it out'
    )
  if corrupt and description.kind != description_lib.IMAGES:
    raise errors.InputError(f'--corrupt={corrupt}: only images can be left out; leave it out')
  if _kind(description) == _HISTORIES:
    return _histories(paths, description, size, class_names)
  noun = _NOUNS[description.kind]
  if description.kind == description_lib.IMAGES:
    return _images(paths, description, size, corrupt == 'fail')
  read_one = functools.partial(_table, label_column=label_column)
  if description.kind == description_lib.SPARSE:
    read_one = _sparse
  elif description.kind == description_lib.CHARACTERS:
    read_one = _characters

  def blocks():
    for path in paths:
      for block in read_one(path, description, size):
        keys = [(os.path.realpath(path), name) for name in block.names]
        block = block._replace(keys=keys)
        if len(paths) > 1:
          block = block._replace(names=[f'{path}:{n}' for n in block.names])
        yield block

  return Inputs(noun, None, blocks())


def _check_kind(path: str, description: description_lib.Description) -> None:
  """Refuses what does not exist, or looks like the input of another model."""
  is_folder = os.path.isdir(path)
  if not is_folder and not zip_members.is_file(path):
    raise errors.InputError(f'{path} does not exist; give another file')
  name, wanted = pathlib.Path(path).name.lower(), _kind(description)
  if is_folder or store_lib.is_images(name):
    kind = description_lib.IMAGES
  elif tables.form(path):
    kind = description_lib.ROWS if wanted != _HISTORIES else _HISTORIES
  elif name.endswith('.npz'):
    kind = ''  # Arrays, whose owner has Python and launch.export.
  else:
    is_text = wanted == description_lib.CHARACTERS
    kind = wanted if is_text else description_lib.SPARSE
  if kind != wanted:
    raise errors.InputError(f'{path} is no input of this model, which takes {_ARGUMENTS[wanted]}')


def _kind(description: description_lib.Description) -> str:
  """Returns the kind of a model's inputs, of `_ARGUMENTS`."""
  is_history = 'history' in description.preprocessing
  return _HISTORIES if is_history else description.kind


# -- images --


class _Image(NamedTuple):
  """An image, or why it cannot be read."""

  name: str  # Its path.
  key: pathlib.Path
  folders: tuple[str, ...]  # Those that it lies in, the outer ones first.
  pixels: np.ndarray | None
  why: str = ''


def _images(paths, description, size: int, is_strict: bool) -> Inputs:
  shape = description.shape
  if len(shape) == 3 and shape[2] not in (1, 3):
    raise errors.InputError(
      f'the model takes images of {shape[2]} channels, and photographs have 1 or 3'
    )
  stores = list(map(store_lib.open_store, paths))
  ends = np.cumsum([len(store.names) for store in stores])
  # A folder given as it is may have the name of a class.
  own = [[pathlib.Path(p).resolve().name] * os.path.isdir(p) for p in paths]
  total, readable = int(ends[-1]), array.array('q')

  def image(number: int) -> _Image:
    part = int(np.searchsorted(ends, number, 'right'))
    store, place = stores[part], number - int(ends[part])
    place += len(store.names)
    [inner] = store.names.take(np.array([place]))
    name, key = store.where(place), pathlib.Path(os.path.realpath(store.path))
    folders = (*pathlib.PurePath(inner).parts[:-1], *own[part])
    try:
      pixels = _fitted(store.read(place), description, name)
    except decode.DAMAGE as e:
      why = f'not a readable image{decode.reason(e)}'
      if is_strict:
        raise errors.InputError(f'{name} is {why}; leave it out, or give --corrupt=skip') from e
      return _Image(name, key / inner, folders, None, why)
    return _Image(name, key / inner, folders, pixels)

  def blocks():
    first = None
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
      for start in range(0, total, size):
        numbers = range(start, min(start + size, total))
        found = list(threads.map(image, numbers))
        damaged, kept = [], []
        for place, each in enumerate(found):
          if each.pixels is None:
            first = first or each
            damaged.append((place, each.name, each.why))
          else:
            readable.append(start + place)
            kept.append(each)
        yield Block(
          names=[each.name for each in kept],
          raw=(np.stack([each.pixels for each in kept]),) if kept else (),
          labels=[each.folders for each in kept],
          folders=[pathlib.PurePath(each.name).parent.name for each in kept],
          keys=[each.key for each in kept],
          damaged=damaged,
        )
    if not readable:
      others = ', nor is any other' if total > 1 else ''
      raise errors.InputError(f'{first.name} is {first.why}{others}; give sound images')

  return Inputs('image', total, blocks(), lambda n: image(readable[n]).pixels)


def _fitted(data: bytes, description, where: str) -> np.ndarray:
  """Returns uint8 of the model's shape, fitted as its training images were."""
  height, width, *channels = description.shape
  if description.preprocessing.get('fit', 'crop') == 'crop':
    pixels = decode.square(data, height)
  else:
    bicubic = decode.Image.Resampling.BICUBIC
    pixels = np.asarray(decode.rgb(data).resize((width, height), bicubic))
  if channels == [3]:
    return pixels
  if (pixels != pixels[..., :1]).any():
    raise errors.InputError(
      f'{where} has colours, and the model takes grey images; convert it to grey'
    )
  return pixels[..., :1] if channels else pixels[..., 0]


# -- tables --


def _table(path, description, size: int, label_column: str) -> Iterator[Block]:
  header = features.header(path)
  usual = description.preprocessing.get('label', features.DEFAULT.label)
  label = label_column or (usual if usual in header else '')
  if label:
    tables.present(path, header, [label], 'name another --label_column')
  names = description.preprocessing.get('columns') or [
    name for name in tables.without_index(path, header) if name != label
  ]
  tables.present(path, header, names, "give the model's columns")
  [width] = description.shape
  has_rows = False
  for batch in tables.batches(path, [label] if label else [], raw=names):
    has_rows = True
    x = np.hstack([features.numbers(batch, name) for name in names])
    if x.shape[1] != width:
      raise errors.InputError(f'{path} has {x.shape[1]} features, and the model takes {width}')
    for start in range(0, len(x), size):
      part = slice(start, start + size)
      labels = [(text,) for text in batch.columns[label][part]] if label else None
      places = list(map(str, batch.places[part]))
      yield Block(places, (x[part],), labels)
  if not has_rows:
    raise errors.InputError(f'{path} has no rows; give a table with some')


# -- sparse text --


def _sparse(path, description, size: int) -> Iterator[Block]:
  """Reads lines `l,l f:v f:v` or `f:v f:v`, after a header `N D L` or `N D` or none."""
  shapes = {
    'features': (0, description.preprocessing['num_features']),
    'labels': (0, description.num_classes),
  }
  found, expected = 0, None
  with sets.open_file(path) as file, zip_members.readable(path, sets.ADVICE):
    lines = enumerate(zip_members.lines(file, path), 1)
    first = next(lines, (1, b''))
    fields = first[1].split()
    if len(fields) in (2, 3) and all(field.isdigit() for field in fields):
      expected, *sizes = map(int, fields)
      _check_header(path, sizes, shapes)
      # Among so many lines, an empty one is an example without features.
      kept = itertools.islice(lines, expected)
    else:
      every = itertools.chain([first], lines)
      kept = ((n, line) for n, line in every if line.strip(b'\r\n'))
    while block := list(itertools.islice(kept, size)):
      places, some = zip(*block, strict=True)
      found += len(some)
      x, labels = text.parse_lines(some, shapes, path, places)
      yield Block(list(map(str, places)), _bags(x), labels)
    has_more = any(line.strip() for _, line in lines)
  if has_more or found != (expected or found) or not found:
    told = 'it has more'
    if not has_more:
      told = f'it has {wording.count(found, "example")}'
    if expected:
      told = f'the header promises {wording.count(expected, "line")}, and {told}'
    raise errors.InputError(f'{path}: {told}; get or make it again')


def _bags(x: scipy.sparse.csr_matrix) -> tuple[np.ndarray, ...]:
  """Returns the arguments of a predictor of sparse features."""
  return (
    np.asarray(x.indices, np.int32),
    np.asarray(x.data, np.float32),
    np.asarray(x.indptr, np.int32),
  )


def _check_header(path, sizes: list[int], shapes) -> None:
  for (what, (_, wanted)), size in zip(shapes.items(), sizes, strict=False):
    if size != wanted:
      raise errors.InputError(
        f'{path}, line 1: the file has {wording.count(size, what[:-1])}, and the model'
        f' {wanted:,};'
        ' give data of the same features and labels'
      )


# -- histories --


def _histories(paths, description, size: int, class_names) -> Inputs:
  """Reads all users, of whom the model gives the next item."""
  how, n = description.preprocessing, description.num_classes
  numbers = {name: i for i, name in enumerate(class_names or map(str, range(n)))}
  parts, unknown, seen_most = [], 0, 0
  for path in paths:
    header, named = tables.header(path), how.get('columns') or {}
    there = {r: c if c in header else '' for r, c in named.items()}
    usual = [named.get(role, role) for role in items.Columns._fields]
    advice = f'name the columns {", ".join(usual)}'
    found = items.read(path, items.Columns(**there), 1, advice)
    model_items = np.array([numbers.get(n, -1) for n in found.item_names])
    kept = model_items[found.items] >= 0
    unknown += int((~kept).sum())
    found = found._replace(
      users=found.users[kept],
      items=model_items[found.items][kept].astype(np.int32),
      times=found.times[kept],
      item_names=range(n),
    )
    if how['leave_out_seen']:
      found = items.first_times(found)
      seen_most = max(seen_most, int(np.bincount(found.users).max(initial=0)))
    parts.append((path, found))
  if unknown:
    told = 'row has an item' if unknown == 1 else 'rows have items'
    print(f'warning: {unknown:,} {told} that the model does not know; left out', file=sys.stderr)

  def blocks():
    for path, found in parts:
      total = len(found.user_names)
      ends = np.cumsum(np.bincount(found.users, minlength=total))
      starts = np.append(0, ends[:-1])
      for first in range(0, total, size):
        users = slice(first, first + size)
        start, stop = starts[users], ends[users]
        recent = np.maximum(start, stop - how['history'])
        bags = pool_lib.Ranges(found.items, recent, stop, n)
        x = bags.matrix(True, summed=not how.get('sequences'))
        seen = None
        if how['leave_out_seen']:
          seen = bags._replace(starts=start).matrix()
        names = found.user_names[users]
        keys = [(os.path.realpath(path), name) for name in names]
        if len(paths) > 1:
          names = [f'{path}:{name}' for name in names]
        yield Block(names, _bags(x), None, keys=keys, seen=seen)

  count = sum(len(found.user_names) for _, found in parts)
  return Inputs('user', count, blocks(), most_seen=seen_most)


# -- characters --


def _characters(path, description, size: int) -> Iterator[Block]:
  """Reads lines, of each the last characters, which the model continues.

  Runs of spaces become one, as at reading; a shorter line begins with spaces.
  """
  [length] = description.shape
  found = 0
  lines = zip_members.text_lines(path, 'give a text file in UTF-8')
  numbered = enumerate(lines, 1)
  kept = ((n, line.rstrip('\r\n')) for n, line in numbered if line.strip())
  while block := list(itertools.islice(kept, size)):
    places, some = zip(*block, strict=True)
    found += len(some)
    last = [re.sub('  +', ' ', line)[-length:].rjust(length) for line in some]
    # No alphabet has 127, so it stands for all that ASCII lacks.
    codes = [[min(ord(c), 127) for c in line] for line in last]
    yield Block(list(map(str, places)), (np.array(codes, np.uint8),), None)
  if not found:
    raise errors.InputError(f'{path} has no lines; give text')
