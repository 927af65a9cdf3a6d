"""Parses one line of a file of the Extreme Classification Repository.

scikit-learn's svmlight reader, which `xc_text` uses, refuses ids that are
unsorted or repeated, cannot say which line is wrong, and accepts more than the
format allows: comments, underscores in numbers, labels such as 1.5, nan. So
`is_usual` says which lines it may read. This module parses the other lines, and
reports all errors of the format.
"""

import dataclasses
import itertools
import re
from typing import NamedTuple

from tff_xc import errors

# The patterns match a text in one way at most, so that they refuse a long line in
# linear time. (Possessive quantifiers need Python 3.11.)
_NUMBER = re.compile(rb'[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?')
_PAIR = re.compile(rb'(\d{1,18}):(%b)' % _NUMBER.pattern)
_WHOLE = re.compile(rb'\d+')
_BARE_PAIR = rb'\d+:%b' % _NUMBER.pattern
_PAIRS = rb'(?:[ \t]+%b)*[ \t]*\r?\n?' % _BARE_PAIR
_USUAL = {
  False: re.compile(rb'(?:%b)?%b' % (_BARE_PAIR, _PAIRS)),
  True: re.compile(rb'(?:%b|\d+(?:,\d+)*)?%b' % (_BARE_PAIR, _PAIRS)),
}
_INFINITE = 2.0**128 - 2.0**103  # float32 rounds this and more to infinity
_NOT_FINITE = re.compile(rb'[+-]?(inf|infinity|nan)', re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Layout:
  """The fields of a file's lines.

  Attributes:
    has_labels: True: lines are `l1,l2 f:v f:v`. False: `i:v i:v`.
    num_ids: i or f lies in [0, num_ids).
    num_labels: l lies in [0, num_labels).
    noun: the noun for i or f in errors: 'feature' or 'label'.
  """

  has_labels: bool
  num_ids: int
  num_labels: int = 0
  noun: str = 'feature'

  @property
  def holds_label_pairs(self) -> bool:
    """Whether lines are `l:1 l:1`."""
    return self.noun == 'label'


class Line(NamedTuple):
  """A line's content: ascending ids and labels; the ids' values."""

  ids: list[int]
  values: list[float]
  labels: list[int]


def is_usual(line: bytes, layout: Layout) -> bool:
  """Whether the svmlight reader reads a line as `parse` does, or raises.

  Ids may be out of range, unsorted or repeated, and values infinite.
  """
  return _USUAL[layout.has_labels].fullmatch(line) is not None


def parse(line: bytes, layout: Layout, where: str) -> Line:
  """Reads one line; accepts signs, exponents, tabs, any order, no labels.

  Args:
    line: with or without its end.
    layout: the expected fields.
    where: `<file>, line <number>`, for errors.

  Raises:
    errors.InputError: for a malformed token, an id out of range, a value that
      float32 cannot hold, or a repeated id.
  """
  fields = line.split()
  labels = []
  if layout.has_labels and fields and not _begins_with_features(line, fields):
    labels = _labels(fields.pop(0), layout, where)
  pairs = [_pair(field, layout, where) for field in fields]
  if layout.holds_label_pairs:
    pairs = list(dict.fromkeys(pairs))
  pairs.sort()
  for (before, _), (after, _) in itertools.pairwise(pairs):
    if before == after:
      raise errors.InputError(
        f'{where}: {layout.noun} {before} is given twice; keep one of its '
        'values'
      )
  return Line([i for i, _ in pairs], [v for _, v in pairs], sorted(set(labels)))


def _begins_with_features(line: bytes, fields: list[bytes]) -> bool:
  return line[:1].isspace() or b':' in fields[0]


def _labels(field: bytes, layout: Layout, where: str) -> list[int]:
  labels = []
  for token in field.split(b','):
    if not _WHOLE.fullmatch(token):
      raise errors.InputError(
        f'{where}: expected labels such as 3,17, found {_show(field)}; mend '
        'the line, or download the file again'
      )
    labels.append(_below(token, layout.num_labels, 'label', where))
  return labels


def _pair(field: bytes, layout: Layout, where: str) -> tuple[int, float]:
  """Parses `id:value`."""
  match = _PAIR.fullmatch(field)
  if match:
    i, value = int(match[1]), float(match[2])
    good = i < layout.num_ids and -_INFINITE < value < _INFINITE
    if good and (value == 1 or not layout.holds_label_pairs):
      return i, value
  return _odd_pair(field, layout, where)


def _odd_pair(field: bytes, layout: Layout, where: str) -> tuple[int, float]:
  """As `_pair`, for unusual forms: slower, and reports errors."""
  noun = layout.noun
  token, colon, number = field.partition(b':')
  if not colon or not _WHOLE.fullmatch(token):
    raise errors.InputError(
      f'{where}: expected {noun}:value, found {_show(field)}; mend the line, '
      'or download the file again'
    )
  i = _below(token, layout.num_ids, noun, where)
  if not _NUMBER.fullmatch(number) and not _NOT_FINITE.fullmatch(number):
    raise errors.InputError(
      f'{where}: expected a number as the value of {noun} {i}, found '
      f'{_show(number)}; mend the line, or download the file again'
    )
  value = float(number)
  if not -_INFINITE < value < _INFINITE:
    raise errors.InputError(
      f'{where}: the value of {noun} {i} is {_show(number)}, not a finite '
      'float32; mend the line'
    )
  if layout.holds_label_pairs and value != 1:
    raise errors.InputError(
      f'{where}: label {i} has the value {_show(number)}, expected 1; leave '
      'out labels that do not apply'
    )
  return i, value


def _below(token: bytes, limit: int, noun: str, where: str) -> int:
  # 20 digits are too large in any case; int() may refuse longer numbers.
  number = int(token.lstrip(b'0')[:20] or b'0')
  if number >= limit:
    raise errors.InputError(
      f'{where}: {noun} {token.decode()[:20]} is outside [0, {limit}); check '
      'the header, or download the file again'
    )
  return number


def _show(token: bytes) -> str:
  text = token.decode('utf-8', 'backslashreplace')
  return repr(text if len(text) <= 40 else text[:37] + '...')
