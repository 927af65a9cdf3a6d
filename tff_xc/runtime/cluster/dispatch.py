"""Hands a cohort's shares to workers, and joins the results in their order.

Whatever happens to workers, each block enters the sums once, and at its place:
a lost worker's blocks are done by others, with the same numbers.
"""

import itertools
import math
import sys
import time

import tensorflow as tf

from tff_xc import errors
from tff_xc.runtime import client_error
from tff_xc.runtime.cluster import crew as crew_lib
from tff_xc.runtime.cluster import cut
from tff_xc.runtime.cluster import messages
from tff_xc.runtime.cluster import roster as roster_lib
from tff_xc.runtime.cluster import shares
from tff_xc.runtime.in_process import sums as sums_lib

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

  def __init__(
    self, roster: roster_lib.Roster, number: int, argument, program, home
  ):
    """Args: the workers, the program's number, its argument, and its place."""
    self._roster = roster
    self._crew = roster.crew
    self._number = number
    self._argument = argument
    self._program = program
    self._home = home
    self._measured = roster_lib.Measured()
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
    num_clients = len(kept)
    self._shares = shares.Shares(num_clients)
    self._num_clients = num_clients
    self._sums = sums_lib.Sums(phase, server, self._home, num_clients)
    self._lost_early = 0
    self._done = {}
    self._joined = 0
    machines = set()
    sent = messages.pack(server, phase.server_inputs)
    self._shared = self._crew.share(sent)
    try:
      self._run(machines)
    finally:
      self._roster.forget_blocks()
    self._measured.bytes_down += messages.num_bytes(sent) * len(machines)
    self._measured.workers = len(self._used)
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
        self._roster.load(name, self._number)
        continue
      machines.add(member.info.machine)
      self._used.add(name)
      self._shares.take(share)
      self._start(name, share)

  def _threads(self) -> int:
    """Returns the threads of the workers that can take something now."""
    members = self._roster.members
    ready = [members[name] for name in self._roster.ready if name in members]
    return max(sum(member.info.threads for member in ready), 1)

  def _room(self, member: roster_lib.Member, share: range) -> bool:
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
    self._measured.bytes_down += messages.num_bytes(sent)
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
    except crew_lib.LostError as e:
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
      self._measured.bytes_up += messages.num_bytes(found)
      try:
        rows = self._rows(clients, found)
      except client_error.ClientError:
        if not self._shares.split(clients):
          raise
        return  # One by one, the client is found.
      block = self._block(clients, [])  # It has the clients' own.
      self._call(name, 'train', clients, block, rows)
    elif what == 'train':
      self._measured.bytes_up += messages.num_bytes([found.folded, found.kept])
      self._roster.at_once[self._number, self._phase.number] = found.at_once
      self._done[clients[0]] = clients, found
      self._join()

  def _rows(self, clients: range, found) -> messages.Arrays:
    """Returns the rows of a share's keys.

    Raises:
      client_error.ClientError: a key is out of range.
    """
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
    self._measured.workers_lost += 1
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
      except crew_lib.LostError as e:
        self._lose(name, str(e))
        continue
      if gone:
        why = f'no progress within --worker_timeout={most:g} seconds'
        cure = 'perhaps since a client takes longer: give a higher one'
        self._lose(name, why, cure)

  def _is_silent(
    self, name: str, member: roster_lib.Member, most: float
  ) -> bool:
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
    """Waits a moment, since no worker is there.

    Raises:
      client_error.WorkersError: there has been none for a long time.
    """
    most = 2 * crew_lib.start_seconds(self._roster.timeout)
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
