"""Measures the time from the start of a process to the end of its first round, by parts.

In this benchmark, every round is a new process. The process also trains a second round. The
second round is reported as a part, but is not included in the total time.
"""

import os
import time

from launch.benchmarks.peers import protocol

_NUM_CLASSES = 200


def build(contender, sizes):
  """Builds a contender in its own process, which runs only one round."""
  parts: dict[str, float] = {}
  # This clock is the same in all processes of the machine.
  started = float(os.environ[protocol.STARTED])

  def end_of(part: str) -> None:
    parts[part] = time.monotonic() - started - sum(parts.values())

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
    process = classes.make_process(sizes, _NUM_CLASSES)
    cohort = classes.make_clients(sizes, _NUM_CLASSES)
    end_of('build process')
    state = process.initialize()
    end_of('initialize')
    state, metrics = process.next(state, cohort)
    loss = float(metrics['loss'])
    end_of('first round')
    seconds = sum(parts.values())
    _, metrics = process.next(registry.donate(state), cohort)
    float(metrics['loss'])
    end_of('second round')
    return {'seconds': seconds, 'parts': parts, 'check': lambda: {'loss': loss}}

  return run
