"""Reads LEAF's JSON, one user's examples in memory at a time.

A file is one object:

{"users": ["f1", ...], "num_samples": [12, ...],
 "user_data": {"f1": {"x": [...], "y": [...]}, ...}}

Its keys come in any order, and further keys ("hierarchies") are skipped.
Caldas et al.: LEAF: a benchmark for federated settings, 2018.
"""

import pathlib
from collections.abc import Callable, Iterable

from datasets import json_stream
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
    names, numbers = (_list(path, key) for key in ('users', 'num_samples'))
    for name, data in json_stream.pairs(path, 'user_data', _GET_IT):
      where = f'{path}, user {name!r}'
      data = data if isinstance(data, dict) else {}
      x, y = data.get('x'), data.get('y')
      if type(x) is not list or type(y) is not list or len(x) != len(y):
        raise errors.InputError(
          f'{where}: expected an object with the lists "x" and "y" of one length; {_GET_IT}'
        )
      if name in seen:
        raise errors.InputError(
          f'{where} is there twice, also in {seen[name]}; keep one of the two'
        )
      seen[name], sizes[name] = path, len(y)
      add(where, name, x, y)
    if len(names) != len(numbers):
      raise errors.InputError(
        f'{path}: expected the lists "users" and "num_samples" of one length; {_GET_IT}'
      )
    announced = dict(zip(names, numbers, strict=True))
    for user in [*names, *sizes]:
      if announced.get(user) != sizes.get(user) or len(announced) < len(names):
        raise errors.InputError(
          f'{path}: "users", "num_samples" and "user_data" do not agree about user'
          f' {user!r} ({announced.get(user)} and {sizes.get(user)} examples);'
          f' {_GET_IT}'
        )
    users += names
  return users


def _list(path: pathlib.Path, key: str) -> list:
  """Returns the list of a key; what follows it in the file is not read."""
  found = next(json_stream.items(path, key, _GET_IT), None)
  if not isinstance(found, list):
    raise errors.InputError(
      f'{path}: the list "{key}" is missing, expected an object with "users",'
      f' "num_samples" and "user_data"; {_GET_IT}'
    )
  return found


def count_users(paths: Iterable[pathlib.Path]) -> int | None:
  """Counts users without reading their data; None: a file is damaged."""
  try:
    return len({str(name) for path in paths for name in _list(path, 'users')})
  except errors.InputError:  # `read_all` tells.
    return None
