"""Makes a split of an input, and describes a split of anybody's."""

import dataclasses
import os
import pathlib
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
import scipy.sparse

from datasets import examples as examples_lib
from datasets.splits import hold_out
from datasets.splits import inputs
from datasets.splits import partitions
from datasets.splits import rules
from datasets.splits import split_files
from datasets.splits import split_path
from tff_xc import errors
from tff_xc.data import partition as partition_lib
from tff_xc.measure import skew

# Streams of numpy generators beside the rules' own: [seed, stream].
_TEST = 1


class Made(NamedTuple):
  """A split.

  Attributes:
    examples: the input; its labels are those that count.
    train: the clients.
    test: int64, the numbers of the test examples; None: there is no such part.
    tested: the input with the labels of the test, which may be sets.
    summary: what summary.json says.
    counts: int64 [clients, classes], see `skew.class_counts`.
  """

  examples: examples_lib.Examples
  train: partition_lib.Partition
  test: np.ndarray | None
  tested: examples_lib.Examples
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
  where = pathlib.Path(path)
  examples = rule.read(where) if rule.read else inputs.read(where, columns)
  fingerprint = examples.fingerprint()
  _check_fits(request, rule, examples, path)
  whole, sets = examples, examples.has_sets
  if rule.labels == 'one' and sets:
    from datasets.xc import clients

    labels = np.full(len(examples), -1, np.int32)
    trains = examples.train
    labels[trains] = clients.sample_labels(
      examples.labels[trains], request.seed
    )
    examples = dataclasses.replace(examples, labels=labels)
  numbers, test = examples.train, examples.test
  if request.test_fraction or request.test_per_class:
    test = numbers[_held_out(request, examples.labels[numbers])]
    numbers = np.setdiff1d(numbers, test, assume_unique=True)
  dealt = rules.deal(
    request.rule, examples.some(numbers), request.seed, **request.settings
  )
  if dealt.classes is not None:
    examples = examples.of_classes(dealt.classes)
    if test is not None:
      test = test[examples.labels[test] >= 0]
  if dealt.test is not None:
    test = numbers[dealt.test]
  train = dataclasses.replace(dealt.train, numbers=numbers[dealt.train.numbers])
  counts = _counts(examples, train)
  unused = len(numbers) - len(np.unique(train.numbers))
  summary = {
    **request._asdict(),
    'input': str(path),
    'fingerprint': fingerprint,
    **({'facts': examples.facts} if examples.facts else {}),
    **_describe(examples, train, counts),
    'examples_unused': unused - len(() if dealt.test is None else dealt.test),
    'test_examples': 0 if test is None else len(test),
  }
  if rule.published:
    summary['published'] = _compare(
      rule, request.settings, examples.facts, summary
    )
  tested = whole if sets and whole.test is not None else examples
  return Made(examples, train, test, tested, summary, counts)


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
  file = split_files.train_file(name)
  found = inputs.table(file, columns, repeated=True)
  examples = _with_sets(dataclasses.replace(found, ids=range(len(found))), path)
  train = partitions.users(examples)
  counts = _counts(examples, train)
  summary = {
    'input': str(path),
    'fingerprint': examples.fingerprint(),
    **_describe(examples, train, counts),
    'examples_unused': len(examples) - len(train.numbers),
  }
  return Made(examples, train, None, examples, summary, counts)


def _check_fits(request, rule, examples, path) -> None:
  if rule.users and examples.users is None:
    raise errors.InputError(
      f'{path} does not say whose its examples are; give a table with'
      f' --user_column, or take another rule than {request.rule}'
    )
  if rule.labels == 'sets' and not examples.has_sets:
    raise errors.InputError(
      f'{request.rule} splits examples with sets of labels, and those of {path}'
      ' have one label each; take another rule, such as classes_per_client'
    )
  asked = request.test_fraction or request.test_per_class or rule.makes_test
  if asked and examples.test is not None:
    flags = f'take the rule users, not {request.rule}'
    if not rule.makes_test:
      flags = 'leave out --test_fraction and --test_per_class'
    raise errors.InputError(f'{path} has a test part; {flags}')


def _held_out(request: rules.Request, labels) -> np.ndarray:
  seed = [request.seed, _TEST]
  if request.test_fraction:
    return hold_out.by_fraction(labels, request.test_fraction, seed)
  return hold_out.by_class(labels, request.test_per_class, seed)


def _counts(examples, train) -> scipy.sparse.csr_matrix:
  owners, labels = train.owners(), examples.labels[train.numbers]
  if examples.has_sets:
    owners, labels = np.repeat(owners, np.diff(labels.indptr)), labels.indices
  if len(labels) and labels.min() < 0:  # The user has them all the same.
    owners, labels = owners[labels >= 0], labels[labels >= 0]
  shape = (len(train), len(examples.class_names))
  return skew.class_counts(owners, labels, shape)


def _describe(examples, train, counts) -> dict[str, Any]:
  found = {
    'clients': len(train),
    'classes': len(examples.class_names),
    'classes_held': len(np.unique(counts.indices)),
    'examples': len(train.numbers),
    'emd': skew.emd(counts),
    'examples_per_client': skew.spread(train.sizes),
    'classes_per_client': skew.spread(np.diff(counts.indptr)),
  }
  if examples.retrieval is not None:
    labels = examples.labels[examples.retrieval]
    found['retrieval_examples'] = len(labels)
    found['retrieval_classes'] = len(np.unique(labels))
  return found


def _with_sets(examples, path) -> examples_lib.Examples:
  """Returns examples with sets of labels if classes are numbers and spaces."""
  names = examples.class_names
  words = [name.split() for name in names]
  if max(map(len, words), default=0) < 2 or not all(
    word.isdecimal() and len(word) < 20 for w in words for word in w
  ):
    if '' in names:
      row = np.flatnonzero(examples.labels == names.index(''))[0]
      raise errors.InputError(
        f'{path}: example {row + 1:,} has no class; fill it in, or leave out the'
        ' line'
      )
    return examples
  labels = [sorted(set(map(int, w))) for w in words]
  ends = np.cumsum([0, *map(len, labels)])
  flat = np.concatenate(labels).astype(np.int64)
  num_classes = int(flat.max()) + 1
  inputs.check_classes(num_classes, path)
  sets = scipy.sparse.csr_matrix(
    (np.ones(len(flat), bool), flat, ends), (len(words), num_classes)
  )
  return dataclasses.replace(
    examples,
    labels=sets[examples.labels],
    class_names=list(map(str, range(num_classes))),
  )


def _compare(
  rule: rules.Rule, settings: Mapping, facts: Mapping, summary: Mapping
) -> dict[str, Any]:
  """Returns how a split, and its input, differ from what was published.

  Values that differ are {name: {'published': value, 'found': value}}; facts that
  the input lacks are not compared.
  """
  published = rule.published

  def differing(right: Mapping, found: Mapping) -> dict[str, dict]:
    return {
      name: {'published': value, 'found': found[name]}
      for name, value in right.items()
      if found[name] != value
    }

  of_input = differing(published.input, {**published.input, **facts})
  of_rule = differing(rule.settings(), settings)
  exact, drawn = dict(published.counts), {}
  for name in published.drawn:
    drawn[name] = {'published': exact.pop(name), 'found': summary[name]}
  return {
    'is_the_input': not of_input,
    'is_the_rule': not of_rule,
    'input': of_input,
    'settings': of_rule,
    'counts': differing(exact, summary),
    'not_compared': drawn,
    **({'why': published.why} if published.why else {}),
  }


def published_lines(report: Mapping[str, Any] | None) -> Iterator[str]:
  """Yields for a user how the split relates to the published one."""
  if report is None:
    return
  if report['input']:
    yield (
      f'note: the input is not the published one: {_told(report["input"])}; the'
      ' published counts do not apply'
    )
  if report['settings']:
    told = _told(report['settings'], '--')
    yield f'note: other settings than the published ones: {told}'
  if report['input'] or report['settings']:
    return
  if report['counts']:
    because = f' ({report["why"]})' if 'why' in report else ''
    yield (
      'warning: the input is the published one, by its counts, and the split is'
      f' not: {_told(report["counts"])}{because}'
    )
  else:
    yield 'note: the input and the counts of the split are as published'
  if report['not_compared']:
    told = _told(report['not_compared'])
    yield f'note: of a draw that was not published: {told}'


def _told(differences: Mapping[str, Mapping], before: str = '') -> str:
  shown = lambda value: f'{value:,}' if isinstance(value, int) else str(value)
  return '; '.join(
    f'{before}{name} {shown(both["found"])}, published {shown(both["published"])}'
    for name, both in differences.items()
  )
