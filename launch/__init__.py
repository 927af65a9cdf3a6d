"""The commands, which take flags and write files. `python -m launch` lists them."""

import os
import sys

# Packages that only a few commands need, each with the extra in pyproject.toml that installs it.
EXTRAS = {
  'h5py': 'hdf5',
  'ijson': 'json',
  'jinja2': 'report',
  'pyarrow': 'tables',
  's2geometry': 'inaturalist',
  'tensorflow_datasets': 'tfds',
}


def without(error):
  """Returns a sentence that says how to install the missing package of an import error.

  Returns '' if the missing module belongs to this project.
  """
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
  """Prints one line and exits if Ctrl-C or a missing package stops a command's imports."""
  if kind is KeyboardInterrupt:
    told, status = 'interrupted', 130
  elif kind is ModuleNotFoundError and without(error):
    told, status = 'error: ' + without(error), 2
  # `tff_xc` raises this error with an explanation.
  elif kind is ImportError and error.name == 'tff_xc':
    told, status = f'error: {error}', 2
  else:
    return sys.__excepthook__(kind, error, trace)
  print(told, file=sys.stderr, flush=True)
  os._exit(status)


# `python -m launch.COMMAND` imports this file before the command. The file must therefore run on
# any version of Python that a user may have.
if sys.argv[0] == '-m':
  sys.excepthook = _failed
