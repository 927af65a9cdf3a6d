"""Class counts of clients by alpha, and their distance to the whole (FedVC, fig. 10).

The split of CIFAR-10 depends on labels alone, 5,000 of each class, and needs no
files.
"""

import pathlib
from typing import Any

from launch.reproduction import rows as rows_lib
from launch.reproduction import studies
from tasks.papers import fedvc

_CLASSES, _OF_CLASS, _CLIENTS = 10, 5_000, 100
_SEEDS = (0, 1, 2, 3, 4)


def resolve(name: str, request) -> tuple[float, ...]:
  """Returns the values of alpha; see `studies`."""
  rows_lib.refuse(name, request.told())  # It is too small to have two scales.
  return tuple(fedvc.EMD)


def measure(
  config: tuple[float, ...], folder: pathlib.Path
) -> list[dict[str, Any]]:
  """Returns EMD by alpha, and draws FOLDER/result.png; see `studies`."""
  import numpy as np

  from tff_xc.measure import skew
  from tff_xc.report import split_pictures

  labels = np.repeat(np.arange(_CLASSES), _OF_CLASS)
  grid, values, panels = [], [], {}
  for alpha in config:
    counts = [_counts(labels, alpha, seed) for seed in _SEEDS]
    found = [skew.emd(each) for each in counts]
    held = np.mean([each.getnnz(axis=1).mean() for each in counts])
    panels[f'alpha = {alpha:g}, EMD {found[0]:.2f}'] = counts[0]
    name, mean = f'alpha = {alpha:g}', float(np.mean(found))
    spread = {'std': float(np.std(found, ddof=1)), 'seeds': len(_SEEDS)}
    grid += [
      {'row': name, 'metric': 'EMD, derived', 'mean': fedvc.EMD[alpha]},
      {'row': name, 'metric': 'EMD', 'mean': mean, **spread},
      {'row': name, 'metric': 'classes of a client', 'mean': float(held)},
      {
        'row': name,
        'metric': 'examples of a client',
        'mean': float(counts[0].sum(axis=1).min()),
      },
    ]
    values.append(studies.value(f'EMD at {name}', mean, **spread))
  split_pictures.plot_panels(panels, folder / 'result.png')
  return grid + values


def _counts(labels, alpha: float, seed: int):
  """Returns int [clients, classes], sparse."""
  from datasets import examples
  from datasets.splits import rules
  from tff_xc.measure import skew

  partition = rules.deal(
    'dirichlet',
    examples.of_labels(labels),
    seed,
    concentration=alpha,
    clients=_CLIENTS,
    examples_per_client=len(labels) // _CLIENTS,
  ).train
  return skew.class_counts(
    partition.owners(), labels[partition.numbers], (_CLIENTS, _CLASSES)
  )
