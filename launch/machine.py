"""Describes this machine, and checks whether it can run the project.

`python -m launch.plan` without flags prints the checks. Another check, of the packages'
versions, happens when a program imports `tff_xc`.
"""

import contextlib
import os
import pathlib
import platform
import re
import shutil
from collections.abc import Iterator
from typing import Any

import psutil

from tff_xc import environment, memory, wording
from tff_xc.lazy import np, tf, tff
from tff_xc.runtime import registry as runtimes

_REQUIREMENTS = pathlib.Path(__file__).resolve().parents[1] / 'requirements.txt'
# The demo needs less memory than LEAST_MEMORY, even with TFF's worker, which has its own copy of
# all values.
LEAST_MEMORY, LEAST_DISK = 2 * 2**30, 2**30
# TensorFlow uses the widest of these instruction sets that the processor has.
_INSTRUCTIONS = {'avx512_vnni': 'AVX-512 VNNI', 'avx512f': 'AVX-512', 'avx2': 'AVX2'}
_CPUINFO = pathlib.Path('/proc/cpuinfo')
_GPUS = pathlib.Path('/proc/driver/nvidia/gpus')
_REINSTALL = 'install the pinned packages anew with `make clean venv`'
# The name of a check, its result, and how to fix the problem; '': there is no problem.
Check = tuple[str, str, str]


def describe() -> dict[str, Any]:
  """Returns the processor's name, the number of cores, and the NVIDIA GPUs."""
  told = [path.read_text() for path in sorted(_GPUS.glob('*/information'))]
  gpus = re.findall(r'^Model:\s*(.+)', '\n'.join(told), re.MULTILINE)
  return {'cpu': processor(), 'cores': os.cpu_count(), 'gpus': gpus}


def processor() -> str:
  """Returns this machine's processor: 'AMD EPYC (family 25, model 1, AVX2)'.

  The instruction set is part of the text, because it decides which kernels TensorFlow runs.
  """
  first = _read(_CPUINFO).partition('\n\n')[0]
  told = dict(re.findall(r'^(.+?)\s*: *(.*)$', first, re.MULTILINE))
  parts = [
    f'{key.removeprefix("cpu ")} {told[key]}' for key in ('cpu family', 'model') if key in told
  ]
  has = told.get('flags', '').split()
  parts += [name for flag, name in _INSTRUCTIONS.items() if flag in has][:1]
  name = told.get('model name', 'unknown')
  return f'{name} ({", ".join(parts)})' if parts else name


def peak_bytes(root: int) -> int:
  """Returns the sum of the peak resident sizes (VmHWM) of the process `root` and its children.

  The sum is an upper bound if the processes peaked at different times or share pages.
  """
  total = 0
  with contextlib.suppress(psutil.NoSuchProcess):
    process = psutil.Process(root)
    for each in [process, *process.children(recursive=True)]:
      # psutil cannot read the peak of another process. The file is missing if the process has just
      # ended.
      with contextlib.suppress(OSError):
        status = pathlib.Path(f'/proc/{each.pid}/status').read_text()
        found = re.search(r'^VmHWM:\s+(\d+) kB', status, re.MULTILINE)
        total += 1024 * int(found[1]) if found else 0
  return total


def _read(path: pathlib.Path) -> str:
  return path.read_text('utf-8') if path.exists() else ''


def checks() -> Iterator[Check]:
  """Yields the results of all checks. Checks that need TensorFlow come last."""
  versions = environment.describe()['versions']
  pins = dict(re.findall(r'^([\w.-]+)==(\S+)', _read(_REQUIREMENTS), re.MULTILINE))
  wrong = [f'{n} {pins[n]}' for n in pins if versions.get(n, pins[n]) != pins[n]]
  cure = f'{_REINSTALL}: expected {", ".join(wrong)}' if wrong else ''
  yield 'packages', ', '.join(map(' '.join, versions.items())), cure
  system, kind, cure = platform.system(), platform.machine(), ''
  if (system, kind) != ('Linux', 'x86_64'):
    cure = 'use Linux on x86-64: TFF is not built for other platforms'
  elif not re.search(r'^flags\s*:.*\bavx\b', _read(_CPUINFO), re.MULTILINE):
    cure = 'use a processor or a virtual machine with AVX: TensorFlow needs it'
  cores = wording.count(len(os.sched_getaffinity(0)), 'core')
  yield 'platform', f'{system} {kind}, {cores}', cure
  disk = shutil.disk_usage('.').free
  for name, free, least in (
    ('memory', memory.free_bytes(), LEAST_MEMORY),
    ('disk', disk, LEAST_DISK),
  ):
    cure = f'make room until {wording.human_bytes(least)} are free'
    yield name, f'{wording.human_bytes(free)} are free', cure * (free < least)

  gpus = len(tf.config.list_physical_devices('GPU'))
  found = f'CPU and {wording.count(gpus, "GPU")}'
  if os.path.exists('/proc/driver/nvidia/version') and not gpus:
    found += '; the NVIDIA GPU is left alone (`make venv-gpu` uses it)'
  yield 'devices', found, ''
  for name, runtime in (('TFF worker', 'worker'), (runtimes.DEFAULT, runtimes.DEFAULT)):
    try:
      found = f'adds 1, 2 and 3 up to {_sum(runtime)}'
    except Exception as e:
      found = f'does not run: {type(e).__name__}: {e}'.split('\n')[0]
    yield name, found, '' if found.endswith(' 6') else _REINSTALL


def _sum(runtime: str) -> int:
  """Adds 1, 2 and 3 with a federated computation on a runtime."""

  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def total(values):
    return tff.federated_sum(values)

  runtimes.install(runtime)
  return int(total([1, 2, 3]))


def tell() -> int:
  """Prints the checks; returns the exit status, 1 if there is a problem."""
  problems = 0
  for name, found, cure in checks():
    print(f'{name:<12}{"PROBLEM" if cure else "ok":<9}{found}', flush=True)
    if cure:
      print(f'{"":<12}{"cure":<9}{cure}', flush=True)
    problems += bool(cure)
  if not problems:
    print('all is well; `python -m launch.plan --help` says how to plan a run')
  return int(problems > 0)
