"""Parses many lines of the Extreme Classification Repository's format at once.

All work is arithmetic on arrays of bytes. All bytes except digits are marks. A
line is a list of steps; a step goes from a mark over any digits to the next
mark. Its two marks, and whether there are digits between them, determine its
meaning, which a table holds. A line with a step that the table does not know is
left to `xc_lines`, which parses it or reports the error.
"""

from typing import NamedTuple

import numpy as np

from datasets.xc import lines as xc_lines

# Marks.
_END, _SPACE, _COMMA, _COLON, _POINT, _MINUS, _OTHER = range(7)
# Meanings of a step: the role of its digits.
_BAD, _NOTHING, _LABEL, _ID, _INTEGER, _WHOLE, _FRACTION = range(7)

_PAD = 8  # bytes before the first line, so that 8 bytes precede each mark
_MAX_DIGITS = 22  # 10^22 is the last power of ten that float64 holds
_MAX_NUMBER = 10**18
_TENS = 10 ** np.arange(19, dtype=np.int64)
_FLOAT_TENS = np.array([float(f'1e{k}') for k in range(_MAX_DIGITS + 1)])
# Masks of 8 bytes, for k = 0, 1, …: keep the low halves of the last k bytes,
# which are the digits' values.
_LAST = np.array(
  [0x0F0F0F0F0F0F0F0F >> 8 * (8 - k) << 8 * (8 - k) for k in range(9)],
  np.uint64,
)


class Rows(NamedTuple):
  """The ids, and perhaps values, of each line.

  Attributes:
    counts: int64 [lines].
    ids: int32 [sum of counts], ascending within a line.
    values: float32, one for each id; None if ids have no values.
  """

  counts: np.ndarray
  ids: np.ndarray
  values: np.ndarray | None


def parse(
  lines: bytes, layout: xc_lines.Layout
) -> tuple[Rows, Rows, np.ndarray]:
  """Parses lines, each of which ends with a newline.

  A value equals `np.float32(float(text))`, bit for bit.

  Args:
    lines: the text.
    layout: the fields of the lines.

  Returns:
    The features and the labels of each line; and int64, ascending, the lines
    that `xc_lines` must parse. These have a count of 0 here.
  """
  data = np.frombuffer(b'\n' * _PAD + lines, np.uint8)
  # uint8 arithmetic: bytes below '0' wrap round to large numbers.
  at = np.flatnonzero(data - np.uint8(ord('0')) > 9)[_PAD - 1 :]
  mark = _MARKS[data[at]]
  digits = at[1:] - at[:-1] - 1
  meaning = _table(layout)[_step(mark[:-1], mark[1:], digits > 0)]
  number = _numbers(data, at[1:], digits)
  ends = np.flatnonzero(mark[1:] == _END)
  good = np.ones(len(ends), bool)
  wrong = meaning == _BAD
  if digits.max() > 16:
    wrong |= (digits > _MAX_DIGITS) | (number >= _MAX_NUMBER)
  good[np.searchsorted(ends, np.flatnonzero(wrong))] = False

  place = _of_good_lines(np.flatnonzero(meaning == _ID), ends, good)
  values, doubtful = _values(mark, meaning, digits, number, place)
  good[np.searchsorted(ends, place[doubtful])] = False
  features = _rows(number[place], values, _counts(place, ends), layout.num_ids)
  place = np.flatnonzero(meaning == _LABEL)
  labels = _rows(number[place], None, _counts(place, ends), layout.num_labels)

  features, wrong = _sorted(*features)
  good[wrong] = False
  if layout.holds_label_pairs:
    lines_of = np.repeat(np.arange(len(ends)), features.counts)
    good[lines_of[features.values != 1]] = False
  labels, wrong = _sorted(*labels)
  good[wrong] = False
  return _keep(features, good), _keep(labels, good), np.flatnonzero(~good)


def _step(before, after, has_digits):
  """Returns the index of a step in `_table`."""
  return (before * np.uint8(7) + after) * np.uint8(2) + has_digits


def _make_marks() -> np.ndarray:
  marks = np.full(256, _OTHER, np.uint8)
  marks[list(b'\n ,:.-')] = range(_OTHER)
  return marks


def _make_table(has_labels: bool) -> np.ndarray:
  """Returns the meaning of each step, uint8 [98]."""
  table = np.full(98, _BAD, np.uint8)

  def put(before, after, has_digits, meaning):
    table[(before * 7 + after) * 2 + has_digits] = meaning

  for start in (_END, _SPACE):
    put(start, _SPACE, False, _NOTHING)
    put(start, _END, False, _NOTHING)
    put(start, _COLON, True, _ID)
  for start in (_COLON, _MINUS):
    put(start, _POINT, True, _WHOLE)
    put(start, _SPACE, True, _INTEGER)
    put(start, _END, True, _INTEGER)
  put(_COLON, _MINUS, False, _NOTHING)
  put(_POINT, _SPACE, True, _FRACTION)
  put(_POINT, _END, True, _FRACTION)
  if has_labels:
    for start in (_END, _COMMA):
      for after in (_COMMA, _SPACE, _END):
        put(start, after, True, _LABEL)
  return table


_MARKS = _make_marks()
_TABLES = {has_labels: _make_table(has_labels) for has_labels in (False, True)}


def _table(layout: xc_lines.Layout) -> np.ndarray:
  return _TABLES[layout.has_labels]


def _numbers(
  data: np.ndarray, ends: np.ndarray, digits: np.ndarray
) -> np.ndarray:
  """Returns the numbers that end before `ends`, int64, at most `_MAX_NUMBER`.

  Args:
    data: uint8, the text.
    ends: int64 [k], the position of the byte after each number.
    digits: int64 [k], the numbers' lengths; results are correct for lengths up
      to `_MAX_DIGITS`.
  """
  words = np.ndarray([len(data) - 7], '<u8', data, strides=[1])
  number = _last_digits(words[ends - 8], np.minimum(digits, 8))
  long = np.flatnonzero(digits > 8)
  if long.size:
    more = np.minimum(digits[long] - 8, 8)
    number[long] += _last_digits(words[ends[long] - 16], more) * 10**8
    long = np.flatnonzero(digits > 16)
    more = np.minimum(digits[long] - 16, 8)
    top = _last_digits(words[ends[long] - 24], more)
    number[long] += np.minimum(top, 99) * 10**16
    number[long[top > 99]] = _MAX_NUMBER
  return number


def _last_digits(word: np.ndarray, count: np.ndarray) -> np.ndarray:
  """Parses the last `count` bytes, 0 to 8, of 8 bytes of text as a number.

  Combines neighbours in parallel within the word: digits into pairs, pairs into
  fours, fours into the number.
  """
  word &= _LAST[count]
  word *= np.uint64(1 + (10 << 8))
  word >>= np.uint64(8)
  word &= np.uint64(0x00FF00FF00FF00FF)
  word *= np.uint64(1 + (100 << 16))
  word >>= np.uint64(16)
  word &= np.uint64(0x0000FFFF0000FFFF)
  word *= np.uint64(1 + (10000 << 32))
  word >>= np.uint64(32)
  return word.view(np.int64)


def _values(mark, meaning, digits, number, place):
  """Returns the values of the ids at the steps `place`.

  Returns:
    float32 [k]; and bool [k], whether `xc_lines` must parse the value.
  """
  at = place + 1
  # mark[i + 1] ends step i.
  negative = mark[at + 1] == _MINUS
  if negative.any():
    at += negative
  has_fraction = meaning[at] == _WHOLE
  after = np.minimum(at + 1, len(digits) - 1)
  whole = number[at]
  decimals = digits[after] * has_fraction
  doubtful = (whole > 0) & (digits[at] + decimals > 18)
  scale = _TENS[np.minimum(decimals, 18)]
  exact = whole * scale + number[after] * has_fraction
  values = exact / _FLOAT_TENS[decimals]
  # A number up to 2^53 and the power are exact, so the quotient is rounded
  # once. For larger numbers the last bits may be wrong; this matters to float32
  # only near the midpoint of two of its numbers.
  large = np.flatnonzero(exact > 2**53)
  if large.size:
    low = values[large].view(np.int64) & (2**29 - 1)
    doubtful[large[np.abs(low - 2**28) <= 8]] = True
  np.negative(values, out=values, where=negative)
  return values.astype(np.float32), doubtful


def _of_good_lines(place, ends, good):
  if good.all():
    return place
  return place[good[np.searchsorted(ends, place)]]


def _counts(place: np.ndarray, ends: np.ndarray) -> np.ndarray:
  """Counts the steps `place`, which ascend, in each line."""
  return np.diff(np.searchsorted(place, ends, side='right'), prepend=0)


def _rows(number, values, counts, limit: int) -> tuple[Rows, np.ndarray]:
  """Returns unsorted rows, and the lines with a number of `limit` or more."""
  wrong = np.flatnonzero(number >= limit)
  number[wrong] = 0  # so that sorting does not mix lines
  lines = np.searchsorted(np.cumsum(counts), wrong, side='right')
  return Rows(counts, number.astype(np.int32), values), lines


def _sorted(rows: Rows, wrong: np.ndarray) -> tuple[Rows, np.ndarray]:
  """Sorts within lines; adds lines with a repeated id to `wrong`."""
  counts, ids, values = rows
  falls = ids[1:] <= ids[:-1]
  starts = np.cumsum(counts)[:-1]
  falls[starts[(starts > 0) & (starts < len(ids))] - 1] = False
  if not falls.any():
    return rows, wrong
  key = (np.repeat(np.arange(len(counts)), counts) << 32) | ids
  order = np.argsort(key, kind='stable')
  key = key[order]
  twice = key[1:][key[1:] == key[:-1]] >> 32
  if values is not None:
    values = values[order]
  return Rows(counts, ids[order], values), np.concatenate([wrong, twice])


def _keep(rows: Rows, good: np.ndarray) -> Rows:
  """Empties the lines that are not good."""
  if good.all():
    return rows
  counts, ids, values = rows
  kept = np.repeat(good, counts)
  values = None if values is None else values[kept]
  return Rows(counts * good, ids[kept], values)
