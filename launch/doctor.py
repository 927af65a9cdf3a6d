"""Checks whether this machine can run the project, and how to make it so.

  python -m launch.doctor [--task=T] [--data_dir=D] [--split=S ...]

Looks for the data of every task, or of the given one. For a task of one's own
data, such as images, --data_dir names them, and --split, --test_fraction and other
flags of the data say, as in training, what a run would find in them.
Exit status: 0 all is well, 1 a problem was found.
"""

import functools
import os
import pathlib
import platform
import re
import sys
import textwrap
from importlib import metadata
from typing import Any

from absl import flags

from launch import app
from launch import machine
from launch import settings
from tasks import experiment
from tasks import own_data
from tasks import registry as tasks
from tff_xc import environment
from tff_xc import errors
from tff_xc import memory
from tff_xc import wording
from tff_xc.report import text_table
from tff_xc.runtime import registry as runtimes

_ROOT = pathlib.Path(__file__).resolve().parents[1]

flags.DEFINE_string(
  'task', None, 'the task whose data to look for; default: all tasks'
)
flags.DEFINE_string(
  'data_dir',
  None,
  "directory of the data sets, one folder each, or one's own data; default "
  f'${experiment.DATA_VARIABLE}, then {experiment.DEFAULT_DATA_DIR}',
)
# What a run of one's own data may say about them.
_OF_DATA = tuple(option.name for option in own_data.OPTIONS)
settings.define_flags(own_data.OPTIONS)
app.define_float(
  'worker_timeout_seconds',
  60.0,
  "longest time for the start of TFF's worker",
  least=1.0,
  most=86_400.0,
)


def _read(path: str) -> str:
  try:
    return pathlib.Path(path).read_text(encoding='utf-8')
  except OSError:
    return ''


def _canonical(name: str) -> str:
  """Returns a distribution's name as requirements files write it (PEP 503)."""
  return re.sub(r'[-_.]+', '-', name).lower()


def _quick_checks() -> list[machine.Check]:
  """Makes the checks that need no TensorFlow."""
  return [
    machine.check_python(sys.version_info[:3]),
    machine.check_platform(
      platform.system(), platform.machine(), _read('/proc/cpuinfo')
    ),
    machine.check_packages(
      {_canonical(d.name): d.version for d in metadata.distributions()},
      machine.read_pins(_ROOT / 'requirements.txt'),
    ),
    machine.Check(
      'revision', environment.describe()['git_revision'] or 'not a git checkout'
    ),
    machine.check_memory(memory.free_bytes()),
    machine.check_disk(pathlib.Path.cwd()),
  ]


def _tensorflow_checks() -> list[machine.Check]:
  """Makes the checks that need TensorFlow and TFF, after seconds of import."""
  try:
    import numpy as np
    import tensorflow as tf
    import tensorflow_federated as tff

    from tff_xc.runtime import worker
  except ImportError as e:
    return [
      machine.Check(
        'import', str(e), 'install the packages anew with `make clean venv`'
      )
    ]

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
    machine.check_devices(
      tf.config.list_physical_devices,
      os.path.exists('/proc/driver/nvidia/version'),
    ),
    machine.check_runtime(runtimes.DEFAULT, in_default_runtime),
    machine.check_runtime('TFF worker', in_worker),
    _check_data(),
  ]


def _options() -> dict[str, Any] | None:
  """Returns the task's options if flags set some of them, else None.

  Raises:
    errors.InputError: there is no task of one's own data, or it does not take one
      of them.
  """
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


def _check_data() -> machine.Check:
  chosen = flags.FLAGS.data_dir or os.environ.get(experiment.DATA_VARIABLE)
  directory = chosen or experiment.DEFAULT_DATA_DIR
  name = flags.FLAGS.task
  if name is not None:
    find, options = tasks.get(name).find, _options()
    if options is not None:
      find = functools.partial(find, options=options)
    return machine.check_task_data(name, directory, find)
  needs = {n: t for n, t in tasks.TASKS.items() if t.find is not None}
  return machine.check_data(
    directory,
    chosen is not None,
    {n: t.find for n, t in needs.items() if not t.data_is_named},
    {n: t.data for n, t in needs.items()},
  )


def _print(check: machine.Check) -> None:
  state = 'PROBLEM' if check.is_problem else 'ok'
  print(f'{check.name:<12}{state:<9}{check.found}', flush=True)
  if check.is_problem:
    print(f'{"":<12}{"cure":<9}{check.cure}', flush=True)
  if check.table:
    width = text_table.terminal_width() - 2
    text = text_table.to_text(check.table, range(3), width)
    print(textwrap.indent(text, '  '), end='', flush=True)


def main(arguments) -> None:
  settings.refuse_arguments(arguments)
  if (
    flags.FLAGS.task is not None
  ):  # Refuses an unknown task, or one without data.
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
  app.run(main, __doc__)
