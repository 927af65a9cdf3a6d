"""Splits an input, or describes an existing split. Writes all of these files or none:

federated_train.csv   user_id,image_id,class
test.csv              image_id,class, if there is a test set; also user_id, if clients
                      have test examples (NA: no client)
retrieval.csv         image_id,class, if the input has retrieval examples; their classes
                      are numbered after all other classes
classes.csv           class,name,count; count is the number of clients' examples
summary.json          the rule, its settings, and the numbers of clients, classes and examples
clients.png           the number of examples and the number of classes of each client
class_counts.png      the share of each class in each client's examples
labels.png            the number of examples of each class
map.png               the positions of each client's examples, if known
"""

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from datasets import examples as examples_lib
from datasets.readers import inputs, tables
from datasets.splits import hold_out, partitions, rules, split_files, split_path
from tff_xc import errors, files
from tff_xc.data import partition as partition_lib
from tff_xc.measure import skew
from tff_xc.report import split_pictures, text_table

SUMMARY = 'summary.json'
# The names under which `to_text` prints the numbers of a summary.
_COUNTS = {
  'clients': 'clients',
  'classes': 'classes',
  'classes_held': 'classes of clients',
  'examples': 'examples of clients',
  'examples_unused': 'examples without client',
  'test_examples': 'test examples',
  'retrieval_examples': 'retrieval examples',
}
# Each random stream has the seed [seed, stream]. Rules use other streams.
_TEST, _TEST_USERS = 1, 2


class Made(NamedTuple):
  """A split and its description."""

  examples: examples_lib.Examples  # The input, with the labels that clients train on.
  train: partition_lib.Partition
  test: np.ndarray | None  # int64, the indices of the test examples; None: no test set.
  # The client of each test example; 'NA': no client. An empty list: clients are unknown.
  test_users: list[str]
  # The input, with the labels that the test uses. They may be sets of labels.
  tested: examples_lib.Examples
  summary: Mapping[str, Any]
  counts: scipy.sparse.csr_matrix  # int64 [clients, classes].


def make(request: rules.Request, path: str | os.PathLike, columns: tables.Columns) -> Made:
  """Reads an input and splits it; raises InputError if the rule does not fit the input."""
  rule = request.check()
  where = pathlib.Path(path)
  if rule.read:
    inputs.check_no_columns(columns, f'{request.rule} reads none')
  examples = rule.read(where) if rule.read else inputs.read(where, columns)
  fingerprint = examples.fingerprint()
  _check_fits(request, rule, examples, path)
  whole, sets = examples, examples.has_sets
  if rule.labels == 'one' and sets:
    labels = np.full(len(examples), -1, np.int32)
    trains = examples.train
    labels[trains] = examples_lib.sample_labels(examples.labels[trains], request.seed)
    examples = dataclasses.replace(examples, labels=labels)
  numbers, test = examples.train, examples.test
  if request.test_fraction or request.test_per_class:
    draw, size = hold_out.by_class, request.test_per_class
    if request.test_fraction:
      draw, size = hold_out.by_fraction, request.test_fraction
    seed = [request.seed, _TEST]
    test = numbers[draw(examples.labels[numbers], size, seed)]
    numbers = np.setdiff1d(numbers, test, assume_unique=True)
  dealt = rules.deal(request.rule, examples.some(numbers), request.seed, **request.settings)
  if dealt.classes is not None:
    examples = examples.of_classes(dealt.classes)
    if test is not None:
      test = test[examples.labels[test] >= 0]
  if dealt.test is not None:
    test = numbers[dealt.test]
  train = dataclasses.replace(dealt.train, numbers=numbers[dealt.train.numbers])
  test_users = _test_users(request, examples, train, test, dealt.test)
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
    summary['published'] = _compare(rule, request.settings, examples.facts, summary)
  tested = whole if sets and whole.test is not None else examples
  return Made(examples, train, test, test_users, tested, summary, counts)


def _test_users(request, examples, train, test, of_rule) -> list[str]:
  """Returns the client of each test example: its user, or a client with its class.

  Returns [] if there is no test set or the clients of its examples are unknown.
  """
  of_users = rules.get(request.rule).users
  is_drawn = request.test_fraction or request.test_per_class
  by = examples.labels
  if of_users:  # A user may be listed in the training part and in the test part.
    users, first = [*examples.user_names, *examples.test_user_names], {}
    by = np.array([*(first.setdefault(name, i) for i, name in enumerate(users)), -1])
    by = by[examples.users]
  is_known = of_users or (is_drawn and not examples.has_sets)
  if test is None or of_rule is not None or not is_known:
    return []
  names, seed = [*train.client_ids, tables.NOBODY], [request.seed, _TEST_USERS]
  owners = hold_out.owners_of(by[test], by[train.numbers], train.owners(), seed)
  return [names[owner] for owner in owners.tolist()]


def inspect(path: str | os.PathLike, columns: tables.Columns) -> Made:
  """Reads and describes a split file; examples of the user 'NA' have no client."""
  name = split_path.parse(path)
  if columns.user:
    name = name._replace(user=columns.user)
  columns = columns._replace(user=name.user)
  file = split_files.train_file(name)
  found = tables.examples(file, columns, repeated=True, advice=split_path.OTHER_COLUMNS)
  examples = _with_sets(dataclasses.replace(found, ids=range(len(found))), path)
  train = partitions.users(examples)
  counts = _counts(examples, train)
  summary = {
    'input': str(path),
    'fingerprint': examples.fingerprint(),
    **_describe(examples, train, counts),
    'examples_unused': len(examples) - len(train.numbers),
  }
  return Made(examples, train, None, [], examples, summary, counts)


def _with_sets(examples: examples_lib.Examples, path: pathlib.Path) -> examples_lib.Examples:
  """Converts class names to sets of labels if one of them has several numbers, as in '1 2'."""
  if '' in examples.class_names:
    row = int(np.argmax(examples.labels == examples.class_names.index('')))
    raise errors.InputError(
      f'{path}: example {row + 1:,} has no class; fill it in, or leave out the line'
    )
  words = [name.split() for name in examples.class_names]
  numbers = {word for found in words for word in found}
  if max(map(len, words), default=0) < 2 or not all(n.isdecimal() and len(n) < 20 for n in numbers):
    return examples
  labels = [sorted({*map(int, found)}) for found in words]
  flat = np.concatenate(labels).astype(np.int64)
  num_classes = int(flat.max()) + 1
  examples_lib.check_classes(num_classes, path)
  ends = np.cumsum([0, *map(len, labels)])
  sets = scipy.sparse.csr_matrix((np.ones(len(flat), bool), flat, ends), (len(words), num_classes))
  names = list(map(str, range(num_classes)))
  return dataclasses.replace(examples, labels=sets[examples.labels], class_names=names)


def _check_fits(request, rule, examples, path) -> None:
  if rule.users and examples.users is None:
    raise errors.InputError(
      f'{path} does not say which user owns each example; give a table with'
      f' --user_column, or take another rule than {request.rule}'
    )
  if rule.labels == 'sets' and not examples.has_sets:
    raise errors.InputError(
      f'{request.rule} splits examples with sets of labels, and those of {path}'
      ' have one label each; take another rule, such as classes_per_client'
    )
  asked = request.test_fraction or request.test_per_class or rule.makes_test
  if asked and examples.test is not None:
    cure = 'leave out --test_fraction and --test_per_class'
    if rule.makes_test:
      cure = f'take the rule users, not {request.rule}'
    raise errors.InputError(f'{path} has a test part; {cure}')


def _counts(examples, train) -> scipy.sparse.csr_matrix:
  owners, labels = train.owners(), examples.labels[train.numbers]
  if examples.has_sets:
    owners, labels = np.repeat(owners, np.diff(labels.indptr)), labels.indices
  if len(labels) and labels.min() < 0:  # Do not count examples without a label.
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


def _compare(rule: rules.Rule, settings, facts, summary) -> dict[str, Any]:
  """Compares a split and its input with the known numbers of the published split."""
  published = rule.published
  exact, drawn = dict(published.counts), {}
  for name in published.drawn:
    drawn[name] = {'published': exact.pop(name), 'found': summary[name]}
  of_input = _differing(published.input, {**published.input, **facts})
  of_rule = _differing(rule.settings(), settings)
  return {
    'is_the_input': not of_input,
    'is_the_rule': not of_rule,
    'input': of_input,
    'settings': of_rule,
    'counts': _differing(exact, summary),
    'not_compared': drawn,
    **({'why': published.why} if published.why else {}),
  }


def _differing(right: Mapping, found: Mapping) -> dict[str, Any]:
  return {
    name: {'published': value, 'found': found[name]}
    for name, value in right.items()
    if found[name] != value
  }


def published_lines(report: Mapping[str, Any] | None) -> Iterator[str]:
  """Yields notes that tell the user how the split differs from the published split."""
  for part in ('input', 'settings', 'counts') if report else ():
    if differing := report[part]:
      told = '; '.join(
        f'{name} {both["found"]}, published {both["published"]}' for name, both in differing.items()
      )
      yield f'note: {part} differ from the published split: {told}'


def find(folder: str | os.PathLike, request: rules.Request | None) -> dict[str, Any] | None:
  """Returns the summary of an earlier split that the same request made.

  Returns None if the folder is missing or empty. Raises `errors.InputError` if the folder
  has any other content.
  """
  folder = pathlib.Path(folder)
  if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
    return None
  try:
    found = json.loads((folder / SUMMARY).read_text(encoding='utf-8'))
    asked = json.loads(json.dumps(request._asdict()))
    other = [n for n in asked if found.get(n) != asked[n]]
  except (OSError, ValueError, AttributeError) as e:
    raise occupied(folder, 'something else') from e
  if other:
    raise occupied(folder, f'a split of another request ({other[0]})')
  return found


def check_apart(
  folder: str | os.PathLike, source: str | os.PathLike, request: rules.Request | None, made: Made
) -> None:
  """Raises InputError if `folder` lies in the input's folder of images.

  The plots of the split would become images of the input.
  """
  source = pathlib.Path(source)
  if (
    request
    and source.is_dir()
    and isinstance(made.examples.ids, examples_lib.Texts)
    and not rules.get(request.rule).has_lists
    and pathlib.Path(folder).resolve().is_relative_to(source.resolve())
  ):
    raise errors.InputError(
      f'--output={folder} lies in --input={source}, whose images the pictures of'
      ' the split would join; name a folder outside of it'
    )


def occupied(folder: str | os.PathLike, what: str) -> errors.InputError:
  """Returns an error that says that the folder already contains `what`."""
  return errors.InputError(
    f'--output={folder} holds {what}, and nothing is overwritten; name a new folder'
  )


def write(folder: str | os.PathLike, made: Made) -> None:
  """Writes the files of a split; the new folder appears when all files are complete."""
  folder = pathlib.Path(folder).resolve()
  work = folder.with_name(f'.{folder.name}.{os.getpid()}.tmp')
  with files.writing(f'--output={folder}', 'name another folder'):
    folder.parent.mkdir(parents=True, exist_ok=True)
    work.mkdir()
    try:
      _write_tables(work, made)
      files.write_json(work / SUMMARY, made.summary)
      _draw(work, made)
      os.rename(work, folder)  # Fails if `folder` already exists and is not empty.
    finally:
      shutil.rmtree(work, ignore_errors=True)


def draw_again(folder: str | os.PathLike, made: Made) -> None:
  """Draws the plots of a split in `folder` again, for example in other formats."""
  with files.writing(f'--output={folder}', 'mend that'):
    _draw(pathlib.Path(folder), made)


def _write_tables(folder: pathlib.Path, made: Made) -> None:
  data, counts = made.examples, _totals(made)
  if made.summary.get('rule'):
    split_files.write(folder / split_path.TRAIN, made.train, data)
  if made.test is not None:
    split_files.write_part(folder / split_files.TEST, made.test, made.tested, made.test_users)
  if data.retrieval is not None:
    path = folder / split_files.RETRIEVAL
    split_files.write_part(path, data.retrieval, data)
  names = data.class_names
  split_files.write_rows(
    folder / split_files.CLASSES,
    ('class', 'name', 'count'),
    len(names),
    lambda block: (block, [names[c] for c in block], counts[block]),
  )


def _totals(made: Made) -> np.ndarray:
  """Returns the number of clients' examples of each class, int64 [classes]."""
  return np.asarray(made.counts.sum(axis=0)).ravel()


def _draw(folder: pathlib.Path, made: Made) -> None:
  data, train = made.examples, made.train
  split_pictures.plot_clients(train.sizes, np.diff(made.counts.indptr), folder / 'clients.png')
  split_pictures.plot_class_counts(made.counts, train.client_ids, folder / 'class_counts.png')
  test = None
  if made.test is not None and not made.tested.has_sets:
    labels = made.tested.labels[made.test]
    test = np.bincount(labels[labels >= 0], minlength=len(data.class_names))
  split_pictures.plot_labels(_totals(made), test, folder / 'labels.png')
  if data.positions is not None:
    split_pictures.plot_map(data.positions[train.numbers], train.owners(), folder / 'map.png')


def to_text(summary: Mapping[str, Any], width: int) -> str:
  """Formats a summary as tables for a terminal with `width` characters per line."""
  lines = [f'split of {summary["input"]}']
  if 'rule' in summary:
    given = {**summary['settings'], 'seed': summary['seed']}
    settings = ' '.join(f'--{name}={value}' for name, value in given.items())
    lines = [f'{summary["rule"]} {settings}', f'of {summary["input"]}']
  whole = [['', 'number']]
  for name, told in _COUNTS.items():
    held_all = name == 'classes_held' and summary[name] == summary['classes']
    if name in summary and not held_all:
      whole.append([told, f'{summary[name]:,}'])
  whole.append(['EMD, from 0 (alike) to 2', f'{summary["emd"]:.3f}'])
  # The facts count, for example, the images without an author.
  for name, count in summary.get('facts', {}).items():
    if isinstance(count, int):
      whole.append([f'input: {name}', f'{count:,}'])
  spread = [['', *summary['examples_per_client']]]
  for noun in ('examples', 'classes'):
    values = summary[f'{noun}_per_client'].values()
    short = (f'{v:,.0f}' if v >= 1000 else f'{v:.4g}' for v in values)
    spread.append([f'{noun} a client', *short])
  tables = [text_table.to_text(rows, width=width) for rows in (whole, spread)]
  return '\n'.join([*lines, '', *tables])
