"""Measures how many of a class row's nearest rows belong to labels that occur together.

  .venv/bin/python tools/neighbors.py RUN_DIR... >docs/results/measured/fedaws_neighbors.csv

FedAwS's spreadout step pushes a class row from its k nearest rows among the classes of a
round. For several k, the table has the share of these rows whose label some test example
has together with the class's own label: the mean over 20 drawn rounds and all runs. The
runs need test examples with sets of labels, such as those of `launch.reproduce fedaws/table3`.
"""

import os
import pathlib
import sys
from collections.abc import Sequence

import numpy as np

sys.path.insert(0, os.fspath(pathlib.Path(__file__).parents[1]))

from launch import trained
from tff_xc.measure import ranking
from tff_xc.report import run_files

_NEIGHBORS = 1, 3, 16, 0  # 0: all others, as in --spreadout_neighbors.
_ROUNDS = 20


def shares(
  rows: np.ndarray, together: np.ndarray, neighbors: Sequence[int]
) -> list[float]:
  """Returns, for each k, the share of the k nearest rows whose labels occur together.

  `rows` are class rows [n, d], and `together` says of which labels, bool [n, n].
  """
  units = ranking.normalise(rows)
  cosines = units @ units.T
  np.fill_diagonal(cosines, -np.inf)
  order = np.argsort(-cosines, axis=1)[:, :-1]
  hits = np.take_along_axis(together, order, axis=1)
  return [float(hits[:, : k or None].mean()) for k in neighbors]


def of_run(folder: str) -> np.ndarray:
  """Returns the mean shares of a run's class rows over drawn rounds."""
  config = run_files.read_run(folder).config
  found = trained.restore(folder)
  labels = found.dataset.test.y.astype(np.int64)
  together = (labels.T @ labels).toarray() > 0
  head = found.algorithm.model.head
  rows = np.asarray(head.scoring_rows(found.weights.class_table)[0])
  classes = np.unique(found.dataset.train.classes)
  size = config['hyperparameters']['clients_per_round']
  random = np.random.default_rng(0)
  cohorts = [
    random.choice(classes, size, replace=False) for _ in range(_ROUNDS)
  ]
  found_in = [
    shares(rows[of], together[np.ix_(of, of)], _NEIGHBORS) for of in cohorts
  ]
  return np.mean(found_in, axis=0)


def main(folders: Sequence[str]) -> None:
  means = 100 * np.mean([of_run(folder) for folder in folders], axis=0)
  print('nearest rows,positive together %')
  for k, mean in zip(_NEIGHBORS, means, strict=True):
    print(f'{k or "all"},{mean:.1f}')


if __name__ == '__main__':
  main(sys.argv[1:])
