"""Hands a cohort's shares to workers, and joins the results in their order.

Whatever happens to workers, each block enters the sums once, and at its place:
a lost worker's blocks are done by others, with the same numbers.
"""

import collections
import dataclasses
import itertools
import math
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tff_xc import errors
from tff_xc.runtime import client_error
from tff_xc.runtime.cluster import cut
from tff_xc.runtime.cluster import messages
from tff_xc.runtime.in_process import phases as phases_lib

# A worker that starts imports TensorFlow, which takes long on a busy machine.
_START_SECONDS = 120.0


def start_seconds(timeout: float) -> float:
  """Returns how long a worker may take to start, or to open its data.

  A run waits twice as long for its first worker, which leaves a second attempt.
  """
  return max(timeout / 2, _START_SECONDS)


class LostError(RuntimeError):
  """A worker has ended; what it was doing must be done by another."""


class Info(NamedTuple):
  """Describes a worker."""

  threads: int  # Clients that it runs in parallel.
  machine: str  # Of several workers on one machine, the same text.
  reads_data: bool = False  # Whether it reads clients' values itself.
  node: str = ''  # The engine's id of its node, if it has one.


# What a computation's clients cost between the machines, by the names of metrics.
MEASURED = (
  'workers',  # That did a part.
  'workers_lost',  # That ended, or were ended because they made no progress.
  # From the driver, the server's values once for each machine, without programs.
  'worker_bytes_down',
  'worker_bytes_up',
)


@dataclasses.dataclass
class Member:
  """A worker as the driver sees it."""

  info: Info  # From the crew.
  heard: float  # When it last answered or ran a client, by `time.monotonic`.
  # When it was asked how long it has been idle since, and the ticket.
  asked: tuple[float, Any] | None = None
  # Numbers of the programs that it has.
  loaded: set[int] = dataclasses.field(default_factory=set)
  # What it is doing: the method, and the clients of a block or the number of a
  # program.
  tickets: dict[Any, tuple] = dataclasses.field(default_factory=dict)

  def hear(self) -> None:
    """Notes an answer, or that it has just been given something to do."""
    self.heard, self.asked = time.monotonic(), None


class Roster:
  """The workers, and what they have been given; it outlives a round."""

  def __init__(self, crew, timeout_seconds: float):
    self.crew = crew  # A `ray_crew.RayCrew`.
    self.timeout = timeout_seconds  # That a worker may make no progress.
    # `phases.Phase.at_once`, by numbers of program and phase.
    self.at_once: dict[tuple[int, int], int] = {}
    self.members: dict[str, Member] = {}
    self.ready: set[str] = set()  # Those that can take something now.
    # `MEASURED` of the last phase with clients.
    self.measured = dict.fromkeys(MEASURED, 0)
    self.lock = threading.Lock()  # Held by the phase that uses the workers.
    self.programs = {}  # Protocol buffers of their blocks, shared, by number.

  def refresh(self) -> None:
    """Adds the workers that have joined."""
    found = self.crew.workers()
    self.ready = set(found)
    for name, info in found.items():
      if name not in self.members:
        self.members[name] = Member(info, time.monotonic())

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


# The clients that are left are cut into so many shares for each thread: with fewer,
# a slow worker, or clients that are large, would hold up all others.
_PIECES = 4


class Shares:
  """Cuts a cohort into shares of consecutive clients, one for a call of a worker.

  Of a larger cohort a share is a block of `phases.Sums`, which the worker folds. Clients
  of a single block are folded by the driver. Some of them go together if their
  results are small: fewer towards the end, so that the workers end together.
  """

  def __init__(self, num_clients: int):
    # Numbers of larger blocks would be folded in another order in one process.
    size = phases_lib.block_size(num_clients)
    self.folds = size < num_clients
    self._waiting = collections.deque(
      range(first, min(first + size, num_clients))
      for first in range(0, num_clients, size)
    )
    self._lost = collections.Counter()

  def __bool__(self) -> bool:
    return bool(self._waiting)

  def times_lost(self, share: range) -> int:
    """Returns how many workers were lost with a share."""
    return self._lost[share[0]]

  def next(self, threads: int, most: int) -> range:
    """Returns the next share."""
    first = self._waiting[0]
    if self.folds or self.times_lost(first):
      return first
    left = sum(map(len, self._waiting))
    return first[: min(math.ceil(left / (_PIECES * threads)), most)]

  def take(self, share: range) -> None:
    """Takes the next share out."""
    rest = self._waiting.popleft()[len(share) :]
    if rest:
      self._waiting.appendleft(rest)

  def split(self, share: range) -> bool:
    """Lets the clients of a share wait one by one; False if they cannot."""
    if self.folds or len(share) == 1:
      return False
    self._wait(range(i, i + 1) for i in share)
    return True

  def give_back(self, lost: Iterable[range]) -> list[range]:
    """Returns the shares in which the clients of lost ones wait again."""
    if not self.folds:  # One by one, the client to blame is found.
      lost = [range(i, i + 1) for share in lost for i in share]
    again = list(lost)
    self._lost.update(share[0] for share in again)
    self._wait(again)
    return again

  def _wait(self, again: Iterable[range]) -> None:
    waiting = sorted([*again, *self._waiting], key=lambda share: share[0])
    self._waiting = collections.deque(waiting)


_POLL_SECONDS = 1.0
# A worker that made no progress is asked for it, and answers at once if it lives.
_ANSWER_SECONDS = 10.0
# A block whose workers are lost so many times in a row is given up.
_MOST_LOST = 3
# Workers that are lost before they have done anything, with no answer between.
_MOST_LOST_EARLY = 10
_rounds = itertools.count()


class Dispatch:
  """Runs the clients of a computation's phases; see `execution.run`."""

  def __init__(self, roster: Roster, number: int, argument, program, home):
    self._roster = roster
    self._crew = roster.crew
    self._number = number
    self._argument = argument
    self._program = program
    self._home = home
    self._measured = dict.fromkeys(MEASURED, 0)
    self._used = set()

  def __call__(self, phase: cut.CutPhase, following, server, kept) -> dict:
    """Returns the phase's totals; one phase at a time uses the workers."""
    del following
    with self._roster.lock:
      self._roster.measured = self._measured
      return self._totals(phase, server, kept)

  def _totals(self, phase: cut.CutPhase, server, kept) -> dict:
    self._phase, self._kept, self._server = phase, kept, server
    self._round = next(_rounds)
    self._num_clients = len(kept)
    self._shares = Shares(self._num_clients)
    self._sums = phases_lib.Sums(phase, server, self._home, self._num_clients)
    self._lost_early = 0
    self._done = {}
    self._joined = 0
    self._machines = set()  # That took a part.
    sent = messages.pack(server, phase.server_inputs)
    self._shared = self._crew.share(sent)
    try:
      self._run()
    finally:
      self._roster.forget_blocks()
    size = messages.num_bytes(sent) * len(self._machines)
    self._measured['worker_bytes_down'] += size
    self._measured['workers'] = len(self._used)
    return self._sums.totals()

  def _run(self) -> None:
    self._alone_since = None
    while self._joined < self._num_clients:
      self._roster.refresh()
      self._hand_out()
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

  def _hand_out(self) -> None:
    """Gives waiting shares to the workers that have room, least busy first."""
    while self._shares:
      most = self._roster.at_once.get((self._number, self._phase.number), 1)
      share = self._shares.next(self._threads(), most)
      free = [
        (len(member.tickets) / member.info.threads, name)
        for name, member in self._roster.members.items()
        if name in self._roster.ready and self._room(member, share)
      ]
      if not free:
        return
      name = min(free)[1]
      member = self._roster.members[name]
      if not member.tickets:
        member.hear()
      if self._number not in member.loaded:
        program = self._roster.programs[self._number]
        ticket = self._crew.call(name, 'load', self._number, program)
        member.tickets[ticket] = 'load', self._number
        continue
      self._machines.add(member.info.machine)
      self._used.add(name)
      self._shares.take(share)
      self._start(name, share)

  def _threads(self) -> int:
    """Returns the threads of the workers that can take something now."""
    members = self._roster.members
    ready = [members[name] for name in self._roster.ready if name in members]
    return max(sum(member.info.threads for member in ready), 1)

  def _room(self, member: Member, share: range) -> bool:
    """Whether a worker can take a share more.

    It has enough for its threads, and one that waits for its rows meanwhile. A
    share that was lost with a worker is alone on the next one, so that the one
    to blame is found.
    """
    if any(what == 'load' for what, _ in member.tickets.values()):
      return False
    doing = [clients for _, clients in member.tickets.values()]
    if any(map(self._shares.times_lost, [share, *doing])):
      return not doing
    enough = math.ceil(member.info.threads / len(share))
    return len(doing) < 1 + enough

  def _start(self, name: str, clients: range) -> None:
    reads_data = self._roster.members[name].info.reads_data
    block = self._block(clients, self._own(clients, reads_data))
    if self._phase.selects:
      self._call(name, 'keys', clients, block)
    else:
      self._call(name, 'train', clients, block, {})

  def _block(self, clients: range, own: list) -> messages.Block:
    kept = self._phase.kept_inputs
    return messages.Block(
      self._round,
      self._number,
      self._phase.number,
      clients[0],
      own,
      [messages.pack(self._kept[index], kept) for index in clients],
      self._shared,
      self._shares.folds,
    )

  def _own(self, clients: range, reads_data: bool) -> list:
    """Returns the clients' own parameters as they are sent; [] if none is read."""
    phase, given = self._phase, self._argument.only_own
    reads = {*phase.client.inputs, *phase.keys.inputs}
    if self._program.parameter not in reads:
      return []
    if reads_data and hasattr(given, 'reference'):
      return [given.reference(index) for index in clients]
    values = map(self._argument.of_client, clients)
    return [messages.arrays(value, phase.own_type) for value in values]

  def _call(self, name: str, what: str, clients: range, block, *more) -> None:
    sent = [block.clients, block.kept, *more]
    self._measured['worker_bytes_down'] += messages.num_bytes(sent)
    ticket = self._crew.call(name, what, block, *more)
    self._roster.members[name].tickets[ticket] = what, clients

  def _take(self, name: str, ticket) -> None:
    """Takes what a worker returned."""
    member = self._roster.members.get(name)
    if member is None or ticket not in member.tickets:
      return  # It has been lost meanwhile.
    what, clients = member.tickets.pop(ticket)
    try:
      found = self._crew.result(ticket)
    except LostError as e:
      member.tickets[ticket] = what, clients
      self._lose(name, str(e))
      return
    except client_error.ChangedError as e:
      # No error of workers, after which the rounds so far would be saved.
      raise errors.InputError(f'a worker on {member.info.machine}: {e}') from e
    member.hear()
    self._lost_early = 0
    if isinstance(found, messages.Failed):
      raise client_error.ClientError(
        found.client_index, self._num_clients, RuntimeError(found.reason)
      )
    if what == 'load':
      member.loaded.add(clients)
    elif what == 'keys':
      self._measured['worker_bytes_up'] += messages.num_bytes(found)
      try:
        rows = self._rows(clients, found)
      except client_error.ClientError:
        if not self._shares.split(clients):
          raise
        return  # One by one, the client is found.
      block = self._block(clients, [])  # It has the clients' own.
      self._call(name, 'train', clients, block, rows)
    elif what == 'train':
      size = messages.num_bytes([found.folded, found.kept])
      self._measured['worker_bytes_up'] += size
      self._roster.at_once[self._number, self._phase.number] = found.at_once
      self._done[clients[0]] = clients, found
      self._join()

  def _rows(self, clients: range, found) -> messages.Arrays:
    """Returns the rows of a share's keys."""
    keys = {name: tf.constant(each) for name, each in found.items()}
    try:
      rows = self._phase.rows({**self._server, **keys}, self._home)
    except tf.errors.InvalidArgumentError as e:
      raise self._error(clients, e) from e
    return messages.pack(rows, self._phase.rows.outputs)

  def _join(self) -> None:
    """Joins the blocks that are next in order."""
    while self._joined in self._done:
      clients, found = self._done.pop(self._joined)
      types = self._phase.client.outputs
      for index, new in zip(clients, found.kept, strict=False):
        self._kept[index].update(messages.unpack(new, types))
      if self._shares.folds:
        types = self._phase.zero.outputs
        self._sums.merge(messages.unpack(found.folded, types))
      else:
        self._sums.add(
          [messages.unpack(v, types, borrowed=True) for v in found.folded]
        )
      self._joined = clients.stop

  def _lose(
    self, name: str, why: str, cure: str = 'perhaps for want of memory'
  ) -> None:
    """Gives what a lost worker was doing to others."""
    self._measured['workers_lost'] += 1
    machine = self._roster.members[name].info.machine
    print(
      f'\na worker on {machine} was lost ({why}); its clients go to others',
      file=sys.stderr,
    )
    doing = self._roster.remove(name)
    again = self._shares.give_back(
      [clients for what, clients in doing if what != 'load']
    )
    self._lost_early += not again
    if self._lost_early >= _MOST_LOST_EARLY:
      raise client_error.WorkersError(
        f'{self._lost_early} workers were lost one after the other before they had'
        f' begun (the last: {why}): they may lack memory, or'
        f' --worker_timeout={self._roster.timeout:g} be too short for them to'
        ' compile'
      )
    for clients in again:
      if self._shares.times_lost(clients) >= _MOST_LOST:
        raise self._error(
          clients,
          RuntimeError(
            f'{_MOST_LOST} workers were lost one after the other with it (the'
            f' last: {why}), {cure}'
          ),
        )

  def _error(
    self, clients: range, cause: Exception
  ) -> client_error.ClientError:
    return client_error.ClientError(
      clients[0], self._num_clients, cause, clients[-1]
    )

  def _dismiss_silent(self) -> None:
    """Gives up workers that make no progress; a large block takes its time."""
    most = self._roster.timeout
    for name, member in list(self._roster.members.items()):
      try:
        gone = self._is_silent(name, member, most)
      except LostError as e:
        self._lose(name, str(e))
        continue
      if gone:
        why = f'no progress within --worker_timeout={most:g} seconds'
        cure = 'perhaps since a client takes longer: give a higher one'
        self._lose(name, why, cure)

  def _is_silent(self, name: str, member: Member, most: float) -> bool:
    now = time.monotonic()
    if not member.tickets or now - member.heard <= most:
      return False
    # This process may have been slow to take what the worker has answered.
    if self._crew.wait(list(member.tickets), 0):
      return False
    if member.asked is None:
      member.asked = now, self._crew.call(name, 'idle_seconds')
    asked, ticket = member.asked
    if not self._crew.wait([ticket], 0):
      return now - asked > _ANSWER_SECONDS
    member.asked = None
    member.heard = max(member.heard, now - self._crew.result(ticket))
    return now - member.heard > most

  def _wait_for_workers(self) -> None:
    """Waits a moment, since no worker is there."""
    most = 2 * start_seconds(self._roster.timeout)
    now = time.monotonic()
    if self._alone_since is None:
      self._alone_since = now
    if now - self._alone_since > most:
      raise client_error.WorkersError(
        f'no worker has been free for {most:g} seconds (more than this in place of'
        f' --worker_timeout={self._roster.timeout:g} lets it wait longer): start'
        ' some with `python -m launch.workers start`, or wait until another run has'
        ' ended; then the same command goes on'
      )
    time.sleep(0.1)
