"""Statistics of the papers' data beside the published ones: clients, classes, labels.

`tasks.papers.data` has what is published, and what is expected of procedural data of
the same shape.
"""

import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

from launch.reproduction import rows as rows_lib
from launch.reproduction import studies
from tasks import experiment
from tasks import registry as tasks
from tasks.papers import data

if TYPE_CHECKING:
  from tff_xc.data import client_data

# What is drawn, and the sets with their configurations.
Config = tuple[str, Sequence[tuple[data.Set, Mapping[str, Any]]]]


def resolve(name: str, request) -> Config:
  """Returns the settings; see `studies`."""
  scale, task, given = request.scale, request.task, request.given
  rows_lib.refuse(name, set(given) - {'data_dir'})
  sets = data.sets(name, scale)
  if task is not None:
    known = [each.task for each in sets]
    if task not in known:
      told = f'--task={task}: {name} --scale={scale} is of {", ".join(known)}'
      raise rows_lib.Unused('task', told)
    sets = [each for each in sets if each.task == task]
  if scale == 'small':
    given = {}  # Procedural data take no directory.
  # Any algorithm that takes all tasks: only data are loaded.
  resolve_ = lambda each: experiment.resolve(
    each.task, 'fedavg', {**each.options, **given}
  )
  return data.STATISTICS[name][1], [(each, resolve_(each)) for each in sets]


def measure(config: Config, folder: pathlib.Path) -> list[dict[str, Any]]:
  """Returns statistics of the sets that are there; see `studies`."""
  picture, sets = config
  why = studies.lacking([resolved for _, resolved in sets])
  lines, sizes = [], {}
  for each, resolved in sets:
    if why[each.task]:
      lines += [
        studies.missing(each.task, name, published=number.printed)
        for name, number in each.numbers.items()
        if not number.origin
      ] or [studies.missing(each.task)]
      continue
    load = tasks.get(each.task).load
    dataset, _ = load(resolved['data_dir'], resolved['options'])
    counts = _class_counts(dataset)
    for name, value in statistics(dataset, counts).items():
      number = each.numbers.get(name)
      published = number.printed if number else ''
      note = number.origin if number else ''
      more = {'task': each.task, 'published': published, 'note': note}
      lines.append(studies.value(name, value, **more))
    sizes[each.task] = dataset.train.partition.sizes
    _draw(picture, dataset, counts, folder / f'{each.task}.png')
  if picture == 'sizes':
    from tff_xc.report import split_pictures

    split_pictures.plot_sizes(sizes, folder / 'result.png')
  return lines


def _class_counts(dataset: 'client_data.FederatedDataset'):
  """Returns int [clients, classes], sparse, labels of the clients' examples."""
  from tff_xc.measure import skew

  train = dataset.train
  shape = len(train.partition), dataset.num_classes
  return skew.class_counts(*train.owned_labels(), shape)


def statistics(
  dataset: 'client_data.FederatedDataset', counts
) -> dict[str, float]:
  """Returns statistics by name, those that apply to the set."""
  import numpy as np
  import scipy.sparse

  from tff_xc.data import pool as pool_lib
  from tff_xc.measure import skew

  train = dataset.train
  sizes = train.partition.sizes
  sizes, held = sizes[sizes > 0], counts.getnnz(axis=1)[sizes > 0]
  of_labels = dataset.propensity
  examples = of_labels.num_examples if of_labels else int(sizes.sum())
  found = {
    data.CLIENTS: len(sizes),
    data.CLASSES: dataset.num_classes,
    data.EXAMPLES: examples,
    data.MEAN: sizes.mean(),
    data.STD: sizes.std(),
    data.HELD: held.mean(),
    data.MOST_HELD: held.max(),
  }
  if dataset.test is not None:
    found[data.TEST] = len(dataset.test)
    found[data.ALL] = examples + len(dataset.test)
  if train.pool.spec is pool_lib.SPARSE:
    found[data.FEATURES] = train.pool.read(sizes[:0]).shape[1]
  if of_labels:
    labels = of_labels.label_counts.sum()
    found[data.LABELS] = labels / examples
    found[data.POSITIVES] = labels / dataset.num_classes
  if not scipy.sparse.issparse(train.pool.y):
    found[data.EMD] = skew.emd(counts)
    if dataset.test is not None:
      found[data.TEN_TESTS] = (np.bincount(dataset.test.y) == 10).sum()
  return {name: float(value) for name, value in found.items()}


def _draw(picture: str, dataset, counts, path: pathlib.Path) -> None:
  """Draws one set's clients, and for 'labels' its classes beside that file."""
  if picture not in ('clients', 'labels'):
    return
  import numpy as np

  from tff_xc.report import split_pictures

  sizes, held = dataset.train.partition.sizes, counts.getnnz(axis=1)
  split_pictures.plot_clients(sizes, held, path)
  if picture == 'labels':
    train, test = np.asarray(counts.sum(axis=0)).ravel(), None
    if dataset.test is not None:
      test = np.bincount(dataset.test.y, minlength=dataset.num_classes)
    of_classes = path.with_stem(f'{path.stem}_classes')
    split_pictures.plot_labels(train, test, of_classes)
