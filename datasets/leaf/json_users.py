"""Reads LEAF's JSON, one user's examples in memory at a time.

A file is one object:

{"users": ["f1", ...], "num_samples": [12, ...],
 "user_data": {"f1": {"x": [...], "y": [...]}, ...}}

Its keys come in any order, and further keys ("hierarchies") are skipped.
Caldas et al.: LEAF: a benchmark for federated settings, 2018.
"""

import contextlib
import pathlib
from collections.abc import Callable
from collections.abc import Iterable

from datasets import json_text
from tff_xc import errors

_GET_IT = "make the file again with LEAF's preprocess.sh"


def read_all(
  paths: Iterable[pathlib.Path], add: Callable[[str, str, list, list], None]
) -> list[str]:
  """Reads whole files, of which no two have one user; returns "users", in order.

  `add` takes `<file>, user <name>` for errors, a user, and the lists x and y, of
  one length; once for each user, in the order of "user_data". Raises
  `errors.InputError` if a file is not JSON of this form, or its parts do not agree.
  """
  users, seen = [], {}
  for path in paths:
    sizes = {}
    lists = dict.fromkeys(('users', 'num_samples', 'user_data'))
    with json_text.opened(path, _GET_IT) as text:
      for key in text.keys('the file'):
        if key != 'user_data':
          value = text.value(f'"{key}"')
          lists |= {key: value} if key in lists else {}
          continue
        lists[key] = sizes
        for name in text.keys('"user_data"'):
          where = f'{path}, user {name!r}'
          data = text.value(f'user {name!r}')
          data = data if isinstance(data, dict) else {}
          x, y = data.get('x'), data.get('y')
          if type(x) is not list or type(y) is not list or len(x) != len(y):
            raise errors.InputError(
              f'{where}: expected an object with the lists "x" and "y" of one'
              f' length; {_GET_IT}'
            )
          if name in seen:
            also = '' if seen[name] == path else f', also in {seen[name]}'
            raise errors.InputError(
              f'{where} is there twice{also}; keep one of the two'
            )
          seen[name], sizes[name] = path, len(y)
          add(where, name, x, y)
      text.end()
    if missing := [key for key, found in lists.items() if found is None]:
      raise errors.InputError(
        f'{path}: "{missing[0]}" is missing, expected an object with "users",'
        f' "num_samples" and "user_data"; {_GET_IT}'
      )
    users += _agreed(path, lists['users'], lists['num_samples'], sizes)
  return users


def _agreed(path, users, numbers, sizes: dict[str, int]) -> list[str]:
  """Returns "users", compared with "num_samples" and the sizes of "user_data"."""
  try:
    announced = dict(zip(users, numbers, strict=True))
  except (TypeError, ValueError) as e:
    raise errors.InputError(
      f'{path}: expected the lists "users" and "num_samples" of one length;'
      f' {_GET_IT}'
    ) from e
  for user in [*users, *sizes]:
    if announced.get(user) != sizes.get(user) or len(announced) < len(users):
      raise errors.InputError(
        f'{path}: "users", "num_samples" and "user_data" do not agree about user '
        f'{user!r} ({announced.get(user)} and {sizes.get(user)} examples); {_GET_IT}'
      )
  return users


def count_users(paths: Iterable[pathlib.Path]) -> int | None:
  """Counts users without reading their data; None: a file has these first."""
  users = set()
  for path in paths:
    names = None
    with (
      contextlib.suppress(errors.InputError),
      json_text.opened(path, _GET_IT) as text,
    ):
      for key in text.keys('the file'):
        if key == 'user_data':
          return None
        value = text.value(f'"{key}"')
        if key == 'users':
          names = value
          break
    if not isinstance(names, list):  # Or damaged, which `read_all` tells.
      return None
    users.update(map(str, names))
  return len(users)
