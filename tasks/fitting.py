"""How a task, an algorithm and the settings of a run fit each other.

Importing this does not import TensorFlow.
"""

import os
from collections.abc import Mapping
from typing import Any

from tasks import encoders
from tasks import task as task_lib
from tff_xc import errors
from tff_xc.algorithms import entry as entry_lib
from tff_xc.algorithms import fedss
from tff_xc.algorithms import options as of_algorithms
from tff_xc.algorithms import registry as algorithms
from tff_xc.algorithms import svm_settings
from tff_xc.measure import catalog

# Floats of a table, 8 GiB.
MOST_FLOATS = 2**31
_OF_SPLIT = {
  'dirichlet': ('concentration', 'num_clients', 'data_seed'),
  'class': ('clients_per_class', 'classes_per_client'),
}


def check(task: task_lib.Task, entry: entry_lib.Entry) -> None:
  """Refuses an algorithm that needs what the task lacks.

  Raises:
    errors.InputError: naming the need, and the algorithms that fit.
  """
  missing = [need for need in entry.needs if need in task.lacks]
  if not missing:
    return
  others = [
    name
    for name, other in algorithms.ALGORITHMS.items()
    if not set(other.needs) & set(task.lacks)
  ]
  raise errors.InputError(
    f'--algorithm={entry.name} needs {missing[0]}, which --task={task.name} does'
    f' not have; choose another task, or one of {", ".join(others)}'
  )


def checked_options(task: task_lib.Task, given: Mapping) -> dict[str, Any]:
  """Returns all options of a task: those given, and the defaults of others.

  Raises:
    errors.InputError: the task does not take one of them, or a value is bad.
  """
  for name in given:
    if name not in task.options:
      raise errors.InputError(
        f'--{name} is not an option of task {task.name}, which takes: '
        + (', '.join(f'--{n}' for n in task.options) or 'none')
      )
  return {
    name: task_lib.OPTIONS[name].checked(value)
    for name, value in (task.option_values() | dict(given)).items()
  }


def check_logits(options: dict, given: Mapping, entry: entry_lib.Entry) -> None:
  """Refuses linear logits for an algorithm that needs cosines.

  Args:
    options: of the task; those of cosines are removed if logits are linear.
    given: the user's values.
    entry: the algorithm.
  """
  if options.get('logits') != task_lib.LINEAR:
    return
  if entry_lib.COSINES in entry.needs:
    raise errors.InputError(
      f'--logits=linear does not go with --algorithm={entry.name}, which needs'
      f' {entry_lib.COSINES}; leave one of them out'
    )
  if 'logit_scale' in given:
    raise errors.InputError(
      '--logit_scale does not apply with --logits=linear; leave one of them out'
    )
  del options['logit_scale']


def fit(
  task: task_lib.Task,
  settings: dict,
  options: dict,
  values: dict,
  given: Mapping,
  num_classes: int | None,
) -> None:
  """Adapts defaults to other settings; refuses what the user asked for.

  Args:
    task: of the run.
    settings: of the run; may be changed.
    options: of the task; may be changed.
    values: the algorithm's hyper-parameters; may be changed.
    given: the user's values of all of them.
    num_classes: n, or None if only the data say.

  Raises:
    errors.InputError: two of the user's values do not go together.
  """
  if not options.get('validation', 1):
    _without_validation(settings, given)
  if num_classes is not None and 'negatives' in values:
    _fit_negatives(values, given, num_classes)
  if 'svm_classes' in values:
    svm_settings.subset_size(values['svm_classes'], num_classes)
  if 'encoder' in options:
    encoders.fit(options, given)
  if 'select_features' in options:
    _fit_features(options, values, given)
  if 'split' in options:
    _check_split(options, given)
  _check_sizes(options, values)
  if values.get('virtual_clients') and 'examples_per_round' in options:
    if given.get('examples_per_round'):
      raise errors.InputError(
        '--examples_per_round does not apply with --virtual_clients, which is the'
        ' number of examples that every client draws; leave it out'
      )
    options['examples_per_round'] = 0
  _check_importance(task, values.get('importance_weights'), num_classes)


def _check_split(options: Mapping, given: Mapping) -> None:
  """Refuses options of another split than the chosen one."""
  split = options['split'] or 'class'
  for other, names in _OF_SPLIT.items():
    if other == 'dirichlet' and 'concentration' not in options:
      continue  # Only CIFAR's tasks make it.
    for name in names:
      if split != other and name in given:
        raise errors.InputError(
          f'--{name} does not apply with --split={split}, only with'
          f' --split={other}; leave one of them out'
        )


def _without_validation(settings: dict, given: Mapping) -> None:
  """Drops a default --best_by that needs validation examples, or refuses it."""
  best_by = settings['best_by']
  if not best_by or 'validation' not in catalog.SCORES[best_by].needs:
    return
  if 'best_by' in given or settings['stop_after']:
    raise errors.InputError(
      f'--best_by={best_by} is measured on validation examples, and'
      ' --validation=0 holds none out; give another --best_by'
    )
  settings['best_by'] = ''


def _fit_negatives(values: dict, given: Mapping, num_classes: int):
  """Refuses too many negatives; lowers a default to the other classes."""
  if 'negatives' not in given:
    values['negatives'] = min(values['negatives'], max(num_classes - 1, 1))
  fedss.check_negatives(values['negatives'], num_classes)


def _check_sizes(options: Mapping, values: Mapping) -> None:
  """Refuses networks and tables of a label set's task, or of FedMLH, too large."""
  copies = values.get('hash_tables', 1)
  width = options.get('hidden_dim', options.get('embedding_dim', 1))
  sizes = {
    '--hashed_features': options.get('hashed_features', 0),
    '--hash_buckets': values.get('hash_buckets', 0),
  }
  for flag, size in sizes.items():
    if copies * size * (width + 1) > MOST_FLOATS:
      raise errors.InputError(
        f'{flag}={size}: {copies} times {size:,} rows of {width + 1:,} numbers are'
        f' more than {MOST_FLOATS:,} numbers (8 GiB); lower one of them'
      )


def _fit_features(options: dict, values: Mapping, given: Mapping) -> None:
  """Lets clients hold all feature rows for MOON; selects those of a frozen table."""
  if 'hash_tables' in values:
    for name in ('select_features', 'feature_learning_rate'):
      if name in given:
        raise errors.InputError(
          f'--{name} does not apply to fedmlh, whose networks side by side have no'
          ' feature table that clients could select rows of; leave it out'
        )
    options['select_features'] = False
    return
  keeps_models = values.get('contrastive_weight')
  if values.get('train', 'all') != 'all':
    if keeps_models:
      raise errors.InputError(
        f'--train={values["train"]} does not go with the contrastive term (of MOON,'
        ' or --contrastive_weight) on sparse text: clients would receive the whole'
        ' frozen feature table in every round; give --train=all'
      )
    if not options['select_features']:
      raise errors.InputError(
        f'--train={values["train"]} does not go with --select_features=false:'
        ' clients would receive the whole frozen feature table in every round;'
        ' leave one of them out'
      )
  if keeps_models:
    if given.get('select_features'):
      raise errors.InputError(
        '--select_features does not go with the contrastive term (of MOON, or'
        ' --contrastive_weight), for which clients keep whole models; leave it out'
      )
    options['select_features'] = False


def _check_importance(
  task, chosen: str | None, num_classes: int | None
) -> None:
  """Refuses sets of labels and a bad file, before the data are read."""
  if (
    chosen not in (None, of_algorithms.NO_IMPORTANCE)
    and entry_lib.ONE_LABEL in task.lacks
  ):
    raise errors.InputError(
      f'--importance_weights={chosen} needs {entry_lib.ONE_LABEL}, which'
      f' --task={task.name} does not have; leave it out'
    )
  if chosen in (None, *of_algorithms.NAMED_IMPORTANCE):
    return
  if not os.path.isfile(chosen):
    raise errors.InputError(
      f'--importance_weights={chosen} is no file; give one with the columns'
      f' class,probability, or {", ".join(of_algorithms.NAMED_IMPORTANCE)}'
    )
  # Only the data say how many classes photographs have, and their names.
  if num_classes is not None and 'corrupt' not in task.options:
    from datasets import class_probabilities  # It imports NumPy.

    class_probabilities.read(chosen, num_classes)
