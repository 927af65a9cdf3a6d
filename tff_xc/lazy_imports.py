"""Leaves out what TensorFlow and TFF import and hardly any program uses.

Such are JAX, pandas, SciPy's statistics, TensorFlow Probability and TensorFlow
Lite: a third of the import's time, and 160 MB. After `install`, such a module is
imported when the program first uses it.
"""

import importlib.abc
import importlib.machinery
import sys
import threading
import types

_DEFERRED = frozenset(
  [
    'h5py',
    'jax',
    'pandas',
    'requests',
    'scipy.fft',
    'scipy.signal',
    'scipy.stats',
    'tensorflow._api.v2.compat.v1.lite',
    'tensorflow._api.v2.compat.v1.compat.v1.lite',
    'tensorflow._api.v2.compat.v1.compat.v2.lite',
    'tensorflow._api.v2.compat.v2.lite',
    'tensorflow._api.v2.compat.v2.compat.v1.lite',
    'tensorflow._api.v2.compat.v2.compat.v2.lite',
    'tensorflow._api.v2.lite',
    'tensorflow.compat.v1.lite',
    'tensorflow.compat.v2.lite',
    'tensorflow_estimator',
    'tensorflow_federated.python.core.environments.jax',
    'tensorflow_federated.python.core.environments.xla_backend'
    '.xla_serialization',
    'tensorflow_model_optimization',
    'tensorflow_probability',
  ]
)
# TFF imports a part of these, which does not need the rest.
_IN_PARTS = frozenset(['tensorflow_estimator', 'tensorflow_model_optimization'])
# Python looks for these in every module, also in one that is being created.
_PROBED = frozenset(
  ['__cached__', '__file__', '__path__', '__warningregistry__', '__wrapped__']
)

_lock = threading.RLock()


def install() -> None:
  """Defers these imports in this process; call it before importing TensorFlow.

  A module that has been imported already stays as it is.
  """
  if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())


class _Module(types.ModuleType):
  """A module whose code has not run yet."""

  def __getattr__(self, name: str):
    if name in _PROBED or not load(self):
      raise AttributeError(f'module {self.__name__!r} has no {name!r}')
    return getattr(self, name)


def load(module: types.ModuleType) -> bool:
  """Runs the code of a deferred module, unless that has been done.

  Returns:
    Whether it has been run; False while this thread runs it.
  """
  with _lock:  # Other threads wait for the whole module.
    if not isinstance(module, _Module):
      return True
    loader = module.__spec__.loader
    if loader.is_loading:
      return False
    loader.is_loading = True
    try:
      loader.real.exec_module(module)
    finally:
      loader.is_loading = False
    module.__class__ = types.ModuleType
    return True


class _Loader(importlib.abc.Loader):
  """Creates a module and leaves it to `load` to run its code."""

  def __init__(self, real: importlib.abc.Loader):
    self.real, self.is_loading = real, False

  def create_module(self, spec):
    return _Module(spec.name)

  def exec_module(self, module):
    pass


class _Finder(importlib.abc.MetaPathFinder):
  """Finds deferred modules, and loads the parent of any other module."""

  def find_spec(self, name, path, target=None):
    if name not in _DEFERRED:
      parent = name.rpartition('.')[0]
      if parent in _DEFERRED and parent not in _IN_PARTS:
        load(sys.modules[parent])
      return None
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is not None:
      spec.loader = _Loader(spec.loader)
    return spec
