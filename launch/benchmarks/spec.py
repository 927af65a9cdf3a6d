"""The definition of a benchmark. Imports neither NumPy nor TensorFlow."""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """A benchmark. A contender is called NAME, or NAME@SIZE.

  Attributes:
    name: its name on the command line.
    summary: one line for people.
    settings: a frozen dataclass of ints and tuples of ints with defaults; its
      fields are flags.
    small: the sizes for `--small`, which tries a benchmark in seconds.
    contenders: settings -> the contenders run by default.
    build: (contender, settings) -> a function for `protocol.serve`; called in
      the contender's own process.
    tolerances: relative tolerances by name of what contenders must agree on.
    ratios: pairs of NAMEs whose times are divided, at each size.
    growth: NAMEs of which every size is divided by the first.
    groups: NAMEs that should have the same results at a size, compared to the
      first; None: all.
    optional: settings -> further contenders, which run only if named.
    notes: settings -> sentences for the report.
    peers: settings -> contenders of which peers/NAME.py is the program.
    write_arrays: (settings, path) -> None, writes the peers' training data as
      .npz (`peers.inputs.load` reads it); None if there are no peers.
    fresh: whether every round is a new process; only one runs at a time.
    passes: the default number of undisturbed passes.
    warm_up: the default number of rounds before the passes.
  """

  name: str
  summary: str
  settings: type
  small: Mapping[str, Any]
  contenders: Callable[[Any], Sequence[str]]
  build: Callable[[str, Any], Callable[[], dict]]
  tolerances: Mapping[str, float]
  ratios: Sequence[tuple[str, str]] = ()
  growth: Sequence[str] = ()
  groups: Sequence[Sequence[str]] | None = None
  optional: Callable[[Any], Sequence[str]] = lambda settings: ()
  notes: Callable[[Any], Sequence[str]] = lambda settings: ()
  peers: Callable[[Any], Sequence[str]] = lambda settings: ()
  write_arrays: Callable[[Any, str], None] | None = None
  fresh: bool = False
  passes: int = 9
  warm_up: int = 2

  def pairs(self, names: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the (numerator, denominator) of the ratios among `names`."""
    sizes = _sizes(names)
    wanted = [
      (at(above, size), at(below, size))
      for size in sizes
      for above, below in self.ratios
    ]
    for name in self.growth:
      first, *others = [s for s in sizes if at(name, s) in names] or ['']
      wanted += [(at(name, size), at(name, first)) for size in others]
    return [(a, b) for a, b in wanted if a in names and b in names]

  def same(self, names: Sequence[str]) -> list[list[str]]:
    """Returns groups of `names` that should have the same results."""
    own = [list(dict.fromkeys(name_and_size(n)[0] for n in names))]
    found = [
      [at(name, size) for name in group if at(name, size) in names]
      for size in _sizes(names)
      for group in (own if self.groups is None else self.groups)
    ]
    return [group for group in found if len(group) > 1]


def name_and_size(contender: str) -> tuple[str, str]:
  """Returns the parts of 'NAME@SIZE'; the size of 'NAME' is ''."""
  name, _, size = contender.partition('@')
  return name, size


def at(name: str, size: Any) -> str:
  """Returns 'NAME@SIZE', or 'NAME' if the size is ''."""
  return f'{name}@{size}' if size != '' else name


def _sizes(names: Sequence[str]) -> list[str]:
  return list(dict.fromkeys(name_and_size(name)[1] for name in names))
