"""Sums over the clients of a phase, in blocks.

A sum of floating-point numbers depends on the order of its terms. Every runtime
therefore folds the same blocks of clients and merges them in their order, so
that the result does not depend on which machine folds which block.
"""

import math

from tff_xc.runtime.in_process import imported
from tff_xc.runtime.in_process import phases as phases_lib

# A cohort of at most so many clients is one block; larger ones have at most as
# many blocks, of whole groups of clients that are folded in one call.
MOST_BLOCKS = 32


def block_size(num_clients: int) -> int:
  """Returns how many clients are folded before they are merged with others."""
  if num_clients <= MOST_BLOCKS:
    return max(num_clients, 1)
  group = phases_lib.GROUP
  return group * math.ceil(num_clients / (group * MOST_BLOCKS))


class Sums:
  """The accumulators of a phase's folds."""

  def __init__(
    self,
    phase: phases_lib.Phase,
    server: dict,
    home: imported.Place,
    block_size: int,
  ):
    """Args: the phase, what its zeros read, where it folds, clients of a block."""
    self._phase, self._server, self._home = phase, server, home
    self._size = block_size
    self._whole = self._block = self._zeros = None
    self._clients = 0  # Of the block that is not merged yet.

  def add(self, results: list[dict]) -> None:
    """Folds the next clients' results, from `Phase.client`."""
    results = list(results)
    while results:
      some = results[: self._size - self._clients]
      del results[: len(some)]
      if self._block is None:
        self._block = self._zero()
      self._block = self._phase.fold(self._block, some, self._home)
      self._clients += len(some)
      if self._clients == self._size:
        self._close()

  def merge(self, block: dict) -> None:
    """Merges the next block, which has been folded elsewhere."""
    if self._whole is None:
      self._whole = block
      return
    others = {phases_lib.other(name): block[name] for name in block}
    self._whole = self._phase.merge({**self._whole, **others}, self._home)

  def trace(self, num_clients: int) -> None:
    """Traces what `add` calls for so many clients."""
    self._phase.zero.traced(self._home)
    self._phase.trace_folds(self._home)
    if num_clients > self._size:
      self._phase.merge.traced(self._home)

  def totals(self) -> dict:
    """Returns the accumulators after all clients, by name."""
    if self._block is not None:
      self._close()
    if self._whole is None:
      self._whole = self._zero()
    return self._whole

  def _zero(self) -> dict:
    """Returns the first accumulators; small ones are made once for all blocks."""
    if self._zeros is not None:
      return self._zeros
    found = self._phase.zero(self._server, self._home)
    if self._phase.are_small(found):
      self._zeros = found
    return found

  def _close(self) -> None:
    self.merge(self._block)
    self._block, self._clients = None, 0
