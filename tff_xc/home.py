"""The user's own folders, which may be missing or of another user. Imports little."""

import os
import pathlib

from tff_xc import errors


def expanded(path: str) -> str:
  """Returns a path whose ~ or ~user is replaced; InputError if that is no home.

  A file here may have a name that begins with ~.
  """
  found = os.path.expanduser(path)
  if found.startswith('~') and not os.path.lexists(found):
    raise errors.InputError(f'the ~ of {path} is no known home directory: name a path without ~')
  return found


def folder(variable: str, default: str) -> pathlib.Path:
  """Returns our folder in $variable, else in the folder `default` of the home.

  As the XDG specification asks, a relative $variable is ignored. Without a home, as
  for a user without a line in /etc/passwd, nothing can be kept in the folder.
  """
  base = os.environ.get(variable, '')
  if not os.path.isabs(base):
    base = os.path.expanduser(os.path.join('~', default))
  if not os.path.isabs(base):
    base = os.devnull
  return pathlib.Path(base) / 'tff_xc'
