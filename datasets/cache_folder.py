"""Returns the path of the user's cache folder for parsed data files.

The module imports no NumPy, because commands set the folder before they import NumPy.
"""

import os
import pathlib

from tff_xc import home

# The environment variable that names the folder; commands set it from `--cache_dir`.
VARIABLE = 'TFF_XC_CACHE'


def folder() -> pathlib.Path:
  """Returns $TFF_XC_CACHE, $XDG_CACHE_HOME/tff_xc or ~/.cache/tff_xc."""
  if chosen := os.environ.get(VARIABLE):
    return pathlib.Path(home.expanded(chosen))
  return home.folder('XDG_CACHE_HOME', '.cache')
