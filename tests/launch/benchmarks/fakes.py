"""Contenders that only pretend, and a machine's clock to go with them."""

from launch.benchmarks import contender
from launch.benchmarks import cpu


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

  def round(self) -> contender.Reply:
    assert self.is_running
    machine, i = self._machine, self.rounds
    seconds = self._seconds[i % len(self._seconds)]
    machine.now += seconds
    machine.own += seconds
    machine.foreign += self._foreign[i] if i < len(self._foreign) else 0.0
    machine.order.append(self._name)
    self.rounds += 1
    return contender.Reply(
      seconds,
      self._check,
      {'all': seconds, 'half': seconds / 2},
      peak_bytes=1000 * (1 + i),
    )

  def end(self) -> None:
    self.is_running = False
