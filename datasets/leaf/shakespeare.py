"""Shakespeare: the next character, with speaking roles as clients.

An example is 80 successive characters of a role and the one that follows.
LEAF's set has 1,129 roles and 4,226,158 examples. It is read from LEAF's JSON,
or made from Project Gutenberg's text with LEAF's rules, which gives the same
numbers.
"""

import os
import pathlib
import re
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from datasets import parsed_cache
from datasets.leaf import files as leaf_files
from datasets.leaf import gutenberg
from datasets.leaf import users as leaf_users
from tff_xc import errors
from tff_xc import wording
from tff_xc.data import client_data
from tff_xc.data import pool

# The 80 symbols of TurboSVM-FL, in the order of their codes.
ALPHABET = (
  ' !"&\'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]'
  'abcdefghijklmnopqrstuvwxyz{}'
)
NUM_CLASSES = len(ALPHABET)
WINDOW = 80
# Increase this when the arrays of a cache or the rules of `gutenberg` change.
VERSION = 2

_UNKNOWN = 255
_CODES = np.full(128, _UNKNOWN, np.uint8)
_CODES[np.frombuffer(ALPHABET.encode(), np.uint8)] = np.arange(NUM_CLASSES)


def load(
  data_dir: str | os.PathLike, **options
) -> client_data.FederatedDataset:
  """Loads LEAF's Shakespeare; its examples are mapped from the cache.

  Characters outside the alphabet become spaces, and how many is said on
  stderr. (LEAF gives them the code -1, which is no class.)

  Args:
    data_dir: the directory of all data, see `leaf_files.find_shakespeare`.
    **options: of `leaf_users.federated`.

  Returns:
    The data set; `x` is uint8 [80], numbers in `ALPHABET`.

  Raises:
    errors.InputError: files are missing or malformed, or no user remains.
  """
  found = leaf_files.find_shakespeare(data_dir)
  if isinstance(found, pathlib.Path):
    users, examples = from_texts(
      'shakespeare', [found], lambda: gutenberg.read(found).items()
    )
  else:
    users, examples = _from_json(data_dir, found)
  return leaf_users.federated(
    'shakespeare', NUM_CLASSES, examples, users, **options
  )


def encode(text: str) -> tuple[np.ndarray, int]:
  """Returns a text's codes, uint8 [k], and how many became spaces."""
  points = np.frombuffer(text.encode('utf-32-le', 'surrogatepass'), np.uint32)
  codes = _CODES[np.minimum(points, 127)]  # 127 is not in the alphabet.
  unknown = codes == _UNKNOWN
  codes[unknown] = ALPHABET.index(' ')
  return codes, np.count_nonzero(unknown)


def from_texts(
  form: str, files: list[pathlib.Path], read
) -> tuple[leaf_users.Users, pool.Pool]:
  """Returns users and their windows, which are read by their offset in cached
  texts.

  `read` returns pairs of a user and its text, whose newlines and runs of spaces
  become one space each; users of at most 80 characters are left out. The first of
  the files names the cache.
  """
  arrays = parsed_cache.arrays(
    parsed_cache.path(files[0], form),
    parsed_cache.describe_files(VERSION, files),
    lambda store: _store_texts(store, read(), files[0]),
  )
  _say_unknown(form, arrays)
  users = leaf_users.of_arrays(arrays)
  codes, lengths = arrays['codes'], users.sizes + WINDOW
  text_starts = np.cumsum(lengths) - lengths
  ends = [
    codes[start + WINDOW : start + WINDOW + size]
    for start, size in zip(text_starts, users.sizes, strict=True)
  ]
  windows = np.lib.stride_tricks.sliding_window_view(codes, WINDOW)

  def windows_of(numbers: np.ndarray) -> np.ndarray:
    user = np.searchsorted(users.starts, numbers, 'right') - 1
    return windows[text_starts[user] + numbers - users.starts[user]]

  return users, _pool(np.concatenate(ends), windows_of)


def _store_texts(
  store: parsed_cache.Store, texts: Iterable[tuple[str, str]], file
) -> None:
  lengths, unknown = {}, 0
  for name, text in texts:
    codes, some = encode(re.sub('  +', ' ', text.replace('\n', ' ')))
    if len(codes) > WINDOW:
      store.append('codes', codes)
      lengths[name] = len(codes)
      unknown += some
  sizes = [length - WINDOW for length in lengths.values()]
  leaf_users.put(store, file, list(lengths), sizes)
  store.append('unknown', np.array([unknown], np.int64))


def _pool(y: np.ndarray, read) -> pool.Pool:
  spec = tf.TensorSpec([WINDOW], tf.uint8)
  return pool.Pool(y.astype(np.int32), spec, read)


def _from_json(
  data_dir, found: leaf_files.Files
) -> tuple[leaf_users.Users, pool.Pool]:
  arrays = leaf_users.read_json(data_dir, found, 'shakespeare', _parse)
  _say_unknown('shakespeare', arrays)
  x = arrays['x']
  return leaf_users.of_arrays(arrays), _pool(arrays['y'], lambda rows: x[rows])


def _parse(x: list, y: list, where: str) -> dict[str, np.ndarray]:
  for part, values, length in (('x', x, WINDOW), ('the label', y, 1)):
    for number, value in enumerate(values, 1):
      if type(value) is not str or len(value) != length:
        found = leaf_users.shown(value)
        raise errors.InputError(
          f'{where}, example {number}: {part} is {found}, expected a string of '
          f'{wording.count(length, "character")}; mend the file'
        )
  codes, unknown = encode(''.join(x))
  labels, more = encode(''.join(y))
  return {
    'x': codes.reshape(-1, WINDOW),
    'y': labels,
    'unknown': np.array([unknown + more], np.int64),
  }


def _say_unknown(name: str, arrays) -> None:
  if count := int(arrays['unknown'].sum()):
    leaf_users.say(
      f'{name}: {count:,} characters outside the alphabet became spaces'
    )
