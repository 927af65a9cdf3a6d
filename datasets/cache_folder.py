"""The folder of parsed data files: the user's, not of the data.

It stands apart from `parsed_cache` since commands name it before they import NumPy.
"""

import os
import pathlib

# The environment variable that names the folder; commands set it from `--cache_dir`.
VARIABLE = 'TFF_XC_CACHE'


def folder() -> pathlib.Path:
  """Returns $TFF_XC_CACHE, $XDG_CACHE_HOME/tff_xc or ~/.cache/tff_xc.

  As the XDG specification asks, a relative $XDG_CACHE_HOME is ignored.
  """
  if chosen := os.environ.get(VARIABLE):
    return pathlib.Path(chosen).expanduser()
  caches = os.environ.get('XDG_CACHE_HOME', '')
  if not os.path.isabs(caches):
    caches = os.path.expanduser(os.path.join('~', '.cache'))
  return pathlib.Path(caches) / 'tff_xc'
