"""The commands: they take flags and write files; `python -m launch` lists them."""

import os
import sys

# Packages that few commands need, and their extras in pyproject.toml.
EXTRAS = {
  'h5py': 'hdf5',
  'ijson': 'json',
  'jinja2': 'report',
  'pyarrow': 'tables',
  's2geometry': 'inaturalist',
  'tensorflow_datasets': 'tfds',
}


def without(error):
  """Says how to get a package that is not found; '' of a module of ours."""
  package = (error.name or '').partition('.')[0]
  if package in ('', 'launch', 'tasks', 'datasets', 'tff_xc'):
    return ''
  if package in EXTRAS:
    return (
      f'{package}, the extra `{EXTRAS[package]}`, is not installed for'
      f' {sys.executable}: run `{sys.executable} -m pip install --no-deps'
      ' --require-hashes -r requirements.txt`, or `uv sync`'
    )
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
  elif kind is ImportError and error.name == 'tff_xc':  # Its own sentence.
    told, status = f'error: {error}', 2
  else:
    return sys.__excepthook__(kind, error, trace)
  print(told, file=sys.stderr, flush=True)
  os._exit(status)


# Of `python -m launch.COMMAND`, before the command itself is imported. Any Python
# that a user may have must understand these lines.
if sys.argv[0] == '-m':
  sys.excepthook = _failed
