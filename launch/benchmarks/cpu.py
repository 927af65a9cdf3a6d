"""Processor time and peak memory of a process tree, from Linux's /proc."""

import os
import pathlib
from typing import NamedTuple

_PROC = pathlib.Path('/proc')
_TICKS = os.sysconf('SC_CLK_TCK')


class Usage(NamedTuple):
  """Processor seconds so far.

  Attributes:
    busy: of all cores, by any process, including time that a hypervisor took.
    own: of a process tree, including children that have ended.
  """

  busy: float
  own: float


def _stat(pid: int) -> list[str] | None:
  """Returns the fields of /proc/PID/stat from the state on; None if absent."""
  try:
    text = (_PROC / str(pid) / 'stat').read_text()
  except OSError:
    return None
  return text.rpartition(')')[2].split()


def tree(root: int) -> dict[int, list[str]]:
  """Returns the stat fields of the processes at and below `root`, by id."""
  stats = {}
  for entry in os.listdir(_PROC):
    if entry.isdigit() and (stat := _stat(int(entry))):
      stats[int(entry)] = stat
  children: dict[int, list[int]] = {}
  for pid, stat in stats.items():
    children.setdefault(int(stat[1]), []).append(pid)
  found, todo = {}, [root]
  while todo:
    pid = todo.pop()
    if pid in stats:
      found[pid] = stats[pid]
      todo += children.get(pid, [])
  return found


def busy_seconds() -> float:
  """Returns the non-idle seconds of all cores since the machine's start.

  Sums user, nice, system, irq, softirq and steal. Steal, the time that a
  hypervisor gave to others, disturbs a measurement like another process.
  """
  fields = (_PROC / 'stat').read_text().splitlines()[0].split()[1:]
  ticks = [int(field) for field in fields]
  return (sum(ticks[:3]) + sum(ticks[5:8])) / _TICKS


def tree_seconds(root: int) -> float:
  """Returns processor seconds of the tree at `root`, with ended children."""
  # utime, stime, cutime and cstime are fields 14 to 17 of the line.
  return sum(
    sum(int(field) for field in stat[11:15]) / _TICKS
    for stat in tree(root).values()
  )


def usage() -> Usage:
  """Returns the usage so far; `own` is of this process and all below it."""
  return Usage(busy_seconds(), tree_seconds(os.getpid()))


def peak_bytes(root: int) -> int:
  """Returns the sum of peak resident sizes (VmHWM) at and below `root`.

  It is an upper bound if the processes peaked at different times or share
  pages.
  """
  return sum(_peak(pid) for pid in tree(root))


def _peak(pid: int) -> int:
  try:
    lines = (_PROC / str(pid) / 'status').read_text().splitlines()
  except OSError:
    return 0
  for line in lines:
    if line.startswith('VmHWM:'):
      return 1024 * int(line.split()[1])
  return 0
