"""Federated extreme classification on TensorFlow Federated.

Importing this package is fast; only its modules import TensorFlow and TFF. Importing the
package also switches on TensorFlow's oneDNN kernels, unless the environment variable
TF_ENABLE_ONEDNN_OPTS is already set. By default TensorFlow uses these kernels only on
processors with AVX-512 VNNI or similar instructions. Without the kernels, training takes
up to 2.5 times as long.

Raises ImportError with a one-sentence message if TensorFlow or TFF is missing or has
an unsupported version.
"""

import atexit
import importlib.util
import os
import re
import sys

# (module, display name, pattern of the distribution's folder name, supported version).
_NEEDS = (
  ('tensorflow', 'TensorFlow', r'tensorflow(_cpu)?|tf_nightly(_cpu)?', '2.14'),
  ('tensorflow_federated', 'TensorFlow Federated', r'tensorflow_federated', '0.87'),
)


def _misfits() -> list[str]:
  """Returns a phrase for each missing package and each unsupported version.

  The function reads the names of installed folders, because it would be slow to import the
  packages or importlib.metadata.
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

ONEDNN = 'TF_ENABLE_ONEDNN_OPTS'  # TensorFlow reads this variable during its import.
# The variable's value before this module sets it, or None.
ONEDNN_GIVEN = os.environ.get(ONEDNN)
os.environ.setdefault(ONEDNN, '1')


@atexit.register
def _drop_default_context() -> None:
  """Frees TFF's default context while Python can still run the context's destructor.

  Otherwise the destructor would print an ignored exception when Python exits, even if no
  program used the context.
  """
  if tff := sys.modules.get('tensorflow_federated'):
    tff.test.set_no_default_context()
