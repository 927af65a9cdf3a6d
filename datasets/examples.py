"""The class `Examples`, which every reader returns: the ids, labels and users of a data set.

Each example has an index, an id, a label, and optionally a user and a geographic
position. Split rules (`datasets.splits.rules`) assign examples to clients. Split files
(`datasets.splits.split_files`) refer to examples by id. `Examples` stores no images or
features, so 14 million images need only about 1 GB.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
import pathlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tqdm

from tff_xc import errors, files, wording
from tff_xc.lazy import sparse

# ImageNet-21k has 21,841 classes and Amazon-670K has 670,091.
MOST_CLASSES = 2**24
# The number of examples that are processed at a time.
BLOCK = 1 << 16
# `sample_labels` seeds its random generator with [seed, _LABELS].
_LABELS = 0
_NUMBER = re.compile('0|[1-9][0-9]*')


class Texts:
  """A list of millions of strings, which needs about one byte per character."""

  def __init__(self, array: Any):
    """Takes a `pyarrow.LargeStringArray`."""
    self.array = array

  def __len__(self) -> int:
    return len(self.array)

  def __iter__(self) -> Iterator[str]:
    for numbers in blocks(len(self)):
      yield from self.take(numbers)

  def take(self, numbers: np.ndarray) -> list[str]:
    """Returns the texts at the indices `numbers`, in this order."""
    return self.array.take(numbers).to_pylist()


def texts(blocks: Iterable[Sequence[str] | Texts]) -> Texts:
  """Joins the texts of all blocks; raises UnicodeEncodeError for a text that is not Unicode."""
  import pyarrow as pa

  parts = [pa.array([], pa.large_string())]
  for block in blocks:
    parts.append(block.array if isinstance(block, Texts) else pa.array(block, pa.large_string()))
  return Texts(pa.concat_arrays(parts))


def repeated(ids: Texts) -> tuple[str, int, int] | None:
  """Returns the first repeated text and the indices of its first two occurrences.

  Returns None if all texts differ.
  """
  first = find(ids, ids)
  again = np.flatnonzero(first != np.arange(len(ids)))[:1]
  return (*ids.take(again), int(first[again[0]]), int(again[0])) if len(again) else None


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
  """N examples: the training examples, and optionally test and retrieval examples."""

  # One label per example, int32 [N], -1 for no label. Or sets of labels, a bool csr_matrix
  # [N, n].
  labels: np.ndarray | sparse.csr_matrix
  class_names: Sequence[str]  # [n]
  # [N], the ids by which split files name the examples: strings or integers.
  ids: Texts | range | np.ndarray
  # int32 [N], indices into the joined list `[*user_names, *test_user_names]`. -1: the example
  # has no user. None: all users are unknown.
  users: np.ndarray | None = None
  user_names: Sequence[str] = ()  # In the order of the input.
  # int64, the indices of the test examples, in the order of the test set. Empty: the test
  # set is stored elsewhere. None: there is no test set.
  test: np.ndarray | None = None
  # int64, the indices of the retrieval examples. Their labels are n, n + 1, and so on. None:
  # there are no retrieval examples.
  retrieval: np.ndarray | None = None
  test_user_names: Sequence[str] = ()
  retrieval_class_names: Sequence[str] = ()  # The names of classes n, n + 1, and so on.
  # float64 [N, 2], the latitude and longitude of each image in degrees, NaN if unknown.
  # None: no position is known or needed.
  positions: np.ndarray | None = None
  # Numbers and checksums of the input's files, which the reader computes.
  facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __len__(self) -> int:
    return self.labels.shape[0]

  @property
  def has_sets(self) -> bool:
    """Whether the labels are sets."""
    return sparse.issparse(self.labels)

  @property
  def train(self) -> np.ndarray:
    """int64, the indices of all examples except the test and retrieval examples."""
    trains = np.ones(len(self), bool)
    for part in (self.test, self.retrieval):
      if part is not None:
        trains[part] = False
    return np.flatnonzero(trains)

  def ids_of(self, numbers: np.ndarray) -> list:
    """Returns the ids of the examples at the indices `numbers`."""
    if isinstance(self.ids, Texts):
      return self.ids.take(numbers)
    if isinstance(self.ids, range):
      return (numbers + self.ids.start).tolist()
    return self.ids[numbers].tolist()

  def some(self, numbers: np.ndarray) -> Examples:
    """Returns the examples at these indices, all as training examples, with new ids from 0."""
    return dataclasses.replace(
      self,
      labels=self.labels[numbers],
      ids=range(len(numbers)),
      users=None if self.users is None else self.users[numbers],
      test=None,
      retrieval=None,
      positions=None if self.positions is None else self.positions[numbers],
    )

  def kept(self, numbers: np.ndarray) -> Examples:
    """Returns the examples at the indices `numbers`, int [k] ascending, with their old ids.

    Test and retrieval examples remain test and retrieval examples.
    """

    def left(part):
      return None if part is None else np.flatnonzero(np.isin(numbers, part))

    return dataclasses.replace(
      self.some(numbers),
      ids=Texts(self.ids.array.take(numbers)),
      test=left(self.test),
      retrieval=left(self.retrieval),
    )

  def numbered(self, names: Sequence[str]) -> Examples:
    """Replaces each label by the index of its class in `names`, or by -1 if it is not there."""
    place = {name: label for label, name in enumerate(names)}
    new = np.array([*(place.get(name, -1) for name in self.class_names), -1], np.int32)
    return dataclasses.replace(self, labels=new[self.labels], class_names=names)

  def of_classes(self, classes: np.ndarray) -> Examples:
    """Renumbers these classes, int [k] ascending, from 0.

    Examples of other classes get the label -1. Each example must have a single label, not
    a set of labels.
    """
    return self.numbered([self.class_names[label] for label in classes.tolist()])

  def listed(self, file: str) -> Examples:
    """Renumbers the classes in the order of the names in `file`, unless `file` is ''."""
    if not file:
      return self
    places, names = listed(self.class_names, file)
    others = len(names) + np.arange(len(self.retrieval_class_names))
    new = np.concatenate([places, others, [-1]]).astype(np.int32)
    return dataclasses.replace(self, labels=new[self.labels], class_names=names)

  def fingerprint(self) -> dict[str, Any]:
    """Returns the numbers of examples and classes, and a checksum of the content.

    The checksum covers the ids, labels, class names, users and positions.
    """
    names, found = self.class_names, hashlib.blake2b(digest_size=8)
    of_test = None
    if self.test_user_names:
      of_test = self.users - np.int32(len(self.user_names))
    counts = {'examples': 0, 'classes': len(names)}
    for key, numbers, *content in (
      ('', self.train, names, self.user_names, self.users, self.positions),
      ('test_', self.test, names, self.test_user_names, of_test),
      ('retrieval_', self.retrieval, [*names, *self.retrieval_class_names]),
    ):
      if numbers is not None:
        counts[f'{key}examples'] = len(numbers)
        for piece in self._content(numbers, *content):
          found.update(piece)
    return {**counts, 'checksum': found.hexdigest()}

  def _content(self, numbers, class_names, user_names=(), *columns) -> Iterator[bytes]:
    yield '\0'.join([*class_names, '', *user_names]).encode()
    labels = self.labels[numbers]
    yield from map(_bytes, (labels.indptr, labels.indices) if self.has_sets else (labels,))
    for column in columns:
      if column is not None:
        yield _bytes(column[numbers])
    if not isinstance(self.ids, Texts):
      first = self.ids_of(numbers[:1])[0] if len(numbers) else 0
      yield repr(range(first, first + len(numbers))).encode()
      return
    for block in blocks(len(numbers)):
      yield '\0'.join(self.ids.take(numbers[block])).encode()


class Block(NamedTuple):
  """A batch of b examples on which a trained model makes predictions."""

  names: list[str]  # Each image's path, or each example's line or row number in its file.
  raw: tuple[np.ndarray, ...]  # The arguments of `predictor.Predictor`.
  # The possible names of each example's label. The first name that is a class of the model is
  # used. Sparse text has sets of labels instead, bool [b, n]. None: there are no labels.
  labels: list[tuple[str, ...]] | sparse.csr_matrix | None
  # The name of each image's folder.
  folders: Sequence[str] = ()
  # A key that identifies each example: its absolute path, with all links resolved.
  keys: Sequence[str] = ()
  # The images that cannot be read: (index, name, reason). The index is the image's position
  # among all images of the block, readable or not. The other fields have only the readable
  # images, and are empty if there are none.
  damaged: Sequence[tuple[int, str, str]] = ()
  # bool [b, n], the classes that the predictions must leave out; None: no class.
  seen: sparse.csr_matrix | None = None


def bags(x: sparse.csr_matrix) -> tuple[np.ndarray, ...]:
  """Converts sparse features to the arguments of `predictor.Predictor`."""
  return (
    np.asarray(x.indices, np.int32),
    np.asarray(x.data, np.float32),
    np.asarray(x.indptr, np.int32),
  )


def of_labels(labels: np.ndarray | sparse.csr_matrix, num_classes: int | None = None) -> Examples:
  """Makes training examples from labels; their ids and class names are numbers from 0.

  If `num_classes` is None, the number of classes is n for sets of labels [N, n], and the
  largest label plus one for single labels [N].
  """
  if num_classes is None:
    is_sets = sparse.issparse(labels)
    num_classes = labels.shape[1] if is_sets else labels.max(initial=-1) + 1
  names = list(map(str, range(num_classes)))
  return Examples(labels, names, range(labels.shape[0]))


def of_parts(
  train: Examples, test: Examples | None = None, retrieval: Examples | None = None
) -> Examples:
  """Joins training, test and retrieval examples that were read separately.

  `test` has the same classes as `train`. The result numbers the users of `test` after the
  users of `train`. `retrieval` has different classes, numbered from 0. The result numbers the
  classes of `retrieval` from n, the number of classes of `train`.
  """
  parts = [part for part in (train, test, retrieval) if part is not None]
  if len(parts) == 1:
    return train
  labels, users = [part.labels for part in parts], None
  if retrieval is not None:
    labels[-1] = labels[-1] + np.int32(len(train.class_names))
  if train.users is not None:
    users = [np.full(len(part), -1, np.int32) for part in parts]
    users[0] = train.users
    if test is not None and test.users is not None:
      known = test.users >= 0
      users[1][known] = test.users[known] + len(train.user_names)
  ends = np.cumsum([0, *map(len, parts)])
  if isinstance(train.ids, Texts):
    ids = texts(part.ids for part in parts)
  else:
    ids = np.concatenate([np.asarray(part.ids) for part in parts])
  return dataclasses.replace(
    train,
    labels=sparse.vstack(labels, 'csr') if train.has_sets else np.concatenate(labels),
    ids=ids,
    users=None if users is None else np.concatenate(users),
    test=None if test is None else np.arange(*ends[1:3]),
    retrieval=None if retrieval is None else np.arange(*ends[-2:]),
    test_user_names=() if test is None else test.user_names,
    retrieval_class_names=() if retrieval is None else retrieval.class_names,
  )


def _bytes(array: np.ndarray):
  return np.ascontiguousarray(array).data.cast('B') if array.size else b''


def require_two(num_classes: int, where: str, cure: str) -> None:
  """Raises InputError if there are fewer than two classes."""
  if num_classes < 2:
    raise errors.InputError(f'{where} has one class only; {cure}')


def check_classes(num_classes: int, where: str | os.PathLike) -> None:
  """Raises InputError if there are more than `MOST_CLASSES` classes.

  So many classes usually mean that the labels are not numbered from 0.
  """
  if num_classes > MOST_CLASSES:
    raise errors.InputError(
      f'{where} has classes up to {num_classes - 1:,}, and at most'
      f' {MOST_CLASSES:,} classes are allowed; number them from 0 without gaps'
    )


def find(ids: Texts | range | np.ndarray, wanted: Texts) -> np.ndarray:
  """Returns the first index of each wanted id in `ids`, int64 [k], or -1 if it is missing."""
  import pyarrow as pa
  import pyarrow.compute

  if isinstance(ids, Texts):
    found = pa.compute.index_in(_joined(wanted), value_set=_joined(ids))
    return found.fill_null(-1).to_numpy().astype(np.int64)

  # A number of at most 18 digits fits into int64.
  numbers = [int(text) if text.isdecimal() and len(text) < 19 else -1 for text in wanted]
  known, first = np.unique(ids, return_index=True)
  places = np.searchsorted(known, numbers)
  places[places == len(known)] = 0
  return np.where(known[places] == numbers, first[places], -1)


def _joined(texts: Texts):
  """Returns the texts as an Arrow array, normalized as by `nfc`."""
  import pyarrow.compute

  if pyarrow.compute.all(pyarrow.compute.string_is_ascii(texts.array)).as_py():
    return texts.array  # ASCII texts are already normalized, and a copy may be large.
  return pyarrow.compute.utf8_normalize(texts.array, form='NFC')


def blocks(size: int) -> Iterator[np.ndarray]:
  """Yields the numbers from 0 to size - 1 in arrays of at most `BLOCK` numbers."""
  for start in range(0, size, BLOCK):
    yield np.arange(start, min(start + BLOCK, size))


def sample_labels(label_sets: np.ndarray | sparse.csr_matrix, seed: int) -> np.ndarray:
  """Samples one label from each example's set of labels, uniformly.

  Returns int32 [N], -1 for an empty set. If `label_sets` already has one label per example,
  the function returns it unchanged.
  """
  if not sparse.issparse(label_sets):
    return label_sets
  sizes = np.diff(label_sets.indptr)
  random = np.random.default_rng([seed, _LABELS])
  chosen = random.integers(0, np.maximum(sizes.astype(np.int64), 1))
  labels = np.full(len(sizes), -1, np.int32)
  some = np.flatnonzero(sizes)
  labels[some] = label_sets.indices[label_sets.indptr[some] + chosen[some]]
  return labels


class Codes:
  """Assigns the numbers 0, 1, ... to names in the order in which they first occur."""

  def __init__(self):
    self._places = collections.defaultdict()
    self._places.default_factory = self._places.__len__
    self._parts = []

  def add(self, names: Iterable[str]) -> None:
    """Adds a name for each new row."""
    self._parts.append(np.fromiter(map(self._places.__getitem__, names), np.int32))

  @property
  def names(self) -> list[str]:
    """The distinct names."""
    return list(self._places)

  def codes(self) -> np.ndarray:
    """Returns int32 [rows], the index in `names` of each row's name."""
    return np.concatenate([np.zeros(0, np.int32), *self._parts])


def recoded(codes: Codes, names: Sequence[str]) -> np.ndarray:
  """Returns the index in `names` of each row's name, int32 [rows], or -1 if it is not there."""
  place = {name: i for i, name in enumerate(names)}
  return np.array([place.get(name, -1) for name in codes.names], np.int32)[codes.codes()]


def sorted_codes(codes: Codes) -> tuple[np.ndarray, list[str]]:
  """Sorts the names with `in_order`; returns each row's new code, int32 [rows], and the names."""
  names = in_order(codes.names)
  return recoded(codes, names), names


def in_order(names: Iterable[str]) -> list[str]:
  """Sorts the names: as numbers if all names are whole numbers, and otherwise as strings."""
  names = list(names)
  if all(map(_NUMBER.fullmatch, names)):
    # `_NUMBER` allows no leading zeros, so a longer number is larger.
    return sorted(names, key=lambda name: (len(name), name))
  return sorted(names)


def listed(names: Sequence[str], file: str) -> tuple[np.ndarray, list[str]]:
  """Reads a file with one class name per line, and looks up each of `names` in it.

  Returns the index of each name in the file, int32 [k], and all names in the file. Raises
  `errors.InputError` if the file cannot be read, names a class twice, or lacks one of
  `names`.
  """
  try:
    text = files.read_text(pathlib.Path(file)).removeprefix('\ufeff')
  except (OSError, ValueError) as e:
    raise errors.InputError(
      f'--classes={file} cannot be read ({e}); give a file with a class name a line'
    ) from e
  lines = map(str.strip, text.split('\n'))
  all_names = [nfc(line) for line in lines if line]
  place = {name: i for i, name in enumerate(all_names)}
  require_two(len(all_names), f'--classes={file}', 'list at least two')
  if len(place) < len(all_names):
    twice = next(n for i, n in enumerate(all_names) if place[n] != i)
    raise errors.InputError(
      f'--classes={file} names {wording.shown(twice)} twice; leave one of them out'
    )
  missing = [name for name in names if nfc(name) not in place]
  if missing:
    raise errors.InputError(
      f'--classes={file} lacks {wording.shown(missing[0])}, a class of the data; add'
      ' it, or leave its examples out'
    )
  return np.array([place[nfc(name)] for name in names], np.int32), all_names


def nfc(name: str) -> str:
  """Normalizes an id or class name to Unicode's form NFC, so that equal names compare equal.

  macOS uses the form NFD for file names, in which an accent is a separate character.
  """
  return unicodedata.normalize('NFC', name)


def watched(
  parts: Iterable, what: str, size: Callable = lambda part: 1, total: int | None = None
) -> Iterator:
  """Yields `parts`, and shows a progress bar in a terminal after a second.

  `size` returns the number of rows in a part, and `total` is the number of rows in all parts.
  """
  with tqdm.tqdm(desc=what, total=total, unit='row', disable=None, delay=1, leave=False) as bar:
    for part in parts:
      yield part
      bar.update(size(part))
