"""Writes a split into a folder: all of its files, or none.

federated_train.csv   user_id,image_id,class
test.csv              image_id,class, if there is a test part
retrieval.csv         image_id,class, if the input has examples of other classes
                      for a retrieval test; these are numbered after all others
classes.csv           class,name,count: examples of each class with clients
summary.json          the rule, its settings, and what came of it
clients.png           clients by size, and by their classes
class_counts.png      the classes of clients
labels.png            examples of each class
map.png               examples by client, if it is known where they were taken
"""

import filecmp
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from datasets import examples as examples_lib
from datasets.splits import making
from datasets.splits import rules
from datasets.splits import split_files
from datasets.splits import split_path
from tff_xc import errors
from tff_xc import files
from tff_xc.report import split_pictures
from tff_xc.report import text_table

SUMMARY = 'summary.json'
# What the text calls counts of a summary.
_COUNTS = {
  'clients': 'clients',
  'classes': 'classes',
  'classes_held': 'classes of clients',
  'examples': 'examples of clients',
  'examples_unused': 'examples of nobody',
  'test_examples': 'test examples',
  'retrieval_examples': 'retrieval examples',
}


def find(
  folder: str | os.PathLike, request: rules.Request | None
) -> dict[str, Any] | None:
  """Returns the summary of the same request's split in a folder, if it is there.

  Raises:
    errors.InputError: there is anything else in the folder.
  """
  folder = pathlib.Path(folder)
  if not folder.exists():
    return None
  if folder.is_dir() and not any(folder.iterdir()):
    # It is replaced, and a shell in it would see nothing of the new one.
    if folder.samefile('.'):
      raise errors.InputError(
        f'--output={folder} is the folder that the command runs in; name a new one'
      )
    return None
  try:
    found = json.loads((folder / SUMMARY).read_text(encoding='utf-8'))
    asked = json.loads(json.dumps(request._asdict()))
    other = [n for n in asked if found.get(n) != asked[n]]
  except (OSError, ValueError, AttributeError) as e:
    raise _occupied(folder, 'something else') from e
  if other:
    raise _occupied(folder, f'a split of another request ({other[0]})')
  return found


def check_apart(
  folder: str | os.PathLike,
  source: str | os.PathLike,
  request: rules.Request | None,
  made: making.Made,
) -> None:
  """Raises InputError if the split's pictures would be images of its input."""
  source = pathlib.Path(source)
  are_all_images = (
    request
    and source.is_dir()
    and isinstance(made.examples.ids, examples_lib.Texts)
    and not rules.get(request.rule).has_lists
  )
  if are_all_images and pathlib.Path(folder).resolve().is_relative_to(
    source.resolve()
  ):
    raise errors.InputError(
      f'--output={folder} lies in --input={source}, whose images the pictures of'
      ' the split would join; name a folder outside of it'
    )


def _occupied(folder: str | os.PathLike, what: str) -> errors.InputError:
  return errors.InputError(
    f'--output={folder} holds {what}, and nothing is overwritten; name a new'
    ' folder'
  )


def check_same(
  folder: str | os.PathLike, found: Mapping[str, Any], made: making.Made
) -> None:
  """Raises InputError unless a split that was found is the one made."""
  if found.get('fingerprint') != made.summary['fingerprint']:
    raise _occupied(folder, 'a split of other data')
  try:
    with tempfile.TemporaryDirectory() as work:
      _write_tables(pathlib.Path(work), made)
      for name in sorted(os.listdir(work)):
        there = pathlib.Path(folder, name)
        if not there.is_file():
          raise _occupied(folder, f'this split without its {name}')
        if not filecmp.cmp(there, pathlib.Path(work, name), shallow=False):
          raise _occupied(folder, f'this split with another {name}')
  except OSError as e:
    raise errors.InputError(
      f'{e.filename} cannot be read or written ({e.strerror}); check its'
      ' permissions'
    ) from e


def write(folder: str | os.PathLike, made: making.Made) -> None:
  """Writes the files of a split; a new folder appears when they are complete.

  Raises:
    errors.InputError: it cannot be written.
  """
  folder = pathlib.Path(folder).resolve()  # Of a link, what it leads to.
  work = folder.with_name(f'.{folder.name}.{os.getpid()}.tmp')
  try:
    folder.parent.mkdir(parents=True, exist_ok=True)
    work.mkdir()
    try:
      _write_tables(work, made)
      files.write_json(work / SUMMARY, made.summary)
      _draw(work, made)
      os.rename(work, folder)  # Fails if there is a folder that is not empty.
    finally:
      shutil.rmtree(work, ignore_errors=True)
  except OSError as e:
    raise errors.InputError(
      f'--output={folder} cannot be written ({e.strerror}); name another folder'
    ) from e


def _write_tables(folder: pathlib.Path, made: making.Made) -> None:
  data = made.examples
  if made.summary.get('rule'):
    split_files.write(folder / split_path.TRAIN, made.train, data)
  if made.test is not None:
    split_files.write_part(folder / split_files.TEST, made.test, made.tested)
  if data.retrieval is not None:
    path = folder / split_files.RETRIEVAL
    split_files.write_part(path, data.retrieval, data)
  counts = np.asarray(made.counts.sum(axis=0)).ravel()
  names = data.class_names
  split_files.write_rows(
    folder / split_files.CLASSES,
    ('class', 'name', 'count'),
    len(names),
    lambda block: (
      block.tolist(),
      [names[c] for c in block],
      counts[block].tolist(),
    ),
  )


def _draw(folder: pathlib.Path, made: making.Made) -> None:
  data, train = made.examples, made.train
  split_pictures.plot_clients(
    train.sizes, np.diff(made.counts.indptr), folder / 'clients.png'
  )
  split_pictures.plot_class_counts(
    made.counts, train.client_ids, folder / 'class_counts.png'
  )
  test = None
  if made.test is not None and not made.tested.has_sets:
    labels = made.tested.labels[made.test]
    test = np.bincount(labels[labels >= 0], minlength=len(data.class_names))
  counts = np.asarray(made.counts.sum(axis=0)).ravel()
  split_pictures.plot_labels(counts, test, folder / 'labels.png')
  if data.positions is not None:
    split_pictures.plot_map(
      data.positions[train.numbers], train.owners(), folder / 'map.png'
    )


def to_text(summary: Mapping[str, Any], width: int) -> str:
  """Returns a summary as tables that fit a terminal of `width` characters."""
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
  # What the input lacks, such as images without author, is told here.
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
