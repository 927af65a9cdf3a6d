"""Federated extreme classification on TensorFlow Federated.

Importing this package imports nothing large; its modules import TensorFlow and
TFF. It switches on TensorFlow's oneDNN kernels, unless the environment says
otherwise. TensorFlow itself uses them only on processors that have AVX-512 VNNI
or the like, and training takes up to 2.5 times as long without them.

Raises ImportError, in one sentence, where TensorFlow or TFF is absent or another
version than the one that this package is made for.
"""

import atexit
import importlib.util
import os
import re
import sys

# A module, its name, how its distributions' folders begin, the version that fits.
_NEEDS = (
  ('tensorflow', 'TensorFlow', r'tensorflow(_cpu)?|tf_nightly(_cpu)?', '2.14'),
  ('tensorflow_federated', 'TensorFlow Federated', r'tensorflow_federated', '0.87'),
)


def _misfits() -> list[str]:
  """Returns what of TensorFlow and TFF is absent or does not fit.

  It reads the names of folders: importing either, or importlib.metadata, is slow.
  """
  wrong = []
  for module, name, distributions, fits in _NEEDS:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin:
      wrong.append(f'no {name}')
      continue
    for folder in os.listdir(os.path.dirname(os.path.dirname(spec.origin))):
      found = re.fullmatch(rf'({distributions})-(.+)\.dist-info', folder)
      if found and not f'{found[found.lastindex]}.'.startswith(f'{fits}.'):
        wrong.append(f'{name} {found[found.lastindex]}')
  return wrong


def _check_packages() -> None:
  if not (wrong := _misfits()):
    return
  needs = ' and '.join(f'{name} {fits}' for _, name, _, fits in _NEEDS)
  pins = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'requirements.txt')
  raise ImportError(
    f'tff_xc needs {needs}, and {sys.executable} has {" and ".join(wrong)}: in a checkout, run'
    ' `make venv` and use .venv/bin/python, or `uv sync` and `uv run`; elsewhere, in an'
    ' environment of Python 3.10 or 3.11 on Linux x86-64, run `python -m pip install --no-deps'
    f' --require-hashes -r {pins}`',
    name='tff_xc',
  )


_check_packages()

ONEDNN = 'TF_ENABLE_ONEDNN_OPTS'  # TensorFlow reads it when it is imported.
# What the user has set, or None.
ONEDNN_GIVEN = os.environ.get(ONEDNN)
os.environ.setdefault(ONEDNN, '1')


@atexit.register
def _drop_default_context() -> None:
  """Frees TFF's default context while what its destructor needs still exists.

  Otherwise it would print an ignored exception, also of a context that nobody
  used, as where a runtime of ours was not installed.
  """
  # If nobody imported TFF, there is nothing to free.
  if tff := sys.modules.get('tensorflow_federated'):
    tff.test.set_no_default_context()
