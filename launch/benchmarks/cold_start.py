"""Measures a process from its start to the end of its first round, by parts.

Every round of this benchmark is a new process. The process also runs a second
round, which is reported as a part and does not count in the total time.
"""

import dataclasses
import os
import time
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import contender as contender_lib
from launch.benchmarks import spec

_NUM_CLASSES = 200


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a round.

  Attributes:
    clients: clients of a round, each with 20 examples; FedSS with n = 200.
    batch_size: batch size of local training, one epoch.
  """

  clients: int = 16
  batch_size: int = 32


class ColdStart:
  """Times all steps since the interpreter's start; call `run` only once."""

  def __init__(self, runtime: str, settings: Settings):
    self._runtime, self._settings = runtime, settings
    self._parts: dict[str, float] = {}
    # This clock is the same in all processes of the machine.
    self._last = float(os.environ[contender_lib.STARTED_VARIABLE])
    self._started = self._last

  def _end_of(self, part: str) -> None:
    now = time.monotonic()
    self._parts[part] = now - self._last
    self._last = now

  def run(self) -> None:
    self._end_of('interpreter')
    import tensorflow  # noqa: F401

    self._end_of('import tensorflow')
    import tensorflow_federated  # noqa: F401

    self._end_of('import tff')
    from launch.benchmarks import class_count
    from tff_xc.runtime import registry

    registry.install(self._runtime)
    self._end_of('install runtime')
    process = class_count.make_process(_NUM_CLASSES, self._settings.batch_size)
    cohort = class_count.make_clients(self._settings.clients, _NUM_CLASSES)
    self._end_of('build process')
    state = process.initialize()
    self._end_of('initialize')
    state, metrics = process.next(state, cohort)
    self._loss = float(metrics['loss'])
    self._end_of('first round')
    self._seconds = self._last - self._started
    state, metrics = process.next(registry.donate(state), cohort)
    float(metrics['loss'])
    self._end_of('second round')

  def report(self) -> dict:
    return {
      'seconds': self._seconds,
      'parts': self._parts,
      'check': {'loss': self._loss},
    }


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender, in its own process."""
  return ColdStart(contender, settings)


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  return spec.pairs_of(names, ('worker', 'in_process'))


BENCHMARK = spec.Benchmark(
  name='start',
  summary='process start to the end of the first round, and its parts',
  settings=Settings,
  small={'clients': 2},
  contenders=lambda settings: ('in_process', 'worker'),
  pairs=_pairs,
  groups=spec.all_together,
  tolerances={'loss': 1e-3},
  build=build,
  fresh=True,
)
