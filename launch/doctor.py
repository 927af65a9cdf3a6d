"""Checks whether this machine can run the project, and how to make it so.

  python -m launch.doctor [--task=T] [--data_dir=D] [--split=S ...]

With --task it looks for the data of that task, and with --data_dir alone it lists
what every task needs. For a task of your own data, such as images, --data_dir names
them, and --split, --test_fraction and other flags of the data say, as in training,
what a run would find in them.
Exit status: 0 all is well, 1 a problem was found.
"""

import dataclasses
import functools
import os
import pathlib
import platform
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from absl import flags

from launch import app
from launch import settings
from tasks import experiment
from tasks import items
from tasks import own_data
from tasks import registry as tasks
from tasks import task as task_lib
from tff_xc import environment
from tff_xc import errors
from tff_xc import memory
from tff_xc import wording
from tff_xc.report import text_table
from tff_xc.runtime import registry as runtimes

_ROOT = pathlib.Path(__file__).resolve().parents[1]

# What a run of one's own data may say about them.
_OF_DATA = {o.name: o for o in (*own_data.OPTIONS, *items.OPTIONS)}

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
  """A check's name, its finding, the cure of a problem, and a table of details."""

  name: str
  found: str
  cure: str = ''
  table: Sequence[Sequence[str]] = ()

  @property
  def is_problem(self) -> bool:
    return bool(self.cure)


def check_python(version: tuple[int, int, int]) -> Check:
  """Checks for Python 3.10 or 3.11, for which the packages are pinned."""
  cure = 'use Python 3.10 or 3.11: `make venv` looks for one'
  is_right = version[:2] in ((3, 10), (3, 11))
  return Check('Python', '.'.join(map(str, version)), '' if is_right else cure)


def check_platform(system: str, machine: str, cpuinfo: str) -> Check:
  """Checks for Linux on x86-64 with AVX, as TFF and TensorFlow need."""
  cores = wording.count(len(os.sched_getaffinity(0)), 'core')
  found, cure = f'{system} {machine}, {cores}', ''
  if (system, machine) != ('Linux', 'x86_64'):
    cure = 'use Linux on x86-64: TFF is not built for another'
  elif not re.search(r'^flags\s*:.*\bavx\b', cpuinfo, re.MULTILINE):
    found += ', without AVX'
    cure = (
      "use a processor, or a virtual machine's setting, with AVX: TensorFlow is"
      ' built for it'
    )
  return Check('platform', found, cure)


def check_packages(
  installed: Mapping[str, str], pinned: Mapping[str, str]
) -> Check:
  """Checks installed versions, by name, for those that requirements.txt pins."""
  tensorflow = [n for n in _TENSORFLOW if n in installed][:1]
  names = [*(tensorflow or _TENSORFLOW[:1]), *_PINNED]
  found = ', '.join(f'{n} {installed.get(n, "missing")}' for n in names)
  wrong = [
    f'{n} {pinned[n]}'
    for n in names
    if n in pinned and installed.get(n) != pinned[n]
  ]
  cure = f'{_REINSTALL}: expected {", ".join(wrong)}' if wrong else ''
  return Check('packages', found, cure)


def read_pins(requirements: str) -> dict[str, str]:
  """Returns the versions, by name, that a resolved requirements file pins."""
  return dict(re.findall(r'^([\w.-]+)==(\S+)', requirements, re.MULTILINE))


def check_room(name: str, free: int, least: int, what: str, cure: str) -> Check:
  """Checks free bytes for the least that a run needs."""
  found = f'{free / GIB:.1f} GiB free{what}'
  return Check(name, found, '' if free >= least else cure)


def check_data(
  directory: str,
  is_chosen: bool,
  find: Mapping[str, Callable[[str], Any]],
  needs: Mapping[str, str],
) -> Check:
  """Checks which tasks' data are in the data directory.

  The default directory, which is not chosen, may be absent, since the `glyphs`
  tasks need no data. The table has a row for each task of `needs`, what its data must
  be; `find` lacks the tasks of the user's own data.
  """
  state = {n: task_lib.state(find[n], directory) for n in find}
  known = [n for n in find if state[n] != task_lib.MISSING]
  rows = [
    [name, state.get(name, 'your own') or 'found', text]
    for name, text in needs.items()
  ]
  found, cure = f'no data of a task in {directory}', ''
  if known:
    found = f'{", ".join(known)} in {directory}'
  elif is_chosen:
    cure = 'point --data_dir or $TFF_XC_DATA to the directory that holds them'
  else:
    found += '; the glyphs tasks need none, and `launch.list tasks` says what others do'
  return Check('data', found, cure, rows)


def check_task_data(
  name: str, directory: str, find: Callable[[str], Any] | None
) -> Check:
  """Checks the data of one task; without `find` it needs none."""
  if find is None:
    return Check('data', f'{name} needs none')
  try:
    found = find(directory)
  except (errors.InputError, OSError) as e:
    return Check('data', f'{name} cannot be loaded from {directory}', str(e))
  told = f': {found}' if isinstance(found, str) else ''
  return Check('data', f'{name} in {directory}{told}')


def check_devices(gpus: int, has_nvidia: bool) -> Check:
  """Tells TensorFlow's devices; it uses a GPU if there is one."""
  found = f'CPU and {gpus} GPU' if gpus else 'CPU; no GPU'
  if has_nvidia and not gpus:
    found = 'CPU; the NVIDIA GPU is left alone (`make venv-gpu` uses it)'
  return Check('devices', found)


def check_runtime(name: str, add_up: Callable[[], int]) -> Check:
  """Checks that a runtime starts and adds 1, 2 and 3, as `add_up` does."""
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


def _read(path: str) -> str:
  try:
    return pathlib.Path(path).read_text(encoding='utf-8')
  except OSError:
    return ''


def _quick_checks() -> list[Check]:
  """Makes the checks that need no TensorFlow."""
  folder, requirements = pathlib.Path.cwd(), _ROOT / 'requirements.txt'
  installed = {
    re.sub(r'[-_.]+', '-', d.name).lower(): d.version  # As PEP 503 has it.
    for d in metadata.distributions()
  }
  return [
    check_python(sys.version_info[:3]),
    check_platform(
      platform.system(), platform.machine(), _read('/proc/cpuinfo')
    ),
    check_packages(installed, read_pins(requirements.read_text('utf-8'))),
    Check(
      'revision', environment.describe()['git_revision'] or 'not a git checkout'
    ),
    check_room(
      'memory',
      memory.free_bytes(),
      LEAST_MEMORY_BYTES,
      '',
      'end other programs, or give the machine or container more, until'
      f' {LEAST_MEMORY_BYTES / GIB:g} GiB are free',
    ),
    check_room(
      'disk',
      shutil.disk_usage(folder).free,
      LEAST_DISK_BYTES,
      ' for runs',
      f'free {LEAST_DISK_BYTES / GIB:g} GiB on the disk of {folder}, or write runs'
      ' to another with --run_dir',
    ),
  ]


def _tensorflow_checks() -> list[Check]:
  """Makes the checks that need TensorFlow and TFF, after seconds of import."""
  try:
    import numpy as np
    import tensorflow as tf
    import tensorflow_federated as tff

    from tff_xc.runtime import worker
  except ImportError as e:
    cure = 'install the packages anew with `make clean venv`'
    return [Check('import', str(e), cure)]

  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def total(values):
    return tff.federated_sum(values)

  def in_default_runtime() -> int:
    runtimes.install(runtimes.DEFAULT)
    return int(total([1, 2, 3]))

  def in_worker() -> int:
    seconds = flags.FLAGS.worker_timeout_seconds
    with (
      worker.create_context(start_timeout_seconds=seconds) as context,
      tff.framework.get_context_stack().install(context),
    ):
      return int(total([1, 2, 3]))

  return [
    check_devices(
      len(tf.config.list_physical_devices('GPU')),
      os.path.exists('/proc/driver/nvidia/version'),
    ),
    check_runtime(runtimes.DEFAULT, in_default_runtime),
    check_runtime('TFF worker', in_worker),
    _check_data(),
  ]


def _options() -> dict[str, Any] | None:
  """Returns the task's options if flags set some of them, else None."""
  given = {n: v for n, v in settings.changes().items() if n in _OF_DATA}
  if not given:
    return None
  name = flags.FLAGS.task
  if name is None or not tasks.get(name).data_is_named:
    own = ', '.join(n for n, t in tasks.TASKS.items() if t.data_is_named)
    raise errors.InputError(
      f'--{next(iter(given))} goes with a task of your own data here: give --task,'
      f' one of {own}'
    )
  task = tasks.get(name)
  options = task.checked_options(given)
  task.check(options)
  return options


def _check_data() -> Check:
  chosen = flags.FLAGS.data_dir or os.environ.get(experiment.DATA_VARIABLE)
  directory = chosen or experiment.DEFAULT_DATA_DIR
  name = flags.FLAGS.task
  if name is not None:
    find, options = tasks.get(name).find, _options()
    if options is not None:
      find = functools.partial(find, options=options)
    return check_task_data(name, directory, find)
  reading = {n: t for n, t in tasks.TASKS.items() if t.find is not None}
  return check_data(
    directory,
    chosen is not None,
    {n: t.find for n, t in reading.items() if not t.data_is_named},
    {n: t.data for n, t in reading.items()} if flags.FLAGS.data_dir else {},
  )


def _print(check: Check) -> None:
  state = 'PROBLEM' if check.is_problem else 'ok'
  print(f'{check.name:<12}{state:<9}{check.found}', flush=True)
  if check.is_problem:
    print(f'{"":<12}{"cure":<9}{check.cure}', flush=True)
  if check.table:
    width = text_table.terminal_width() - 2
    lines = [['task', 'data', 'needs'], *check.table]
    text = text_table.to_text(lines, range(3), width)
    print(textwrap.indent(text, '  '), end='', flush=True)


def main(arguments) -> None:
  settings.refuse_arguments(arguments)
  if flags.FLAGS.task is not None:  # Known, and with data if a folder is given.
    tasks.get(flags.FLAGS.task).check_data_dir(flags.FLAGS.data_dir)
  _options()
  problems = 0
  for find in (_quick_checks, _tensorflow_checks):
    for check in find():
      _print(check)
      problems += check.is_problem
  if problems:
    print(f'{wording.count(problems, "problem")} found')
    sys.exit(1)
  print('all is well')


if __name__ == '__main__':
  # Not at import, since other commands have flags of these names.
  flags.DEFINE_string(
    'task', None, 'task whose data to look for; default: all tasks'
  )
  flags.DEFINE_string(
    'data_dir',
    None,
    'directory of the data sets, one folder each, or your own data; without --task,'
    ' also list what every task needs; default '
    f'${experiment.DATA_VARIABLE}, then {experiment.DEFAULT_DATA_DIR}',
  )
  settings.define_flags(_OF_DATA.values())
  app.define_float(
    'worker_timeout_seconds',
    60.0,
    "longest time for the start of TFF's worker",
    least=1.0,
    most=86_400.0,
  )
  app.run(main, __doc__)
