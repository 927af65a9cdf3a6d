"""Writes the tables of the documentation from the runs that lie beside it.

  python -m launch.document README.md docs/*.md [--check]

A file's tables stand between two comments, of which the first says what is shown:

  <!-- compare docs/results/omniglot --columns=top1:0.1,top1@400 -->
  <!-- compare DIRECTORY... --columns=... --paper=turbosvm-fl/table3:femnist -->
  <!-- result docs/results fedss/table1 [--paper] [--short] -->
  <!-- verdicts docs/results -->
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
--output=docs/results` wrote, with --paper at the paper's size, with --short without
costs and orders. verdicts: how many small results of each paper have which verdict. benchmark: what
`launch.benchmark NAME --output=FILE` wrote, with --short only its ratios. table: a
CSV as it is, of a command of tests/ that measures something.
Directories and files are relative to the page. --check changes nothing: exit status
2 if a table is not that of its runs.
"""

import csv
import pathlib
import re
import shlex
from collections.abc import Sequence

from absl import flags

from launch import app
from launch import compared_runs
from launch.benchmarks import report
from launch.reproduction import results
from tff_xc import errors
from tff_xc.report import text_table


def document(path: pathlib.Path) -> str:
  """Returns a file's text with its tables written anew.

  Raises:
    errors.InputError: the file is not there, a table's end is missing, or a table
      cannot be made; the message names both.
  """
  text = _read(path)
  opened, closed = len(_OPENING.findall(text)), len(_BLOCK.findall(text))
  if opened != closed:  # The text up to the next end would be lost.
    raise errors.InputError(
      f'{path} begins {opened} tables and ends {closed}; put <!-- end --> on a line'
      ' after each'
    )
  if (ends := len(_END.findall(text))) != closed:
    raise errors.InputError(
      f'{path} has {ends} lines <!-- end --> for {closed} tables; a table begins with'
      f' <!-- and one of: {", ".join(_KINDS)}'
    )

  line_end = '\r\n' if '\r\n' in text else '\n'

  def written(found):
    start, kind, words, _, end = found.groups()
    start = start.replace(line_end, '\n')
    try:
      made = _KINDS[kind](path.parent, shlex.split(words))
    except (errors.InputError, ValueError) as e:
      raise errors.InputError(f'{path}, "{kind} {words}": {e}') from e
    return f'{start}{made}{end}'.replace('\n', line_end)

  return _BLOCK.sub(written, text)


def _read(path: pathlib.Path) -> str:
  """Returns a page's text, with its own line ends.

  Raises:
    errors.InputError: it cannot be read.
  """
  try:
    return path.read_bytes().decode('utf-8')
  except OSError as e:
    raise errors.InputError(f'{path} cannot be read ({e.strerror})') from e
  except UnicodeDecodeError as e:
    raise errors.InputError(f'{path} is no text in UTF-8 ({e.reason})') from e


def _write(path: pathlib.Path, text: str) -> None:
  """Replaces a page.

  Raises:
    errors.InputError: it cannot be written, and is as it was.
  """
  from tff_xc.report import run_files

  try:
    with run_files.replacing(path) as temporary:
      temporary.write_bytes(text.encode('utf-8'))
  except OSError as e:
    raise errors.InputError(
      f'{path} cannot be written ({e.strerror}); it is as it was'
    ) from e


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


_KINDS = {
  'compare': compared_runs.table,
  'result': results.document,
  'verdicts': results.document_verdicts,
  'benchmark': _benchmark,
  'table': _table,
}
_OPENING = re.compile(f'<!-- ({"|".join(_KINDS)}) ')
_BLOCK = re.compile(
  rf'({_OPENING.pattern}(.*?) -->\r?\n)(.*?)(<!-- end -->)', re.DOTALL
)
_END = re.compile(r'^<!-- end -->\r?$', re.MULTILINE)


def main(arguments: Sequence[str]) -> None:
  """Writes or checks the tables of the files on the command line."""
  if not arguments:
    raise errors.InputError('no file was named: launch.document README.md')
  made = {path: document(path) for path in map(pathlib.Path, arguments)}
  old = {path: _read(path) for path in made}
  stale = [str(path) for path, text in made.items() if text != old[path]]
  if flags.FLAGS.check and stale:
    raise errors.InputError(
      f'{", ".join(stale)}: tables differ from their runs; run launch.document'
    )
  for path in map(pathlib.Path, stale):
    _write(path, made[path])
    print(f'{path}: written')


if __name__ == '__main__':
  # Not at import, since other commands have flags of these names.
  flags.DEFINE_bool('check', False, 'change nothing; refuse tables that differ')
  app.run(main, __doc__)
