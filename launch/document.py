"""Writes the tables of the documentation from files of results.

  python -m launch.document README.md docs/*.md [--check]

Each table in a page stands between two comments. The first comment names the contents:

  <!-- compare docs/results/omniglot.csv --columns=top1:0.1,top1@400 -->
  <!-- compare FILE --columns=... --paper=turbosvm-fl/table3:femnist -->
  <!-- result docs/results fedss/table1 [--real] [--paper] [--short] -->
  <!-- verdicts docs/results -->
  <!-- overview docs/results -->
  <!-- benchmark docs/results/benchmarks/select.json [--short] -->
  <!-- table docs/results/measured/cluster_costs.csv -->
  <!-- audit docs/results/measured/audit_omniglot.csv --metric=top1 -->
  <!-- advice docs/results -->
  ...
  <!-- end -->

compare: the table in a file of `launch.compare RUN_DIR... --csv=FILE`. Each method has a row
  with mean ± sample standard deviation over seeds. --columns takes names of columns like
  `launch.compare`: a final score (top1), a score after a round (top1@400) or in the best round
  (best.pc@1), the rounds to a target (top1:0.1), and more. --paper=TABLE:TASK adds the
  published numbers of each algorithm, except for published rows with changed settings.
result: the tables of a result in a folder of `launch.reproduce --output=docs/results`, at the
  small scale. --real and --paper show the other scales. --short shows neither costs nor pairs
  of rows.
verdicts: a row for each paper with the number of results that have each verdict, at the small
  scale.
overview: a row for each result except diagrams, with the start of its caption and the verdict
  at the small scale. The row also shows the cause of the verdict, if the file causes.csv in
  the directory has it. This file has the columns result and cause.
benchmark: the tables in a file of `launch.benchmark NAME --output=FILE`. --short shows only the
  ratios.
table: the rows of a CSV.
audit: the table in an audit.csv of `launch.audit`. --metric names the score of the runs.
advice: the rules of `launch.plan`, with the comparisons in the directory that support them.

Directories and files are relative to the page. --check changes no page. If a table differs
from its results, --check ends with exit status 2.
"""

import csv
import itertools
import json
import pathlib
import re
import shlex
from collections.abc import Sequence

from absl import flags

from launch import advice, app, benchmark
from launch.reproduction import judge, lines as lines_lib, page
from tasks.papers import names, registry, table as table_lib
from tff_xc import errors, files
from tff_xc.lazy import pd
from tff_xc.report import audit, tables, text_table


def document(path: pathlib.Path) -> str:
  """Returns a file's text with its tables rewritten from the results."""
  text = _read(path)
  opened, closed, ends = (len(each.findall(text)) for each in (_OPENING, _BLOCK, _END))
  # With unequal numbers, the text up to the next end would be lost.
  if not opened == closed == ends:
    raise errors.InputError(
      f'{path} begins {opened:,} tables, ends {closed:,} of them, and has {ends:,} lines'
      ' <!-- end -->; put one after each table, which begins with <!-- and one of:'
      f' {", ".join(_KINDS)}'
    )

  def written(found):
    start, kind, words, line_end, _, end = found.groups()
    try:
      made = _KINDS[kind](path.parent, shlex.split(words))
    except (errors.InputError, AttributeError, LookupError, OSError, TypeError, ValueError) as e:
      raise errors.InputError(f'{path}, "{kind} {words}": {e}') from e
    return start + made.replace('\n', line_end) + end

  return _BLOCK.sub(written, text)


def _read(path: pathlib.Path) -> str:
  try:
    return files.read_text(path)
  except (OSError, UnicodeDecodeError) as e:
    raise errors.InputError(f'{path} cannot be read ({e})') from e


def _words(words: Sequence[str], paths: str, *flags_: str) -> tuple[list[str], dict[str, str]]:
  """Returns the arguments and the values of flags.

  `paths` has a name for each expected argument, and `flags_` are the allowed flags.
  """
  found = [word for word in words if not word.startswith('--')]
  given = dict(w[2:].partition('=')[::2] for w in words if w.startswith('--'))
  if len(found) != len(paths.split()) or not given.keys() <= {*flags_}:
    told = ' '.join([paths, *(f'[--{flag}]' for flag in flags_)])
    raise ValueError(f'expected {told}, not {" ".join(words)}')
  return found, given


def _result(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns the tables of a result, and its verdict."""
  (where, name), given = _words(words, 'DIRECTORY PAPER/TABLE', 'real', 'paper', 'short')
  if name not in registry.KNOWN:
    raise ValueError(f'there is no result {name}')
  scale = next((s for s in table_lib.SCALES if s in given), 'small')
  found = lines_lib.read(root / where, registry.KNOWN[name], scale)
  if not found.lines and not isinstance(found.found, table_lib.Formula):
    raise ValueError(f'nothing was written of {name} in {root / where}')
  return page.to_markdown(found, 'short' in given)


def _results(root: pathlib.Path, where: str) -> dict[str, lines_lib.Measured]:
  """Returns the measurements of each result at the small scale, by name."""
  if not any((root / where).glob('*.csv')):
    raise ValueError(f'no result was written to {where}')
  found = registry.RESULTS.items()
  return {name: lines_lib.read(root / where, each, 'small') for name, each in found}


def _verdicts(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns a row for each paper, which counts the verdicts on its results at the small scale."""
  [where], _ = _words(words, 'DIRECTORY')
  of: dict[str, list[judge.Verdict]] = {}
  for found in _results(root, where).values():
    of.setdefault(found.found.paper, []).append(judge.judge(found).verdict)
  of['all'] = [*itertools.chain(*of.values())]
  kinds = list(judge.Verdict)
  lines = [
    [paper, *(str(found.count(kind)) for kind in kinds), str(len(found))]
    for paper, found in of.items()
  ]
  return text_table.to_markdown([['paper', *map(str, kinds), 'all'], *lines])


def _overview(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns a row with agreement, verdict and cause for each result, except diagrams."""
  [where], _ = _words(words, 'DIRECTORY')
  results, path = _results(root, where), root / where / CAUSES
  rows = csv.DictReader(_read(path).splitlines() if path.exists() else ())
  causes = {row['result']: row['cause'] for row in rows}
  if unknown := causes.keys() - registry.RESULTS.keys():
    raise ValueError(f'{CAUSES} names {min(unknown)}, which is no result')
  lines = [['result', 'the paper shows', 'agreement', 'verdict']]
  for name, found in results.items():
    verdict, why, _ = judge.judge(found)
    if verdict is judge.Verdict.NOTHING:
      continue
    shown = re.split('[:;]', found.found.caption)[0]
    says = f'{verdict}. {causes[name]}' if name in causes else str(verdict)
    lines.append([f'`{name}`', shown, _in_short(why), says])
  return text_table.to_markdown(lines)


def _in_short(why: str) -> str:
  """Shortens the reason for a verdict to counts: '3/4 pairs; 1/1 claims', '6/6 bounds'."""

  def counted(found):
    counts = re.findall(r'(\d+) (\w+)', found[2])
    agree = sum(int(number) for number, word in counts if word.startswith('agree'))
    return f'{agree}/{sum(int(number) for number, _ in counts)} {found[1]}'

  why = re.sub('(pairs|claims) of [a-z ]+: ([^;]*)', counted, why)
  why = re.sub(r'(\d+) of (\d+) values are the published ones', r'\1/\2 values', why)
  why = why.replace('the expected value holds', '1/1 bounds')
  return re.sub(r'all (\d+) expected values hold', r'\1/\1 bounds', why)


def _benchmark(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns the tables of a benchmark, with a line on how they were measured."""
  [where], given = _words(words, 'FILE', 'short')
  return benchmark.to_markdown(json.loads((root / where).read_text('utf-8')), 'short' in given)


def _table(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns the rows of a CSV."""
  [where], _ = _words(words, 'FILE')
  with open(root / where, newline='', encoding='utf-8') as file:
    rows = list(csv.reader(file))
  if len({len(row) for row in rows}) != 1:
    raise ValueError('it is no table: rows differ in length, or there are none')
  return text_table.to_markdown(rows)


def _audit(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns the table of how much requests reveal to the server, with a row for each schedule."""
  [where], given = _words(words, 'FILE', 'metric')
  found = pd.read_csv(root / where)
  return text_table.to_markdown(audit.table(found, given.get('metric', '')))


def _advice(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns a row with links for each rule of `launch.plan`."""
  [where], _ = _words(words, 'DIRECTORY')
  for measured in advice.MEASURED:
    if not (root / where / measured.file).exists():
      raise ValueError(f'{measured.file} of {measured.name} is not in {where}')
  return ''.join(f'| {" | ".join(row)} |\n' for row in advice.table())


def _compare(root: pathlib.Path, words: Sequence[str]) -> str:
  """Returns columns of a table that `compare.keep` wrote, and columns with published numbers."""
  [where], given = _words(words, 'FILE', 'columns', 'paper')
  path = root / where
  table = tables.read_csv(path)
  names_ = given.get('columns', '').split(',')
  columns = [tables.column(name) for name in names_]
  for each in columns:
    if f'{each.key}_mean' not in table and f'{each.key}_by_seed' not in table:
      raise ValueError(f'{path} has no column {each.name}; write it anew with it')
  table['method'] = [f'`{label}`' for label in table['algorithm']]
  heading, *lines = tables.cells(table, columns, 'method')
  for paper in filter(None, given.get('paper', '').split(',')):
    metrics, published = _published(paper)
    heading += [f'paper: {names.heading(metric)}' for metric in metrics]
    for line, label in zip(lines, table['algorithm'], strict=True):
      numbers = published.get(label.split()[0], {})
      printed = (numbers.get(metric) for metric in metrics)
      line += [str(number or '–') for number in printed]
  return text_table.to_markdown([heading, *lines])


def _published(name: str):
  """Returns the metrics of a published table, and its numbers by algorithm."""
  table, _, task = name.partition(':')
  if table not in registry.TABLES:
    raise ValueError(f'there is no table {table}')
  rows = [row for row in registry.TABLES[table].rows if row.task == task]
  if not rows:
    raise ValueError(f'{table} has no results on {task!r}')

  plain = [row for row in rows if not table_lib.own_changes(row, rows)]
  return list(rows[0].published), {row.algorithm: row.published for row in plain}


_KINDS = {
  'compare': _compare,
  'result': _result,
  'verdicts': _verdicts,
  'overview': _overview,
  'benchmark': _benchmark,
  'table': _table,
  'audit': _audit,
  'advice': _advice,
}
# The file in a directory of results that names the causes of verdicts.
CAUSES = 'causes.csv'
_OPENING = re.compile(f'<!-- ({"|".join(_KINDS)}) ')
_BLOCK = re.compile(rf'({_OPENING.pattern}(.*?) -->(\r?\n))(.*?)(<!-- end -->)', re.DOTALL)
_END = re.compile(r'^<!-- end -->\r?$', re.MULTILINE)


def main(arguments: Sequence[str]) -> None:
  """Writes or checks the tables of the files that the command line names."""
  if not arguments:
    raise errors.InputError('no file was named: launch.document README.md')
  made = {path: document(path) for path in map(pathlib.Path, arguments)}
  old = {path: _read(path) for path in made}
  stale = [str(path) for path, text in made.items() if text != old[path]]
  if flags.FLAGS.check and stale:
    raise errors.InputError(
      f'{", ".join(stale)}: tables differ from their results; run launch.document'
    )
  for path in map(pathlib.Path, stale):
    with files.writing(path, 'it is as it was'), files.replacing(path) as temporary:
      temporary.write_text(made[path], encoding='utf-8')
    print(f'{path}: written')


if __name__ == '__main__':
  # Flags are not defined at import, because other commands have flags with the same names.
  flags.DEFINE_bool(
    'check',
    False,
    'do not change the pages; end with exit status 2 if a table differs from its results',
  )
  app.run(main, __doc__)
