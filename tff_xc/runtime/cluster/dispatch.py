"""Assigns a cohort's blocks of clients to workers, and adds up the results in order.

If a worker is lost, other workers repeat its blocks, with the same results. The driver adds
each block to the sums exactly once, in the order of the clients.
"""

import collections
import dataclasses
import itertools
import math
import sys
import threading
import time
from typing import Any, NamedTuple

import tensorflow as tf

from tff_xc import errors
from tff_xc.runtime import client_error
from tff_xc.runtime.cluster import cut, messages
from tff_xc.runtime.in_process import phases as phases_lib

# A run waits at least this many seconds for a free worker, because workers first import
# TensorFlow.
_START_SECONDS = 240.0
_POLL_SECONDS = 1.0
# The driver waits at most this many seconds for the result of a worker's `idle_seconds`.
_ANSWER_SECONDS = 10.0
# If this many workers are lost while they run the same block, the run stops with an error.
_MOST_LOST = 3
# Names of the numbers that the driver measures in a computation with clients.
MEASURED = (
  'workers',  # Workers that ran clients.
  # Workers that ended by themselves, or that the driver ended because they made no progress.
  'workers_lost',
  # Bytes from the driver to workers. The server's values count once for each machine.
  # Programs do not count.
  'worker_bytes_down',
  'worker_bytes_up',
)
_rounds = itertools.count()


class LostError(RuntimeError):
  """A worker has ended. Other workers must repeat its blocks."""


class Info(NamedTuple):
  """Describes a worker."""

  threads: int  # The number of clients that the worker trains in parallel.
  machine: str  # The machine's name, which its workers share.
  reads_data: bool = False  # Whether the worker reads clients' values itself.


@dataclasses.dataclass
class Member:
  """A worker as the driver sees it."""

  info: Info
  heard: float  # Time of the worker's last progress, by `time.monotonic`.
  # The clients of each block that the worker is running, by ticket. A ticket identifies a
  # pending call (see `crew.RayCrew.call`).
  tickets: dict[Any, range] = dataclasses.field(default_factory=dict)


class Roster:
  """The workers and their current blocks, for all rounds."""

  def __init__(self, crew, timeout_seconds: float):
    self.crew = crew  # A `crew.RayCrew`.
    self.timeout = timeout_seconds  # Longest time in seconds without progress of a worker.
    self.members: dict[str, Member] = {}
    self.ready: set[str] = set()  # Names of workers that can take a block now.
    # The `MEASURED` numbers of the last computation with clients.
    self.measured = dict.fromkeys(MEASURED, 0)
    self.lock = threading.Lock()  # The phase that uses the workers holds this lock.

  def refresh(self) -> None:
    """Updates `ready`, and adds new workers to `members`."""
    found = self.crew.workers()
    self.ready = set(found)
    for name, info in found.items():
      if name not in self.members:
        self.members[name] = Member(info, time.monotonic())


class Dispatch:
  """Runs the clients of a computation's phases; see `execution.run`."""

  def __init__(self, roster: Roster, number: int, proto, program, argument, home):
    """`number` and `proto` are the fields `program` and `proto` of `messages.Block`."""
    self._roster = roster
    self._crew = roster.crew
    self._number, self._proto = number, proto
    self._program = program
    self._argument = argument
    self._home = home
    self._measured = dict.fromkeys(MEASURED, 0)
    self._used = set()

  def __call__(self, phase: cut.CutPhase, following, server, kept) -> dict:
    """Runs a phase and returns its accumulators. Only one phase at a time uses the workers."""
    with self._roster.lock:
      self._roster.measured = self._measured
      self._phase, self._kept, self._server = phase, kept, server
      self._round = next(_rounds)
      self._num_clients = len(kept)
      # Blocks have the same size as in the in-process runtime, so that sums have the same order.
      size = phases_lib.block_size(self._num_clients)
      # Whether workers add up (fold) their clients' results. Otherwise the driver folds them.
      self._folds = size < self._num_clients
      step = size if self._folds else 1
      self._waiting = [
        range(first, min(first + step, self._num_clients))
        for first in range(0, self._num_clients, step)
      ]
      self._lost = collections.Counter()
      self._sums = phases_lib.Sums(phase, server, self._home, self._num_clients)
      self._done = {}
      self._joined = 0
      self._machines = set()  # The machines that got blocks.
      sent = messages.pack(server, phase.server_inputs)
      self._shared_server = self._crew.share(sent)
      try:
        self._run()
      finally:
        for member in self._roster.members.values():  # Forget calls after an error.
          member.tickets.clear()
      size = messages.num_bytes(sent) * len(self._machines)
      self._measured['worker_bytes_down'] += size
      self._measured['workers'] = len(self._used)
      return self._sums.totals()

  def _run(self) -> None:
    self._alone_since = time.monotonic()
    while self._joined < self._num_clients:
      self._roster.refresh()
      self._hand_out()
      tickets = {
        ticket: name for name, member in self._roster.members.items() for ticket in member.tickets
      }
      if tickets:
        self._alone_since = time.monotonic()
        for ticket in self._crew.wait(list(tickets), _POLL_SECONDS):
          self._take(tickets[ticket], ticket)
      else:
        self._wait_for_workers()
      self._dismiss_silent()

  def _hand_out(self) -> None:
    """Assigns waiting blocks to workers that can take a block, the least busy worker first."""
    while self._waiting:
      block = self._waiting[0]
      free = [
        (len(member.tickets) / member.info.threads, name)
        for name, member in self._roster.members.items()
        if name in self._roster.ready and self._room(member, block)
      ]
      if not free:
        return
      name = min(free)[1]
      member = self._roster.members[name]
      if not member.tickets:
        member.heard = time.monotonic()
      self._machines.add(member.info.machine)
      self._used.add(name)
      del self._waiting[0]
      self._start(name, block)

  def _room(self, member: Member, block: range) -> bool:
    """Whether a worker can take one more block.

    A worker gets enough blocks for its threads, and an additional block that waits for its
    rows meanwhile. If a worker was lost while it ran a block, the next worker runs this block
    alone. If the next worker is also lost, the block is probably the cause.
    """
    doing = member.tickets.values()
    if any(self._lost[clients[0]] for clients in (block, *doing)):
      return not doing
    enough = math.ceil(member.info.threads / len(block))
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
      round=self._round,
      program=self._number,
      proto=self._proto,
      phase=self._phase.number,
      first=clients[0],
      clients=own,
      kept=[messages.pack(self._kept[index], kept) for index in clients],
      server=self._shared_server,
      folds=self._folds,
    )

  def _own(self, clients: range, reads_data: bool) -> list:
    """Returns the clients' own parameters for a message; [] if the phase does not read them."""
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
    self._roster.members[name].tickets[ticket] = clients

  def _take(self, name: str, ticket) -> None:
    """Processes the result of a worker's call."""
    member = self._roster.members.get(name)
    if member is None or ticket not in member.tickets:
      return  # The worker has been lost in the meantime.
    try:
      found = self._crew.result(ticket)
    except LostError as e:
      self._lose(name, str(e))
      return
    except client_error.ChangedError as e:
      # A WorkersError would save the finished rounds, which may have used the changed data.
      raise errors.InputError(f'a worker on {member.info.machine}: {e}') from e
    clients = member.tickets.pop(ticket)
    member.heard = time.monotonic()
    if isinstance(found, messages.Failed):
      raise client_error.ClientError(
        found.client_index, self._num_clients, RuntimeError(found.reason)
      )
    if isinstance(found, messages.Trained):
      size = messages.num_bytes([found.folded, found.kept])
      self._measured['worker_bytes_up'] += size
      self._done[clients[0]] = clients, found
      self._join()
    else:  # The worker returned the keys of the rows that it needs.
      self._measured['worker_bytes_up'] += messages.num_bytes(found)
      rows = self._rows(clients, found)
      block = self._block(clients, [])  # The worker already has the clients' parameters.
      self._call(name, 'train', clients, block, rows)

  def _rows(self, clients: range, found) -> messages.Arrays:
    """Computes the rows for the keys of a block."""
    keys = {name: tf.constant(each) for name, each in found.items()}
    try:
      rows = self._phase.rows({**self._server, **keys}, self._home)
    except tf.errors.InvalidArgumentError as e:
      raise self._error(clients, e) from e
    return messages.pack(rows, self._phase.rows.outputs)

  def _join(self) -> None:
    """Adds finished blocks to the sums in the clients' order, up to the first unfinished block."""
    while self._joined in self._done:
      clients, found = self._done.pop(self._joined)
      types = self._phase.client.outputs
      for index, new in zip(clients, found.kept, strict=False):
        self._kept[index].update(messages.unpack(new, types))
      if self._folds:
        types = self._phase.zero.outputs
        self._sums.merge(messages.unpack(found.folded, types))
      else:
        self._sums.add([messages.unpack(v, types, borrowed=True) for v in found.folded])
      self._joined = clients.stop

  def _lose(self, name: str, why: str, cure: str = 'perhaps because memory ran out') -> None:
    """Removes a lost worker, and adds its blocks to the blocks that wait for a worker."""
    self._measured['workers_lost'] += 1
    member = self._roster.members.pop(name)
    self._crew.dismiss(name)
    print(
      f'\na worker on {member.info.machine} was lost ({why}); its clients go to others',
      file=sys.stderr,
    )
    for clients in member.tickets.values():
      self._lost[clients[0]] += 1
      if self._lost[clients[0]] >= _MOST_LOST:
        raise self._error(
          clients,
          RuntimeError(
            f'{_MOST_LOST} workers were lost one after the other with it (the last: {why}), {cure}'
          ),
        )
    self._waiting = sorted([*member.tickets.values(), *self._waiting], key=lambda block: block[0])

  def _error(self, clients: range, cause: Exception) -> client_error.ClientError:
    return client_error.ClientError(clients[0], self._num_clients, cause, clients[-1])

  def _dismiss_silent(self) -> None:
    """Gives up workers that made no progress for too long."""
    for name, member in list(self._roster.members.items()):
      try:
        if not self._is_silent(name, member):
          continue
        why = f'no progress within --worker_timeout={self._roster.timeout:g} seconds'
        cure = 'perhaps because a client takes longer: give a higher one'
        self._lose(name, why, cure)
      except LostError as e:
        self._lose(name, str(e))

  def _is_silent(self, name: str, member: Member) -> bool:
    now = time.monotonic()
    if not member.tickets or now - member.heard <= self._roster.timeout:
      return False
    # A result may have arrived that this process has not processed yet.
    if self._crew.wait(list(member.tickets), 0):
      return False
    ticket = self._crew.call(name, 'idle_seconds')
    if not self._crew.wait([ticket], _ANSWER_SECONDS):
      return True
    member.heard = max(member.heard, now - self._crew.result(ticket))
    return now - member.heard > self._roster.timeout

  def _wait_for_workers(self) -> None:
    """Waits a moment for a free worker. Raises WorkersError if no worker was free for long."""
    most = max(self._roster.timeout, _START_SECONDS)
    if time.monotonic() - self._alone_since > most:
      raise client_error.WorkersError(
        f'no worker has been free for {most:g} seconds (a higher --worker_timeout'
        ' lets it wait longer): add nodes with `ray start --address=...`, or wait'
        ' until another run has ended; then the same command continues the run'
      )
    time.sleep(0.1)
