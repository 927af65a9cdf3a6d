"""Measurements that are neither formulas nor plain runs, a module for each.

resolve(name, request) -> config: checks what the flags of an `experiments.Request`
  say of a result, without importing TensorFlow.
measure(config, folder) -> lines: measures, and draws pictures in `folder`, which exists.
  Lines have row, metric and mean, see `results.COLUMNS`; the metric `results.VALUE`
  has values of which something is published or expected.
"""

import importlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from launch.reproduction import results
from tasks import registry as tasks
from tasks import task as found_lib
from tasks.papers import table
from tff_xc import errors


def module(found: table.Study):
  """Returns the module that measures a study."""
  return importlib.import_module(f'{__name__}.{found.module}')


def revision() -> str:
  """Returns the revision of this package that measures now, or ''."""
  from tff_xc import environment

  return environment.describe()['git_revision'] or ''


def lacking(
  configs: Sequence[Mapping[str, Any]], hint: str = ''
) -> dict[str, str]:
  """Returns and tells why data are not there, '' if they are, by task; raises if none are."""
  why = {}
  for each in configs:
    why[each['task']] = ''
    try:
      if find := tasks.get(each['task']).find:
        find(each['data_dir'])
    except errors.InputError as e:
      why[each['task']] = str(e)
  if all(why.values()):
    raise errors.InputError(f'{found_lib.error(why)}{hint}')
  found_lib.tell(why)
  return why


def value(row: str, mean: float, **more: Any) -> dict[str, Any]:
  """Returns the line of a value of which something is published or expected."""
  return {'row': row, 'metric': results.VALUE, 'mean': float(mean), **more}


def missing(task: str, row: str = 'all values', **more: Any) -> dict[str, Any]:
  """Returns the line of a task whose data are not there."""
  of = {'row': row, 'metric': results.VALUE, 'task': task}
  return {**of, 'note': 'its files are missing', **more}
