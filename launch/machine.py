"""The checks of this machine, for `launch.doctor`.

Each check returns its finding and, if that is a problem, the cure. The checks
take the machine's properties as arguments, so that tests can describe another
machine.
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

from tasks import task as found_lib
from tff_xc import errors
from tff_xc import wording

GIB = 2**30
# The demo's peak is below this, although TFF's worker holds a second copy of
# the values of its computations.
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
# TensorFlow is either of these two distributions.
_TENSORFLOW = ('tensorflow-cpu', 'tensorflow')
_REINSTALL = 'install the pinned packages anew with `make clean venv`'


@dataclasses.dataclass(frozen=True)
class Check:
  """A check's name, its finding, and the cure if that is a problem.

  Details, if any, are the rows of a table; the first row is the heading.
  """

  name: str
  found: str
  cure: str = ''
  table: Sequence[Sequence[str]] = ()

  @property
  def is_problem(self) -> bool:
    return bool(self.cure)


def check_python(version: tuple[int, int, int]) -> Check:
  """Checks for Python 3.10 or 3.11, for which the packages are pinned."""
  found = '.'.join(map(str, version))
  if version[:2] in ((3, 10), (3, 11)):
    return Check('Python', found)
  return Check(
    'Python', found, 'use Python 3.10 or 3.11: `make venv` looks for one'
  )


def check_platform(system: str, machine: str, cpuinfo: str) -> Check:
  """Checks for Linux on x86-64 with AVX, as TFF and TensorFlow need."""
  cores = wording.count(len(os.sched_getaffinity(0)), 'core')
  found = f'{system} {machine}, {cores}'
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
  """Checks for the versions that requirements.txt pins.

  Args:
    installed: versions by distribution name.
    pinned: versions by name in requirements.txt; other names are not compared.
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
  """Returns the versions, by name, that a resolved requirements file pins."""
  return dict(
    re.findall(
      r'^([\w.-]+)==(\S+)', requirements.read_text(encoding='utf-8'), re.M
    )
  )


def check_memory(free: int) -> Check:
  """Checks the free memory, in bytes."""
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
  """Checks free space in the directory of runs."""
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
  """Checks which tasks' data are in the data directory.

  Args:
    directory: the data directory.
    is_chosen: whether a flag or the environment named it. The default directory
      may be absent, since the `glyphs` tasks need no data.
    find: by task, a function that raises `errors.InputError` unless the task's
      data are there. Tasks of the user's own data are not looked for here.
    needs: by task, the files that it needs.
  """
  state = {n: found_lib.state(find[n], directory) for n in find}
  known = [n for n in find if state[n] != found_lib.MISSING]
  rows = [['task', 'data', 'needs']] + [
    [name, state.get(name, 'your own') or 'found', text]
    for name, text in needs.items()
  ]
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
  """Checks the data of one task.

  Args:
    name: of the task.
    directory: the data directory, or the user's own file or folder.
    find: as of `check_data`; what it returns is shown if it is text. None: the
      task needs no data.
  """
  if find is None:
    return Check('data', f'{name} needs none')
  try:
    found = find(directory)
  except (errors.InputError, OSError) as e:
    return Check('data', f'{name} cannot be loaded from {directory}', str(e))
  told = f': {found}' if isinstance(found, str) else ''
  return Check('data', f'{name} in {directory}{told}')


def check_devices(
  list_devices: Callable[[str], list], has_nvidia: bool
) -> Check:
  """Checks TensorFlow's devices; it uses a GPU if there is one.

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
  """Checks that a runtime starts and adds 1, 2 and 3.

  Args:
    name: the runtime's name.
    add_up: starts the runtime and returns the sum; raises `errors.InputError`
      with the reason if the runtime fails.
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
