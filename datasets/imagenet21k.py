"""Lists the images of ImageNet-21k and assigns them to clients. The input is one of:

  n01440764/n01440764_10026.JPEG  in a folder, tar or zip
  n01440764.tar                   in a folder or a tar (`datasets.readers.packed`)
  a text file, or its .gz         a line for each image, SYNSET/NAME.JPEG

All inputs give the same examples, sorted by the bytes of their ids. If the input is a text
file, the image files may be absent. Waghmare et al. (FedSS), section 4.1, use 25,691
clients with about 400 images of 20 classes each. They do not say how they assigned the
images. This module gives each client several shards, each of a different class.
"""

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator

import numpy as np

from datasets import examples as examples_lib
from datasets.readers import image_names as names_lib, images as store_lib, zipped
from datasets.splits import hold_out, partitions
from tff_xc import errors
from tff_xc.data import partition as partition_lib

_LISTS = ('.txt', '.txt.gz', '.lst', '.lst.gz')
_SUFFIXES = '|'.join(suffix[1:] for suffix in names_lib.SUFFIXES)
_AN_IMAGE = re.compile(rf'((\./)?([^/]+/)+[^/]+\.(?i:{_SUFFIXES}))?')
# Each random stream has the seed [seed, stream].
_TEST, _DEAL = range(2)


def read(path: str | os.PathLike) -> examples_lib.Examples:
  """Lists the images; each folder is a class.

  Raises `errors.InputError` if the input cannot be read or has no images. A line of a text
  file must name an image in a folder, and no two lines may be equal.
  """
  path = pathlib.Path(path)
  if path.name.lower().endswith(_LISTS) and not path.is_dir():
    found = names_lib.of_ids(path, _ids(path))
  else:
    found = store_lib.read(path)
  facts = {'images': len(found.train), 'classes': len(found.class_names)}
  return dataclasses.replace(found, facts=facts)


def _ids(path: pathlib.Path) -> examples_lib.Texts:
  """Returns the lines of a text file, sorted."""
  names, _ = names_lib.in_order(filter(None, _lines(path)), path)
  if not len(names):
    raise errors.InputError(f'{path} has no lines; give SYNSET/NAME.JPEG in each')
  if twice := np.flatnonzero(names_lib.equal_to_next(names))[:1].tolist():
    raise errors.InputError(f'{path} has {names.take(twice)[0]!r} twice; list each image once')
  return names


def _lines(path: pathlib.Path) -> Iterator[str]:
  """Yields the name in each line, and '' for a blank line."""
  lines = zipped.text_lines(path, 'give text, SYNSET/NAME.JPEG in each line')
  for number, line in enumerate(map(str.rstrip, lines), 1):
    if not _AN_IMAGE.fullmatch(line):
      raise errors.InputError(
        f'{path}, line {number:,}: {line[:60]!r} is no SYNSET/NAME.JPEG; mend it, or leave it out'
      )
    yield line.removeprefix('./')


def split(
  examples: examples_lib.Examples,
  seed: int,
  *,
  test_share: float,
  examples_per_shard: int,
  shards_per_client: int,
) -> partitions.Split:
  """Holds out a share of each class as the test set, and assigns the rest to clients.

  The number of examples that a class holds out is rounded up or down at random. A class with
  a single example keeps it. Examples with a label below 0 are in neither set. Raises
  `errors.InputError` if the test set or the training set is empty.
  """
  labels = examples.labels
  test = hold_out.by_fraction(labels, test_share, [seed, _TEST], 'test_share')
  left = labels.copy()
  left[test] = -1
  train = deal(
    left,
    examples_per_shard=examples_per_shard,
    shards_per_client=shards_per_client,
    seed=[seed, _DEAL],
  )
  return partitions.Split(train, test)


def deal(
  labels: np.ndarray, *, examples_per_shard: int, shards_per_client: int, seed
) -> partition_lib.Partition:
  """Cuts each class into shards, and assigns the shards to clients at random.

  The function shuffles the examples of a class before it cuts the class. The last shard of
  a class may be smaller. Examples with a label below 0 go to no client. The number of clients
  is the number of shards divided by `shards_per_client`, rounded up. If a class has more
  shards than this, there are as many clients as this class has shards, because no client has
  two shards of one class. Some clients may have fewer than `shards_per_client` shards.
  """
  random = np.random.default_rng(seed)
  order = random.permutation(np.flatnonzero(labels >= 0))
  # Shuffle the classes, so that their order does not decide which classes a client combines.
  place_of_class = random.permutation(int(labels.max()) + 1).astype(np.int32)
  places = place_of_class[labels[order]]
  by_class = np.argsort(places, kind='stable')
  order, places = order[by_class], places[by_class]
  counts = np.bincount(places)
  shards = -(-counts // examples_per_shard)
  owners = _owners(shards, shards_per_client, random)
  rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
  shard = (np.cumsum(shards) - shards)[places] + rank // examples_per_shard
  owner = np.full(len(labels), -1, np.int32)
  owner[order] = owners[shard]
  return partition_lib.of_places(owner, list(map(str, range(owners.max() + 1))))


def _owners(shards: np.ndarray, shards_per_client: int, random) -> np.ndarray:
  """Returns the client of each shard, int64 [S]; `shards` int [n] has each class's number.

  The function goes through the shards class by class, and hands them out in rounds. In each
  round, every client gets one shard, and the order of the clients is random. A class has at
  most as many shards as there are clients. So a client could get two shards of a class only
  if the class begins in one round and ends in the next. In this case, the next round gives
  the rest of the class to clients that have no shard of this class.
  """
  total = int(shards.sum())
  clients = max(-(-total // shards_per_client), int(shards.max()))
  class_of = np.repeat(np.arange(len(shards)), shards)
  owners = np.empty(total, np.int64)
  for start in range(0, total, clients):
    turn = random.permutation(clients)
    size = min(clients, total - start)
    if start and class_of[start] == class_of[start - 1]:
      first, last = np.searchsorted(class_of, class_of[start] + np.arange(2))
      has_one = np.isin(turn, owners[first:start])
      chosen = np.zeros(clients, bool)
      chosen[np.flatnonzero(~has_one)[: last - start]] = True
      turn = np.append(turn[chosen], turn[~chosen])
    owners[start : start + size] = turn[:size]
  return owners
