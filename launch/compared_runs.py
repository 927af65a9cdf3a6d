"""Tables of kept runs in a page; `launch.document` says how they are asked for."""

import math
import pathlib
from collections.abc import Sequence

from launch import compare
from tasks import experiment
from tasks.papers import names
from tasks.papers import registry
from tasks.papers import table as table_lib
from tff_xc.report import text_table

_NONE = '–'
# Numbers of the round that a run chose by a score, as `summary.json` has them.
_BEST = 'best.'
_BEST_NUMBERS = {
  'round': ('best round', 0, 1),
  'bytes_down': ('MiB sent down until then', 0, 2**-20),
}
_RELATIVE = 'relative_'
# What does not tell methods apart.
_UNSHOWN = ('rounds', 'eval_every', 'runtime', 'device')


def table(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns the table of runs; see `launch.document`."""
  from tff_xc.report import groups as groups_lib
  from tff_xc.report import run_files

  flags_, directories = _split(words, ('columns', 'paper', 'relative_to'))
  runs = [
    run_files.read_run(p)
    for p in compare.find_runs([root / d for d in directories])
  ]
  groups = groups_lib.group_runs(runs)
  reference = flags_['relative_to']
  if reference:
    reference = compare.find_reference(root / reference, runs[0])
  columns = [_column(n, reference) for n in flags_['columns'].split(',')]
  papers = [_paper(each) for each in filter(None, flags_['paper'].split(','))]
  heading = ['method', 'seeds', *(column.heading for column in columns)]
  heading += [
    f'paper: {names.heading(metric)}' for found, _ in papers for metric in found
  ]
  lines = []
  for group, label in zip(groups, _labels(groups), strict=True):
    values = [(column, column.of(group)) for column in columns]
    line = [f'`{label}`', str(len(group.runs))]
    line += [column.show(v) if v else _NONE for column, v in values]
    for metrics, published in papers:
      found = published.get(group.algorithm, {})
      line += [str(found.get(metric) or _NONE) for metric in metrics]
    lines.append(line)
  return text_table.to_markdown([heading, *lines])


def _labels(groups) -> list[str]:
  """Returns the algorithm, and what differs of its defaults on the task."""
  from tff_xc.report import groups as groups_lib
  from tff_xc.report import run_files

  changes = []
  for group in groups:
    run = group.runs[0]
    usual = run_files.flat(experiment.resolve(run.task, run.algorithm, {}))
    changes.append(
      {
        name: value
        for name, value in groups_lib.settings_of(run).items()
        if name in usual and usual[name] != value and name not in _UNSHOWN
      }
    )
  return [
    ' '.join(
      [
        group.algorithm,
        *(
          f'{name}={value}'
          for name, value in own.items()
          if any(other.get(name) != value for other in changes)
        ),
      ]
    )
    for group, own in zip(groups, changes, strict=True)
  ]


def _split(words, names) -> tuple[dict[str, str], list[str]]:
  """Returns the flags with these names, '' where absent, and the other words."""
  found = dict.fromkeys(names, '')
  others = []
  for word in words:
    name, equals, value = word.removeprefix('--').partition('=')
    if not word.startswith('--'):
      others.append(word)
    elif equals and name in found:
      found[name] = value
    else:
      raise ValueError(
        f'{word} is none of {", ".join(f"--{n}=" for n in names)}'
      )
  return found, others


def _column(name: str, reference=''):
  """Returns a column: a score, 'top1@400', a target, or one of the CSV's.

  With a reference, 'relative_top1' is a score over that of these runs.
  """
  import dataclasses

  from tff_xc.measure import targets
  from tff_xc.report import columns
  from tff_xc.report import groups
  from tff_xc.report import run_files

  known = {column.name: column for column in columns.COLUMNS}
  score, at, rounds = name.rpartition('@')  # As in p@1@100.
  if name in known:
    return known[name]
  if name.startswith(_BEST):
    return _of_best_round(name, known)
  if reference and name.startswith(_RELATIVE):
    score = name.removeprefix(_RELATIVE)
    return columns.relative(score, columns.whole(reference, score))[0]
  if at and rounds.isdigit() and score in known:

    def after(group):
      cut = [run_files.first_rounds(run, int(rounds)) for run in group.runs]
      return known[score].of(groups.Group('', '', tuple(cut)))

    heading = f'{known[score].heading} after {int(rounds):,} rounds'
    return dataclasses.replace(known[score], heading=heading, of=after)
  if ':' in name:
    target = targets.parse_one(name)
    return columns.with_targets([target])[1]
  raise ValueError(f'there is no column {name}; there are {", ".join(known)}')


def _of_best_round(name: str, known):
  """Returns the column of a number of the round that each run chose."""
  from tff_xc.report import columns

  key = name.removeprefix(_BEST)
  heading, digits, factor = _BEST_NUMBERS.get(key, ('', 1, 100))
  if not heading:
    if key not in known:
      raise ValueError(f'there is no column {name}; {key} is no score')
    heading = f'{known[key].heading}, best round'

  def of(group):
    best = [run.summary.get('best_round') or {} for run in group.runs]
    found = [each.get(key, math.nan) for each in best]
    if any(map(math.isnan, found)):
      return None
    return columns.Value(*columns.mean_and_std(found))

  return columns.Column(name, heading, of, columns.with_std(digits, factor))


def _paper(name: str):
  """Returns the metrics of a table, and its numbers by algorithm."""
  table, _, task = name.partition(':')
  if table not in registry.TABLES:
    raise ValueError(f'there is no table {table}')
  rows = [row for row in registry.TABLES[table].rows if row.task == task]
  if not rows:
    raise ValueError(f'{table} has no results on {task!r}')
  own = lambda row: table_lib.own_changes(row, rows)
  plain = {row.algorithm: row.published for row in rows if not own(row)}
  return list(rows[0].published), plain
