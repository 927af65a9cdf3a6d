"""Compares contenders' times on a machine that other processes use, too.

In every pass each contender runs one round, one at a time, in a shuffled order;
ratios are taken within a pass. A pass in which other processes used the cores
is dropped and repeated.
"""

import dataclasses
import os
import random
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

from launch.benchmarks import cpu
from launch.benchmarks import process
from tff_xc import errors

# The most passes that are tried for each undisturbed pass of the plan.
_ATTEMPTS = 3


@dataclasses.dataclass(frozen=True)
class Plan:
  """The plan of a measurement."""

  passes: int = 9  # The number of undisturbed passes to measure.
  warm_up: int = 2  # Rounds of each contender before the first pass.
  # The largest part of a pass's core time that other processes may use.
  max_foreign: float = 0.15
  seed: int = 0  # The seed of the contenders' orders.


@dataclasses.dataclass(frozen=True)
class Measured:
  """The results of a measurement."""

  # The replies of the undisturbed passes, by contender.
  passes: Sequence[Mapping[str, process.Reply]]
  dropped: int  # The number of disturbed passes.
  # Each contender's reply to its very first round.
  first: Mapping[str, process.Reply]
  peak_bytes: Mapping[str, int]  # Each contender's largest peak memory.


def foreign_part(before: cpu.Usage, after: cpu.Usage, core_seconds: float):
  """Returns the part of `core_seconds` that other processes used."""
  foreign = (after.busy - before.busy) - (after.own - before.own)
  return max(0.0, foreign) / core_seconds if core_seconds > 0 else 0.0


def measure(
  contenders: Mapping[str, process.Contender],
  plan: Plan,
  *,
  usage: Callable[[], cpu.Usage] = cpu.usage,
  clock: Callable[[], float] = time.perf_counter,
  say: Callable[[str], None] = lambda text: None,
) -> Measured:
  """Starts the contenders, warms them up, runs the passes, and ends them."""
  try:
    first = {}
    for name, contender in contenders.items():
      say(f'{name}: starting')
      contender.start()
      warm = [contender.round() for _ in range(plan.warm_up)]
      first[name] = warm[0] if warm else None
      if warm:
        say(f'{name}: first round {warm[0].seconds:.3g} s')
    return _passes(contenders, plan, first, usage, clock, say)
  finally:
    for contender in contenders.values():
      contender.end()


def _passes(contenders, plan, first, usage, clock, say) -> Measured:
  order, shuffle = list(contenders), random.Random(plan.seed).shuffle
  kept, dropped = [], 0
  peaks = {n: r.peak_bytes if r else 0 for n, r in first.items()}
  while len(kept) < plan.passes and len(kept) + dropped < (
    _ATTEMPTS * plan.passes
  ):
    shuffle(order)
    used, started = usage(), clock()
    replies = {}
    for name in order:
      replies[name] = reply = contenders[name].round()
      if not first[name]:
        first[name] = reply
        say(f'{name}: {reply.seconds:.3g} s')
    cores = os.cpu_count() or 1
    foreign = foreign_part(used, usage(), cores * (clock() - started))
    for name, reply in replies.items():
      peaks[name] = max(peaks[name], reply.peak_bytes)
    disturbed = foreign > plan.max_foreign
    say(
      f'pass {len(kept) + dropped + 1}: '
      + ', '.join(f'{n} {replies[n].seconds:.3g} s' for n in contenders)
      + (f'; dropped, others used {foreign:.0%}' if disturbed else '')
    )
    if disturbed:
      dropped += 1
    else:
      kept.append(replies)
  if not kept:
    raise errors.InputError(
      f'every pass of {dropped} was disturbed: others used more than '
      f'{plan.max_foreign:.0%} of the core time; free the machine, or allow '
      'more with --max_foreign'
    )
  return Measured(kept, dropped, first, peaks)


def disagreeing(
  first: Mapping[str, process.Reply],
  group: Sequence[str],
  tolerances: Mapping[str, float],
) -> dict[str, str]:
  """Returns a sentence for each contender of other results than the first one."""
  wrong = {}
  base = first[group[0]].check
  for name in group[1:]:
    check = first[name].check
    shared = [key for key in tolerances if key in base and key in check]
    if not shared:
      wrong[name] = (
        f'{name} reported nothing that tells whether it computes what '
        f'{group[0]} does'
      )
    for key in shared:
      # `not <=` instead of `>`, so that a nan disagrees.
      if not abs(check[key] - base[key]) <= tolerances[key] * abs(base[key]):
        wrong[name] = (
          f'{name} does not compute what {group[0]} does: {key} '
          f'{check[key]:.6g} instead of {base[key]:.6g} after one round'
        )
  return wrong
