"""TensorFlow, TFF, pandas and SciPy for modules that commands import to check their flags.

Each is imported when it is first used, since `--help` would wait for it.
"""

import importlib
import types


class _Lazy(types.ModuleType):
  """A module that is imported when an attribute of it is first read."""

  def __getattr__(self, name):
    return getattr(importlib.import_module(self.__name__), name)


tf = _Lazy('tensorflow')
tff = _Lazy('tensorflow_federated')
pd = _Lazy('pandas')
sparse = _Lazy('scipy.sparse')
