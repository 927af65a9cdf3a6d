"""JSON as a stream: objects and arrays one value at a time, nothing else kept.

A file of any size needs the memory of its largest value that is decoded at once.
"""

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any
from typing import NoReturn

from datasets import zip_members
from tff_xc import errors
from tff_xc import memory

# Bytes of a value for each of its characters, at most and about.
_TIMES = 20
# Characters of the file to read at a time. A value that the end cuts is decoded
# twice, so that a chunk should have many.
_CHUNK = 1 << 22
# Where a text is cut, the decoder reports an error within a token of the end.
_TOKEN = 32
_KNOWN_NUMBERS = 4096
_BLANK = re.compile(r'[ \t\r\n]*')

readable = zip_members.readable


class _Numbers(dict):
  """The floats of their texts. Looking a text up is quicker than parsing it."""

  def __missing__(self, text: str) -> float:
    value = float(text)
    if len(self) < _KNOWN_NUMBERS:
      self[text] = value
    return value


class Text:
  """The text of a file, decoded value by value.

  All methods raise `errors.InputError` where the file is not JSON of this form;
  their argument `where` names the place in errors.
  """

  def __init__(self, path: pathlib.Path, file, get_it: str):
    """Takes a file of text, and how to get a good one, for errors."""
    self.path = path
    self._get_it = get_it
    self._file = file
    self._buffer, self._at = '', 0  # What is read; the next character.
    self._before = 0  # Characters of the file before the buffer.
    self._decode = json.JSONDecoder(
      parse_float=_Numbers().__getitem__
    ).raw_decode

  def keys(self, where: str) -> Iterator[str]:
    """Yields the keys of an object; the caller reads each key's value."""
    for _ in self._entries('{}', where):
      if self._peek(where) != '"':
        self._fail('a key in double quotes', where)
      key = self.value(where)
      self._expect(':', where)
      yield key

  def items(self, where: str) -> Iterator[Any]:
    """Yields the values of an array."""
    for _ in self._entries('[]', where):
      yield self.value(where)

  def value(self, where: str) -> Any:
    """Decodes the value that comes next."""
    self._peek(where)
    while True:
      try:
        value, end = self._decode(self._buffer, self._at)
        # At the buffer's end, a number may go on in the file.
        if end < len(self._buffer) or not self._read_more():
          self._at = end
          return value
      except json.JSONDecodeError as e:
        near_end = e.pos > len(self._buffer) - _TOKEN
        if not near_end and not e.msg.startswith('Unterminated string'):
          self._at = e.pos
          self._fail('JSON', where)
        if not self._read_more():
          self._cut_short(where)
      except (RecursionError, ValueError) as e:
        raise errors.InputError(
          f'{self.path}, {where}: no JSON that can be read ({e}); {self._get_it}'
        ) from e

  def end(self) -> None:
    """Raises InputError unless only blanks follow."""
    if self._next():
      self._fail('nothing after the object', 'the file')

  def _entries(self, brackets: str, where: str) -> Iterator[None]:
    """Passes brackets and commas; the caller reads what is between them."""
    self._expect(brackets[0], where)
    if self._peek(where) == brackets[1]:
      self._at += 1
      return
    while True:
      yield
      if self._expect(f',{brackets[1]}', where) == brackets[1]:
        return

  def _expect(self, wanted: str, where: str) -> str:
    """Passes the next character, which must be one of `wanted`."""
    found = self._peek(where)
    if found not in wanted:
      self._fail(' or '.join(wanted), where)
    self._at += 1
    return found

  def _peek(self, where: str) -> str:
    """Returns the next character that is not blank, of which there must be one."""
    return self._next() or self._cut_short(where)

  def _next(self) -> str:
    while True:
      self._at = _BLANK.match(self._buffer, self._at).end()
      if self._at < len(self._buffer) or not self._read_more():
        return self._buffer[self._at : self._at + 1]

  def _read_more(self) -> bool:
    """Reads on; forgets what is decoded. Returns False at the file's end."""
    # As much again, so that the value in a growing buffer is copied, and tried,
    # few times.
    rest = self._buffer[self._at :]
    if len(rest) > zip_members.LONGEST_LINE:
      what = f'{self.path}: a value that has not ended'
      # A number of two characters becomes one of many bytes.
      memory.require(_TIMES * len(rest), what, self._get_it)
    with readable(self.path, self._get_it):
      more = self._file.read(max(_CHUNK, len(rest)))
    if more:
      self._before += self._at
      self._buffer, self._at = rest + more, 0
    return bool(more)

  def _fail(self, expected: str, where: str) -> NoReturn:
    at = self._at
    found = self._buffer[at : at + 20]
    raise errors.InputError(
      f'{self.path}, {where}: expected {expected} at character '
      f'{self._before + at + 1:,}, found {found!r}; {self._get_it}'
    )

  def _cut_short(self, where: str) -> NoReturn:
    raise errors.InputError(
      f'{self.path} ends within {where}: it is empty, cut short or damaged; copy it'
      f' again, or {self._get_it}'
    )
