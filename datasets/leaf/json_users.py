"""Reads LEAF's JSON, one user's examples in memory at a time.

A file is one object:

{"users": ["f1", ...], "num_samples": [12, ...],
 "user_data": {"f1": {"x": [...], "y": [...]}, ...}}

Its keys come in any order, and further keys ("hierarchies") are skipped.
Caldas et al.: LEAF: a benchmark for federated settings, 2018.
"""

import pathlib
from collections.abc import Callable
from typing import Any

from datasets import json_text
from datasets import zip_members
from tff_xc import errors

_GET_IT = "make the file again with LEAF's preprocess.sh"


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

  with json_text.readable(path, _GET_IT):
    file = zip_members.open_text(path)
  with file:
    lists = _top_level(json_text.Text(path, file, _GET_IT), add_user)
  return _checked_users(path, lists, sizes)


def first_users(path: pathlib.Path) -> list[str] | None:
  """Reads "users" of a file that begins with them, as LEAF's do.

  Returns:
    None if it has others of its data before, or is damaged, which `read` tells.
  """
  try:
    with json_text.readable(path, _GET_IT):
      file = zip_members.open_text(path)
    with file:
      text = json_text.Text(path, file, _GET_IT)
      for key in text.keys('the file'):
        if key == 'users':
          found = text.value('"users"')
          return found if isinstance(found, list) else None
        if key == 'user_data':
          return None
        text.value(f'"{key}"')
  except errors.InputError:
    pass
  return None


def _top_level(
  text: json_text.Text, add_user: Callable[[str, Any], None]
) -> dict:
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
