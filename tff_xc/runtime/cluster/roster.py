"""The workers of a driver over its rounds, and what each has been given."""

import dataclasses
import threading
import time
from typing import Any

from tff_xc.runtime.cluster import crew as crew_lib


@dataclasses.dataclass
class Measured:
  """What a computation's clients cost between the machines.

  Attributes:
    bytes_down: from the driver to the workers, the server's values once for each
      machine, without programs.
    bytes_up: from the workers to the driver.
    workers: workers that did a part.
    workers_lost: workers that ended, or were ended because they made no progress.
  """

  bytes_down: int = 0
  bytes_up: int = 0
  workers: int = 0
  workers_lost: int = 0


@dataclasses.dataclass
class Member:
  """A worker as the driver sees it.

  Attributes:
    info: from the crew.
    heard: when it last answered or ran a client, by `time.monotonic`.
    asked: when it was asked how long it has been idle since, and the ticket.
    loaded: numbers of the programs that it has.
    tickets: what it is doing: the method, and the clients of a block or the number
      of a program.
  """

  info: crew_lib.Info
  heard: float
  asked: tuple[float, Any] | None = None
  loaded: set[int] = dataclasses.field(default_factory=set)
  tickets: dict[Any, tuple] = dataclasses.field(default_factory=dict)

  def hear(self) -> None:
    """Notes an answer, or that it has just been given something to do."""
    self.heard, self.asked = time.monotonic(), None


class Roster:
  """The workers, and what they have been given; it outlives a round.

  Attributes:
    crew: the engine.
    timeout: seconds that a worker may make no progress.
    at_once: how many clients may form a share, by numbers of program and phase:
      at least one; see `phases.Phase.at_once`.
    members: the workers by name.
    ready: names of those that can take something now.
    measured: of the last phase with clients.
    lock: held by the phase that uses the workers.
  """

  def __init__(self, crew: crew_lib.Crew, timeout_seconds: float):
    """Args: the engine, and how long it may make no progress."""
    self.crew = crew
    self.timeout = timeout_seconds
    self.at_once: dict[tuple[int, int], int] = {}
    self.members: dict[str, Member] = {}
    self.ready: set[str] = set()
    self.measured = Measured()
    self.lock = threading.Lock()
    self._programs = {}

  def add_program(self, number: int, block) -> None:
    """Adds a program, from the protocol buffer of its block."""
    self._programs[number] = self.crew.share(block)

  def refresh(self) -> None:
    """Adds the workers that have joined."""
    found = self.crew.workers()
    self.ready = set(found)
    for name, info in found.items():
      if name not in self.members:
        self.members[name] = Member(info, time.monotonic())

  def load(self, name: str, number: int) -> None:
    """Begins to give a worker a program."""
    ticket = self.crew.call(name, 'load', number, self._programs[number])
    self.members[name].tickets[ticket] = 'load', number

  def forget_blocks(self) -> None:
    """Forgets what workers do for a round that is over, or given up."""
    for member in self.members.values():
      for ticket in [
        t for t, (what, _) in member.tickets.items() if what != 'load'
      ]:
        del member.tickets[ticket]

  def remove(self, name: str) -> list[tuple]:
    """Removes a lost worker; returns what it was doing."""
    member = self.members.pop(name)
    self.crew.dismiss(name)
    return list(member.tickets.values())
