"""Makes a split of an input, and describes a split of anybody's."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse

from datasets.splits import as_published
from datasets.splits import hold_out
from datasets.splits import inputs
from datasets.splits import listing as listing_lib
from datasets.splits import rules
from datasets.splits import split_folder
from datasets.splits import split_path
from tff_xc import errors
from tff_xc.data import partition as partition_lib
from tff_xc.measure import skew

# Streams of numpy generators beside the rules' own: [seed, stream].
_TEST = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Made:
  """A split.

  Attributes:
    listing: the examples that train, or do not; its labels are those that count.
    train: the clients; numbers are those of `listing`.
    test: the listing that has the test examples, or None.
    test_numbers: their numbers in it.
    summary: what summary.json says.
    counts: int64 [clients, classes], see `skew.class_counts`.
  """

  listing: listing_lib.Listing
  train: partition_lib.Partition
  test: listing_lib.Listing | None
  test_numbers: np.ndarray
  summary: Mapping[str, Any]
  counts: scipy.sparse.csr_matrix


def make(
  request: rules.Request, path: str | os.PathLike, columns: inputs.Columns
) -> Made:
  """Reads an input and splits it.

  Args:
    request: what to make.
    path: the input.
    columns: those of a table.

  Raises:
    errors.InputError: as `Request.check` and the input's reader; the rule does
      not fit the input.
  """
  rule = request.check()
  listing = (rule.read or inputs.read)(pathlib.Path(path), columns)
  fingerprint = listing.fingerprint()
  _check_fits(request, rule, listing, path)
  test, test_numbers = listing.test, np.zeros(0, np.int64)
  if rule.labels == 'one' and listing.has_sets:
    from datasets.xc import clients

    labels = clients.sample_labels(listing.labels, request.seed)
    listing = dataclasses.replace(listing, labels=labels)
  if test is not None:
    test_numbers = np.arange(len(test))
  elif request.test_fraction or request.test_per_class:
    test, test_numbers = listing, _held_out(request, listing)
  kept = np.ones(len(listing), bool)
  if test is listing:
    kept[test_numbers] = False
  numbers = np.flatnonzero(kept)
  split = rule.split(listing.some(numbers), request.seed, **request.settings)
  if split.test is not None:
    test, test_numbers = listing, numbers[split.test]
  if split.classes is not None:
    listing = listing.of_classes(split.classes)
    if split.test is not None:
      test = listing
    elif listing.test is not None:
      test = listing.test
      test_numbers = np.flatnonzero(test.labels >= 0)
  train = dataclasses.replace(split.train, numbers=numbers[split.train.numbers])
  counts = _counts(listing, train)
  summary = {
    **request._asdict(),
    'input': str(path),
    'fingerprint': fingerprint,
    **({'facts': listing.facts} if listing.facts else {}),
    **_describe(listing, train, counts),
    'examples_unused': len(numbers)
    - len(np.unique(train.numbers))
    - (0 if split.test is None else len(split.test)),
    'test_examples': len(test_numbers),
  }
  if rule.published:
    summary['published'] = as_published.compare(
      rule, request.settings, listing.facts, summary
    )
  return Made(listing, train, test, test_numbers, summary, counts)


def inspect(path: str | os.PathLike, columns: inputs.Columns) -> Made:
  """Describes a split file; user 'NA' is nobody.

  Raises:
    errors.InputError: it is missing or damaged, or lacks the columns of users
      and classes.
  """
  name = split_path.parse(path)
  if columns.user:
    name = name._replace(user=columns.user)
  columns = columns._replace(user=name.user)
  file = split_folder.train_file(name)
  listing = _with_sets(inputs.table(file, columns, of_sets=True), path)
  from datasets.splits import by_user

  train = by_user.partition(listing.users, listing.user_names)
  counts = _counts(listing, train)
  summary = {
    'input': str(path),
    'fingerprint': listing.fingerprint(),
    **_describe(listing, train, counts),
    'examples_unused': len(listing) - len(train.numbers),
  }
  return Made(listing, train, None, np.zeros(0, np.int64), summary, counts)


def _check_fits(request, rule, listing, path) -> None:
  if rule.users and listing.users is None:
    raise errors.InputError(
      f'{path} does not say whose its examples are; give a table with'
      f' --user_column, or take another rule than {request.rule}'
    )
  if rule.labels == 'sets' and not listing.has_sets:
    raise errors.InputError(
      f'{request.rule} splits examples with sets of labels, and those of {path}'
      ' have one label each; take another rule, such as classes_per_client'
    )
  asked = request.test_fraction or request.test_per_class or rule.makes_test
  if asked and listing.test is not None:
    flags = f'take the rule users, not {request.rule}'
    if not rule.makes_test:
      flags = 'leave out --test_fraction and --test_per_class'
    raise errors.InputError(f'{path} has a test part; {flags}')


def _held_out(
  request: rules.Request, listing: listing_lib.Listing
) -> np.ndarray:
  seed = [request.seed, _TEST]
  if request.test_fraction:
    return hold_out.by_fraction(listing.labels, request.test_fraction, seed)
  return hold_out.by_class(listing.labels, request.test_per_class, seed)


def _counts(listing, train) -> scipy.sparse.csr_matrix:
  owners, labels = train.owners(), listing.labels[train.numbers]
  if listing.has_sets:
    owners, labels = np.repeat(owners, np.diff(labels.indptr)), labels.indices
  if len(labels) and labels.min() < 0:  # The user has them all the same.
    owners, labels = owners[labels >= 0], labels[labels >= 0]
  return skew.class_counts(
    owners, labels, (len(train), len(listing.class_names))
  )


def _describe(listing, train, counts) -> dict[str, Any]:
  return {
    'clients': len(train),
    'classes': len(listing.class_names),
    'classes_held': len(np.unique(counts.indices)),
    'examples': len(train.numbers),
    'emd': skew.emd(counts),
    'examples_per_client': skew.spread(train.sizes),
    'classes_per_client': skew.spread(np.diff(counts.indptr)),
    **_describe_retrieval(listing.retrieval),
  }


def _describe_retrieval(part: listing_lib.Listing | None) -> dict[str, Any]:
  if part is None:
    return {}
  return {
    'retrieval_examples': len(part),
    'retrieval_classes': len(np.unique(part.labels)),
  }


def _with_sets(listing: listing_lib.Listing, path) -> listing_lib.Listing:
  """Returns the listing with sets of labels if classes are numbers and spaces."""
  words = [name.split() for name in listing.class_names]
  if max(map(len, words), default=0) < 2 or not all(
    word.isdecimal() and len(word) < 20 for w in words for word in w
  ):
    if '' in listing.class_names:
      row = np.flatnonzero(listing.labels == listing.class_names.index(''))[0]
      raise errors.InputError(
        f'{path}: example {row + 1:,} has no class; fill it in, or leave out the'
        ' line'
      )
    return listing
  labels = [sorted(set(map(int, w))) for w in words]
  ends = np.cumsum([0, *map(len, labels)])
  flat = np.concatenate(labels).astype(np.int64)
  num_classes = int(flat.max()) + 1
  inputs.check_classes(num_classes, path)
  sets = scipy.sparse.csr_matrix(
    (np.ones(len(flat), bool), flat, ends), (len(words), num_classes)
  )
  return dataclasses.replace(
    listing,
    labels=sets[listing.labels],
    class_names=list(map(str, range(num_classes))),
  )
