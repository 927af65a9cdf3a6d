"""The clients of a phase that wait for a worker, in shares."""

import collections
import math
from collections.abc import Iterable

from tff_xc.runtime.in_process import sums

# The clients that are left are cut into so many shares for each thread: with fewer,
# a slow worker, or clients that are large, would hold up all others.
_PIECES = 4


class Shares:
  """Cuts a cohort into shares of consecutive clients, one for a call of a worker.

  Of a larger cohort a share is a block of `sums`, which the worker folds. Clients
  of a single block are folded by the driver. Some of them go together if their
  results are small: fewer towards the end, so that the workers end together.

  Attributes:
    folds: whether workers fold.
  """

  def __init__(self, num_clients: int):
    # Numbers of larger blocks would be folded in another order in one process.
    size = sums.block_size(num_clients)
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
    """Returns the next share.

    Args:
      threads: of all workers together.
      most: clients that may go together.
    """
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
