"""What a run leaves behind, and how it goes on where it was stopped.

Checkpoints and metrics are written by `tff.program`'s managers; this module
keeps them consistent with each other across a kill: whatever was written after
the last sound checkpoint is forgotten, and computed again to the same digits.
"""

import asyncio
import fcntl
import json
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from datasets import errors
from tff_xc.measure import run_files

# What may differ between the run that is resumed and the one that resumes it.
_MAY_DIFFER = (
  'rounds',
  'data_dir',
  'client_threads',
  'versions',
  'git_revision',
)


def check_config(path: str | os.PathLike, config: Mapping) -> None:
  """Refuses a directory that holds a run of another configuration.

  A larger number of rounds goes on with the run; a smaller one is refused.

  Raises:
    errors.InputError: naming the first settings that differ.
  """
  path = pathlib.Path(path)
  file = path / run_files.CONFIG
  if path.exists() and not path.is_dir():
    raise errors.InputError(f'--run_dir={path} is a file; name a directory')
  if not file.exists():
    return
  try:
    found = json.loads(file.read_text())
  except ValueError as e:
    raise errors.InputError(
      f'{file} is damaged ({e}); choose another --run_dir or delete this one'
    ) from e
  wanted = json.loads(json.dumps(config))
  names = sorted({*found, *wanted} - {*_MAY_DIFFER})
  different = [n for n in names if found.get(n) != wanted.get(n)]
  if different:
    told = ', '.join(
      f'{n} was {found.get(n)} and is {wanted.get(n)}' for n in different
    )
    raise errors.InputError(
      f'{path} holds a run of another configuration: {told}; choose another'
      ' --run_dir, or give the same flags to go on with that run'
    )
  if wanted['rounds'] < found.get('rounds', 0):
    raise errors.InputError(
      f'{path} holds a run of {found["rounds"]} rounds; give at least as many'
    )


class Checkpoints:
  """The newest few states of a run, written atomically."""

  def __init__(self, run_dir: str | os.PathLike):
    """Args: the run's directory; a folder `checkpoints` is made in it."""
    self._root = pathlib.Path(run_dir) / 'checkpoints'
    self._manager = tff.program.FileProgramStateManager(
      str(self._root), prefix='round_', keep_total=3, keep_first=False
    )

  def _versions(self) -> list[int]:
    return asyncio.run(self._manager.get_versions()) or []

  def load(self, like):
    """Returns (state, rounds done) of the newest sound checkpoint.

    A damaged one is reported on stderr and deleted, and the one before taken.

    Args:
      like: a state of the same structure, shapes and dtypes.

    Returns:
      (`like`, 0) where there is no sound checkpoint.
    """
    for version in reversed(self._versions()):
      try:
        return self._read(version, like), version
      except Exception as e:  # Whatever a damaged SavedModel makes TF raise.
        reason = (str(e).strip() or repr(e)).splitlines()[0][:120]
        print(
          f'warning: the checkpoint of round {version} is damaged ({reason});'
          ' going back to the one before',
          file=sys.stderr,
        )
        tf.io.gfile.rmtree(str(self._root / f'round_{version}'))
    return like, 0

  def _read(self, version: int, like):
    expected = tf.nest.flatten(like)
    flat = asyncio.run(self._manager.load(version, [0] * len(expected)))
    spec = lambda t: tf.TensorSpec.from_tensor(tf.convert_to_tensor(t))
    for new, old in zip(map(spec, flat), map(spec, expected), strict=True):
      if new != old:
        raise ValueError(f'it holds {new} where {old} was expected')
    return tf.nest.pack_sequence_as(like, flat)

  def save(self, state, rounds_done: int) -> None:
    """Saves the state after `rounds_done` rounds, unless it is there already."""
    if rounds_done not in self._versions():
      asyncio.run(self._manager.save(tf.nest.flatten(state), rounds_done))


class RunDirectory:
  """A run's files: config, checkpoints, metrics, TensorBoard events.

  Attributes:
    path: the directory.
    checkpoints: its states.
  """

  def __init__(self, path: str | os.PathLike, config: Mapping[str, Any]):
    """Opens or creates the directory, and locks it against a second process.

    Args:
      path: the directory.
      config: every resolved setting; written to config.json.

    Raises:
      errors.InputError: where `path` holds a run of another configuration, is
        in use by another process, or cannot be written.
    """
    self.path = pathlib.Path(path)
    try:
      self.path.mkdir(parents=True, exist_ok=True)
      self._lock = open(self.path / '.lock', 'w')  # noqa: SIM115
    except OSError as e:
      raise errors.InputError(
        f'--run_dir={path} cannot be written ({e.strerror}); choose another'
      ) from e
    try:
      fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as e:
      raise errors.InputError(
        f'another process is running in {path}; wait for it, or choose another'
        ' --run_dir'
      ) from e
    check_config(self.path, config)
    run_files.write_json(self.path / run_files.CONFIG, config)
    self.checkpoints = Checkpoints(self.path)
    self._metrics = None
    self._events = None

  def start_metrics(self, rounds_done: int) -> None:
    """Opens metrics.csv and TensorBoard, forgetting what came later."""
    file = self.path / run_files.METRICS
    if file.exists():
      _keep_rounds(file, rounds_done)
    self._metrics = tff.program.CSVFileReleaseManager(
      str(file), key_fieldname='round'
    )
    self._events = tff.program.TensorBoardReleaseManager(
      str(self.path / 'tensorboard')
    )

  def release(self, row: Mapping[str, float], round_number: int) -> None:
    """Appends one round's row; every row has the same columns."""
    asyncio.run(self._metrics.release(dict(row), round_number))
    measured = {k: float(v) for k, v in row.items() if v == v}
    asyncio.run(self._events.release(measured, round_number))


def _keep_rounds(file: pathlib.Path, rounds_done: int) -> None:
  """Drops rows after `rounds_done`, and a last line that a kill cut short."""
  lines = file.read_text().splitlines(keepends=True)
  header, rows = lines[:1], lines[1:]

  def kept(line):
    key = line.split(',', 1)[0]
    return line.endswith('\n') and key.isdigit() and int(key) <= rounds_done

  with run_files.replacing(file) as temporary:
    temporary.write_text(''.join(header + [r for r in rows if kept(r)]))
