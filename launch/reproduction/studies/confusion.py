"""Confusion matrices of one client, by FedSS and by NegOnly (FedSS, fig. 7).

The runs are those of FedSS's Table 1 with the fewest negatives; what has not
finished is trained in their place.
"""

import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from launch.reproduction import rows as rows_lib
from launch.reproduction import studies
from launch.sweeps import plan
from launch.sweeps import training
from tasks.papers import registry
from tasks.papers import table as table_lib
from tff_xc import errors

_ALGORITHMS = 'fedss', 'negonly'
_NEGATIVES = 5
DIFFERENCE = 'fedss less negonly, points of the diagonal'


class Config(NamedTuple):
  """The rows of Table 1, and what flags change of them."""

  rows: tuple[table_lib.Row, ...]
  given: Mapping[str, Any]


def resolve(
  name: str, scale: str, task: str | None, given: Mapping[str, Any]
) -> Config:
  """Returns the settings; see `studies`."""
  rows_lib.refuse(name, {'negatives'} & set(given))
  found = registry.TABLES['fedss/table1']
  if scale == 'small':
    unused = {*given, *(['task'] if task else [])} - rows_lib.UNSEEN
    rows_lib.refuse(f'{name} --scale=small', unused)
    rows = found.small.rows
  else:
    rows = rows_lib.of_paper(found, task, None)
  kept = tuple(
    row
    for algorithm in _ALGORITHMS
    for row in rows
    if row.algorithm == algorithm and row.changes['negatives'] == _NEGATIVES
  )
  rows_lib.plan_runs(kept, given, (0,), pathlib.Path())  # Checks the flags.
  return Config(kept, given)


def measure(
  config: Config,
  folder: pathlib.Path,
  output: pathlib.Path,
  jobs: int = 0,
) -> list[dict[str, Any]]:
  """Returns shares of the diagonal, and draws matrices; see `studies`."""
  planned = rows_lib.plan_runs(config.rows, config.given, (0,), output)
  runs = [run for [run] in planned]
  _train(runs, output, jobs)
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


def _train(runs: Sequence[plan.Run], output: pathlib.Path, jobs: int) -> None:
  """Trains what has not finished; a run that fails raises an InputError."""
  failures: dict[pathlib.Path, str] = {}
  where = output / 'runs' / runs[0].config['task']
  training.train(
    runs, {}, where, jobs, lambda found: failures.update(found) or ''
  )
  for path, why in failures.items():
    raise errors.InputError(f'{path} failed: {why}')


def _drawn(run, client: str | None, path: pathlib.Path, data_dir: str | None):
  """Draws the matrix of a client, None: as `launch.evaluate` chooses.

  Returns:
    The client, its share on the diagonal, and the classes predicted and held.
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
