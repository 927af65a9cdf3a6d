"""Statistics of the papers' data beside the published ones: clients, classes, labels.

`tasks.papers.data_numbers` has what is published, and what is expected of procedural
data of the same shape.
"""

import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

from launch.reproduction import outcome
from launch.reproduction.studies import study
from tasks import experiment
from tasks import registry as tasks
from tasks import task as found_lib
from tasks.papers import data_numbers
from tasks.papers import data_set

if TYPE_CHECKING:
  import numpy as np

  from tff_xc.data import client_data

_NONE = '–'


class Config(NamedTuple):
  """What is measured: a result's picture, and sets with their configurations."""

  picture: str
  sets: tuple[tuple[data_set.Set, Mapping[str, Any]], ...]


def resolve(
  name: str, scale: str, task: str | None, given: Mapping[str, Any]
) -> Config:
  """Returns the settings; see `study.resolve`."""
  found = data_numbers.STATISTICS[name]
  study.refuse(name, set(given) - {'data_dir'})
  sets = found.sets if scale == 'paper' else (found.small,)
  if task is not None:
    known = [each.task for each in sets]
    if task not in known:
      told = f'--task={task}: {name} --scale={scale} is of {", ".join(known)}'
      raise study.Unused('task', told)
    sets = [each for each in sets if each.task == task]
  if scale == 'small':
    given = {}  # Procedural data take no directory.
  # Any algorithm that takes all tasks: only data are loaded.
  return Config(
    found.picture,
    tuple(
      (each, experiment.resolve(each.task, 'fedavg', {**each.options, **given}))
      for each in sets
    ),
  )


def measure(
  config: Config,
  folder: pathlib.Path,
  output: pathlib.Path,
  jobs: int = 0,
) -> study.Measured:
  """Returns statistics of the sets that are there; see `study.measure`."""
  del output, jobs
  values, tables, pictures, sizes = {}, [], [], {}
  there, missing = _with_data(config.sets)
  for each, resolved in there:
    load = tasks.get(each.task).load
    dataset, _ = load(resolved['data_dir'], resolved['options'])
    counts = _class_counts(dataset)
    found = statistics(dataset, counts)
    of = lambda statistic, each=each: data_set.name(each.task, statistic)
    values |= {of(statistic): value for statistic, value in found.items()}
    tables.append(_cells(each, found))
    sizes[each.task] = dataset.train.partition.sizes
    pictures += _draw(config.picture, dataset, counts, each.task, folder)
  if config.picture == 'sizes':
    from tff_xc.report import split_pictures

    split_pictures.plot_sizes(sizes, folder / 'result.png')
    pictures.append('result.png')
  tables += study.not_measured([each.task for each in missing])
  unknown = sum(len(each.published) for each in missing)
  return study.Measured(values, tuple(tables), tuple(pictures), unknown)


def _with_data(sets: Sequence[tuple[data_set.Set, Mapping]]):
  """Returns the sets whose files are there, and those without.

  Raises:
    errors.InputError: none are there; a line for each.
  """
  why = {each.task: study.lacks(resolved) for each, resolved in sets}
  if all(why.values()):
    raise found_lib.error(why)
  found_lib.tell(why)
  kept = [(each, resolved) for each, resolved in sets if not why[each.task]]
  return kept, [each for each, _ in sets if why[each.task]]


def _class_counts(dataset: 'client_data.FederatedDataset'):
  """Returns int [clients, classes], sparse, labels of the clients' examples."""
  from tff_xc.measure import skew

  train = dataset.train
  shape = len(train.partition), dataset.num_classes
  return skew.class_counts(*train.owned_labels(), shape)


def statistics(
  dataset: 'client_data.FederatedDataset', counts
) -> dict[str, float]:
  """Returns statistics by name, those that apply to the set.

  Args:
    dataset: the clients and the held-out examples.
    counts: int [clients, classes], sparse, as `skew.class_counts` returns.
  """
  import scipy.sparse

  from tff_xc.data import pool as pool_lib
  from tff_xc.measure import skew

  train = dataset.train
  sizes = train.partition.sizes
  sizes, held = sizes[sizes > 0], counts.getnnz(axis=1)[sizes > 0]
  of_labels = dataset.propensity
  examples = of_labels.num_examples if of_labels else int(sizes.sum())
  found = {
    data_set.CLIENTS: len(sizes),
    data_set.CLASSES: dataset.num_classes,
    data_set.EXAMPLES: examples,
    data_set.MEAN: sizes.mean(),
    data_set.STD: sizes.std(),
    data_set.HELD: held.mean(),
    data_set.MOST_HELD: held.max(),
  }
  if dataset.test is not None:
    found[data_set.TEST] = len(dataset.test)
    found[data_set.ALL] = examples + len(dataset.test)
  if train.pool.spec is pool_lib.SPARSE:
    found[data_set.FEATURES] = train.pool.read(sizes[:0]).shape[1]
  if of_labels:
    labels = of_labels.label_counts.sum()
    found[data_set.LABELS] = labels / examples
    found[data_set.POSITIVES] = labels / dataset.num_classes
  if not scipy.sparse.issparse(train.pool.y):
    found[data_set.EMD] = skew.emd(counts)
  return {name: float(value) for name, value in found.items()}


def _cells(each: data_set.Set, found: Mapping[str, float]) -> outcome.Cells:
  """Returns a set's table: published beside measured, and whether they agree."""
  rows = []
  for statistic, value in found.items():
    number = each.numbers.get(statistic)
    text, same = _NONE, _NONE
    if number:
      text = f'{number.printed or _NONE} {number.origin}'.strip()
      same = 'yes' if number.least <= value <= number.most else 'no'
    rows.append((statistic, text, study.shown(value), same))
  heading = each.task, 'published', 'measured', 'in the band'
  return outcome.Cells('', heading, tuple(rows))


def _draw(
  picture: str,
  dataset: 'client_data.FederatedDataset',
  counts,
  task: str,
  folder: pathlib.Path,
) -> list[str]:
  """Draws one set's clients, and for 'labels' its classes; returns the files."""
  if picture not in ('clients', 'labels'):
    return []
  from tff_xc.report import split_pictures

  made = [f'{task}.png']
  sizes, held = dataset.train.partition.sizes, counts.getnnz(axis=1)
  split_pictures.plot_clients(sizes, held, folder / made[0])
  if picture == 'labels':
    made.append(f'{task}_classes.png')
    split_pictures.plot_labels(
      *_examples_of_classes(dataset, counts), folder / made[1]
    )
  return made


def _examples_of_classes(
  dataset: 'client_data.FederatedDataset', counts
) -> tuple['np.ndarray', 'np.ndarray | None']:
  """Returns int [n], examples of each class with clients and for the test."""
  import numpy as np

  train = np.asarray(counts.sum(axis=0)).ravel()
  if dataset.test is None:
    return train, None
  return train, np.bincount(dataset.test.y, minlength=dataset.num_classes)
