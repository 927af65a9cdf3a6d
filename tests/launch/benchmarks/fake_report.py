"""The report of a benchmark that never ran."""

import dataclasses
import json

from launch.benchmarks import harness
from launch.benchmarks import report
from launch.benchmarks import spec
from tests.launch.benchmarks import fakes


@dataclasses.dataclass(frozen=True)
class Settings:
  clients: int = 3
  sizes: tuple[int, ...] = (1, 2)


FAKE = spec.Benchmark(
  name='fake',
  summary='',
  settings=Settings,
  small={},
  contenders=lambda settings: ('a', 'b'),
  pairs=lambda names: spec.pairs_of(names, ('b', 'a'), ('c', 'a')),
  groups=spec.all_together,
  notes=lambda settings: [f'{settings.clients} clients are few.'],
  tolerances={'loss': 0.1},
  build=lambda name, settings: None,
)


def build(passes=2, foreign=(), **checks):
  machine = fakes.Machine()
  contenders = {
    name: fakes.Fake(machine, name, [1.0 + i, 2.0 + i], {'loss': loss}, foreign)
    for i, (name, loss) in enumerate(checks.items())
  }
  plan = harness.Plan(passes=passes, warm_up=0, max_foreign=0.15)
  measured = harness.measure(
    contenders, plan, usage=machine.usage, clock=machine.clock
  )
  return report.build(FAKE, Settings(), measured, plan)


def written(path, **changes):
  """Writes a report as `launch.benchmark` does, and reads it again."""
  found = build(a=1.0, b=1.0) | {
    'command': 'launch.benchmark fake --passes=2',
    'date': '2020-02-02',
    'git_revision': 'abc',
  }
  path.write_text(json.dumps(found | changes))
  return report.read(path)
