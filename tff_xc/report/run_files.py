"""The files that a run leaves behind, read and written without TensorFlow.

A run directory holds
  config.json: every resolved setting, one flat object: `task`, `algorithm`,
    `seed`, ..., and `hyperparameters`, `versions`, `git_revision`, and `data`,
    the fingerprint of the data (`tff_xc.data.fingerprint`);
  metrics.csv: one row per round with the same columns, `round` first; a cell
    without a measurement is empty or `nan`. Row 0 has the scores of the initial
    model and nothing else (runs of earlier versions do not have it);
  classes.csv, if the data name their classes: `class,name,count`, the number of
    each class, its name, and its training examples;
  summary.json, once the run has finished: `final` and `best` metrics, `rounds`,
    `rounds_to_target`, and totals.
"""

import contextlib
import csv
import dataclasses
import errno
import io
import json
import math
import os
import pathlib
import re
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

from tff_xc import errors
from tff_xc import wording
from tff_xc.measure import catalog

if TYPE_CHECKING:
  import pandas as pd

CONFIG = 'config.json'
METRICS = 'metrics.csv'
SUMMARY = 'summary.json'
CLASSES = 'classes.csv'

# Settings of config.json that do not change a run's results: a resumed run, and
# runs of several seeds, may differ in them. Results depend on the data, not on
# their path. The runtime and the device change results in their last digits,
# and `eval_every` decides among which rounds `best` is the best.
NOT_CONFIGURATION = (
  'best_by',
  'checkpoint_every',
  'client_threads',
  'data_dir',
  'git_revision',
  'run_dir',
  'signature',
  'stop_after',
  'target',
  'unset',
  'versions',
  'worker_timeout',
)
# Hyper-parameters of federated algorithms that older runs lack, each with the
# value at which rounds are as they were.
_ADDED = {'client_dropout': 0.0, 'robust': 'none'}
# The same of tasks' options.
_ADDED_OPTIONS = {'images': {'test_examples': 0}}
# Types of keys that may be absent, since some versions did not write them.
_OPTIONAL = {
  'hyperparameters': dict,
  'options': dict,
  'data': dict,
  'target': str,
  'stop_after': int,
}
# Of summary.json, objects of scores, and all else that is no number.
_OF_SCORES = ('final', 'best', 'best_round')
_NO_TOTALS = (*_OF_SCORES, 'rounds_to_target', 'warnings')
_TEMPORARY = re.compile(r'\.(?P<stem>.+)\.\d+\.tmp(?P<suffix>\.[^.]+|)')


@dataclasses.dataclass(frozen=True)
class Run:
  """The contents of one run directory.

  Attributes:
    path: the directory.
    config: config.json.
    metrics: float64 columns, one row per round, `round` among the columns; nan
      where a cell was not measured.
    summary: summary.json, or None for a run that has not finished.
  """

  path: pathlib.Path
  config: dict[str, Any]
  metrics: 'pd.DataFrame'
  summary: dict[str, Any] | None

  @property
  def task(self) -> str:
    return self.config['task']

  @property
  def algorithm(self) -> str:
    return self.config['algorithm']

  @property
  def seed(self) -> int:
    return self.config['seed']

  @property
  def hyperparameters(self) -> dict[str, Any]:
    return self.config.get('hyperparameters', {})


def is_run(path: str | os.PathLike) -> bool:
  """Whether `path` is a run directory: it has a config.json."""
  return (pathlib.Path(path) / CONFIG).is_file()


def read_run(path: str | os.PathLike) -> Run:
  """Reads a run directory, finished or not.

  Raises:
    errors.InputError: if `path` is not a run directory, or one of its files is
      damaged or lacks a required key.
  """
  path = pathlib.Path(path)
  if not path.is_dir():
    raise errors.InputError(
      f'{path} is no directory; give the --run_dir of a launch.train.'
    )
  if not is_run(path):
    raise errors.InputError(
      f'{path} is no run directory, it has no {CONFIG}; give the --run_dir '
      'of a launch.train.'
    )
  config = read_config(path / CONFIG)
  summary = read_summary(path)
  return Run(path, config, read_metrics(path / METRICS), summary)


def is_finished(
  config: Mapping[str, Any], summary: Mapping[str, Any] | None
) -> bool:
  """Whether a run has all its rounds, or waited `stop_after` for a better one."""
  if summary is None:
    return False
  return (
    summary['rounds'] >= config.get('rounds', 0)
    or summary.get('stopped_after', 0) == config.get('stop_after', 0) > 0
  )


def read_summary(path: pathlib.Path) -> dict[str, Any] | None:
  """Reads a run's summary.json; None if the run has not finished.

  Raises:
    errors.InputError: for a file that is damaged or lacks a required key.
  """
  file = path / SUMMARY
  if not file.is_file():
    return None
  summary = _read_object(file, {'final': dict, 'rounds': int}, {'best': dict})
  if not isinstance(summary.get('best_round'), dict | None):
    raise damaged(file, 'expected "best_round" to be an object')
  totals = {k: v for k, v in summary.items() if k not in _NO_TOTALS}
  groups = {name: summary.get(name) or {} for name in _OF_SCORES}
  for name, values in {**groups, 'totals': totals}.items():
    for key, value in values.items():
      if key != 'by' and not _is_number_or_null(value):
        raise damaged(file, f'"{name}": "{wording.shown(key)}" is no number')
  return summary


def read_config(path: pathlib.Path) -> dict[str, Any]:
  """Reads a config.json; that of an older run is as if it were written today.

  Raises:
    errors.InputError: for a file that is damaged or lacks a required key.
  """
  required = {'task': str, 'algorithm': str, 'seed': int, 'rounds': int}
  config = _read_object(path, required, _OPTIONAL)
  for name in ('task', 'algorithm'):  # They become text for people.
    config[name] = wording.shown(config[name])
  config = wording.with_new_names(config)
  for group in ('options', 'hyperparameters'):
    if group in config:
      config[group] = wording.with_new_names(config[group])
  values = config.get('hyperparameters', {})
  if 'clients_per_round' in values:
    config['hyperparameters'] = wording.with_new_names(_ADDED) | values
  if 'options' in config:
    added = _ADDED_OPTIONS.get(config['task'], {})
    config['options'] = {**added, **config['options']}
  return config


def flat(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns a configuration with its options and hyper-parameters by their names."""
  return {
    **config,
    **config.get('options', {}),
    **config.get('hyperparameters', {}),
  }


def first_rounds(run: Run, rounds: int) -> Run:
  """Returns a run as it stood after its first `rounds` rounds.

  Its metrics end with that round, and its final scores are those of that round.
  If the run has finished, means of bytes, rows and seconds are still those of
  the whole run.

  Raises:
    errors.InputError: if the run was not evaluated after that round.
  """
  metrics = run.metrics[run.metrics['round'] <= rounds]
  scores = [name for name in catalog.SCORES if name in metrics]
  measured = metrics.dropna(subset=scores, how='all')
  if measured.empty or measured['round'].iloc[-1] != rounds:
    known = run.metrics.dropna(subset=scores, how='all')['round'].astype(int)
    raise errors.InputError(
      f'{run.path} has no scores of round {rounds}; it was evaluated after '
      f'rounds {", ".join(map(str, known))}.'
    )
  # None for nan, as in summary.json.
  final = {
    name: None if math.isnan(value) else value
    for name, value in measured[scores].iloc[-1].astype(float).items()
  }
  return dataclasses.replace(
    run,
    config=run.config | {'rounds': rounds},
    metrics=metrics,
    summary=(run.summary or {}) | {'final': final, 'rounds': rounds},
  )


@contextlib.contextmanager
def replacing(
  path: str | os.PathLike, durable: bool = True
) -> Iterator[pathlib.Path]:
  """Yields a temporary path that becomes `path` if the block succeeds.

  The temporary file has its suffix and directory. If the block raises, the
  temporary file is removed and `path` is unchanged.

  Args:
    path: the file.
    durable: whether a power cut leaves the old file or the new one, for sure.

  Raises:
    FileExistsError: `path` is no regular file; a pipe would lose its name.
  """
  path = pathlib.Path(path)
  if path.exists() and not path.is_file():
    raise FileExistsError(errno.EEXIST, 'it is no regular file', str(path))
  temporary = path.with_name(f'.{path.stem}.{os.getpid()}.tmp{path.suffix}')
  try:
    yield temporary
    if durable:
      sync(temporary)
    os.replace(temporary, path)
    if durable:
      sync(path.parent)
  finally:
    temporary.unlink(missing_ok=True)


def sync(path: str | os.PathLike) -> None:
  """Waits until the disk has a file's content, or the names in a directory."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as e:
    # Some network file systems have no such thing for directories.
    if e.errno not in (errno.EINVAL, errno.ENOTSUP):
      raise
  finally:
    os.close(descriptor)


def remove_leftovers(folder: pathlib.Path, is_ours: Callable) -> None:
  """Removes what a kill in `replacing` left of files in whose names `is_ours`."""
  for file in list(folder.iterdir()) if folder.is_dir() else ():
    match = _TEMPORARY.fullmatch(file.name)
    if match and is_ours(match['stem'] + match['suffix']):
      file.unlink()


def write_json(
  path: str | os.PathLike, obj: Any, is_sorted: bool = True
) -> None:
  """Writes `obj` as JSON, atomically, with sorted keys and a final newline.

  NumPy scalars and arrays become numbers and lists, and paths become strings.
  Numbers that are not finite become null, because JSON has no such numbers.
  With `is_sorted=False`, keys keep their order.
  """
  text = json.dumps(_plain(obj), sort_keys=is_sorted, indent=2, allow_nan=False)
  with replacing(path) as temporary:
    temporary.write_text(text + '\n', encoding='utf-8')


def _plain(obj):
  if hasattr(obj, 'tolist'):  # NumPy values, without importing NumPy.
    obj = obj.tolist()
  if isinstance(obj, dict):
    return {str(key): _plain(value) for key, value in obj.items()}
  if isinstance(obj, list | tuple):
    return [_plain(value) for value in obj]
  if isinstance(obj, float) and not math.isfinite(obj):
    return None
  return str(obj) if isinstance(obj, os.PathLike) else obj


def damaged(path: pathlib.Path, what: str) -> errors.DamageError:
  """Returns the error for a damaged file of a run."""
  return errors.DamageError(
    f'{path} is damaged ({what}); restore it, or delete {path.parent} and '
    'train again.'
  )


def read_text(path: pathlib.Path) -> str:
  """Reads a regular file. A pipe would wait for a writer.

  Raises:
    OSError, ValueError: it cannot be read, or is no text.
  """
  if path.exists() and not path.is_file():
    raise OSError('it is no regular file')
  return path.read_text(encoding='utf-8')


def read_json(path: pathlib.Path) -> Any:
  """Reads a file of JSON.

  Raises:
    OSError, ValueError: it cannot be read, or is no JSON.
  """
  try:
    return json.loads(read_text(path))
  except RecursionError as e:
    raise ValueError('it is nested too deeply') from e


def _read_object(path, required, optional):
  """Reads a JSON object, checks its keys' types, and drops optional nulls."""
  try:
    obj = read_json(path)
  except (OSError, ValueError) as e:
    raise damaged(path, str(e)) from e
  if not isinstance(obj, dict):
    raise damaged(path, 'expected a JSON object')
  for key, kind in {**required, **optional}.items():
    value = obj.get(key)
    is_right = isinstance(value, kind) and not isinstance(value, bool)
    if not is_right and (key in required or value is not None):
      raise damaged(path, f'expected "{key}" to be of type {kind.__name__}')
  return {k: v for k, v in obj.items() if k not in optional or v is not None}


def _is_number_or_null(value) -> bool:
  """Whether a value of JSON is null, or a finite number; no NumPy is imported."""
  if value is None or isinstance(value, bool):
    return value is None
  # Python reads whole numbers of any size, which no float may hold.
  return isinstance(value, int | float) and abs(value) < 1e300


def read_metrics(path: pathlib.Path) -> 'pd.DataFrame':
  """Reads a metrics.csv, as `Run.metrics`.

  Raises:
    errors.InputError: for a file that is missing or damaged.
  """
  import pandas as pd  # Late: training checks directories first.

  try:
    rows = list(csv.reader(io.StringIO(read_text(path))))
  except FileNotFoundError as e:
    raise errors.DamageError(
      f'{path} is missing; delete {path.parent} and train again.'
    ) from e
  except (OSError, ValueError, csv.Error) as e:
    raise damaged(path, str(e)) from e
  if not rows or rows[0][:1] != ['round'] or len(set(rows[0])) < len(rows[0]):
    raise damaged(path, 'expected a header of distinct columns, "round" first')
  header, values = rows[0], []
  for line, row in enumerate(rows[1:], 2):
    if len(row) != len(header):
      raise damaged(
        path, f'line {line} has {len(row)} cells, the header {len(header)}'
      )
    try:
      values.append([float(cell) if cell.strip() else math.nan for cell in row])
    except ValueError as e:
      raise damaged(path, f'line {line}: {e}') from e
    if not values[-1][0] > (values[-2][0] if len(values) > 1 else -math.inf):
      raise damaged(path, f'line {line}: rounds must ascend')
  return pd.DataFrame(values, columns=header, dtype='float64')
