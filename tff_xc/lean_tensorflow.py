"""Defers modules that TensorFlow and TFF import but that hardly any program uses.

Examples are JAX, pandas, scikit-learn, SciPy's statistics, TensorFlow Probability and
TensorFlow Lite. After `install`, TensorFlow and TFF get placeholders for these modules.
A placeholder imports its module on first use. If a program imports one of these modules
itself, the program gets the module as usual.

Garbage collection is off while TensorFlow and TFF are imported. The objects that exist
after the import live as long as the process, so the garbage collector never scans them
again (`gc.freeze`). Deferred modules and frozen objects together save half of the import
time, and 200 MB.
"""

import gc
import importlib
import importlib.abc
import importlib.machinery
import sys
import types

# Placeholders replace deferred modules during the import of these packages.
_IMPORTERS = frozenset(['tensorflow', 'tensorflow_federated'])
_DEFERRED = frozenset(
  [
    'fsspec',
    'h5py',
    'jax',
    'pandas',
    'requests',
    'scipy.fft',
    'scipy.optimize',
    'scipy.signal',
    'scipy.stats',
    'sklearn',
    'sklearn.preprocessing',
    'tensorflow._api.v2.compat.v1.lite',
    'tensorflow._api.v2.compat.v1.compat.v1.lite',
    'tensorflow._api.v2.compat.v1.compat.v2.lite',
    'tensorflow._api.v2.compat.v2.lite',
    'tensorflow._api.v2.compat.v2.compat.v1.lite',
    'tensorflow._api.v2.compat.v2.compat.v2.lite',
    'tensorflow._api.v2.lite',
    'tensorflow.compat.v1.lite',
    'tensorflow.compat.v2.lite',
    'tensorflow_federated.python.core.environments.jax',
    'tensorflow_federated.python.core.environments.xla_backend.xla_serialization',
    'tensorflow_model_optimization.python.core.api.clustering',
    'tensorflow_model_optimization.python.core.api.experimental',
    'tensorflow_model_optimization.python.core.api.quantization',
    'tensorflow_model_optimization.python.core.api.sparsity',
    'tensorflow_probability',
  ]
)
# Python looks up these names in every module, even while creating the module.
_PROBED = frozenset(['__cached__', '__file__', '__path__', '__warningregistry__', '__wrapped__'])


def install() -> None:
  """Defers the imports of `_DEFERRED` in this process; call it before importing TensorFlow.

  Modules that are already imported are not affected.
  """
  if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())


class _Placeholder(types.ModuleType):
  """Stands for a module. Reading one of the module's names imports the module."""

  def __getattr__(self, name: str):
    if name in _PROBED:
      raise AttributeError(name)
    if sys.modules.get(self.__name__) is self:  # TensorFlow or TFF is still importing.
      part = f'{self.__name__}.{name}'
      if part in _DEFERRED:  # As in `from sklearn import preprocessing`.
        return _Placeholder(part)
      del sys.modules[self.__name__]
    package = self.__name__.partition('.')[0]
    if isinstance(sys.modules.get(package), _Placeholder):
      del sys.modules[package]
    return getattr(importlib.import_module(self.__name__), name)


class _PlaceholderLoader(importlib.abc.Loader):
  def create_module(self, spec):
    return _Placeholder(spec.name)

  def exec_module(self, module):
    pass


class _ImporterLoader(importlib.abc.Loader):
  """Loads a module of `_IMPORTERS`. During the load, modules of `_DEFERRED` are deferred."""

  def __init__(self, finder: '_Finder', real: importlib.abc.Loader):
    self._finder, self._real = finder, real

  def create_module(self, spec):
    return self._real.create_module(spec)

  def exec_module(self, module):
    module.__spec__.loader = module.__loader__ = self._real
    finder, collects = self._finder, gc.isenabled()
    finder.depth += 1
    gc.disable()
    try:
      self._real.exec_module(module)
    finally:
      finder.depth -= 1
      if not finder.depth:
        finder.seen.clear()
        _remove_placeholders()
      if collects:
        gc.freeze()
        gc.enable()


def _remove_placeholders() -> None:
  """Removes the placeholders, so that later imports find the real modules."""
  for name in _DEFERRED:
    if isinstance(sys.modules.get(name), _Placeholder):
      del sys.modules[name]


class _Finder(importlib.abc.MetaPathFinder):
  """Finds the modules of `_IMPORTERS`, and placeholders for the modules of `_DEFERRED`.

  It finds placeholders only while a module of `_IMPORTERS` is being imported. If another thread
  imports a deferred module at the same time, the thread also gets a placeholder, which works
  like the module.
  """

  def __init__(self):
    self.depth = 0  # The number of nested imports of `_IMPORTERS` that are running.
    self.seen = set()  # The names of the modules deferred so far.

  def find_spec(self, name, path, target=None):
    is_deferred = name in _DEFERRED and self.depth > 0
    if name not in _IMPORTERS and not is_deferred:
      return None
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:
      return None
    if is_deferred:
      # The second request comes from the first use of a placeholder: import the module.
      if name in self.seen:
        return None
      self.seen.add(name)
      spec.loader = _PlaceholderLoader()
      return spec
    spec.loader = _ImporterLoader(self, spec.loader)
    return spec
