"""Lazy TensorFlow, TFF, pandas and SciPy, for modules that commands need to check flags.

Each package is imported on first use, so that `--help` does not wait for it.
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
