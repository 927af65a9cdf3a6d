"""What a split is made of: the numbered examples of an input, unread.

A listing has each example's label, its user where one is known, and its id in
split files. The examples themselves stay where they are, so that 14 million of
them need about 1 GB.
"""

import collections
import dataclasses
import hashlib
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
import tqdm

from datasets.splits import names as names_lib

# Rows at a time.
BLOCK = 1 << 16


class Texts:
  """Very many texts, in about as many bytes as they have characters."""

  def __init__(self, array: Any):
    """Takes a `pyarrow.LargeStringArray`."""
    self.array = array

  def __len__(self) -> int:
    return len(self.array)

  def __iter__(self) -> Iterator[str]:
    for numbers in blocks(len(self)):
      yield from self.take(numbers)

  def take(self, numbers: np.ndarray) -> list[str]:
    """Returns the texts of these numbers, in their order."""
    return self.array.take(numbers).to_pylist()


class TextParts:
  """Gathers texts, block by block."""

  def __init__(self):
    self._parts, self._hashes = [], []

  def add(self, block: Sequence[str]) -> None:
    """Takes further texts; raises UnicodeEncodeError if one is none."""
    import pyarrow as pa

    self._parts.append(pa.array(block, pa.large_string()))
    hashes = map(hash, map(names_lib.joined, block))
    self._hashes.append(np.fromiter(hashes, np.int64, len(block)))

  def texts(self) -> Texts:
    """Returns the texts of all blocks."""
    import pyarrow as pa

    return Texts(
      pa.concat_arrays([pa.array([], pa.large_string()), *self._parts])
    )

  def repeated(self) -> tuple[int, int] | None:
    """Returns the first text that is there twice, as two places; None: none is."""
    hashes = np.concatenate([np.zeros(0, np.int64), *self._hashes])
    ranked = np.sort(hashes)
    again = np.unique(ranked[1:][ranked[1:] == ranked[:-1]])
    places = np.flatnonzero(np.isin(hashes, again))
    seen = {}
    for place, name in zip(
      places.tolist(), self.texts().take(places), strict=True
    ):
      if (first := seen.setdefault(names_lib.joined(name), place)) != place:
        return first, place
    return None


def texts(blocks: Iterable[Sequence[str]]) -> Texts:
  """Returns the texts of all blocks; raises UnicodeEncodeError if one is none."""
  parts = TextParts()
  for block in blocks:
    parts.add(block)
  return parts.texts()


@dataclasses.dataclass(frozen=True, eq=False)
class Listing:
  """The N examples of an input, or of its test part.

  Attributes:
    labels: int32 [N], -1 for none; or sets of labels, a bool csr_matrix [N, n].
    class_names: [n].
    ids: [N], what split files call the examples; or a range of numbers.
    users: int32 [N], places in `user_names`, -1 for nobody; None: unknown.
    user_names: in the order in which the input names them.
    test: the test part, if the input has one; its ids are its own.
    retrieval: examples of other classes, if the input has such a part; its classes
      and ids are its own.
    positions: float64 [N, 2], where they were taken: latitude and longitude in
      degrees, NaN for unknown ones; None: the input does not say, or it does not
      matter.
    facts: what the reader counted in the input's files.
  """

  labels: np.ndarray | scipy.sparse.csr_matrix
  class_names: Sequence[str]
  ids: Texts | range
  users: np.ndarray | None = None
  user_names: Sequence[str] = ()
  test: 'Listing | None' = None
  retrieval: 'Listing | None' = None
  positions: np.ndarray | None = None
  facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def __len__(self) -> int:
    return self.labels.shape[0]

  @property
  def has_sets(self) -> bool:
    """Whether the labels are sets."""
    return scipy.sparse.issparse(self.labels)

  def some(self, numbers: np.ndarray) -> 'Listing':
    """Returns the listing of these examples, whose ids are their numbers."""
    some = lambda array: None if array is None else array[numbers]
    return dataclasses.replace(
      self,
      labels=self.labels[numbers],
      ids=range(len(numbers)),
      users=some(self.users),
      test=None,
      retrieval=None,
      positions=some(self.positions),
    )

  def of_classes(self, classes: np.ndarray) -> 'Listing':
    """Returns the listing with these classes, numbered from 0; others are none.

    Args:
      classes: int [k], ascending. Examples have one label each.
    """
    new = np.full(
      len(self.class_names) + 1, -1, np.int32
    )  # The last is none's.
    new[classes] = np.arange(len(classes))
    return dataclasses.replace(
      self,
      labels=new[self.labels],
      class_names=[self.class_names[c] for c in classes.tolist()],
      test=None if self.test is None else self.test.of_classes(classes),
    )

  def fingerprint(self) -> dict[str, Any]:
    """Returns counts, and a checksum of ids, labels and users."""
    found = hashlib.blake2b(digest_size=8)
    counts = {'examples': len(self), 'classes': len(self.class_names)}
    if self.test is not None:
      counts['test_examples'] = len(self.test)
    if self.retrieval is not None:
      counts['retrieval_examples'] = len(self.retrieval)
    for part in filter(None, (self, self.test, self.retrieval)):
      for piece in part._content():
        found.update(piece)
    return {**counts, 'checksum': found.hexdigest()}

  def _content(self) -> Iterator[bytes]:
    yield '\0'.join([*self.class_names, '', *self.user_names]).encode()
    for array in (
      [self.labels.indptr, self.labels.indices]
      if self.has_sets
      else [self.labels]
    ):
      yield np.ascontiguousarray(array).data.cast('B') if array.size else b''
    if self.users is not None:
      yield np.ascontiguousarray(self.users).data.cast('B')
    if self.positions is not None:
      yield np.ascontiguousarray(self.positions).data.cast('B')
    if isinstance(self.ids, range):
      yield repr(self.ids).encode()
      return
    for numbers in blocks(len(self)):
      yield '\0'.join(self.ids.take(numbers)).encode()


def ids_of(ids: Texts | range, numbers: np.ndarray) -> list:
  """Returns the ids of these examples, text or whole numbers."""
  if isinstance(ids, range):
    return (numbers + ids.start).tolist()
  return ids.take(numbers)


def blocks(size: int) -> Iterator[np.ndarray]:
  """Yields 0 to size - 1 in blocks."""
  for start in range(0, size, BLOCK):
    yield np.arange(start, min(start + BLOCK, size))


class Codes:
  """Numbers names in the order in which they come."""

  def __init__(self):
    self._places = collections.defaultdict()
    self._places.default_factory = self._places.__len__
    self._parts = []

  def add(self, names: Iterable[str]) -> None:
    """Takes the names of further rows."""
    self._parts.append(self.numbers(names))

  def numbers(self, names: Iterable[str]) -> np.ndarray:
    """Returns int32, the place in `names` of each; new names come last."""
    return np.fromiter(map(self._places.__getitem__, names), np.int32)

  @property
  def names(self) -> list[str]:
    """The names, each once."""
    return list(self._places)

  def codes(self) -> np.ndarray:
    """Returns int32 [rows], the place in `names` of each row."""
    return np.concatenate([np.zeros(0, np.int32), *self._parts])


def sorted_codes(codes: Codes) -> tuple[np.ndarray, list[str]]:
  """Returns int32 [rows] and the names: as `codes`, with the names in order."""
  names = names_lib.in_order(codes.names)
  place = {name: i for i, name in enumerate(names)}
  new = np.array([place[name] for name in codes.names], np.int32)
  return new[codes.codes()], names


def watched(
  steps: Iterable, what: str, unit: str, total: int | None = None
) -> Iterator:
  """Yields `steps`; a terminal sees a bar if they take more than a second."""
  yield from tqdm.tqdm(
    steps, what, total, unit=unit, disable=None, delay=1, leave=False
  )


def watched_rows(
  parts: Iterable, what: str, size: Callable, total: int | None = None
) -> Iterator:
  """Yields parts of rows, as `watched`; `size` returns the rows of a part."""
  with tqdm.tqdm(
    desc=what, total=total, unit='row', disable=None, delay=1, leave=False
  ) as bar:
    for part in parts:
      yield part
      bar.update(size(part))
