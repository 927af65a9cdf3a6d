"""Which images can be decoded; the user's cache remembers those that can.

An image is decoded once, whatever the split and however often a check is killed.
Those that cannot be decoded are few, and are tried again each time: a disk may have
failed only for a while. One that fails when it is used is forgotten. The cache is a
file of keys of 8 bytes: hashes of an image's name and of the sizes and times of its
file.
"""

import contextlib
import hashlib
import os
import pathlib
import sys
import threading
from collections.abc import Callable
from collections.abc import Sequence

import numpy as np

from datasets import examples as examples_lib
from datasets import parsed_cache
from datasets.images import store as store_lib
from tff_xc.report import run_files

# Increase this when more or fewer images become readable.
_VERSION = 1
_BLOCK = 256
# A check of so many images takes minutes, and is told.
_MANY = 20_000
# Threads decode images, and more than one of them may find a damaged one.
_FORGETTING = threading.Lock()


def find(
  store: store_lib.Store,
  places: np.ndarray,
  check: Callable[[np.ndarray], Sequence[bool]],
) -> np.ndarray:
  """Returns bool [k], which images can be decoded.

  Args:
    store: the images.
    places: int64 [k], their numbers in it.
    check: numbers -> whether each of these images can be decoded.
  """
  file = parsed_cache.path(store.path, 'readable')
  keys = _keys(store, places)
  found = _are_among(keys, _remembered(file))
  unknown = np.flatnonzero(~found)
  if len(unknown) >= _MANY:
    print(
      f'{store.path}: decoding {len(unknown):,} images to find damaged ones, once:'
      ' the cache remembers each, also if this is stopped; --corrupt=fail leaves'
      ' it out',
      file=sys.stderr,
    )
  blocks = [unknown[i : i + _BLOCK] for i in range(0, len(unknown), _BLOCK)]
  for block in examples_lib.watched_rows(blocks, 'checking', len, len(unknown)):
    found[block] = check(places[block])
    _remember(file, keys[block[found[block]]])
  return found


def forget(store: store_lib.Store, place: int) -> None:
  """Forgets that an image can be decoded, so that the next check decodes it.

  A disk may damage a file, or a copy of it, that keeps its size and time.

  Args:
    store: the images.
    place: the image's number in it.
  """
  file = parsed_cache.path(store.path, 'readable')
  with _FORGETTING:
    known = _remembered(file)
    kept = known[known != _keys(store, np.array([place]))]
    if len(kept) == len(known) or not parsed_cache.is_writable(file.parent):
      return
    # Keys that another process adds meanwhile are lost, and found again.
    with contextlib.suppress(OSError), run_files.replacing(file) as new:
      kept.tofile(new)


def _keys(store: store_lib.Store, places: np.ndarray) -> np.ndarray:
  """Returns uint64 [k]."""
  parts = [np.zeros(0, '<u8')]
  for rows in examples_lib.blocks(len(places)):
    numbers = places[rows]
    names, stamps = store.names.take(numbers), store.stamp(numbers)
    hashes = (
      hashlib.blake2b(f'{_VERSION} {s} {n}'.encode(), digest_size=8).digest()
      for n, s in zip(names, stamps, strict=True)
    )
    parts.append(np.frombuffer(b''.join(hashes), '<u8'))
  return np.concatenate(parts)


def _are_among(keys: np.ndarray, known: np.ndarray) -> np.ndarray:
  """Returns bool [k]; `np.isin` takes several times the memory."""
  known = np.sort(known)
  places = np.searchsorted(known, keys)
  places[places == len(known)] = 0
  return known[places] == keys if len(known) else np.zeros(len(keys), bool)


def _remembered(file: pathlib.Path) -> np.ndarray:
  """Returns uint64 [r]. Of a key that was cut by a full disk nothing is left."""
  try:
    if rest := file.stat().st_size % 8:
      os.truncate(file, file.stat().st_size - rest)
    return np.fromfile(file, '<u8')
  except OSError:
    return np.zeros(0, '<u8')


def _remember(file: pathlib.Path, keys: np.ndarray) -> None:
  """Adds keys by one write, so that processes may do so at the same time."""
  if not parsed_cache.is_writable(file.parent):
    return
  try:
    with file.open('ab', buffering=0) as opened:
      opened.write(keys.tobytes())
  except OSError:
    pass  # The disk is full. The images are decoded again next time.
