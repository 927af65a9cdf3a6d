"""Hands a cohort's blocks to workers, and joins the results in their order.

Whatever happens to workers, each block enters the sums once, and at its place:
a lost worker's blocks are done by others, with the same numbers.
"""

import collections
import dataclasses
import itertools
import math
import sys
import time
from typing import Any

import tensorflow as tf

from tff_xc.runtime import client_error
from tff_xc.runtime.cluster import crew as crew_lib
from tff_xc.runtime.cluster import cut
from tff_xc.runtime.cluster import messages
from tff_xc.runtime.in_process import sums as sums_lib

_POLL_SECONDS = 1.0
# A worker that starts imports TensorFlow, which takes long on a busy machine.
_START_SECONDS = 120.0
# A block whose workers are lost so many times in a row is given up.
_MOST_LOST = 3
_rounds = itertools.count()


@dataclasses.dataclass
class Measured:
  """What a computation's clients cost between the machines.

  Attributes:
    bytes_down: from the driver to the workers.
    bytes_up: from the workers to the driver.
    workers: workers that did a part.
    workers_lost: workers that ended, or were ended because they did not react.
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
    heard: when it last answered, by `time.monotonic`.
    loaded: numbers of the programs that it has.
    tickets: what it is doing.
  """

  info: crew_lib.Info
  heard: float
  loaded: set[int] = dataclasses.field(default_factory=set)
  tickets: dict[Any, tuple] = dataclasses.field(default_factory=dict)


class Roster:
  """The workers, and what they have been given; it outlives a round.

  Attributes:
    crew: the engine.
    timeout: seconds that a worker may be silent.
    members: the workers by name.
    measured: of the last phase with clients.
  """

  def __init__(self, crew: crew_lib.Crew, timeout_seconds: float):
    """Args: the engine, and how long a worker may be silent."""
    self.crew = crew
    self.timeout = timeout_seconds
    self.members: dict[str, Member] = {}
    self.measured = Measured()
    self._programs = {}

  def add_program(self, number: int, block) -> None:
    """Adds a program, from the protocol buffer of its block."""
    self._programs[number] = self.crew.share(block)

  def refresh(self) -> None:
    """Adds the workers that have joined."""
    for name, info in self.crew.workers().items():
      if name not in self.members:
        self.members[name] = Member(info, time.monotonic())

  def load(self, name: str, number: int):
    """Begins to give a worker a program; returns the ticket."""
    self.members[name].loaded.add(number)
    shared = self._programs[number]
    return self.crew.call(name, 'load', number, shared)

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


class Dispatch:
  """Runs the clients of one phase; see `execution.run`."""

  def __init__(self, roster: Roster, number: int, argument, program, home):
    """Args: the workers, the program's number, its argument, and its place."""
    self._roster = roster
    self._crew = roster.crew
    self._number = number
    self._argument = argument
    self._program = program
    self._home = home

  def __call__(self, phase: cut.CutPhase, following, server, kept) -> dict:
    """Returns the phase's totals."""
    del following
    self._phase, self._kept, self._server = phase, kept, server
    self._round = next(_rounds)
    self._roster.measured = self.measured = Measured()
    num_clients = len(kept)
    # Numbers of larger blocks would be folded in another order in one process.
    size = sums_lib.block_size(num_clients)
    self._folds = size < num_clients
    size = size if self._folds else 1
    self._num_clients = num_clients
    self._sums = sums_lib.Sums(phase, server, self._home, num_clients)
    self._waiting = collections.deque(
      range(first, min(first + size, num_clients))
      for first in range(0, num_clients, size)
    )
    self._lost = collections.Counter()
    self._done = {}
    self._joined = 0
    self._used, machines = set(), set()
    sent = messages.pack(server, phase.server_inputs)
    self._shared = self._crew.share(sent)
    try:
      self._run(machines)
    finally:
      self._roster.forget_blocks()
    self.measured.bytes_down += messages.num_bytes(sent) * len(machines)
    self.measured.workers = len(self._used)
    return self._sums.totals()

  def _run(self, machines: set[str]) -> None:
    self._alone_since = None
    while self._joined < self._num_clients:
      self._roster.refresh()
      self._hand_out(machines)
      tickets = {
        ticket: name
        for name, member in self._roster.members.items()
        for ticket in member.tickets
      }
      if tickets:
        self._alone_since = None
        for ticket in self._crew.wait(list(tickets), _POLL_SECONDS):
          self._take(tickets[ticket], ticket)
      else:
        self._wait_for_workers()
      self._dismiss_silent()

  def _hand_out(self, machines: set[str]) -> None:
    """Gives waiting blocks to the workers that have room, least busy first."""
    while self._waiting:
      free = [
        (len(member.tickets) / member.info.threads, name)
        for name, member in self._roster.members.items()
        if self._room(member)
      ]
      if not free:
        return
      name = min(free)[1]
      member = self._roster.members[name]
      if not member.tickets:
        member.heard = time.monotonic()
      if self._number not in member.loaded:
        ticket = self._roster.load(name, self._number)
        member.tickets[ticket] = 'load', None
        continue
      machines.add(member.info.machine)
      self._used.add(name)
      self._start(name, self._waiting.popleft())

  def _room(self, member: Member) -> bool:
    """Whether a worker can take a block more.

    It has enough for its threads, and one that waits for its rows meanwhile. A
    block that was lost with a worker is alone on the next one, so that the one
    to blame is found.
    """
    if any(what == 'load' for what, _ in member.tickets.values()):
      return False
    doing = [clients[0] for _, clients in member.tickets.values()]
    if self._lost[self._waiting[0][0]] or any(self._lost[i] for i in doing):
      return not doing
    each = len(self._waiting[0])
    return len(member.tickets) < 1 + math.ceil(member.info.threads / each)

  def _start(self, name: str, clients: range) -> None:
    reads_data = self._roster.members[name].info.reads_data
    block = self._block(clients, reads_data)
    if self._phase.selects:
      self._call(name, 'keys', clients, block)
    else:
      self._call(name, 'train', clients, block, {})

  def _block(
    self, clients: range, reads_data: bool, begun: bool = False
  ) -> messages.Block:
    kept = {
      name: self._program.steps[name].type
      for name in {*self._phase.client.inputs, *self._phase.keys.inputs}
      if name in self._program.steps and self._program.steps[name].at_clients
    }
    return messages.Block(
      self._round,
      self._number,
      self._phase.number,
      clients[0],
      [] if begun else [self._own(index, reads_data) for index in clients],
      [messages.pack(self._kept[index], kept) for index in clients],
      self._shared,
      self._folds,
    )

  def _own(self, index: int, reads_data: bool):
    """Returns a client's own parameter as it is sent."""
    given = self._argument.only_own
    if reads_data and hasattr(given, 'reference'):
      return given.reference(index)
    value = self._argument.of_client(index)
    return messages.arrays(value, self._phase.own_type)

  def _call(self, name: str, what: str, clients: range, block, *more) -> None:
    sent = [block.clients, block.kept, *more]
    self.measured.bytes_down += messages.num_bytes(sent)
    ticket = self._crew.call(name, what, block, *more)
    self._roster.members[name].tickets[ticket] = what, clients

  def _take(self, name: str, ticket) -> None:
    """Takes what a worker returned."""
    member = self._roster.members.get(name)
    if member is None or ticket not in member.tickets:
      return  # It has been lost meanwhile.
    try:
      found = self._crew.result(ticket)
    except crew_lib.LostError as e:
      self._lose(name, str(e))
      return
    what, clients = member.tickets.pop(ticket)
    member.heard = time.monotonic()
    if isinstance(found, messages.Failed):
      raise client_error.ClientError(
        found.client_index, self._num_clients, RuntimeError(found.reason)
      )
    if what == 'keys':
      self.measured.bytes_up += messages.num_bytes(found)
      keys = {name: tf.constant(each) for name, each in found.items()}
      rows = self._phase.rows({**self._server, **keys}, self._home)
      rows = messages.pack(rows, self._phase.rows.outputs)
      self._call(
        name, 'train', clients, self._block(clients, False, begun=True), rows
      )
    elif what == 'train':
      self.measured.bytes_up += messages.num_bytes([found.folded, found.kept])
      self._done[clients[0]] = clients, found
      self._join()

  def _join(self) -> None:
    """Joins the blocks that are next in order."""
    while self._joined in self._done:
      clients, found = self._done.pop(self._joined)
      types = self._phase.client.outputs
      for index, new in zip(clients, found.kept, strict=False):
        self._kept[index].update(messages.unpack(new, types))
      if self._folds:
        types = self._phase.zero.outputs
        self._sums.merge(messages.unpack(found.folded, types))
      else:
        self._sums.add([messages.unpack(v, types) for v in found.folded])
      self._joined = clients.stop

  def _lose(self, name: str, why: str) -> None:
    """Gives what a lost worker was doing to others."""
    self.measured.workers_lost += 1
    print(
      f'\na worker was lost ({why}); its clients go to others', file=sys.stderr
    )
    again = [c for _, c in self._roster.remove(name) if c is not None]
    for clients in again:
      self._lost[clients[0]] += 1
      if self._lost[clients[0]] >= _MOST_LOST:
        which = f'client {clients[0]}'
        if len(clients) > 1:
          which = f'one of the clients {clients[0]} to {clients[-1]}'
        raise client_error.ClientError(
          clients[0],
          self._num_clients,
          RuntimeError(
            f'{_MOST_LOST} workers were lost one after the other with {which}'
            ' (from 0), perhaps for want of memory'
          ),
        )
    self._waiting = collections.deque(
      sorted([*again, *self._waiting], key=lambda clients: clients[0])
    )

  def _dismiss_silent(self) -> None:
    now = time.monotonic()
    for name, member in list(self._roster.members.items()):
      if member.tickets and now - member.heard > self._roster.timeout:
        self._lose(name, f'silent for {self._roster.timeout:g} seconds')

  def _wait_for_workers(self) -> None:
    """Waits a moment, since no worker is there.

    Raises:
      client_error.WorkersError: there has been none for a long time.
    """
    most = max(self._roster.timeout, _START_SECONDS)
    now = time.monotonic()
    if self._alone_since is None:
      self._alone_since = now
    if now - self._alone_since > most:
      raise client_error.WorkersError(
        f'no worker has been free for {most:g} seconds: start some with `python'
        ' -m launch.workers start`, or wait until another run has ended; then the'
        ' same command goes on'
      )
    time.sleep(0.1)
