"""What came of a published table or figure: its verdict, cells and files."""

import contextlib
import dataclasses
import enum
import itertools
import math
import pathlib
import textwrap
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from tasks.papers import registry
from tasks.papers import result
from tff_xc import errors
from tff_xc import wording
from tff_xc.report import run_files
from tff_xc.report import text_table

FILE = 'result.json'
TEXT = 'result.md'
SCALES = ('paper', 'small')


class Verdict(enum.StrEnum):
  """What the measured values say of the published ones.

  REPRODUCED: every value is in the band of the published one.
  SHAPE: the order of the methods is the published one; of the small experiment, what
    was expected holds as far as its rounds can tell, and most pairs of rows are in
    the published order.
  NOT: neither.
  NOT_RUN: something that it needs is missing, or a run has not finished.
  NOTHING: it is a diagram, without values.
  """

  REPRODUCED = 'reproduced'
  SHAPE = 'shape reproduced'
  NOT = 'not reproduced'
  NOT_RUN = 'not run'
  NOTHING = 'nothing to run'


class Cells(NamedTuple):
  """A table of text.

  Attributes:
    title: what it shows; '': the result's own table.
    heading: of the columns; the first is aligned to the left.
    rows: cells, as many in each as the heading has.
  """

  title: str
  heading: tuple[str, ...]
  rows: tuple[tuple[str, ...], ...]


class Checked(NamedTuple):
  """Something that was expected, and what was measured.

  Attributes:
    says: what was expected, for people.
    measured: the value as text.
    holds: whether it is as expected; None if it was not measured, or the runs were
      too short to tell.
    is_reversed: whether it holds although the values are in the other order, by no
      more than it allows.
  """

  says: str
  measured: str
  holds: bool | None
  is_reversed: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
  """What came of a result.

  Attributes:
    name: of the result.
    scale: of `SCALES`.
    verdict: what the values say.
    why: the reason of the verdict, a sentence.
    what: what the small experiment made smaller, or what flags changed, a sentence;
      '' for nothing.
    command: that measures it again.
    tables: cells, the result's own first.
    checked: what was expected of it.
    pictures: names of files beside result.json.
    runs: directories of the runs, relative to the output's directory.
    seconds: that its runs took, one after another; None without runs.
    version: the revisions of this package that trained its runs, without runs the
      one that measured; '' outside a checkout.
  """

  name: str
  scale: str
  verdict: Verdict
  why: str
  what: str = ''
  command: str = ''
  tables: tuple[Cells, ...] = ()
  checked: tuple[Checked, ...] = ()
  pictures: tuple[str, ...] = ()
  runs: tuple[str, ...] = ()
  seconds: float | None = None
  version: str = ''

  @property
  def result(self) -> result.Result:
    return registry.RESULTS[self.name]

  @property
  def has_values(self) -> bool:
    """Whether it holds what was measured, if only of a part."""
    is_study = isinstance(self.result, result.Study)
    has_some = bool(self.tables) if is_study else self.seconds is not None
    return has_some or self.verdict is not Verdict.NOT_RUN


def judged(checked: Sequence[Checked]) -> tuple[Verdict, str]:
  """Returns the verdict on a small experiment, and why."""
  failed = [each for each in checked if each.holds is False]
  if failed:
    told = '; '.join(f'{each.says}: {each.measured}' for each in failed)
    return Verdict.NOT, f'{len(failed)} of {len(checked)} do not hold: {told}'
  open_ones = sum(each.holds is None for each in checked)
  other = sum(each.is_reversed for each in checked)
  told = (
    f', {other} in the other order, by no more than allowed' if other else ''
  )
  if not open_ones:
    all_of = f'all {len(checked)} expectations hold'
    return Verdict.SHAPE, (
      all_of if len(checked) > 1 else 'what was expected holds'
    ) + told
  hold = f'{len(checked) - open_ones} of {len(checked)} expectations hold{told}'
  why = f'{hold}, and the runs are too short to tell of the others'
  # Of a shape, most must have been seen.
  return Verdict.SHAPE if 2 * open_ones < len(checked) else Verdict.NOT, why


def folder(output: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the directory of a result's files."""
  return output / name


def write(outcome: Outcome, output: pathlib.Path) -> None:
  """Writes result.json and result.md to the result's directory.

  Raises:
    errors.DamageError: it cannot be written.
  """
  where = folder(output, outcome.name)
  with writing(where):
    run_files.write_json(where / FILE, dataclasses.asdict(outcome))
    with run_files.replacing(where / TEXT) as temporary:
      temporary.write_text(to_markdown(outcome), encoding='utf-8')


@contextlib.contextmanager
def writing(where: pathlib.Path) -> Iterator[None]:
  """Makes a directory, and names it if the block cannot write to it.

  Raises:
    errors.DamageError: it cannot be made, or the block raises an OSError.
  """
  try:
    where.mkdir(parents=True, exist_ok=True)
    yield
  except OSError as e:
    raise errors.DamageError(
      f'{where} cannot be written ({e.strerror}); name another --output'
    ) from e


def read(output: pathlib.Path, name: str) -> Outcome | None:
  """Returns what was written of a result; None if nothing was.

  Raises:
    errors.DamageError: the file is damaged, or another version wrote it.
  """
  path = folder(output, name) / FILE
  again = f'delete it, and run launch.reproduce {name} again'
  try:
    if not path.exists():
      return None
    values = run_files.read_json(path)
    if other := _other_version(values):
      raise errors.DamageError(
        f'{path} is of another version of this program ({other}); read it with'
        f' the one that wrote it, or {again}'
      )
    found = _parsed(values)
    if found.name != name:
      raise ValueError(f'it is of {found.name}')
    _check(found)
    return found
  except (OSError, ValueError, TypeError, KeyError) as e:
    raise errors.DamageError(f'{path} is damaged ({e}); {again}') from e


def _other_version(values: Any) -> str:
  """Returns how a result's fields differ from this version's; '' if they do not."""
  if not isinstance(values, dict) or not {'name', 'verdict'} <= set(values):
    return ''  # No result of any version.
  known = [field.name for field in dataclasses.fields(Outcome)]
  revision = values.get('version')  # Which wrote it is not known.
  of = f'its numbers are of revision {revision}' if revision else ''
  unknown = [name for name in values if name not in known]
  missing = [name for name in known if name not in values]
  if values['verdict'] not in list(Verdict):
    unknown.append(f'verdict {values["verdict"]!r}')
  if not unknown and not missing:
    return ''
  has = f'with the unknown {", ".join(unknown)}' if unknown else ''
  lacks = f'without {", ".join(missing)}' if missing else ''
  return ', '.join(filter(None, [has, lacks, of]))


def verdict_on(output: pathlib.Path, found: result.Result) -> Verdict:
  """Returns the verdict that was written on a result; errors are those of `read`."""
  if kept := read(output, found.name):
    return kept.verdict
  is_diagram = isinstance(found, result.Diagram)
  return Verdict.NOTHING if is_diagram else Verdict.NOT_RUN


def _parsed(found: dict[str, Any]) -> Outcome:
  return Outcome(
    **{
      **found,
      'verdict': Verdict(found['verdict']),
      'tables': tuple(
        Cells(title, tuple(heading), tuple(map(tuple, rows)))
        for title, heading, rows in found['tables']
      ),
      'checked': tuple(Checked(*each) for each in found['checked']),
      'pictures': tuple(found['pictures']),
      'runs': tuple(found['runs']),
    }
  )


def _check(found: Outcome) -> None:
  """Raises ValueError if a field read from a file is of another form."""
  texts = [
    *(found.scale, found.why, found.what, found.command, found.version),
    *(*found.pictures, *found.runs),
    *(text for each in found.checked for text in (each.says, each.measured)),
  ]
  for title, heading, rows in found.tables:
    texts += [title, *heading, *itertools.chain(*rows)]
    if any(len(row) != len(heading) for row in rows):
      raise ValueError('a row has more or fewer cells than the heading')
  for text in texts:
    if not isinstance(text, str):
      raise ValueError(f'expected text instead of {text!r}')
    if any(line != wording.shown(line) for line in text.split('\n')):
      raise ValueError(f'{text!r} has characters that a terminal may obey')
  for name in found.pictures:
    if name != pathlib.PurePath(name).name or not name.endswith('.png'):
      raise ValueError(f'the picture {name!r} is no .png beside it')
  for each in found.checked:
    for flag in (each.holds, each.is_reversed):
      if not (flag is None or isinstance(flag, bool)):
        raise ValueError(f'expected true, false or null instead of {flag!r}')
  seconds = found.seconds or 0.0
  if not isinstance(seconds, float | int) or not math.isfinite(seconds):
    raise ValueError(f'expected a number of seconds, not {found.seconds!r}')


def about(outcome: Outcome) -> str:
  """Returns what the result is, and what is different here, as a paragraph."""
  found = outcome.result
  sentences = [f'{found.title}, {found.source}', found.caption]
  if outcome.what:
    sentences.append(outcome.what)
  text = ' '.join(f'{sentence.rstrip(".")}.' for sentence in sentences)
  return f'{text} {found.notes}'.strip()


def expectations(outcome: Outcome) -> Cells | None:
  """Returns the table of what was expected; None if nothing was."""
  if not outcome.checked:
    return None
  return Cells(
    'Expected',
    ('expected', 'measured', 'holds'),
    tuple((e.says, e.measured, _holds(e)) for e in outcome.checked),
  )


def _holds(each: Checked) -> str:
  if each.is_reversed:
    return 'yes, in the other order'
  return {True: 'yes', False: 'no', None: 'unknown'}[each.holds]


def _all_tables(outcome: Outcome) -> list[Cells]:
  last = expectations(outcome)
  return [*outcome.tables, *([last] if last else [])]


def to_text(outcome: Outcome) -> str:
  """Returns an outcome for a terminal, ending in a newline."""
  width = text_table.terminal_width()
  blocks = [textwrap.fill(about(outcome), width) + '\n']
  for title, heading, rows in _all_tables(outcome):
    words = [
      i for i, cells in enumerate(zip(*rows, strict=False)) if _has_words(cells)
    ]
    shown = text_table.to_text([heading, *rows], {0, *words}, width)
    blocks.append(f'{title}\n{shown}' if title else shown)
  verdict = f'{outcome.verdict}: {outcome.why}'
  return '\n'.join([*blocks, textwrap.fill(verdict, width) + '\n'])


def _has_words(cells: Sequence[str]) -> bool:
  return any(char.isalpha() for cell in cells for char in cell)


def to_markdown(outcome: Outcome) -> str:
  """Returns an outcome as Markdown, ending in a newline."""
  pictures = [f'![{outcome.result.title}]({name})' for name in outcome.pictures]
  parts = [about(outcome), tables_of(outcome), *pictures]
  parts += [f'`{outcome.command}`'] if outcome.command else []
  return '\n\n'.join(part.rstrip('\n') for part in parts) + '\n'


def tables_of(outcome: Outcome, is_short: bool = False) -> str:
  """Returns an outcome's tables and verdict as Markdown, ending in a newline.

  Args:
    outcome: of a result.
    is_short: whether only its own table is wanted, without costs and expectations.
  """
  blocks = []
  for title, heading, rows in _all_tables(outcome)[: 1 if is_short else None]:
    table = text_table.to_markdown([heading, *rows])
    blocks.append(f'**{title}**\n\n{table}' if title else table)
  return '\n'.join([*blocks, f'**{outcome.verdict}**: {outcome.why}.\n'])


def counted(outcomes: Sequence[Outcome]) -> str:
  """Returns the numbers of the verdicts: '3 reproduced, 1 not run'."""
  found = [outcome.verdict for outcome in outcomes]
  return ', '.join(
    f'{found.count(verdict)} {verdict}'
    for verdict in Verdict
    if verdict in found
  )
