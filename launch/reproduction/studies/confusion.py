"""Confusion matrices of one client, by FedSS and by NegOnly (FedSS, fig. 7).

The runs are those of FedSS's Table 1 with the fewest negatives; what has not
finished is trained in their place.
"""

import pathlib
from typing import Any

from launch.reproduction import rows as rows_lib
from launch.reproduction import studies
from launch.sweeps import plan
from launch.sweeps import training
from tasks.papers import registry
from tff_xc import errors
from tff_xc import wording

_ALGORITHMS = 'fedss', 'negonly'
DIFFERENCE = 'fedss less negonly, points of the diagonal'


def resolve(name: str, request) -> tuple[list[plan.Run], Any]:
  """Returns the runs of rows of Table 1, and the request; see `studies`."""
  rows_lib.refuse(name, {'negatives'} & set(request.given))
  found = registry.TABLES['fedss/table1']
  if request.scale == 'small':
    unused = request.told() - rows_lib.UNSEEN
    rows_lib.refuse(f'{name} --scale=small', unused)
    rows = found.small.rows
  else:
    rows = rows_lib.chosen(found, found.rows, request.task, None)
  fewest = lambda algorithm: min(
    (row for row in rows if row.algorithm == algorithm),
    key=lambda row: row.changes['negatives'],
  )
  kept = [fewest(algorithm) for algorithm in _ALGORITHMS]
  runs = rows_lib.plan_runs(kept, request.given, (0,), request.output)
  return [run for [run] in runs], request


def measure(config, folder: pathlib.Path) -> list[dict[str, Any]]:
  """Returns shares of the diagonal, and draws matrices; see `studies`."""
  import numpy as np

  from launch import trained
  from tff_xc.measure import ranking
  from tff_xc.report import curves
  from tff_xc.report import methods
  from tff_xc.report import run_files

  runs, request = config
  where = request.output / 'runs' / runs[0].config['task']
  failures = training.train(runs, {}, where, request.jobs)
  for path, why in failures.items():
    raise errors.InputError(f'{path} failed: {why}')
  client, shares, lines = None, [], []
  for run in runs:
    algorithm = run.config['algorithm']
    # What flags have named, and not what the directory says.
    encoder = run_files.flat(run.config).get('encoder')
    named = {'encoder': encoder} if encoder else {}
    if (data_dir := request.given.get('data_dir')) is not None:
      named['data_dir'] = data_dir
    found = trained.restore(run.folder, named)
    client = client or trained.choose_client(found.dataset.train, None)
    _, predictions, labels = found.predictions(client)
    class_ids = np.unique(labels)
    matrix = ranking.confusion(predictions, labels, class_ids)
    m = run.config['hyperparameters']['negatives']
    rounds = wording.count(run.config['rounds'], 'round')
    title = f'{methods.title(algorithm)}, m = {m}, {rounds}: client {client}'
    path = folder / f'{algorithm}.png'
    curves.plot_confusion(matrix, class_ids, path, title)
    shares.append(100 * (matrix.trace() / matrix.sum()))
    hit = np.count_nonzero(matrix[:, :-1].sum(axis=0))
    of = {'row': f'{run.point}, client {client}', 'algorithm': algorithm}
    lines += [
      {**of, 'metric': 'on the diagonal %', 'mean': shares[-1]},
      {**of, 'metric': 'classes predicted', 'mean': float(hit)},
      {**of, 'metric': 'of those held', 'mean': float(len(class_ids))},
    ]
  return [*lines, studies.value(DIFFERENCE, shares[0] - shares[1])]
