"""What is needed of an engine that runs workers on several machines."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
from typing import Protocol

from tff_xc.runtime.cluster import messages

# A worker that starts imports TensorFlow, which takes long on a busy machine.
_START_SECONDS = 120.0


def start_seconds(timeout: float) -> float:
  """Returns how long a worker may take to start, or to open its data.

  A run waits twice as long for its first worker, which leaves a second attempt.

  Args:
    timeout: how long a worker may make no progress, in seconds.
  """
  return max(timeout / 2, _START_SECONDS)


class LostError(RuntimeError):
  """A worker has ended; what it was doing must be done by another."""


class Info(NamedTuple):
  """Describes a worker.

  Attributes:
    threads: clients that it runs in parallel.
    machine: of several workers on one machine, the same text.
    reads_data: whether it reads clients' values itself.
    node: the engine's id of its node, if it has one.
  """

  threads: int
  machine: str
  reads_data: bool = False
  node: str = ''


class Crew(Protocol):
  """Workers (`worker.Worker`) in other processes, and how to call them."""

  def workers(self) -> dict[str, Info]:
    """Returns the workers that are ready, by ids that are never reused.

    It begins to start workers where machines have joined or workers have ended.
    """

  def call(self, worker: str, method: str, *args: Any) -> Any:
    """Calls a worker's method; returns a ticket at once."""

  def wait(self, tickets: Sequence, seconds: float) -> list:
    """Returns the tickets that are done, when one is or the time is over."""

  def result(self, ticket) -> Any:
    """Returns what the method returned.

    Raises:
      LostError: the worker has ended.
      client_error.ChangedError: its data have changed.
    """

  def dismiss(self, worker: str) -> None:
    """Ends a worker, which may not react."""

  def offer_data(self, source, fingerprint) -> None:
    """Lets workers read clients' values themselves; see `registry.offer_data`."""

  def share(self, value: Any) -> messages.Shared:
    """Returns a value for the arguments of several calls."""

  def close(self) -> None:
    """Ends the workers."""
