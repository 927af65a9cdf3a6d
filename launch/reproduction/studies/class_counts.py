"""Class counts of clients by alpha, and their distance to the whole (FedVC, fig. 10).

The split of CIFAR depends on labels alone, 5,000 or 500 of each class, and needs no
files.
"""

import pathlib
from typing import Any

from launch.reproduction import rows as rows_lib
from launch.reproduction import studies
from tasks.papers import fedvc

_EXAMPLES, _CLIENTS = 50_000, 100
_SEEDS = (0, 1, 2, 3, 4)


def resolve(name: str, request) -> tuple[tuple[str, float], ...]:
  """Returns the pairs of a set and a value of alpha; see `studies`."""
  rows_lib.refuse(name, request.told())  # It is too small to have two scales.
  return tuple(
    (data, alpha) for data, known in fedvc.EMD.items() for alpha in known
  )


def measure(
  config: tuple[tuple[str, float], ...], folder: pathlib.Path
) -> list[dict[str, Any]]:
  """Returns EMD by set and alpha, and draws FOLDER/result.png; see `studies`."""
  import numpy as np

  from tff_xc.measure import skew
  from tff_xc.report import split_pictures

  grid, values, panels = [], [], {}
  for data, alpha in config:
    classes = int(data.removeprefix('CIFAR-'))
    labels = np.repeat(np.arange(classes), _EXAMPLES // classes)
    counts = [_counts(labels, alpha, seed) for seed in _SEEDS]
    found = [skew.emd(each) for each in counts]
    held = np.mean([each.getnnz(axis=1).mean() for each in counts])
    name, mean = fedvc.at(data, alpha), float(np.mean(found))
    panels[f'{data}, alpha = {alpha:g}\nEMD {found[0]:.2f}'] = counts[0]
    spread = {'std': float(np.std(found, ddof=1)), 'seeds': len(_SEEDS)}
    derived = fedvc.EMD[data][alpha]
    grid += [
      {'row': name, 'metric': 'EMD, derived', 'mean': derived},
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
  """Returns int [clients, classes], sparse, of labels int [examples]."""
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
  shape = _CLIENTS, labels[-1] + 1
  return skew.class_counts(partition.owners(), labels[partition.numbers], shape)
