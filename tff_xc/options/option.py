"""Base class of the options of rounds: flags that change an algorithm."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from tff_xc.options import hyperparameters as hp
from tff_xc.round import parts

if TYPE_CHECKING:
  from tff_xc.round import algorithm as algorithm_lib


class Option(parts.Part):
  """Base class of an option: an `hp.declared` class.

  Most options are also parts of a round. The flags of an option are fields made by `hp.field`.
  Other fields must have defaults, because `of` may leave them out.
  """

  def __post_init__(self):
    hp.complete(self)

  @classmethod
  def of(cls, settings: Any) -> Option:
    """Returns the option with the field values that `settings` has.

    The other fields keep their defaults.
    """
    names = [f.name for f in dataclasses.fields(cls) if hasattr(settings, f.name)]
    return cls(**{name: getattr(settings, name) for name in names})

  def added(self, algorithm: algorithm_lib.Algorithm, facts: Any) -> algorithm_lib.Algorithm:
    """Returns the algorithm with this option if it is on. `facts` are `base.Facts`."""
    return algorithm

  @classmethod
  def check(cls, values) -> None:
    """Refuses invalid values. `values` maps names to values."""
