"""The definition of a benchmark. Imports neither NumPy nor TensorFlow."""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """A benchmark. A contender is called NAME, or NAME@SIZE."""

  name: str  # Its name on the command line.
  summary: str  # One line for people.
  # A frozen dataclass of ints and tuples of ints with defaults; its fields are
  # flags.
  settings: type
  # The sizes for `--small`, which tries a benchmark in seconds.
  small: Mapping[str, Any]
  # Settings -> the contenders run by default.
  contenders: Callable[[Any], Sequence[str]]
  # (contender, settings) -> a function for `protocol.serve`; called in the
  # contender's own process.
  build: Callable[[str, Any], Callable[[], dict]]
  # Relative tolerances by name of what contenders must agree on.
  tolerances: Mapping[str, float]
  # Pairs of NAMEs whose times are divided, at each size.
  ratios: Sequence[tuple[str, str]] = ()
  # NAMEs of which every size is divided by the first.
  growth: Sequence[str] = ()
  # NAMEs that should have the same results at a size, compared to the first;
  # None: all.
  groups: Sequence[Sequence[str]] | None = None
  # Settings -> further contenders, which run only if named.
  optional: Callable[[Any], Sequence[str]] = lambda settings: ()
  # Settings -> sentences for the report.
  notes: Callable[[Any], Sequence[str]] = lambda settings: ()
  # Settings -> contenders of which peers/NAME.py is the program.
  peers: Callable[[Any], Sequence[str]] = lambda settings: ()
  # (settings, path) -> None, writes the peers' training data as .npz
  # (`peers.inputs.load` reads it); None if there are no peers.
  write_arrays: Callable[[Any, str], None] | None = None
  # (report, path) -> None, draws the report's picture; None: it has none.
  draw: Callable[[Mapping[str, Any], Any], None] | None = None
  # Whether every round is a new process; only one runs at a time.
  fresh: bool = False
  passes: int = 9  # The default number of undisturbed passes.
  warm_up: int = 2  # The default number of rounds before the passes.

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
