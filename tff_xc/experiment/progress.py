"""The schedule of a run, and what a run shows while it trains.

A terminal gets a bar; without one, every evaluation is a line, with the scores that
fit its width. Both show the bytes of all clients so far, and the time left once this
process has done ten rounds and, after a resume, its first evaluation.
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
# A part's median is over this many of its last times.
_RECENT = 50
# Without tqdm's own estimate, which evaluations disturb, and short: tqdm cuts off
# what does not fit the terminal.
_BAR = '{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]'


@dataclasses.dataclass(frozen=True)
class Schedule:
  """The number of rounds, evaluations and checkpoints."""

  rounds: int  # Rounds of the whole run.
  # Rounds between evaluations; the last round is evaluated too.
  eval_every: int
  checkpoint_every: int  # Rounds between checkpoints; likewise.

  def due(self, every: int, round_number: int) -> bool:
    """Whether an action of period `every` is due after the round."""
    return round_number % every == 0 or round_number == self.rounds

  def left(self, every: int, done: int) -> int:
    """Returns how often an action of period `every` is due after `done`."""
    extra = done < self.rounds and self.rounds % every != 0
    return self.rounds // every - done // every + extra


def bytes_of(row: Mapping[str, float]) -> float:
  """Returns a round's bytes of all clients, down and up; 0 if not measured."""
  each = row['bytes_down_per_client'] + row['bytes_up_per_client']
  total = each * row.get('clients', math.nan)
  return 0.0 if math.isnan(total) else total


class Progress:
  """Shows the progress of a run, which goes on after the rows so far.

  The time left is the median of recent rounds, evaluations and checkpoints, each times
  the number to come: few rounds have an evaluation, so the median round would not tell.
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
    # Rounds done here, the last one's end, and what other parts took since then.
    self._clock, self._here, self._since, self._apart = clock, 0, clock(), 0.0
    self._bar = tqdm.tqdm(
      total=schedule.rounds, initial=self._done, unit='round', disable=None, bar_format=_BAR
    )

  @contextlib.contextmanager
  def timing(self, part: str) -> Iterator[None]:
    """Times an 'evaluation' or a 'checkpoint'."""
    started = self._clock()
    yield
    taken = self._clock() - started
    self._recent[part].append(taken)
    self._apart += taken

  def seconds_left(self) -> float | None:
    """Returns the seconds left of the run; None before it can tell."""
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
    """Shows a round: its row, and the scores of its evaluation, if it had one."""
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
    """Returns the bytes so far and the time left, where they are known."""
    parts = []
    if self._bytes:
      parts.append(f'{wording.human_bytes(self._bytes)} so far')
    left = self.seconds_left()
    if left is not None and self._done < self._schedule.rounds:
      parts.append(f'{wording.human_duration(left)} left')
    return parts
