"""What this machine offers, checked piece by piece. Used by `launch.doctor`.

Each check returns what it found and, where that is a problem, its cure. They
take what they read as arguments, so that tests can give them another machine.
"""

import dataclasses
import os
import pathlib
import re
import shutil
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from datasets import errors

GIB = 2**30
# The demo peaks below this; TFF's worker holds a copy of what it computes with.
LEAST_MEMORY_BYTES = 2 * GIB
LEAST_DISK_BYTES = 1 * GIB
_PINNED = (
  'tensorflow-federated',
  'tensorflow-addons',
  'tensorflow-datasets',
  'numpy',
  'scikit-learn',
  'pandas',
)
# Either of the two is TensorFlow.
_TENSORFLOW = ('tensorflow-cpu', 'tensorflow')
_REINSTALL = 'install the pinned packages anew with `make clean venv`'


@dataclasses.dataclass(frozen=True)
class Check:
  """What was looked at, what was found, and the cure if that is a problem.

  Details, if any, are the rows of a table, a heading first.
  """

  name: str
  found: str
  cure: str = ''
  table: Sequence[Sequence[str]] = ()

  @property
  def is_problem(self) -> bool:
    return bool(self.cure)


def check_python(version: tuple[int, int, int]) -> Check:
  """Python 3.10 or 3.11, for which the packages are pinned."""
  found = '.'.join(map(str, version))
  if version[:2] in ((3, 10), (3, 11)):
    return Check('Python', found)
  return Check(
    'Python', found, 'use Python 3.10 or 3.11: `make venv` looks for one'
  )


def check_platform(system: str, machine: str, cpuinfo: str) -> Check:
  """Linux on x86-64 with AVX, for which TFF and TensorFlow are built."""
  found = f'{system} {machine}, {len(os.sched_getaffinity(0))} cores'
  if (system, machine) != ('Linux', 'x86_64'):
    return Check(
      'platform', found, 'use Linux on x86-64: TFF is not built for another'
    )
  if not re.search(r'^flags\s*:.*\bavx\b', cpuinfo, re.MULTILINE):
    return Check(
      'platform',
      f'{found}, without AVX',
      "use a processor, or a virtual machine's setting, with AVX: TensorFlow "
      'is built for it',
    )
  return Check('platform', found)


def check_packages(
  installed: Mapping[str, str], pinned: Mapping[str, str]
) -> Check:
  """The versions that requirements.txt pins.

  Args:
    installed: version by distribution name.
    pinned: likewise, of requirements.txt; a name it lacks is not compared.
  """
  tensorflow = [n for n in _TENSORFLOW if n in installed][:1]
  names = [*(tensorflow or _TENSORFLOW[:1]), *_PINNED]
  found = ', '.join(f'{n} {installed.get(n, "missing")}' for n in names)
  wrong = [
    f'{n} {pinned[n]}'
    for n in names
    if n in pinned and installed.get(n) != pinned[n]
  ]
  if wrong:
    return Check(
      'packages', found, f'{_REINSTALL}: expected {", ".join(wrong)}'
    )
  return Check('packages', found)


def read_pins(requirements: pathlib.Path) -> dict[str, str]:
  """Versions by name that a resolved requirements file pins."""
  return dict(
    re.findall(
      r'^([\w.-]+)==(\S+)', requirements.read_text(encoding='utf-8'), re.M
    )
  )


def check_memory(meminfo: str, cgroup: pathlib.Path) -> Check:
  """Free memory: the machine's, or what its container may still take.

  Args:
    meminfo: the content of /proc/meminfo.
    cgroup: the directory of the control group, where a container's limit is.
  """
  match = re.search(r'^MemAvailable:\s+(\d+) kB', meminfo, re.MULTILINE)
  if match is None:
    return Check('memory', 'not told by the kernel')
  free = int(match[1]) * 1024
  try:
    limit = int((cgroup / 'memory.max').read_text())
    free = min(free, limit - int((cgroup / 'memory.current').read_text()))
  except (OSError, ValueError):
    pass  # No control group, or 'max': no limit.
  found = f'{free / GIB:.1f} GiB free'
  if free >= LEAST_MEMORY_BYTES:
    return Check('memory', found)
  return Check(
    'memory',
    found,
    f'end other programs, or give the machine or container more, until '
    f'{LEAST_MEMORY_BYTES / GIB:g} GiB are free',
  )


def check_disk(directory: pathlib.Path) -> Check:
  """Free space where runs are written."""
  free = shutil.disk_usage(directory).free
  found = f'{free / GIB:.1f} GiB free for runs'
  if free >= LEAST_DISK_BYTES:
    return Check('disk', found)
  return Check(
    'disk',
    found,
    f'free {LEAST_DISK_BYTES / GIB:g} GiB on the disk of {directory}, or write '
    'runs to another with --run_dir',
  )


def check_data(
  directory: str,
  is_chosen: bool,
  find: Mapping[str, Callable[[str], Any]],
  needs: Mapping[str, str],
) -> Check:
  """Whose data are in the data directory.

  Args:
    directory: the data directory.
    is_chosen: whether someone named it, by flag or environment; the default
      one may be absent, since the `glyphs` tasks need no data.
    find: by task, raises `errors.InputError` unless its data are there.
    needs: by task, what it needs.
  """
  missing = {n for n in find if _missing(find[n], directory) is not None}
  rows = [['task', 'data', 'needs']] + [
    [name, '–' if name in missing else 'found', needs[name]] for name in find
  ]
  known = [name for name in find if name not in missing]
  if known:
    return Check('data', f'{", ".join(known)} in {directory}', table=rows)
  found = f'no data of a task in {directory}'
  cure = 'point --data_dir or $TFF_XC_DATA to the directory that holds them'
  if not is_chosen:
    return Check('data', f'{found}; the glyphs tasks need none', table=rows)
  return Check('data', found, cure, rows)


def check_task_data(
  name: str, directory: str, find: Callable[[str], Any] | None
) -> Check:
  """The data of one task; None for `find` where it needs none."""
  if find is None:
    return Check('data', f'{name} needs none')
  missing = _missing(find, directory)
  if missing is None:
    return Check('data', f'{name} in {directory}')
  return Check('data', f'no {name} in {directory}', missing)


def _missing(find: Callable[[str], Any], directory: str) -> str | None:
  try:
    find(directory)
  except (errors.InputError, OSError) as e:
    return str(e)
  return None


def check_devices(
  list_devices: Callable[[str], list], has_nvidia: bool
) -> Check:
  """What TensorFlow computes on; a GPU is used where there is one.

  Args:
    list_devices: `tf.config.list_physical_devices`.
    has_nvidia: whether the machine has an NVIDIA GPU and its driver.
  """
  gpus = list_devices('GPU')
  if gpus:
    return Check('devices', f'CPU and {len(gpus)} GPU')
  if has_nvidia:
    return Check(
      'devices', 'CPU; the NVIDIA GPU is left alone (`make venv-gpu` uses it)'
    )
  return Check('devices', 'CPU; no GPU')


def check_runtime(name: str, add_up: Callable[[], int]) -> Check:
  """A runtime starts, and adds 1, 2 and 3.

  Args:
    name: of the runtime.
    add_up: starts it and computes the sum; `errors.InputError` says why it did
      not.
  """
  start = time.monotonic()
  try:
    total = add_up()
  except errors.InputError as e:
    return Check(name, 'does not run', str(e))
  except Exception as e:
    first = str(e).split('\n')[0]
    return Check(name, f'does not run: {type(e).__name__}: {first}', _REINSTALL)
  if total != 6:
    return Check(name, f'adds 1, 2 and 3 up to {total}', _REINSTALL)
  return Check(name, f'answers after {time.monotonic() - start:.1f} seconds')
