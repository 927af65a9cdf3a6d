"""Contenders that only pretend, a machine's clock, and their report."""

import dataclasses
import json

from launch.benchmarks import cpu
from launch.benchmarks import harness
from launch.benchmarks import process
from launch.benchmarks import report
from launch.benchmarks import spec


class Machine:
  """Two cores, time that passes when a contender runs, and a disturbance."""

  def __init__(self):
    self.now = self.own = self.foreign = 0.0
    self.order: list[str] = []

  def clock(self) -> float:
    return self.now

  def usage(self) -> cpu.Usage:
    return cpu.Usage(busy=self.own + self.foreign, own=self.own)


class Fake:
  """A contender whose rounds take the times given, over and over."""

  def __init__(self, machine, name, seconds, check=None, foreign=()):
    self._machine, self._name = machine, name
    self._seconds, self._check = list(seconds), check or {}
    self._foreign = list(foreign)
    self.rounds = 0
    self.is_running = False

  def start(self) -> None:
    self.is_running = True

  def round(self) -> process.Reply:
    assert self.is_running
    machine, i = self._machine, self.rounds
    seconds = self._seconds[i % len(self._seconds)]
    machine.now += seconds
    machine.own += seconds
    machine.foreign += self._foreign[i] if i < len(self._foreign) else 0.0
    machine.order.append(self._name)
    self.rounds += 1
    return process.Reply(
      seconds,
      self._check,
      {'all': seconds, 'half': seconds / 2},
      peak_bytes=1000 * (1 + i),
    )

  def end(self) -> None:
    self.is_running = False


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
  ratios=(('b', 'a'), ('c', 'a')),
  notes=lambda settings: [f'{settings.clients} clients are few.'],
  tolerances={'loss': 0.1},
  build=lambda name, settings: None,
)


def build(passes=2, foreign=(), **checks):
  machine = Machine()
  contenders = {
    name: Fake(machine, name, [1.0 + i, 2.0 + i], {'loss': loss}, foreign)
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
