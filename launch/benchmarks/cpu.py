"""Processor time and peak memory of a process tree."""

import contextlib
import os
import pathlib
import re
from typing import NamedTuple

import psutil


class Usage(NamedTuple):
  """Processor seconds so far."""

  # Of all cores, by any process, including time that a hypervisor took.
  busy: float
  own: float  # Of a process tree, including children that have ended.


def tree(root: int) -> list[psutil.Process]:
  """Returns the processes at and below `root`; none if it has ended."""
  try:
    process = psutil.Process(root)
    return [process, *process.children(recursive=True)]
  except psutil.NoSuchProcess:
    return []


def busy_seconds() -> float:
  """Returns the non-idle seconds of all cores since the machine's start.

  Steal, the time that a hypervisor gave to others, disturbs a measurement like
  another process.
  """
  now = psutil.cpu_times()
  running = now.user + now.nice + now.system
  return running + now.irq + now.softirq + now.steal


def tree_seconds(root: int) -> float:
  """Returns processor seconds of the tree at `root`, with ended children."""
  total = 0.0
  for process in tree(root):
    with contextlib.suppress(psutil.NoSuchProcess):
      used = process.cpu_times()
      ended = used.children_user + used.children_system
      total += used.user + used.system + ended
  return total


def usage() -> Usage:
  """Returns the usage so far; `own` is of this process and all below it."""
  return Usage(busy_seconds(), tree_seconds(os.getpid()))


def peak_bytes(root: int) -> int:
  """Returns the sum of peak resident sizes (VmHWM) at and below `root`.

  It is an upper bound if the processes peaked at different times or share
  pages.
  """
  return sum(_peak(process.pid) for process in tree(root))


def resident_bytes(root: int) -> int:
  """Returns the sum of present resident sizes at and below `root`."""
  total = 0
  for process in tree(root):
    with contextlib.suppress(psutil.NoSuchProcess):
      total += process.memory_info().rss
  return total


def _peak(pid: int) -> int:
  # psutil knows no peaks of other processes.
  try:
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
  except OSError:
    return 0
  found = re.search(r'^VmHWM:\s+(\d+) kB', status, re.MULTILINE)
  return 1024 * int(found[1]) if found else 0
