"""Reads LEAF's JSON, one user's examples in memory at a time.

A file is one object:

{"users": ["f1", ...], "num_samples": [12, ...],
 "user_data": {"f1": {"x": [...], "y": [...]}, ...}}

Its keys come in any order, and further keys ("hierarchies") are skipped.
Caldas et al.: LEAF: a benchmark for federated settings, 2018.
"""

import contextlib
import json
import pathlib
import re
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NoReturn

from tff_xc import errors

# Characters of the file to read at a time.
_CHUNK = 1 << 20
# Where a text is cut, the decoder reports an error within a token of the end.
_TOKEN = 32
_GET_IT = "make the file again with LEAF's preprocess.sh"
_KNOWN_NUMBERS = 4096
_BLANK = re.compile(r'[ \t\r\n]*')


def read(
  path: pathlib.Path, add: Callable[[str, list, list], None]
) -> list[str]:
  """Reads and checks a whole file.

  Args:
    path: the file.
    add: takes a user and the lists x and y, of one length, as they are in the
      file; called once for each user, in the order of "user_data".

  Returns:
    The users in the order of "users".

  Raises:
    errors.InputError: the file cannot be read, is not JSON of this form, or
      "users", "num_samples" and "user_data" do not agree.
  """
  sizes: dict[str, int] = {}

  def add_user(name: str, content: Any) -> None:
    where = f'{path}, user {name!r}'
    if name in sizes:
      raise errors.InputError(
        f'{where} is in "user_data" twice; keep one of the two'
      )
    if '\0' in name:
      raise errors.InputError(  # NumPy drops it from the end of a string.
        f'{where}: expected a name without NUL; rename the user'
      )
    x, y = _examples(content, where)
    sizes[name] = len(y)
    add(name, x, y)

  with _readable(path):
    file = path.open(encoding='utf-8-sig')
  with file:
    lists = _top_level(_Text(path, file), add_user)
  return _checked_users(path, lists, sizes)


@contextlib.contextmanager
def _readable(path: pathlib.Path) -> Iterator[None]:
  """Turns what opening and reading a file raise into an InputError.

  It must not enclose `add`, whose OSError is that of another file.
  """
  try:
    yield
  except UnicodeDecodeError as e:
    raise errors.InputError(
      f'{path} is not UTF-8 text (byte {e.start:,} of a block is '
      f'{e.object[e.start]:#04x}); give the JSON that LEAF writes, not packed'
    ) from e
  except OSError as e:
    raise errors.InputError(
      f'{path} cannot be read ({e}); check its permissions, or copy it again'
    ) from e


def _top_level(text: '_Text', add_user: Callable[[str, Any], None]) -> dict:
  """Reads the file's object; returns its lists `users` and `num_samples`."""
  lists, has_data = {}, False
  for key in text.keys('the file'):
    if key == 'user_data' and not has_data:
      has_data = True
      for name in text.keys('"user_data"'):
        add_user(name, text.value(f'user {name!r}'))
    elif key in ('users', 'num_samples', 'user_data'):
      if key in lists or key == 'user_data':
        raise errors.InputError(
          f'{text.path}: "{key}" is there twice; {_GET_IT}'
        )
      lists[key] = text.value(f'"{key}"')
    else:
      text.value(f'"{key}"')
  text.end()
  for key in ('users', 'num_samples', 'user_data'):
    if key not in lists and not (key == 'user_data' and has_data):
      raise errors.InputError(
        f'{text.path}: "{key}" is missing, expected an object with "users", '
        f'"num_samples" and "user_data"; {_GET_IT}'
      )
  return lists


def _examples(content: Any, where: str) -> tuple[list, list]:
  """Returns a user's x and y."""
  if not isinstance(content, dict) or not all(
    isinstance(content.get(key), list) for key in 'xy'
  ):
    raise errors.InputError(
      f'{where}: expected an object with the lists "x" and "y"; {_GET_IT}'
    )
  x, y = content['x'], content['y']
  if len(x) != len(y):
    raise errors.InputError(
      f'{where}: "x" has {len(x)} entries and "y" {len(y)}, expected as many; '
      f'{_GET_IT}'
    )
  return x, y


def _checked_users(path, lists: dict, sizes: dict[str, int]) -> list[str]:
  """Returns "users", compared with "num_samples" and the data."""
  users, numbers = lists['users'], lists['num_samples']
  for key, kind in (('users', str), ('num_samples', int)):
    entries = lists[key]
    if not isinstance(entries, list) or not all(
      type(entry) is kind for entry in entries
    ):
      said = {str: 'strings', int: 'whole numbers'}[kind]
      raise errors.InputError(
        f'{path}: "{key}" is not a list of {said}; {_GET_IT}'
      )
  if len(users) != len(numbers):
    raise errors.InputError(
      f'{path}: {len(users)} "users" have {len(numbers)} "num_samples", '
      f'expected as many; {_GET_IT}'
    )
  seen = set()
  for user, number in zip(users, numbers, strict=True):
    if user in seen:
      problem = f'user {user!r} is in "users" twice'
    elif user not in sizes:
      problem = f'user {user!r} has no data in "user_data"'
    elif sizes[user] != number:
      problem = (
        f'user {user!r} has {sizes[user]} examples, and "num_samples" says '
        f'{number}'
      )
    else:
      seen.add(user)
      continue
    raise errors.InputError(f'{path}: {problem}; {_GET_IT}')
  for user in sizes:
    if user not in seen:
      raise errors.InputError(
        f'{path}: user {user!r} has data and is not in "users"; {_GET_IT}'
      )
  return users


class _Numbers(dict):
  """The floats of their texts. Looking a text up is quicker than parsing it."""

  def __missing__(self, text: str) -> float:
    value = float(text)
    if len(self) < _KNOWN_NUMBERS:
      self[text] = value
    return value


class _Text:
  """The text of a file, decoded value by value.

  Attributes:
    path: the file, for errors.
  """

  def __init__(self, path: pathlib.Path, file):
    self.path = path
    self._file = file
    self._buffer, self._at = '', 0  # What is read; the next character.
    self._before = 0  # Characters of the file before the buffer.
    self._decode = json.JSONDecoder(
      parse_float=_Numbers().__getitem__
    ).raw_decode

  def keys(self, where: str) -> Iterator[str]:
    """Yields the keys of an object; the caller reads each key's value."""
    self._expect('{', where)
    if self._peek(where) == '}':
      self._at += 1
      return
    while True:
      if self._peek(where) != '"':
        self._fail('a key in double quotes', where)
      key = self.value(where)
      self._expect(':', where)
      yield key
      if self._expect(',}', where) == '}':
        return

  def value(self, where: str) -> Any:
    """Decodes the value that comes next."""
    closing = {'{': '}', '[': ']', '"': '"'}.get(self._peek(where))
    while not closing and len(self._buffer) - self._at < _TOKEN:
      if not self._read_more():
        break
    searched = 1
    while True:
      # Decoding is slow: not before the value can be complete.
      start = self._at + searched
      if not closing or self._buffer.find(closing, start) >= 0:
        found = self._decoded(where)
        if found:
          value, self._at = found
          return value
      searched = max(len(self._buffer) - self._at, 1)
      if not self._read_more():
        self._cut_short(where)

  def end(self) -> None:
    """Raises InputError unless only blanks follow."""
    try:
      self._peek('')
    except errors.InputError:
      return
    self._fail('nothing after the object', 'the file')

  def _decoded(self, where: str) -> tuple[Any, int] | None:
    """Returns the next value and its end; None if the buffer cuts it."""
    try:
      return self._decode(self._buffer, self._at)
    except json.JSONDecodeError as e:
      near_end = e.pos > len(self._buffer) - _TOKEN
      if near_end or e.msg.startswith('Unterminated string'):
        return None
      self._at = e.pos
      self._fail('JSON', where)
    except (RecursionError, ValueError) as e:
      raise errors.InputError(
        f'{self.path}, {where}: no JSON that can be read ({e}); {_GET_IT}'
      ) from e

  def _expect(self, wanted: str, where: str) -> str:
    """Passes the next character, which must be one of `wanted`."""
    found = self._peek(where)
    if found not in wanted:
      self._fail(' or '.join(wanted), where)
    self._at += 1
    return found

  def _peek(self, where: str) -> str:
    """Returns the next character that is not blank."""
    while True:
      self._at = _BLANK.match(self._buffer, self._at).end()
      if self._at < len(self._buffer):
        return self._buffer[self._at]
      if not self._read_more():
        self._cut_short(where)

  def _read_more(self) -> bool:
    """Reads on; forgets what is decoded. Returns False at the file's end."""
    # As much again, so that the value in a growing buffer is copied, and tried,
    # few times.
    rest = self._buffer[self._at :]
    with _readable(self.path):
      more = self._file.read(max(_CHUNK, len(rest)))
    self._before += self._at
    self._buffer, self._at = rest + more, 0
    return bool(more)

  def _fail(self, expected: str, where: str) -> NoReturn:
    at = self._at
    found = self._buffer[at : at + 20]
    raise errors.InputError(
      f'{self.path}, {where}: expected {expected} at character '
      f'{self._before + at + 1:,}, found {found!r}; {_GET_IT}'
    )

  def _cut_short(self, where: str) -> NoReturn:
    if not self._before and not self._buffer:
      raise errors.InputError(f'{self.path} is empty; {_GET_IT}')
    raise errors.InputError(
      f'{self.path} ends within {where}: it is cut short or damaged; copy it '
      f'again, or {_GET_IT}'
    )
