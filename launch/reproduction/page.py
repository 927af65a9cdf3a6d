"""Writes OUTPUT/report.html: all results of the papers, from what lies in OUTPUT.

The page is one file that opens without a network. Pictures are inside it, in fewer
colours and no wider than the text; those that would make it too large are read from
beside it. It holds no date: equal results give equal bytes.
"""

import base64
import io
import itertools
import pathlib
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from launch.reproduction import judge
from launch.reproduction import results
from tasks.papers import registry
from tasks.papers import table as table_lib
from tff_xc import errors
from tff_xc import files
from tff_xc import wording

FILE = 'report.html'
# Of the page.
_MOST_BYTES = 500_000
_LONG = 24  # Rows of a table that is folded away.
_WHY = 110  # Characters of a reason in the overview.
_COLOURS = 32  # Of a picture.
_WIDEST = 1024  # Pixels of a picture, as wide as the page.

_VERDICTS = judge.Verdict
# A mark beside the words, and what the words mean.
_MEANINGS = {
  _VERDICTS.REPRODUCED: (
    '✓',
    'every value is the published one, and no pair of rows disagrees',
  ),
  _VERDICTS.SHAPE: (
    '≈',
    'no pair of rows disagrees with the published order, most agree, and so do all'
    " claims of the paper's text; a study: what was expected holds",
  ),
  _VERDICTS.NOT: ('✗', 'a pair of rows or a claim disagrees, or values differ'),
  _VERDICTS.UNDECIDED: (
    '?',
    'nothing disagrees, and not enough agrees: the differences are within two'
    f' standard errors, or fewer than {judge.SEEDS} seeds were run',
  ),
  _VERDICTS.NOT_RUN: ('○', 'something is missing, or runs have not finished'),
  _VERDICTS.FORMULA: (
    '=',
    'sizes, volumes or settings that follow from a formula or a list; nothing is'
    ' trained, and the reason says how many of the published digits it gives',
  ),
  _VERDICTS.NOTHING: ('–', 'a diagram, without values'),
}
_EQUAL = (
  f'A value is the published one within {judge.POINTS:g} percent points'
  f' ({100 * judge.SHARE:g} % of rounds and counts) or two standard deviations of'
  ' either. A pair has a published order if it is further apart than that, and agrees'
  ' or disagrees if the means differ by more than two standard errors. Rows that draw the'
  ' same clients are compared seed by seed.'
)


def write(output: pathlib.Path, scale: str) -> pathlib.Path:
  """Writes the page of the results at a scale; returns its path."""
  import jinja2  # Late: flags are checked first.

  shown = [*_all(output, scale)]
  counts = [each['verdict'] for each in shown]
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
  )
  papers = [
    (name, group, results.counted([each['verdict'] for each in group]))
    for name, found in itertools.groupby(shown, lambda each: each['paper'])
    for group in [[*found]]
  ]
  template = environment.get_template('page.html.j2')
  render = lambda: template.render(
    papers=papers,
    total=len(shown),
    verdicts=[
      (verdict, mark, counts.count(verdict), meaning)
      for verdict, (mark, meaning) in _MEANINGS.items()
    ],
    equal=_EQUAL,
  )
  pictures = [p for each in shown for p in each['pictures'] if not p['like']]
  room = _MOST_BYTES - len(render().encode())
  # As many as there is room for, read from beside it until then.
  for picture in sorted(pictures, key=lambda each: len(each['data'])):
    room -= len(picture['data']) - len(picture['src'])
    if room < 0:
      break
    picture['src'] = picture['data']
  text = render()
  path = output / FILE
  with results.writing(output), files.replacing(path) as temporary:
    temporary.write_text(text, encoding='utf-8')
  return path


def _all(output: pathlib.Path, scale: str) -> Iterator[dict[str, Any]]:
  """Yields what the page says of each result."""
  first: dict[bytes, dict] = {}  # The picture of each content.
  for found in registry.RESULTS.values():
    of, problems = results.Measured(found, scale, results.frame()), []
    try:
      of = results.read(output, found, scale)
    except errors.InputError as e:
      problems.append(str(e))
    verdict, why, _ = of.judged
    folder, pictures = output / found.name, []
    # A formula needs no lines, and counts where it was asked for.
    is_formula = isinstance(found, table_lib.Formula)
    is_shown = is_formula and (folder / results.TEXT).is_file()
    if is_formula and not is_shown:
      verdict, why = _VERDICTS.NOT_RUN, 'it has not been measured here'
    is_shown = is_shown or len(of.lines)
    for path in sorted(folder.glob('*.png')) if is_shown else ():
      try:
        picture = _picture(output, found, path)
        same = first.setdefault(path.read_bytes(), picture)
        pictures.append(
          {**picture, 'like': same['of']} if same is not picture else picture
        )
      except (OSError, SyntaxError, ValueError):  # Pillow's, for damaged files.
        told = 'is missing or damaged; the command below draws it again'
        problems.append(f'{path.name} {told}')
    every = {
      name: ', '.join(filter(None, dict.fromkeys(of.lines[name])))
      for name in ('revision', 'processor')
    }
    yield {
      'id': found.name.replace('/', '-'),
      'paper': found.paper,
      'found': found,
      'verdict': verdict,
      'mark': _MEANINGS[verdict][0],
      'why': why,
      'short_why': textwrap.shorten(why, _WHY, placeholder=' …'),
      'what': of.what if len(of.lines) else '',
      'size': _size(of),
      'cost': wording.human_duration(of.seconds) if of.seconds else '',
      'tables': _tables(of) if is_shown else [],
      'pictures': pictures,
      'problems': problems,
      'commands': of.commands,
      **every,
      'files': [
        path.relative_to(output).as_posix()
        for path in (results.path_of(output, found.name), folder / results.TEXT)
        if path.is_file()
      ],
    }


def _size(of: results.Measured) -> str:
  """Returns at which size a result was measured; '' if not, or if it has one size."""
  is_study = isinstance(of.found, table_lib.Study)
  if not of.is_measured or (is_study and not of.found.needs):
    return ''
  if of.scale != 'paper':
    return 'small' if of.scale == 'small' else 'on real data'
  is_whole = of.commands == [of.usual_command]
  return "at the paper's size" if is_whole else 'in part, or changed'


def _tables(of: results.Measured) -> list[dict[str, Any]]:
  """Returns a result's tables; costs, orders and long ones are folded away."""
  return [
    {
      'id': f'{of.found.name.replace("/", "-")}-{place}',
      'caption': cells.title or 'Measured beside published',
      'heading': cells.heading,
      'rows': cells.rows,
      'numbers': [
        all(re.match(r'[<>+-]?\d|–$', cell) for cell in column)
        for column in zip(*cells.rows, strict=True)
      ],
      'is_folded': len(cells.rows) > _LONG or bool(cells.title),
      'note': '* another value than the published one'
      if any(cell.endswith('*') for row in cells.rows for cell in row[1:])
      else '',
    }
    for place, cells in enumerate(of.tables(), 1)
  ]


def _picture(output, found, path: pathlib.Path) -> dict[str, Any]:
  """Returns a picture: its address, its content as one, its text and size."""
  from PIL import Image  # Late: flags are checked first.

  if not path.is_file() or path.resolve().parent != path.parent.resolve():
    raise ValueError(f'{path} is a link, or no file')
  try:
    with Image.open(path) as image:
      small = image.convert('RGB')
  except Image.DecompressionBombError as e:
    raise ValueError(str(e)) from e
  width, height = small.size
  if width > _WIDEST:
    small = small.resize((_WIDEST, round(height * _WIDEST / width)))
  small = small.quantize(
    _COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
  )
  file = io.BytesIO()
  small.convert('RGB').save(file, 'WEBP', lossless=True, quality=100)
  data = base64.b64encode(file.getvalue()).decode()
  return {
    'of': found,
    'like': None,  # The result that has the same picture.
    'src': path.relative_to(output).as_posix(),
    'data': f'data:image/webp;base64,{data}',
    'alt': f'{found.title}, drawn from what was measured: {found.caption}',
    'width': width,
    'height': height,
  }
