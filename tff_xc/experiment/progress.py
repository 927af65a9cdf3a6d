"""The schedule of a run, and its progress display.

On a terminal, a run shows a progress bar. Elsewhere, a run prints a line for each evaluation,
with as many scores as fit the width. Bar and lines show the bytes that all clients have
received and sent so far. As soon as this process has done ten rounds and one evaluation, bar
and lines also show an estimate of the time left.
"""

import collections
import contextlib
import dataclasses
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import tqdm

from tff_xc import wording
from tff_xc.report import text_table

# The time left is shown after this many rounds.
_ROUNDS_FIRST = 10
# Median times are over this many recent rounds, evaluations or checkpoints.
_RECENT = 50
# The bar leaves out tqdm's own estimate of the time left, because evaluations make that
# estimate wrong. The bar is short, because tqdm cuts off text that does not fit the terminal.
_BAR = '{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]'


@dataclasses.dataclass(frozen=True)
class Schedule:
  """The number of rounds, and the periods of evaluations and checkpoints."""

  rounds: int  # Number of rounds of the whole run.
  # Number of rounds between evaluations. The last round is always evaluated.
  eval_every: int
  checkpoint_every: int  # Rounds between checkpoints. The last round is always saved.

  def due(self, every: int, round_number: int) -> bool:
    """Whether an action with a period of `every` rounds is due after this round."""
    return round_number % every == 0 or round_number == self.rounds

  def left(self, every: int, done: int) -> int:
    """Returns how often an action with a period of `every` rounds is due after round `done`."""
    extra = done < self.rounds and self.rounds % every != 0
    return self.rounds // every - done // every + extra


def bytes_of(row: Mapping[str, float]) -> float:
  """Returns the bytes that all clients received and sent in a round; 0 if unknown."""
  each = row['bytes_down_per_client'] + row['bytes_up_per_client']
  total = each * row.get('clients', math.nan)
  return 0.0 if math.isnan(total) else total


class Progress:
  """Shows the progress of a run that continues after the given rows of metrics.csv.

  The estimated time left is a sum of three products: the numbers of remaining rounds,
  evaluations and checkpoints, each multiplied by the median time of recent ones.
  """

  def __init__(
    self,
    schedule: Schedule,
    metrics: Iterable[str],
    rows: Iterable[Mapping[str, float]],
    clock: Callable[[], float] = time.perf_counter,
  ):
    rounds = [row for row in rows if row['round']]
    self._schedule, self._done = schedule, len(rounds)
    self._bytes = sum(map(bytes_of, rounds))
    self._names = ('loss', *metrics)
    self._latest = math.nan
    self._every = {
      'round': 1,
      'evaluation': schedule.eval_every,
      'checkpoint': schedule.checkpoint_every,
    }
    self._recent = {part: collections.deque(maxlen=_RECENT) for part in self._every}
    # `_here` is the number of rounds that this process has done. `_since` is the end of the
    # last round. `_apart` is the time that evaluations and checkpoints have taken since then.
    self._clock, self._here, self._since, self._apart = clock, 0, clock(), 0.0
    self._bar = tqdm.tqdm(
      total=schedule.rounds, initial=self._done, unit='round', disable=None, bar_format=_BAR
    )

  @contextlib.contextmanager
  def timing(self, part: str) -> Iterator[None]:
    """Measures the time of the block. `part` is 'evaluation' or 'checkpoint'."""
    started = self._clock()
    yield
    taken = self._clock() - started
    self._recent[part].append(taken)
    self._apart += taken

  def seconds_left(self) -> float | None:
    """Returns an estimate of the run's remaining seconds; None if it is too early."""
    if self._here < _ROUNDS_FIRST:
      return None
    seconds = 0.0
    for part, recent in self._recent.items():
      if left := self._schedule.left(self._every[part], self._done):
        if recent:
          seconds += left * statistics.median(recent)
        elif part != 'checkpoint':
          return None
    return seconds

  def round_done(self, row: Mapping[str, float], scores: Mapping[str, float] | None) -> None:
    """Shows a finished round, with the `scores` of its evaluation, if it had an evaluation."""
    now = self._clock()
    self._recent['round'].append(now - self._since - self._apart)
    self._since, self._apart = now, 0.0
    self._here, self._done = self._here + 1, self._done + 1
    self._bytes += bytes_of(row)
    if scores:
      self.show({'loss': row['loss'], **scores})
    score = '-' if math.isnan(self._latest) else f'{self._latest:.3f}'
    parts = [f'{self._names[1]} {score}', f'loss {row["loss"]:.3f}']
    parts = [*reversed(self._so_far()), *parts]
    self._bar.set_postfix_str(', '.join(parts), refresh=False)
    self._bar.update()

  def warn(self, text: str) -> None:
    """Prints a warning on stderr, above the bar."""
    self._bar.write(f'warning: {text}', file=sys.stderr)

  def close(self) -> None:
    self._bar.close()

  def show(self, scores: Mapping[str, float]) -> None:
    """Shows the scores of an evaluation."""
    names = [name for name in self._names if name in scores]
    self._latest = scores[self._names[1]]
    if not self._bar.disable:
      return
    parts = [f'{name} {scores[name]:.4f}' for name in names]
    head, tail = f'round {self._done}/{self._schedule.rounds}: ', self._so_far()
    line = head + ', '.join(parts + tail)
    width = text_table.terminal_width()
    while len(line) > width and len(parts) > 2:
      parts.pop()
      line = head + ', '.join([*parts, '…', *tail])
    print(line, flush=True)

  def _so_far(self) -> list[str]:
    """Returns texts with the bytes so far and the time left, if they are known."""
    parts = []
    if self._bytes:
      parts.append(f'{wording.human_bytes(self._bytes)} so far')
    left = self.seconds_left()
    if left is not None and self._done < self._schedule.rounds:
      parts.append(f'{wording.human_duration(left)} left')
    return parts
