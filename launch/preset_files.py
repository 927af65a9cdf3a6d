"""Writes launch/presets/*.flags: whole settings for `--flagfile`.

  python -m launch.preset_files    (`make presets` calls it)

A preset is an experiment of a published table, or one of ours, with changes.
"""

import pathlib
import textwrap
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from tasks import registry as tasks
from tasks.papers import registry as papers
from tasks.papers import table as table_lib

FOLDER = pathlib.Path(__file__).parent / 'presets'


class Preset(NamedTuple):
  """Settings of a run.

  Attributes:
    about: what it is, what differs from the paper, and where the results are;
      sentences.
    row: the experiment, from a published table or ours.
    changes: further flags, by name.
    table: the published table that has the row; None for our own.
  """

  about: str
  row: table_lib.Row
  changes: Mapping[str, Any] = {}
  table: table_lib.PaperTable | None = None


def _published(
  about: str, table: str, row: tuple[str, str, Mapping[str, Any]], **changes
) -> Preset:
  """Returns the preset of a table's row: its task, algorithm and changes."""
  found = papers.TABLES[table]
  [same] = [r for r in found.rows if (r.task, r.algorithm, r.changes) == row]
  return Preset(about, same, changes, found)


def _own(about: str, task: str, algorithm: str, **changes) -> Preset:
  return Preset(about, table_lib.Row(task, algorithm, {}, changes))


def _small_set(task: str, labels: str, clients: int) -> Preset:
  return _own(
    f'FedAwS on {labels}, one label a client, {clients} clients a round. The'
    ' paper does not use this set. We chose the rates and --row_update=mean, the'
    " task's default: encoder and rows move by the mean delta, weighted by"
    ' example counts. For the expected results see docs/fedaws.md.',
    task,
    'fedaws',
    spreadout_neighbors=10,
    spreadout_weight=10,
    rounds=200,
  )


PRESETS: Mapping[str, Preset] = {
  'fedaws_bibtex': _small_set('bibtex', 'Bibtex: 159 labels', 128),
  'fedaws_delicious': _small_set('delicious', 'Delicious: 983 labels', 256),
  'fedaws_cifar10': _published(
    'CIFAR-10 with ResNet-8: one class a client, all clients in every round. The'
    ' paper gives neither rates nor rounds; we chose Adam on the server. 1,000'
    ' rounds are 10 epochs, far from convergence; docs/fedaws.md has the results of'
    ' 500.',
    'fedaws/table1',
    ('cifar10', 'fedaws', {'depth': 8}),
    rounds=1000,
  ),
  'fedss_landmarks': _published(
    'Row |S| = 95 (m = 5), on procedural data in the shape of Landmarks-User-160k. It'
    ' trains from scratch with Adam on the server and 16 clients a round; the'
    ' paper has SGD with momentum and a pretrained network.'
    ' --algorithm=negonly is the baseline to compare with.',
    'fedss/table1',
    ('glyphs-landmarks', 'fedss', {'negatives': 5}),
    clients_per_round=16,
    rounds=400,
    eval_every=100,
  ),
  'fedss_omniglot': _own(
    "FedSS on Omniglot's 480 drawers, 964 classes. The paper has no such table."
    ' Training starts from scratch, so the server uses Adam. docs/fedss.md has the'
    ' results of 300 rounds.',
    'omniglot',
    'fedss',
    negatives=80,
    rounds=1000,
  ),
  'fullsoftmax_omniglot': _own(
    'FullSoftmax, the reference for FedSS, on Omniglot. docs/fedss.md has the results'
    ' of 300 rounds.',
    'omniglot',
    'fullsoftmax',
    rounds=1000,
  ),
}


def text_of(name: str) -> str:
  """Returns the content of a preset's flag file."""
  preset = PRESETS[name]
  row, about = preset.row, preset.about
  if preset.table:
    about = f'{preset.table.title}. {about} {_results(preset)}'
  needs = '--data_dir=DIR ' if tasks.get(row.task).data else ''
  flags = {'task': row.task, 'algorithm': row.algorithm}
  lines = [
    *textwrap.wrap(
      about,
      80,
      initial_indent='# ',
      subsequent_indent='# ',
      break_on_hyphens=False,
    ),
    f'#   python -m launch.train --flagfile=launch/presets/{name}.flags \\',
    f'#     {needs}--run_dir=runs/{name}',
    '# `make presets` writes this file.',
    *(
      f'--{flag}={value}'
      for flag, value in {**flags, **row.changes, **preset.changes}.items()
    ),
  ]
  return '\n'.join(lines) + '\n'


def _results(preset: Preset) -> str:
  """Returns the published results of all algorithms with these settings."""
  task, _, _, changes = preset.row
  found = ', '.join(
    f'{row.algorithm} {row.results()}'
    for row in preset.table.rows
    if row.task == task and row.changes == changes
  )
  return f'Published: {found}.'


def main() -> None:
  """Writes every preset; a file of another name stays."""
  for name in PRESETS:
    (FOLDER / f'{name}.flags').write_text(text_of(name), encoding='utf-8')


if __name__ == '__main__':
  main()
