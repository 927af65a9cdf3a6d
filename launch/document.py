"""Writes the tables of the documentation from the runs that lie beside it.

  python -m launch.document README.md docs/*.md [--check]

A file's tables stand between two comments, of which the first says what is shown:

  <!-- compare docs/results/omniglot --columns=top1:0.1,top1@400 -->
  <!-- compare DIRECTORY... --columns=... --paper=turbosvm-fl/table3:femnist -->
  <!-- result docs/results/small/fedss/table1 [--short] -->
  <!-- verdicts docs/results/small -->
  <!-- benchmark docs/results/benchmarks/select.json [--short] -->
  <!-- table docs/results/measured/cluster_costs.csv -->
  ...
  <!-- end -->

compare: a row for each configuration of the runs, mean ± sample std over seeds.
--columns: scores, at a round (top1@400), at the end (top1) or in the round that the
run chose (best.pc@1), that round (best.round) and the bytes that the server sent until
it (best.bytes_down), rounds to a target (top1:0.1), and other columns of
`launch.compare` by their names in its CSV; with --relative_to=DIRECTORY, of a
configuration's runs, scores over its score (relative_top1). --paper: tables and
their tasks, whose published numbers of the same algorithm stand beside; only rows
without changes of their own have one. result: what `launch.reproduce
--output=docs/results/small` wrote, with --short without costs and expectations.
verdicts: how many results of each paper have which verdict. benchmark: what
`launch.benchmark NAME --output=FILE` wrote, with --short only its ratios. table: a
CSV as it is, of a command of tests/ that measures something.
Directories and files are relative to the page. --check changes nothing: exit status
2 if a table is not that of its runs.
"""

import csv
import math
import pathlib
import re
import shlex
from collections.abc import Sequence

from absl import flags

from launch import app
from launch import compare
from launch.benchmarks import report
from launch.reproduction import outcome as outcome_lib
from tasks import experiment
from tasks.papers import names
from tasks.papers import registry
from tasks.papers import table as table_lib
from tff_xc import errors
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


def document(path: pathlib.Path) -> str:
  """Returns a file's text with its tables written anew.

  Raises:
    errors.InputError: the file is not there, a table's end is missing, or a table
      cannot be made; the message names both.
  """
  try:
    text = path.read_text(encoding='utf-8')
  except OSError as e:
    raise errors.InputError(f'{path} cannot be read ({e.strerror})') from e

  opened, closed = len(_OPENING.findall(text)), len(_BLOCK.findall(text))
  if opened != closed:  # The text up to the next end would be lost.
    raise errors.InputError(
      f'{path} begins {opened} tables and ends {closed}; put <!-- end --> on a line'
      ' after each'
    )

  def written(found):
    start, kind, words, _, end = found.groups()
    try:
      made = _KINDS[kind](path.parent, shlex.split(words))
    except (errors.InputError, ValueError) as e:
      raise errors.InputError(f'{path}, "{kind} {words}": {e}') from e
    return f'{start}{made}{end}'

  return _BLOCK.sub(written, text)


def _compared(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns the table of runs; see the module's docstring."""
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


def _result(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns the tables and the verdict of a result."""
  is_short, where = _short(words)
  paper, number = pathlib.Path(where).parts[-2:]
  output = root / pathlib.Path(where).parents[1]
  found = outcome_lib.read(output, f'{paper}/{number}')
  if found is None:
    raise ValueError(f'nothing was written of {paper}/{number} in {output}')
  return outcome_lib.tables_of(found, is_short)


def _benchmark(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns the tables of a benchmark, and how they were made."""
  is_short, where = _short(words)
  found = report.read(root / where)
  try:
    return report.to_markdown(found, is_short)
  except (AttributeError, KeyError, TypeError) as e:
    raise ValueError(f'it is no report of a benchmark ({e})') from e


def _table(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns the rows of a CSV."""
  try:
    with open(root / _one(words), newline='', encoding='utf-8') as file:
      rows = list(csv.reader(file))
  except OSError as e:
    raise ValueError(f'it cannot be read ({e.strerror})') from e
  if len({len(row) for row in rows}) != 1:
    raise ValueError('it is no table: rows differ in length, or there are none')
  return text_table.to_markdown(rows)


def _short(words: Sequence[str]) -> tuple[bool, str]:
  """Returns whether `--short` is among the words, and the only other one."""
  return '--short' in words, _one([w for w in words if w != '--short'])


def _one(words: Sequence[str]) -> str:
  if len(words) != 1:
    raise ValueError(f'expected one path, not {len(words)}: {words}')
  return words[0]


def _verdicts(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns a line for each paper, with the counts of its results' verdicts."""
  output = root / _one(words)
  if not output.is_dir():
    raise ValueError(f'{output} is no directory')
  found: dict[str, list[outcome_lib.Verdict]] = {}
  for result in registry.RESULTS.values():
    verdict = outcome_lib.verdict_on(output, result)
    found.setdefault(result.paper, []).append(verdict)
  found['all'] = [
    verdict for of_paper in found.values() for verdict in of_paper
  ]
  kinds = list(outcome_lib.Verdict)
  lines = [
    [paper, *(str(counted.count(kind)) for kind in kinds), str(len(counted))]
    for paper, counted in found.items()
  ]
  return text_table.to_markdown([['paper', *map(str, kinds), 'all'], *lines])


_KINDS = {
  'compare': _compared,
  'result': _result,
  'verdicts': _verdicts,
  'benchmark': _benchmark,
  'table': _table,
}
_OPENING = re.compile(f'<!-- ({"|".join(_KINDS)}) ')
_BLOCK = re.compile(
  rf'({_OPENING.pattern}(.*?) -->\n)(.*?)(<!-- end -->)', re.DOTALL
)


def main(arguments: Sequence[str]) -> None:
  """Writes or checks the tables of the files on the command line."""
  if not arguments:
    raise errors.InputError('no file was named: launch.document README.md')
  made = {path: document(path) for path in map(pathlib.Path, arguments)}
  old = {path: path.read_text(encoding='utf-8') for path in made}
  stale = [str(path) for path, text in made.items() if text != old[path]]
  if flags.FLAGS.check and stale:
    raise errors.InputError(
      f'{", ".join(stale)}: tables differ from their runs; run launch.document'
    )
  for path in map(pathlib.Path, stale):
    path.write_text(made[path], encoding='utf-8')
    print(f'{path}: written')


if __name__ == '__main__':
  # Not at import, since other commands have flags of these names.
  flags.DEFINE_bool('check', False, 'change nothing; refuse tables that differ')
  app.run(main, __doc__)
