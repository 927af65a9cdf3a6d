"""The execution context that runs TFF computations on several machines."""

import itertools
import weakref

from tff_xc.runtime.cluster import cut, dispatch, messages
from tff_xc.runtime.in_process import context


class ClusterContext(context.InProcessContext):
  """Runs the server's steps in this process, and clients on the workers of a `crew.RayCrew`."""

  _phase = cut.CutPhase

  def __init__(self, crew, timeout_seconds: float, device: str = ''):
    super().__init__(context.new_clients(1, device))
    self._roster = dispatch.Roster(crew, timeout_seconds)
    self._programs = weakref.WeakKeyDictionary()
    self._counter = itertools.count()
    self._has_data = False  # Whether workers may read the run's data.

  def metrics(self) -> dict[str, float]:
    """Returns sent bytes and numbers of workers for the last computation with clients."""
    return {name: float(n) for name, n in self._roster.measured.items()}

  def offer_data(self, source, fingerprint) -> None:
    """See `registry.offer_data`."""
    self._has_data = source is not None
    if self._has_data:
      self._roster.crew.offer_data(source, fingerprint)

  def referenced(self, values, round_number):
    """See `registry.referenced`."""
    return messages.Referenced(values, round_number) if self._has_data else values

  def close(self) -> None:
    """Ends the workers' processes and leaves the cluster."""
    self._roster.crew.close()

  def _run_clients(self, program, argument, clients):
    with self._lock:
      if program not in self._programs:
        proto = self._roster.crew.share(program.block.proto)
        self._programs[program] = next(self._counter), proto
    number, proto = self._programs[program]
    home = clients.home(program.stateful)
    return dispatch.Dispatch(self._roster, number, proto, program, argument, home)
