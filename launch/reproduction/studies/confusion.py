"""Confusion matrices of one client, by FedSS and by NegOnly (FedSS, fig. 7).

The runs are those of FedSS's Table 1 with the fewest negatives; what has not
finished is trained in their place.
"""

import pathlib
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from launch.reproduction import rows as rows_lib
from launch.reproduction import studies
from launch.sweeps import plan
from launch.sweeps import training
from tasks.papers import registry
from tff_xc import errors

_ALGORITHMS = 'fedss', 'negonly'
_NEGATIVES = 5
DIFFERENCE = 'fedss less negonly, points of the diagonal'


class Config(NamedTuple):
  """The runs of rows of Table 1, where they lie, and what flags say."""

  runs: list[plan.Run]
  output: pathlib.Path
  jobs: int
  given: Mapping[str, Any]


def resolve(name: str, request) -> Config:
  """Returns the settings; see `studies`."""
  given = request.given
  rows_lib.refuse(name, {'negatives'} & set(given))
  found = registry.TABLES['fedss/table1']
  if request.scale == 'small':
    unused = request.told() - rows_lib.UNSEEN
    rows_lib.refuse(f'{name} --scale=small', unused)
    rows = found.small.rows
  else:
    rows = rows_lib.of_paper(found, request.task, None)
  kept = tuple(
    row
    for algorithm in _ALGORITHMS
    for row in rows
    if row.algorithm == algorithm and row.changes['negatives'] == _NEGATIVES
  )
  runs = rows_lib.plan_runs(kept, given, (0,), request.output)
  return Config([run for [run] in runs], request.output, request.jobs, given)


def measure(config: Config, folder: pathlib.Path) -> list[dict[str, Any]]:
  """Returns shares of the diagonal, and draws matrices; see `studies`."""
  runs = config.runs
  where = config.output / 'runs' / runs[0].config['task']
  failures = training.train(runs, {}, where, config.jobs)
  for path, why in failures.items():
    raise errors.InputError(f'{path} failed: {why}')
  client, shares, lines = None, [], []
  for run in runs:
    algorithm = run.config['algorithm']
    client, share, hit, held = _drawn(
      run, client, folder / f'{algorithm}.png', config.given.get('data_dir')
    )
    shares.append(100 * share)
    of = {'row': f'{run.point}, client {client}', 'algorithm': algorithm}
    lines += [
      {**of, 'metric': 'on the diagonal %', 'mean': 100 * share},
      {**of, 'metric': 'classes predicted', 'mean': float(hit)},
      {**of, 'metric': 'of those held', 'mean': float(held)},
    ]
  return [*lines, studies.value(DIFFERENCE, shares[0] - shares[1])]


def _drawn(run, client: str | None, path: pathlib.Path, data_dir: str | None):
  """Draws a client's matrix; returns the client, its share on the diagonal, and counts.

  The counts are of classes predicted and held; None: the client of `launch.evaluate`.
  """
  import numpy as np

  from launch import evaluation
  from tasks import experiment as trust
  from tff_xc.measure import ranking
  from tff_xc.report import curves
  from tff_xc.report import run_files

  # What flags have named, and not what the directory says.
  named = run_files.flat(run.config)
  named = {n: named[n] for n in trust.NAMED if n in named}
  if data_dir is not None:
    named['data_dir'] = data_dir
  found = evaluation.load(run.folder, named)
  client = client or evaluation.choose_client(found.dataset.train, None)
  _, predictions, labels = found.predictions(client)
  class_ids = np.unique(labels)
  matrix = ranking.confusion(predictions, labels, class_ids)
  title = f'{run.config["algorithm"]}, m = {_NEGATIVES}: client {client}'
  curves.plot_confusion(matrix, class_ids, path, title)
  hit = np.count_nonzero(matrix[:, :-1].sum(axis=0))
  return client, matrix.trace() / matrix.sum(), hit, len(class_ids)
