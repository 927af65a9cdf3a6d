"""The definition of a benchmark. Imports neither NumPy nor TensorFlow."""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from launch.benchmarks import harness


class Pair(NamedTuple):
  """A ratio to report: its label, and the contenders that it compares."""

  label: str
  numerator: str
  denominator: str


def pairs_of(names: Sequence[str], *wanted: tuple[str, str]) -> list[Pair]:
  """Returns the wanted ratios (numerator, denominator) among `names`."""
  return [
    Pair(f'{above}/{below}', above, below)
    for above, below in wanted
    if above in names and below in names
  ]


@dataclasses.dataclass(frozen=True)
class Benchmark:
  """A benchmark.

  Attributes:
    name: its name on the command line.
    summary: one line for people.
    settings: a frozen dataclass of ints and tuples of ints with defaults; its
      fields are flags.
    small: the sizes for `--small`, which tries a benchmark in seconds.
    contenders: settings -> the contenders run by default.
    optional: settings -> further contenders, which run only if named.
    notes: settings -> sentences for the report.
    pairs: contenders -> the ratios to report.
    groups: contenders -> lists of those that should have the same results.
    tolerances: relative tolerances of the checks within a group, by name.
    build: (contender, settings) -> an object for `protocol.serve`; called in
      the contender's own process.
    peers: settings -> contenders that programs in peers/ run: 'PROGRAM', or
      'PROGRAM@SIZE'.
    fresh: whether every round is a new process; only one runs at a time.
    passes: the default number of undisturbed passes.
    warm_up: the default number of rounds before the passes.
    write_arrays: (settings, path) -> None, writes the peers' training data as
      .npz (`peers.inputs.load` reads it); None if there are no peers.
  """

  name: str
  summary: str
  settings: type
  small: Mapping[str, Any]
  contenders: Callable[[Any], Sequence[str]]
  pairs: Callable[[Sequence[str]], list[Pair]]
  groups: Callable[[Sequence[str]], list[list[str]]]
  tolerances: Mapping[str, float]
  build: Callable[[str, Any], Any]
  optional: Callable[[Any], Sequence[str]] = lambda settings: ()
  notes: Callable[[Any], Sequence[str]] = lambda settings: ()
  fresh: bool = False
  peers: Callable[[Any], Sequence[str]] = lambda settings: ()
  passes: int = harness.Plan.passes
  warm_up: int = harness.Plan.warm_up
  write_arrays: Callable[[Any, str], None] | None = None


def name_and_size(contender: str) -> tuple[str, str]:
  """Returns the parts of 'NAME@SIZE'; the size of 'NAME' is ''."""
  name, _, size = contender.partition('@')
  return name, size


def all_together(names: Sequence[str]) -> list[list[str]]:
  """Returns one group: all contenders should have the same results."""
  return [list(names)]
