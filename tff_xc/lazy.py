"""Large packages as modules that are imported on first use.

Commands check their flags with modules that import this one. `--help` therefore does not
wait for the large packages.
"""

import importlib
import types


class _Lazy(types.ModuleType):
  """A module that is imported when an attribute of it is first read."""

  def __getattr__(self, name):
    return getattr(importlib.import_module(self.__name__), name)


tf = _Lazy('tensorflow')
tff = _Lazy('tensorflow_federated')
np = _Lazy('numpy')
pd = _Lazy('pandas')
ray = _Lazy('ray')
sparse = _Lazy('scipy.sparse')
