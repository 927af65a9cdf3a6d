"""Loads the user's own photographs as federated data.

The photographs are in a folder, a tar or a zip (`readers.images`). Each class has a
folder, unless a split file names the users and classes of the images (`splits.deal`).
An image is decoded when it is used, by one thread per core. The decoded images are cached
up to a limit.

A file in the user's cache folder records which images can be decoded. For each of these
images, it has a key of 8 bytes: a hash of the image's name and of its file's size and time.
So a readable image is checked only once, even if the split changes or the user interrupts the
check. An image that cannot be decoded is checked again each time, because a disk error may
be temporary.
"""

import concurrent.futures
import contextlib
import functools
import hashlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from datasets import examples as examples_lib
from datasets.readers import (
  decode,
  image_names as names_lib,
  images as store_lib,
  packed,
  parsed_cache,
  record_features,
)
from datasets.splits import deal, split_files
from tff_xc import errors
from tff_xc.data import client_data, pool as pool_lib

# The largest number of bytes of decoded images in the cache: 43,000 images of 64 x 64. The test
# images of LEAF's CelebA, which are evaluated in every round, fit into the cache.
CACHE = 2**29
SKIP, FAIL = 'skip', 'fail'
# Increase this when a change of the code makes more or fewer images readable.
_VERSION = 1
# The check decodes `_BLOCK` images at a time. A check of `_MANY` images takes minutes and
# prints a message first.
_BLOCK, _MANY = 256, 20_000
_CURE = 'mend or remove it, or leave it out with --corrupt=skip'


def load(
  path: str | os.PathLike,
  choice: deal.Choice,
  *,
  side: int = 64,
  corrupt: str = SKIP,
  features: record_features.Features = record_features.USUAL,
  checks: bool = True,
) -> client_data.FederatedDataset:
  """Loads images of a folder, tar or zip; `x` is uint8 [side, side, 3].

  If `corrupt` is 'skip', the function decodes every image once and leaves out damaged
  images. It also leaves out images that the split names but that are missing from the folder or
  archive. If `corrupt` is 'fail', missing and damaged images are errors. A damaged image then
  raises its error when it is first used. If `checks` is false, no image is decoded before it is
  used. `features` names the features of TFRecords. Raises `errors.InputError` if images or files
  of the split are missing or damaged, or there are fewer than two classes.
  """
  store = store_lib.open_store(path, features)
  # Read the files of the split before the slow check, so that their errors come first.
  places, data = _labelled(store, choice, corrupt)
  if corrupt == SKIP and checks:

    def is_sound(place):
      try:
        decode.square(store.read(place), side)
      except decode.DAMAGE:
        return False
      return True

    bad = ~readable(store, places, lambda block: list(_threads().map(is_sound, block)))
    cure = 'mend or remove them'
    places, data = _without(bad, places, data, store.path, 'cannot be read', cure)
  labels = np.unique(data.labels[data.labels < len(data.class_names)])
  cure = (
    f'{f"name two in {choice.split}, or " * choice.is_file}put the images of each class into a'
    ' folder named as the class, or list them with their classes in a CSV and make a --split of it'
    ' with `launch.make_splits`'
  )
  where = f'{store.path} ({", ".join(data.class_names[label] for label in labels[:1])})'
  examples_lib.require_two(len(labels), where, cure)
  rest = choice._replace(test_file='')
  if choice.is_file:
    rest = rest._replace(split='')
  clients, test, held_out, _ = deal.parts(data, rest, str(store.path))
  pool = pool_of(
    store, places, data.labels, [side, side, 3], lambda content: decode.square(content, side), _CURE
  )
  return client_data.FederatedDataset(
    name=store.path.name,
    num_classes=len(data.class_names),
    train=client_data.PartitionedClientData(pool, clients),
    test=None if test is None else pool.subset(test),
    retrieval=None if data.retrieval is None else pool.subset(data.retrieval),
    exact=False,  # JPEG decoders differ in the last bit.
    source_checksum=_checksum(store, places, data.labels, test, data.retrieval),
    class_names=data.class_names,
    held_out=held_out,
  )


def _labelled(store, choice, corrupt: str) -> tuple[np.ndarray, examples_lib.Examples]:
  """Returns the indices of the images in the store, and the images as `Examples`.

  The images are those that a split file names or, without a split file, all images.
  """
  if choice.is_file:
    places, found = _of_split(store, choice, corrupt)
    return places, found.listed(choice.classes)
  found = names_lib.of_ids(store.path, store.names)
  if store.has_users:
    found = packed.with_users(found)
  places = store_lib.find(store, found.ids)
  if choice.test_file:
    found = deal.with_test(found, choice.test_file, str(store.path))
  return places, found.listed(choice.classes)


def _of_split(store, choice, corrupt: str) -> tuple[np.ndarray, examples_lib.Examples]:
  """Returns the indices in the store of the images that a split names, and the images."""
  data = split_files.read(choice.split, choice.test_file).examples
  places = store_lib.find(store, data.ids)
  missing = places < 0
  if missing.all() or (missing.any() and corrupt == FAIL):
    [first] = data.ids.take(np.flatnonzero(missing)[:1])
    raise errors.InputError(
      f'{choice.split}: {missing.sum():,} of {len(missing):,} images are not in'
      f' {store.path}, first {first!r}; an image_id is a path in'
      f' it, such as {store.names.take(np.array([0]))[0]!r}, with or without'
      ' suffix; `launch.make_splits --id_column` names the column that has it'
    )
  there = np.sort(places[~missing])
  if twice := there[1:][there[1:] == there[:-1]].tolist():
    raise errors.InputError(
      f'{choice.split}: {store.where(twice[0])} is named twice, perhaps for'
      ' training and for the test; give each image to one user or to the test'
    )
  cure = 'put them there, or mend their paths in the table of the split'
  return _without(missing, places, data, store.path, 'cannot be found', cure)


def _without(
  bad: np.ndarray,
  places: np.ndarray,
  data: examples_lib.Examples,
  path,
  why: str,
  cure: str,
) -> tuple[np.ndarray, examples_lib.Examples]:
  """Leaves out the images marked in `bad`, bool [N], and prints their number and the reason."""
  if not bad.any():
    return places, data
  first = repr(data.ids.take(np.flatnonzero(bad)[:1])[0])
  for part in ('training', 'test', 'retrieval'):
    numbers = data.train if part == 'training' else getattr(data, part)
    if numbers is not None and len(numbers) and bad[numbers].all():
      raise errors.InputError(
        f'{path}: all {part} images ({len(numbers):,}) {why}, first {first}; give sound images,'
        ' of all parts of the split'
      )
  print(
    f'warning: {path}: {bad.sum():,} of {len(bad):,} images {why} and will be left'
    f' out, first {first}; {cure} (with --corrupt=fail, this is an error)',
    file=sys.stderr,
  )
  kept = np.flatnonzero(~bad)
  return places[kept], data.kept(kept)


@functools.cache
def _threads() -> concurrent.futures.ThreadPoolExecutor:
  """Returns the threads in which Pillow decodes images."""
  return concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0)))


def pool_of(
  store: store_lib.Store,
  places: np.ndarray,
  labels: np.ndarray,
  shape: Sequence[int],
  use: Callable[[bytes], np.ndarray],
  cure: str,
) -> pool_lib.Pool:
  """Makes a pool of the images with the indices `places` in a store.

  `use` decodes the bytes of an image to uint8 with this shape, when the image is used. The error
  message for a damaged image ends with `cure`.
  """

  def read(numbers: np.ndarray) -> np.ndarray:
    images = np.empty([len(numbers), *shape], np.uint8)
    found = _threads().map(lambda place: store.used(place, use, cure), places[numbers])
    for row, image in zip(images, found, strict=True):
      row[:] = image
    return images

  spec = tf.TensorSpec(shape, tf.uint8)
  pool = pool_lib.Pool(labels, spec, read, is_decoded=True, files=store.watched(places))
  return pool_lib.cached(pool, CACHE)


def fitted(store: store_lib.Store, description, number: int) -> np.ndarray:
  """Returns an image as uint8 in the model's shape, resized like the model's training images.

  Raises one of `decode.DAMAGE` if the image is damaged. Raises InputError if the image has
  colours and the model takes grey images.
  """
  height, width, *channels = description.shape
  how = description.preprocessing.get('fit', 'crop')
  pixels = decode.fit(store.read(number), height, width, how)
  if channels == [3]:
    return pixels
  if (pixels != pixels[..., :1]).any():
    raise errors.InputError(
      f'{store.where(number)} has colours, and the model takes grey images; convert it to grey'
    )
  return pixels[..., :1] if channels else pixels[..., 0]


def blocks(
  store: store_lib.Store, description, size: int, own: Sequence[str] = ()
) -> Iterator[tuple[list[int], examples_lib.Block]]:
  """Yields blocks of readable images, resized by `fitted`, and the images' store indices.

  The possible labels of an image are the names of the folders around it, and the names in
  `own`, as they are and as training writes the names of folders.
  """
  root = pathlib.Path(os.path.realpath(store.path))

  def one(number):
    try:
      return fitted(store, description, number)
    except decode.DAMAGE as e:
      return f'not a readable image{decode.reason(e)}'

  def written(folders):
    pairs = ((folder, examples_lib.nfc(folder.strip())) for folder in folders)
    return tuple(dict.fromkeys(name for pair in pairs for name in pair))

  for start in range(0, len(store.names), size):
    numbers = np.arange(start, min(start + size, len(store.names)))
    inner = list(map(pathlib.PurePath, store.names.take(numbers)))
    found = list(_threads().map(one, numbers.tolist()))
    kept = [place for place, pixels in enumerate(found) if not isinstance(pixels, str)]
    names = [store.path / name for name in inner]
    yield (
      numbers[kept].tolist(),
      examples_lib.Block(
        names=[str(names[place]) for place in kept],
        raw=(np.stack([found[place] for place in kept]),) if kept else (),
        labels=[written([*inner[place].parts[:-1], *own]) for place in kept],
        folders=[written([names[place].parent.name])[-1] for place in kept],
        keys=[str(root / inner[place]) for place in kept],
        damaged=[
          (place, str(names[place]), why) for place, why in enumerate(found) if isinstance(why, str)
        ],
      ),
    )


def _checksum(store: store_lib.Store, places, labels, *parts) -> str:
  """Returns a checksum of all image names, of the bytes of some images, and of `parts`.

  A part, the test or retrieval set, adds its indices and labels to the checksum.
  """
  found = hashlib.blake2b(digest_size=8)
  for numbers in examples_lib.blocks(len(places)):
    found.update('\0'.join(store.names.take(places[numbers])).encode())
  for part in parts:
    if part is not None:
      found.update(part.astype(np.int64).tobytes() + labels[part].tobytes())
  for place in store_lib.some(places):
    data = store.used(place, bytes, _CURE)
    found.update(f'{len(data)};'.encode() + data)
  return found.hexdigest()


def readable(
  store: store_lib.Store, places: np.ndarray, check: Callable[[np.ndarray], Sequence[bool]]
) -> np.ndarray:
  """Returns whether the images with the store indices `places` can be decoded, bool [k].

  The function calls `check` with blocks of the images that are not yet in the cache.
  """
  file = parsed_cache.path(store.path, 'readable')
  keys = _keys(store, places)
  try:
    found = np.isin(keys, np.fromfile(file, '<u8'))
  except OSError:
    found = np.zeros(len(keys), bool)
  unknown = np.flatnonzero(~found)
  if len(unknown) >= _MANY:
    print(
      f'{store.path}: decoding {len(unknown):,} images once, to find damaged ones; the cache'
      ' remembers each image even if this is interrupted, and --corrupt=fail skips it',
      file=sys.stderr,
    )
  blocks = [unknown[i : i + _BLOCK] for i in range(0, len(unknown), _BLOCK)]
  for block in examples_lib.watched(blocks, 'checking', len, len(unknown)):
    found[block] = check(places[block])
    # Append all keys with one write, because other processes may also append keys. If the
    # disk is full, the next run decodes the images again.
    with contextlib.suppress(OSError), file.open('ab', buffering=0) as opened:
      opened.write(keys[block[found[block]]].tobytes())
  return found


def _keys(store: store_lib.Store, places: np.ndarray) -> np.ndarray:
  """Returns the images' keys in the cache, uint64 [k]."""
  digests = [b'']
  for rows in examples_lib.blocks(len(places)):
    names, stamps = store.names.take(places[rows]), store.stamp(places[rows])
    digests += [
      hashlib.blake2b(f'{_VERSION} {s} {n}'.encode(), digest_size=8).digest()
      for n, s in zip(names, stamps, strict=True)
    ]
  return np.frombuffer(b''.join(digests), '<u8')
