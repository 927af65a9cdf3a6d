"""Federated extreme classification on TensorFlow Federated.

Importing this package imports nothing large; its modules import TensorFlow and
TFF. It switches on TensorFlow's oneDNN kernels, unless the environment says
otherwise. TensorFlow itself uses them only on processors that have AVX-512 VNNI
or the like, and training takes up to 2.5 times as long without them.
"""

import atexit
import os
import sys

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
  # It has no public name. If nobody imported TFF, there is nothing to free.
  where = (
    'tensorflow_federated.python.core.impl.context_stack.set_default_context'
  )
  if module := sys.modules.get(where):
    module.set_no_default_context()
