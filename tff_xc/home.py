"""Paths in the user's home directory, which may not exist."""

import os
import pathlib

from tff_xc import errors


def expanded(path: str) -> str:
  """Replaces a leading ~ or ~user of a path; raises InputError for an unknown home directory.

  A path that begins with ~ and exists as written is returned unchanged.
  """
  found = os.path.expanduser(path)
  if found.startswith('~') and not os.path.lexists(found):
    raise errors.InputError(f'the ~ of {path} is no known home directory: name a path without ~')
  return found


def folder(variable: str, default: str) -> pathlib.Path:
  """Returns the folder `tff_xc` in the folder that an environment variable names.

  If `variable` is not set, or is a relative path (which the XDG specification says to
  ignore), `tff_xc` is in the folder `default` in the home directory. If the user has no
  home directory (no line in /etc/passwd), the returned folder cannot store anything.
  """
  base = os.environ.get(variable, '')
  if not os.path.isabs(base):
    base = os.path.expanduser(os.path.join('~', default))
  if not os.path.isabs(base):
    base = os.devnull
  return pathlib.Path(base) / 'tff_xc'
