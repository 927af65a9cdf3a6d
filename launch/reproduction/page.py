"""Writes OUTPUT/report.html: all results of the papers, from what lies in OUTPUT.

The page is one file that opens without a network. Pictures are inside it; those
that would make it too large for a mail are read from beside it. It holds no date:
equal results give equal bytes.
"""

import base64
import io
import itertools
import pathlib
import re
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from launch.reproduction import bands
from launch.reproduction import outcome as outcome_lib
from tasks.papers import registry
from tasks.papers import result
from tff_xc import errors
from tff_xc import wording
from tff_xc.report import run_files

FILE = 'report.html'
_FOLDER = pathlib.Path(__file__).parent
# Of all pictures: less than 10 MB in the page, where a byte takes 4/3 characters.
_MOST_BYTES = 6_000_000
_LONG = 24  # Rows of a table that is folded away.
_WHY = 110  # Characters of a reason in the overview.
_FILES = ('result.csv', outcome_lib.TEXT, outcome_lib.FILE)
_COLOURS = (
  128  # Of a picture in the page, a quarter of the bytes of all colours.
)

_VERDICTS = outcome_lib.Verdict
# A mark beside the words, and what the words mean.
_MEANINGS = {
  _VERDICTS.REPRODUCED: (
    '✓',
    'every value is in the band of the published one and none in the other order, or'
    ' it has the published digits',
  ),
  _VERDICTS.SHAPE: (
    '≈',
    "at the paper's size: every published order holds, or without numbers what was"
    ' expected; small: what was expected holds, and so do most published orders; a'
    ' formula: some digits differ',
  ),
  _VERDICTS.NOT: ('✗', 'neither of these'),
  _VERDICTS.NOT_RUN: (
    '○',
    'something is missing, or runs have not finished or are too short',
  ),
  _VERDICTS.NOTHING: ('–', 'a diagram, without values'),
}


class _Table(NamedTuple):
  """A table of the page.

  Attributes:
    id: of its caption.
    caption: what it shows.
    heading: of the columns.
    rows: cells.
    numbers: of each column, whether its cells are numbers.
    is_folded: whether only its caption is seen at first.
    note: what a mark in its cells means; ''.
  """

  id: str
  caption: str
  heading: Sequence[str]
  rows: Sequence[Sequence[str]]
  numbers: Sequence[bool]
  is_folded: bool
  note: str


class _Picture(NamedTuple):
  """A picture: its address, what it shows, and its size in pixels."""

  src: str
  alt: str
  width: int
  height: int


class _Shown(NamedTuple):
  """A result on the page.

  Attributes:
    id: of its section.
    outcome: what came of it.
    mark: of the verdict.
    size: at which size it was measured, for people; ''.
    short_why: the beginning of the reason.
    cost: the time of its runs, for people; ''.
    tables: all its tables.
    pictures: those that can be read.
    problems: what cannot be read, sentences.
    files: (name, address relative to the page).
  """

  id: str
  outcome: outcome_lib.Outcome
  mark: str
  size: str
  short_why: str
  cost: str
  tables: Sequence[_Table]
  pictures: Sequence[_Picture]
  problems: Sequence[str]
  files: Sequence[tuple[str, str]]


class _Paper(NamedTuple):
  """The results of a paper, and the counts of their verdicts."""

  name: str
  sources: Sequence[str]
  results: Sequence[_Shown]
  counted: str


def write(output: pathlib.Path, scale: str) -> pathlib.Path:
  """Writes the page; returns its path.

  Results without files are 'not run', as are those whose files are damaged.

  Args:
    output: the directory of all results.
    scale: of the commands of results that have not been run.

  Raises:
    errors.InputError: it cannot be written.
  """
  path = output / FILE
  text = _page(output, scale)
  with outcome_lib.writing(output), run_files.replacing(path) as temporary:
    temporary.write_text(text, encoding='utf-8')
  return path


def _page(output: pathlib.Path, scale: str) -> str:
  import jinja2  # Late: flags are checked first.

  room = _Room(_MOST_BYTES)
  outcomes = [_outcome(output, found, scale) for found in _all()]
  papers = []
  for name, group in itertools.groupby(outcomes, lambda o: o.result.paper):
    group = list(group)
    papers.append(
      _Paper(
        name,
        list(dict.fromkeys(each.result.source for each in group)),
        [_shown(output, each, room) for each in group],
        outcome_lib.counted(group),
      )
    )
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_FOLDER),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
  )
  counts = [each.verdict for each in outcomes]
  return environment.get_template('page.html.j2').render(
    papers=papers,
    total=len(outcomes),
    verdicts=[
      (verdict, mark, counts.count(verdict), meaning)
      for verdict, (mark, meaning) in _MEANINGS.items()
    ],
    band=bands.MEANING,
    unknown=_unknown(output),
  )


def _all() -> Sequence[result.Result]:
  return list(registry.RESULTS.values())


def _outcome(
  output: pathlib.Path, found: result.Result, scale: str
) -> outcome_lib.Outcome:
  """Returns what was written of a result, or why there is nothing."""
  verdict, why = _VERDICTS.NOT_RUN, 'it has not been measured here'
  try:
    if kept := outcome_lib.read(output, found.name):
      return kept
  except errors.InputError as e:
    why = str(e)
  if isinstance(found, result.Diagram):
    verdict, why = _VERDICTS.NOTHING, 'it is a diagram'
  return outcome_lib.Outcome(
    name=found.name,
    scale=scale,
    verdict=verdict,
    why=why,
    command=f'python -m launch.reproduce {found.name} --scale={scale}',
  )


def _unknown(output: pathlib.Path) -> list[str]:
  """Returns names of directories with the outcome of no known result."""
  found = output.glob(f'*/*/{outcome_lib.FILE}')
  names = {path.parent.relative_to(output).as_posix() for path in found}
  return sorted(names - set(registry.RESULTS))


def _shown(
  output: pathlib.Path, outcome: outcome_lib.Outcome, room: '_Room'
) -> _Shown:
  pictures, problems = [], []
  for name in outcome.pictures:
    try:
      pictures.append(_picture(output, outcome, name, room))
    except (OSError, SyntaxError, ValueError):  # Pillow's, for damaged files.
      problems.append(
        f'{name} is missing or damaged; the command below draws it again'
      )
  folder = outcome_lib.folder(output, outcome.name)
  return _Shown(
    id=_id(outcome.name),
    outcome=outcome,
    mark=_MEANINGS[outcome.verdict][0],
    size=_size(outcome),
    short_why=textwrap.shorten(outcome.why, _WHY, placeholder=' …'),
    cost=wording.human_duration(outcome.seconds) if outcome.seconds else '',
    tables=_tables(outcome),
    pictures=pictures,
    problems=problems,
    files=[
      (name, f'{outcome.name}/{name}')
      for name in (*_FILES, *outcome.pictures)
      if (folder / name).is_file()
    ],
  )


def _size(outcome: outcome_lib.Outcome) -> str:
  """Returns at which size a result was measured; '' if not, or if it has one size."""
  found = outcome.result
  if outcome.verdict in (_VERDICTS.NOT_RUN, _VERDICTS.NOTHING):
    return ''
  has_one = isinstance(found, result.Study) and not found.needs
  if has_one or isinstance(found, result.Formula):
    return ''
  if outcome.scale == 'small':
    return 'small'
  return 'in part, or changed' if outcome.what else "at the paper's size"


def _id(name: str) -> str:
  return name.replace('/', '-')


def _tables(outcome: outcome_lib.Outcome) -> list[_Table]:
  """Returns a result's tables, with what was expected after its own."""
  first, rest = outcome.tables[:1], outcome.tables[1:]
  expected = outcome_lib.expectations(outcome)
  shown = [*first, *([expected] if expected else []), *rest]
  return [
    _Table(
      f'{_id(outcome.name)}-{place}',
      cells.title or 'Measured beside published',
      cells.heading,
      cells.rows,
      [_are_numbers(column) for column in zip(*cells.rows, strict=True)],
      len(cells.rows) > _LONG or cells in rest,
      _note(cells),
    )
    for place, cells in enumerate(shown, 1)
  ]


def _are_numbers(cells: Sequence[str]) -> bool:
  return all(re.match(r'[<>+-]?\d|–$', cell) for cell in cells)


def _note(cells: outcome_lib.Cells) -> str:
  marked = any(cell.endswith('*') for row in cells.rows for cell in row[1:])
  return '* out of the band of the published value' if marked else ''


class _Room:
  """How many bytes of pictures may still go into the page."""

  def __init__(self, size: int):
    self._left = size

  def take(self, size: int) -> bool:
    """Whether there is room for a picture, which is then taken."""
    fits = size <= self._left
    self._left -= size if fits else 0
    return fits


def _picture(
  output: pathlib.Path,
  outcome: outcome_lib.Outcome,
  name: str,
  room: _Room,
) -> _Picture:
  """Returns a picture.

  Raises:
    OSError, SyntaxError, ValueError: it is missing or damaged.
  """
  from PIL import Image  # Late: flags are checked first.

  path = outcome_lib.folder(output, outcome.name) / name
  if not path.is_file() or path.resolve().parent != path.parent.resolve():
    raise ValueError(
      f'{path} is no file of this folder'
    )  # Nor a link elsewhere.
  try:
    with Image.open(path) as image:
      size = image.size
      small = image.convert('RGB').quantize(
        _COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE
      )
  except Image.DecompressionBombError as e:
    raise ValueError(str(e)) from e
  file = io.BytesIO()
  small.save(file, 'PNG')
  src = f'{outcome.name}/{name}'
  if room.take(len(file.getvalue())):
    data = base64.b64encode(file.getvalue()).decode()
    src = f'data:image/png;base64,{data}'
  about = outcome.result
  alt = f'{about.title}, drawn from what was measured: {about.caption}'
  return _Picture(src, alt, *size)
