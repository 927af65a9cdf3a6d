"""Large packages as modules that are imported on first use.

Commands check their flags with modules that import this one. `--help` therefore does not
wait for the large packages.
"""

import importlib
import types


class Lazy(types.ModuleType):
  """A module that is imported when an attribute of it is first read."""

  def __getattr__(self, name):
    return getattr(importlib.import_module(self.__name__), name)


tf = Lazy('tensorflow')
tff = Lazy('tensorflow_federated')
np = Lazy('numpy')
pd = Lazy('pandas')
ray = Lazy('ray')
sparse = Lazy('scipy.sparse')
