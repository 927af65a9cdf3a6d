"""Confusion matrices of one client, by FedSS and by NegOnly (FedSS, fig. 7).

The runs are those of FedSS's Table 1 with the fewest negatives; what has not
finished is trained in their place.
"""

import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from launch.reproduction import outcome
from launch.reproduction import runs as runs_lib
from launch.reproduction.studies import study
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
  """Returns the settings; see `study.resolve`."""
  study.refuse(name, {'negatives'} & set(given))
  found = registry.TABLES['fedss/table1']
  if scale == 'small':
    unused = {*given, *(['task'] if task else [])} - runs_lib.UNSEEN
    study.refuse(f'{name} --scale=small', unused)
    rows = found.small.rows
  else:
    rows = runs_lib.of_paper(found, task, None)
  kept = tuple(
    row
    for algorithm in _ALGORITHMS
    for row in rows
    if row.algorithm == algorithm and row.changes['negatives'] == _NEGATIVES
  )
  runs_lib.plan_runs(kept, given, (0,), pathlib.Path())  # Checks the flags.
  return Config(kept, given)


def measure(
  config: Config,
  folder: pathlib.Path,
  output: pathlib.Path,
  jobs: int = 0,
) -> study.Measured:
  """Returns shares of the diagonal, and draws matrices; see `study.measure`."""
  planned = runs_lib.plan_runs(config.rows, config.given, (0,), output)
  runs = [run for [run] in planned]
  _train(runs, output, jobs)
  client, shares, pictures, rows = None, [], [], []
  for run in runs:
    algorithm = run.config['algorithm']
    client, share, few = _drawn(
      run, client, folder / f'{algorithm}.png', config.given.get('data_dir')
    )
    shares.append(100 * share)
    pictures.append(f'{algorithm}.png')
    rows.append((run.point, f'{100 * share:.1f}', few))
  title = f'Training examples of client {client}'
  heading = 'run', 'on the diagonal %', 'classes predicted, of those held'
  return study.Measured(
    {DIFFERENCE: shares[0] - shares[1]},
    (outcome.Cells(title, heading, tuple(rows)),),
    tuple(pictures),
  )


def _train(runs: Sequence[plan.Run], output: pathlib.Path, jobs: int) -> None:
  """Trains what has not finished.

  Raises:
    errors.InputError: a run failed, or the data are missing.
  """
  failures: dict[pathlib.Path, str] = {}
  where = output / 'runs' / runs[0].config['task']
  training.train(
    runs, {}, where, jobs, lambda found: failures.update(found) or ''
  )
  for path, why in failures.items():
    raise errors.InputError(f'{path} failed: {why}')


def _drawn(run, client: str | None, path: pathlib.Path, data_dir: str | None):
  """Draws a client's matrix; returns the client, its share on the diagonal, text.

  Args:
    run: that has finished.
    client: None: as `launch.evaluate` chooses.
    path: of the picture.
    data_dir: as in `evaluation.load`.
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
  return client, matrix.trace() / matrix.sum(), f'{hit} of {len(class_ids)}'
