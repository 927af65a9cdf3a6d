"""Leaves out what TensorFlow and TFF import and hardly any program uses.

Such are JAX, pandas, scikit-learn, SciPy's statistics, TensorFlow Probability and
TensorFlow Lite. After `install`, TensorFlow and TFF get placeholders of them, which
import the module when it is first used. A program that imports such a module itself
gets the module, as ever. (TFF imports no part of a deferred package by itself; it would
run without the package.)

Nor does Python collect garbage meanwhile, or look later, again and again, through what
was made by then: it stays as long as the process. Both save half of the import's time,
and 200 MB.
"""

import gc
import importlib
import importlib.abc
import importlib.machinery
import sys
import types

# While these import, placeholders take the place of deferred modules.
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
# Python looks for these in every module, also in one that is being created.
_PROBED = frozenset(['__cached__', '__file__', '__path__', '__warningregistry__', '__wrapped__'])


def install() -> None:
  """Defers these imports in this process; call it before importing TensorFlow.

  It changes nothing for modules that have been imported already.
  """
  if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())


class _Placeholder(types.ModuleType):
  """Stands for a module, and imports it when one of its names is read."""

  def __getattr__(self, name: str):
    if name in _PROBED:
      raise AttributeError(name)
    if sys.modules.get(self.__name__) is self:  # The importer is still at it.
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
  """Loads a module of `_IMPORTERS`, for which other modules are deferred."""

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
  """Lets everybody else import the modules themselves."""
  for name in _DEFERRED:
    if isinstance(sys.modules.get(name), _Placeholder):
      del sys.modules[name]


class _Finder(importlib.abc.MetaPathFinder):
  """Finds the importers, and placeholders while they import.

  A thread that imports a deferred module meanwhile gets a placeholder, too, which works
  like the module.
  """

  def __init__(self):
    self.depth = 0  # How many importers import one another now.
    self.seen = set()  # What has been deferred meanwhile.

  def find_spec(self, name, path, target=None):
    is_deferred = name in _DEFERRED and self.depth > 0
    if name not in _IMPORTERS and not is_deferred:
      return None
    spec = importlib.machinery.PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:
      return None
    if is_deferred:
      # A first use meanwhile imports the module itself.
      if name in self.seen:
        return None
      self.seen.add(name)
      spec.loader = _PlaceholderLoader()
      return spec
    spec.loader = _ImporterLoader(self, spec.loader)
    return spec
