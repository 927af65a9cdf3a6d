"""Who speaks what in Project Gutenberg's complete Shakespeare.

LEAF makes its Shakespeare of etext 100 as it was until 2018 (`pg100.txt`): one
user for each speaking role of each play. These are the rules of its
preprocess_shakespeare.py, with the later fix that speakers' names count in upper
case. (A still later version of LEAF makes windows line by line; the published
1,129 users have one text each.)
"""

import itertools
import os
import re

from datasets import zip_members
from tff_xc import errors

_AUTHOR = 'by William Shakespeare'
# Counted from 0 without the file's first line; the poems follow.
_LAST_LINE = 124_195
_SPEAKER = re.compile(r'  ([a-zA-Z][a-zA-Z ]*)\. (.*)')
_MORE = re.compile(r'    (.*)')
# One play is indented less than the others.
_FLAT_PLAY = 'THE COMEDY OF ERRORS'
_FLAT_SPEAKER = re.compile(r'([a-zA-Z][a-zA-Z ]*)\. (.*)')
_FLAT_MORE = re.compile(r'(.*)')
# A role needs more lines than this.
_FEW_LINES = 2


def read(path: str | os.PathLike) -> dict[str, str]:
  """Returns the lines of each role, each with a newline, by `PLAY_SPEAKER`, in
  the order of the plays and of the speakers' first lines."""
  advice = 'get pg100.txt of Project Gutenberg again'
  with zip_members.readable(path, advice), zip_members.open_text(path) as file:
    text = file.read()
  found = roles(text)
  if not found:
    raise errors.InputError(
      f'{path}: no play with two speakers; get etext 100 of Project Gutenberg in '
      'its edition of 1994 (pg100.txt), whose plays each begin with the line '
      f'{_AUTHOR!r}'
    )
  return found


def roles(text: str) -> dict[str, str]:
  """Returns the lines of each role, see `read`."""
  found: dict[str, list[str]] = {}
  for play, speakers in _plays(text.splitlines()[1:]):
    if len(speakers) < 2:
      continue  # Poems and tables of contents.
    for speaker, lines in speakers.items():
      if len(lines) > _FEW_LINES:
        role = re.sub(r'\W+', '_', f'{play}_{speaker}'.replace(' ', '_'))
        found.setdefault(role, []).extend(lines)
  return {
    role: ''.join(f'{line}\n' for line in lines)
    for role, lines in found.items()
  }


def _plays(lines: list[str]):
  """Yields titles, and for each play its speakers with their lines."""
  begins = [i for i, line in enumerate(lines) if _AUTHOR in line]
  begins = [i for i in begins[1:] if i <= _LAST_LINE]
  for begin, end in itertools.pairwise([*begins, _LAST_LINE + 1]):
    # The nearest line above the author's that is not blank.
    above = (lines[begin - k].strip() for k in range(2, 8) if k <= begin)
    title = next(filter(None, above), '')
    yield title, _speakers(lines[begin + 1 : end], title == _FLAT_PLAY)


def _speakers(lines: list[str], flat: bool) -> dict[str, list[str]]:
  """Returns the lines of each speaker of a play, which may be the flat one."""
  begin, more = (_FLAT_SPEAKER, _FLAT_MORE) if flat else (_SPEAKER, _MORE)
  speakers: dict[str, list[str]] = {}
  current = None
  for line in lines:
    if match := begin.match(line):
      name = match[1].upper()
      # In the flat play, headings look like speakers.
      current = None if flat and name.startswith('ACT ') else name
      if current:
        speakers.setdefault(current, []).append(match[2])
    elif current and (match := more.match(line)):
      if flat and match[1].startswith('<'):
        current = None
      else:
        speakers[current].append(match[1])
  return speakers
