"""Class counts of clients by alpha, and their distance to the whole (FedVC, fig. 10).

The split of CIFAR-10 depends on labels alone, 5,000 of each class, and needs no
files.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

from launch.reproduction import outcome
from launch.reproduction.studies import study
from tasks.papers import fedvc_skew

_CLASSES, _OF_CLASS, _CLIENTS = 10, 5_000, 100
_SEEDS = (0, 1, 2, 3, 4)


def resolve(
  name: str, scale: str, task: str | None, given: Mapping[str, Any]
) -> tuple[float, ...]:
  """Returns the values of alpha; see `study.resolve`."""
  del scale  # It is too small to have two.
  study.refuse(name, {*given, *(['task'] if task else [])})
  return tuple(fedvc_skew.EMD)


def measure(
  config: tuple[float, ...],
  folder: pathlib.Path,
  output: pathlib.Path,
  jobs: int = 0,
) -> study.Measured:
  """Returns EMD by alpha, and draws FOLDER/result.png; see `study.measure`."""
  del output, jobs
  import numpy as np

  from tff_xc.measure import skew
  from tff_xc.report import split_pictures

  labels = np.repeat(np.arange(_CLASSES), _OF_CLASS)
  values, rows, panels = {}, [], {}
  for alpha in config:
    counts = [_counts(labels, alpha, seed) for seed in _SEEDS]
    found = [skew.emd(each) for each in counts]
    held = np.mean([each.getnnz(axis=1).mean() for each in counts])
    values[fedvc_skew.name(alpha)] = float(np.mean(found))
    panels[f'alpha = {alpha:g}, EMD {found[0]:.2f}'] = counts[0]
    rows.append(
      (
        *(f'{alpha:g}', f'{fedvc_skew.EMD[alpha]:.2f}'),
        f'{np.mean(found):.3f} ± {np.std(found, ddof=1):.3f}',
        *(f'{held:.1f}', f'{counts[0].sum(axis=1).min():,}'),
      )
    )
  split_pictures.plot_panels(panels, folder / 'result.png')
  heading = (
    *('alpha', 'EMD, derived', f'EMD, {len(_SEEDS)} seeds'),
    *('classes of a client', 'examples of a client'),
  )
  title = f'CIFAR-10: {_CLIENTS} clients by a Dirichlet distribution'
  return study.Measured(
    values, (outcome.Cells(title, heading, tuple(rows)),), ('result.png',)
  )


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
