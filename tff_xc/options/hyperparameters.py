"""Hyperparameters: name, type, bounds, meaning, and how values are chosen.

An algorithm is a class whose fields are its hyperparameters. Options of tasks and settings of runs
are also declared as `Hyperparameter`s. No other code repeats their names, defaults, bounds or help
texts. This module does not import TensorFlow, so that a command can check its flags before any
large import.
"""

import contextlib
import dataclasses
import math
import numbers
import operator
import os
from collections.abc import Mapping
from typing import Any

from tff_xc import errors, wording

# TensorFlow counts steps, examples and classes in int32. Larger numbers wrap.
INT32_MAX = 2**31 - 1
# This number stands for infinity, which JSON cannot express.
FLOAT32_MAX = 3.4028234663852886e38
# Keys in a field's metadata.
_KEY, _OWN = 'hyperparameter', 'own'


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
  """One hyperparameter, whose type is the type of its default."""

  name: str  # The name of the field or option, and of the flag.
  default: bool | int | float | str  # The value if neither user nor task sets it.
  help: str  # One or two sentences, with unit or source.
  # Bounds of numbers; `above` and `below` are exclusive. If `most` is FLOAT32_MAX, infinity
  # is allowed and means FLOAT32_MAX.
  least: float | None = None
  most: float = INT32_MAX
  above: float | None = None
  below: float | None = None
  choices: tuple[str, ...] = ()  # The allowed values, if there are few.
  # The hyperparameter to which this one belongs. A task's default for this one applies only if `of`
  # has the task's value.
  of: str = ''
  only_with: tuple = ()  # Values of `of` with which this one applies; empty: all.
  not_with: tuple = ()  # Values of `of` with which this one does not apply.
  # Defaults that replace `default`, by value of `of`.
  defaults: Mapping[Any, Any] = dataclasses.field(default_factory=dict)

  def with_default(self, default) -> 'Hyperparameter':
    """Returns the same hyperparameter with a different default, such as a task's default."""
    return dataclasses.replace(self, default=default)

  @property
  def bounds(self) -> str:
    """The allowed values in words, such as 'at least 0, less than 1'; '' without limits."""
    if self.choices:
      return f'one of {", ".join(map(repr, self.choices))}'
    limits = {
      'at least': self.least,
      'more than': self.above,
      'less than': self.below,
      'at most': self.most if self.most < INT32_MAX else None,
    }
    return ', '.join(f'{k} {v}' for k, v in limits.items() if v is not None)

  def applies_with(self, chosen) -> bool:
    """Returns whether the hyperparameter applies when `of` has the value `chosen`."""
    return chosen not in self.not_with and (not self.only_with or chosen in self.only_with)

  def checked(self, value) -> bool | int | float | str:
    """Returns `value` in the hyperparameter's type. Raises InputError if it is invalid."""
    value = self._typed(value)
    if self.choices:
      if value not in self.choices:
        meant = wording.meant(value, self.choices)
        self._refuse(value, f'one of {", ".join(self.choices)}{meant}')
      return value
    if not isinstance(value, bool | str):
      self._check_number(value)
    return value

  def read(self, text: str) -> bool | int | float | str:
    """Parses a text and returns the value, checked by `checked`."""
    kind, value = type(self.default), text
    if kind is bool:
      value = {'true': True, 'false': False}.get(text.lower(), text)
    elif kind is not str:
      with contextlib.suppress(ValueError):  # `checked` refuses a text that is no number.
        value = kind(text)
    return self.checked(value)

  def _typed(self, value):
    kind = type(self.default)
    if kind is str and isinstance(value, str | os.PathLike):
      return os.fspath(value)
    # NumPy's numbers are allowed. A bool does not count as a number.
    is_bool = isinstance(value, bool) or type(value).__name__ == 'bool_'
    if kind is bool and is_bool:
      return bool(value)
    if kind is int and isinstance(value, numbers.Integral) and not is_bool:
      return int(value)
    if kind is float and isinstance(value, numbers.Real) and not is_bool:
      unbounded = value == math.inf and self.most == FLOAT32_MAX
      return self.most if unbounded else float(value)
    nouns = {bool: 'True or False', int: 'a whole number', float: 'a number'}
    return self._refuse(repr(value), nouns.get(kind, 'a text'))

  def _check_number(self, value) -> None:
    if not math.isfinite(value):
      self._refuse(value, 'a finite number')
    for words, limit, excludes in (
      ('at least', self.least, operator.lt),
      ('at most', self.most, operator.gt),
      ('more than', self.above, operator.le),
      ('less than', self.below, operator.ge),
    ):
      if limit is not None and excludes(value, limit):
        self._refuse(value, f'{words} {limit}')

  def _refuse(self, value, expected: str) -> None:
    raise errors.InputError(f'--{self.name}={value}: expected {expected} ({self.help})')


def field(default: Any, text: str, **more) -> Any:
  """Returns a dataclass field that declares a hyperparameter with the field's name.

  `text` is the help text. `more` are attributes of `Hyperparameter`.
  """
  return _field(Hyperparameter('', default, text, **more))


def again(cls: type, name: str, **changes) -> Any:
  """Returns a field like that of another class, with some attributes changed."""
  [found] = [h for h in cls.hyperparameters if h.name == name]
  return _field(dataclasses.replace(found, **changes))


def own(default: Any) -> Any:
  """Returns a field with a default that no task's default replaces.

  Use such a field for values that define the algorithm, such as Adam in FedAdam. In contrast, a
  field with a plain default, such as `server_momentum: float = 0.0`, only changes the inherited
  default.
  """
  return dataclasses.field(default=default, metadata={_OWN: True})


def _field(found: Hyperparameter) -> Any:
  # None: the default depends on the value of another field, see `complete`.
  default = None if found.defaults else found.default
  return dataclasses.field(default=default, metadata={_KEY: found})


def declared(cls: type) -> type:
  """Makes a class a frozen, keyword-only dataclass of hyperparameters.

  The class also gets the fields of its `options`, which are declared classes, and these attributes:

    hyperparameters: the hyperparameters with their first declared defaults. Each one comes after
      the hyperparameter to which it belongs.
    names: the names of the hyperparameters.
    defaults: the class's defaults by name.
    own: the defaults that no task's default replaces.
  """
  for option in vars(cls).get('options', ()):
    for lent in dataclasses.fields(option):
      if lent.name in option.names and lent.name not in vars(cls):
        cls.__annotations__[lent.name] = lent.type
        setattr(cls, lent.name, dataclasses.field(default=lent.default, metadata=lent.metadata))
  cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
  of_class = {f.name: f for f in dataclasses.fields(cls)}
  found, ordered = {}, {}
  for name in of_class:
    of_bases = (getattr(b, '__dataclass_fields__', {}) for b in cls.__mro__)
    metadata = (fields[name].metadata for fields in of_bases if name in fields)
    first = next((m[_KEY] for m in metadata if _KEY in m), None)
    if first:  # Other fields are not hyperparameters.
      found[name] = dataclasses.replace(first, name=name)

  def add(h):
    if h.of in found:
      add(found[h.of])
    ordered[h.name] = h

  for h in found.values():
    add(h)
  changed = {
    name: found[name].default if f.default is None else f.default
    for name, f in of_class.items()
    if name in found and _KEY not in f.metadata
  }
  cls.hyperparameters = tuple(ordered.values())
  cls.names = tuple(ordered)
  cls.defaults = {n: h.default for n, h in ordered.items()} | changed
  cls.own = {n: v for n, v in changed.items() if of_class[n].metadata}
  return cls


def complete(made: Any) -> None:
  """Fills in and checks the hyperparameters of an object of a `declared` class."""
  for h in made.hyperparameters:
    value = getattr(made, h.name)
    if value is None:
      value = h.defaults.get(getattr(made, h.of), h.default)
    object.__setattr__(made, h.name, h.checked(value))


def resolve(
  cls: type, given: Mapping, task_defaults: Mapping, of_algorithm: Mapping
) -> dict[str, Any]:
  """Returns the value of every hyperparameter that applies. Values are chosen only here.

  The value is the first of these that exists:

    1. the user's value;
    2. the task's value for this algorithm;
    3. the algorithm's own value (`own`);
    4. the task's value for all algorithms;
    5. the default.

  Args:
    cls: the algorithm, a `declared` class with a `name`.
    given: the user's values, by name.
    task_defaults: the task's values for all algorithms. Names that this algorithm does not have are
      ignored.
    of_algorithm: the task's values for this algorithm.
  """
  known = {h.name: h for h in cls.hyperparameters}
  for name in given:
    if name not in known:
      raise errors.InputError(
        f'--{name} is not a hyper-parameter of {cls.name}'
        f'{wording.meant(name, known, "--")}; it takes: ' + ', '.join(f'--{n}' for n in known)
      )
  first, values = {**cls.own, **of_algorithm}, {}
  for h in cls.hyperparameters:
    of, chosen = known.get(h.of), values.get(h.of)
    # If the hyperparameter to which h belongs does not apply, h does not apply either.
    if of and not (h.of in values and h.applies_with(chosen)):
      if h.name in given:
        raise errors.InputError(_why_not(h, chosen, h.of in values))
      continue
    value = h.defaults.get(chosen, cls.defaults[h.name])
    # A task's default applies only with the task's value of `h.of`.
    of_task = of and task_defaults.get(h.of, of.default)
    if not of or chosen == first.get(h.of, of_task):
      if not of or chosen == of_task:
        value = task_defaults.get(h.name, value)
      value = first.get(h.name, value)
    values[h.name] = h.checked(given.get(h.name, value))
  return values


def _why_not(h: Hyperparameter, chosen, applies: bool) -> str:
  """Says why `h` does not apply.

  `applies` is whether the hyperparameter `h.of` applies, and `chosen` is its value.
  """
  if applies and not h.only_with:
    return f'--{h.name} does not apply with --{h.of}={chosen}, as it is here'
  other = f'={h.only_with[0]}' if h.only_with else ''
  said = f'it is {chosen}' if applies else 'it does not apply'
  return f'--{h.name} only applies with --{h.of}{other}, and {said} here'
