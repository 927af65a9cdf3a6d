"""The commands: they take flags and write files; `python -m launch` lists them."""

import os
import sys


def without(error):
  """Says how to enter the environment, of a package that is not found; else ''."""
  package = (error.name or '').partition('.')[0]
  if package in ('', 'launch', 'tasks', 'datasets', 'tff_xc'):
    return ''
  return (
    f'{package} is not installed for {sys.executable}: run `make venv`, and then'
    ' commands as `.venv/bin/python -m launch.COMMAND`'
  )


def _failed(kind, error, trace):
  """Ends quietly if Ctrl-C or a missing package stops what `app.run` follows."""
  if kind is KeyboardInterrupt:
    told, status = 'interrupted', 130
  elif kind is ModuleNotFoundError and without(error):
    told, status = 'error: ' + without(error), 2
  else:
    return sys.__excepthook__(kind, error, trace)
  print(told, file=sys.stderr, flush=True)
  os._exit(status)


# Of `python -m launch.COMMAND`, before the command itself is imported. Any Python
# that a user may have must understand these lines.
if sys.argv[0] == '-m':
  sys.excepthook = _failed
