"""Images that lie somewhere in large files, read by their offsets.

The index (names, files, offsets, sizes) is made once and kept in the user's cache
(`datasets.parsed_cache`).
"""

import functools
import os
import pathlib
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from datasets import examples as examples_lib
from datasets import parsed_cache
from datasets.images import paths

# Files that are open at once.
_OPEN = 64
# The names and these arrays are what an index consists of.
NUMBERS = {'files': np.int32, 'offsets': np.int64, 'sizes': np.int64}


class Images(NamedTuple):
  """The images of some files, in the order of their names.

  Attributes:
    names: their ids.
    read: number -> an image's bytes.
    stamp: numbers int [k] -> the size and the time of each one's file.
    files: that they are in.
  """

  names: examples_lib.Texts
  read: Callable[[int], bytes]
  stamp: Callable[[np.ndarray], Sequence[list[int]]]
  files: Sequence[pathlib.Path]


def open_files(
  path: pathlib.Path,
  whole: Sequence[pathlib.Path],
  version: int,
  fill: Callable[[parsed_cache.Store], None],
  **settings,
) -> tuple[Images, Mapping[str, np.ndarray]]:
  """Opens files by their index, which it makes if the cache has none.

  Args:
    path: what the cache is named by.
    whole: the files.
    version: of the code that makes the index.
    fill: makes the index; it calls `append`, and may append more arrays.
    **settings: what else the index depends on.

  Returns:
    The images, and the arrays of the index.
  """
  import pyarrow as pa

  index = parsed_cache.arrays(
    parsed_cache.path(path, 'index'),
    parsed_cache.describe_files(version, whole, **settings),
    fill,
  )
  text = map(pa.py_buffer, (index['ends'], index['names']))
  names = pa.LargeStringArray.from_buffers(len(index['ends']) - 1, *text)
  files, offsets, sizes = (index[name] for name in NUMBERS)
  statuses = [[s.st_size, s.st_mtime_ns] for s in map(os.stat, whole)]

  @functools.lru_cache(_OPEN)
  def opened(place: int):
    return whole[place].open('rb')

  def read(number: int) -> bytes:
    place, size = int(files[number]), int(sizes[number])
    paths.check_size(size)
    file = opened(place)
    data = os.pread(file.fileno(), size, int(offsets[number]))
    if len(data) < size:
      raise EOFError(f'{whole[place]} ends within it')
    return data

  def stamp(numbers: np.ndarray):
    return [statuses[place] for place in files[numbers]]

  return Images(examples_lib.Texts(names), read, stamp, whole), index


def append(
  store: parsed_cache.Store,
  names: examples_lib.Texts,
  order: np.ndarray,
  numbers: Mapping[str, Any],
) -> None:
  """Puts an index into a store.

  Args:
    store: of `parsed_cache`.
    names: of the images, in order.
    order: where each of them was.
    numbers: for each of `NUMBERS`, a buffer of int64 of all images as they were.
  """
  _, ends, text = names.array.buffers()
  ends = np.frombuffer(ends, np.int64)[: len(names) + 1]
  text = b'' if text is None else text
  store.append('names', np.frombuffer(text, np.uint8)[: ends[-1]])
  store.append('ends', ends)
  for name, dtype in NUMBERS.items():
    found = np.frombuffer(numbers[name], np.int64)
    store.append(name, found[order].astype(dtype))
