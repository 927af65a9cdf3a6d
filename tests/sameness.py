"""Checks whether two objects were built in the same way; compares functions by their code."""

import dataclasses
import functools
import types
from typing import Any

import numpy as np
import tensorflow_federated as tff


def same(a: Any, b: Any) -> bool:
  """Whether two objects are equal, if functions with equal code and equal values are equal.

  Two calls of one builder return functions that Python does not consider equal, although they
  compute the same. If this function cannot compare two objects, they count as different.
  """
  if a is b:
    return True
  if type(a) is not type(b):
    return False
  if isinstance(a, (tuple, list)):
    return len(a) == len(b) and all(map(same, a, b))
  if isinstance(a, dict):
    return list(a) == list(b) and all(map(same, a.values(), b.values()))
  if isinstance(a, np.ndarray):
    return np.array_equal(a, b)
  if dataclasses.is_dataclass(a):
    names = [field.name for field in dataclasses.fields(a)]
    return all(same(getattr(a, name), getattr(b, name)) for name in names)
  if isinstance(a, tff.learning.optimizers.Optimizer):
    return same(vars(a), vars(b))
  if isinstance(a, functools.partial):
    return same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords))
  if isinstance(a, types.FunctionType):
    return a.__code__ is b.__code__ and same(_given(a), _given(b))
  try:
    return bool(a == b)
  except (TypeError, ValueError):
    return False


def _given(function):
  """Returns the values that a function uses, except those of its module."""
  cells = [cell.cell_contents for cell in function.__closure__ or ()]
  return cells, function.__defaults__, function.__kwdefaults__
