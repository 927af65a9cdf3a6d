"""Measures a process from its start to the end of its first round, by parts.

Every round of this benchmark is a new process. The process also runs a second
round, which is reported as a part and does not count in the total time.
"""

import dataclasses
import os
import time

from launch.benchmarks import process as process_lib
from launch.benchmarks import spec

_NUM_CLASSES = 200


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a round."""

  # Clients of a round, each with 20 examples; FedSS with n = 200.
  clients: int = 16
  batch_size: int = 32  # Batch size of local training, one epoch.


def build(contender: str, settings: Settings):
  """Builds a contender, which runs only once, in its own process."""
  # This clock is the same in all processes of the machine.
  times = {'': float(os.environ[process_lib.STARTED_VARIABLE])}

  def end_of(part: str) -> None:
    times[part] = time.monotonic()

  def run():
    end_of('interpreter')
    import tensorflow  # noqa: F401

    end_of('import tensorflow')
    import tensorflow_federated  # noqa: F401

    end_of('import tff')
    from launch.benchmarks import classes
    from tff_xc.runtime import registry

    registry.install(contender)
    end_of('install runtime')
    process = classes.make_process(_NUM_CLASSES, settings.batch_size)
    cohort = classes.make_clients(settings.clients, _NUM_CLASSES)
    end_of('build process')
    state = process.initialize()
    end_of('initialize')
    state, metrics = process.next(state, cohort)
    loss = float(metrics['loss'])
    end_of('first round')
    state, metrics = process.next(registry.donate(state), cohort)
    float(metrics['loss'])
    end_of('second round')
    (_, started), *ends = times.items()
    parts, before = {}, started
    for part, end in ends:
      parts[part], before = end - before, end
    return {
      'seconds': times['first round'] - started,
      'parts': parts,
      'check': {'loss': loss},
    }

  return run


BENCHMARK = spec.Benchmark(
  name='start',
  summary='process start to the end of the first round, and its parts',
  settings=Settings,
  small={'clients': 2},
  contenders=lambda settings: ('in_process', 'worker'),
  ratios=(('worker', 'in_process'),),
  tolerances={'loss': 1e-3},
  build=build,
  fresh=True,
)
