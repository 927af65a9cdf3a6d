"""Manages the directory of a run: writes its files, and prepares them when the run resumes.

Release managers of `tff.program` write metrics.csv and TensorBoard's events. When a run is
killed, metrics.csv may have rows of rounds after the last undamaged checkpoint. When the run
resumes, this module removes these rows, and the run computes the same values again. The
module also rewrites TensorBoard's events from metrics.csv, and sends an experiment tracker
those rows that the tracker lacks.
"""

import asyncio
import concurrent.futures
import contextlib
import csv
import math
import os
import pathlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import errors, files, lock
from tff_xc.experiment import checkpoints, same_run, storage, trackers
from tff_xc.report import run_files

CURVES = 'curves.png'
_TENSORBOARD = 'tensorboard'
# TensorFlow's names of event files contain a time. This name sorts before TensorFlow's names.
_KEPT_EVENTS = 'events.out.tfevents.0000000000.kept'
# Files in the run directory that training writes with `files.replacing`.
_REPLACED = (
  run_files.CONFIG,
  run_files.METRICS,
  run_files.SUMMARY,
  run_files.CLASSES,
  run_files.DESCRIPTION,
  CURVES,
  trackers.FILE,
)


class RunDirectory:
  """The files of a run: config, checkpoints, metrics and TensorBoard events.

  Attributes:
    path: the directory.
    tracked: the run's record in an experiment tracker. `start_metrics` starts the record.
    lock: the file whose closing unlocks the directory. In a notebook, a traceback may keep this
      object.
  """

  def __init__(
    self,
    path: str | os.PathLike,
    config: Mapping[str, Any],
    watched: Sequence[str | os.PathLike] = (),
    tracker: str = trackers.NONE,
  ):
    """Opens or creates the directory, and locks it against a second process.

    The constructor removes temporary files that a killed process left. For a new run, it
    writes config.json. For a resumed run, `start_metrics` writes config.json after a checkpoint is
    loaded. `watched` are data files. If one of them changes, saving a checkpoint fails.
    `tracker` is one of `trackers.NAMES`.
    """
    self.tracked = trackers.Tracked(tracker, path)
    self.path = pathlib.Path(path)
    self.lock = lock.lock(self.path, 'run_dir')
    self._config = config
    self._metrics = self._events = None
    try:
      same_run.check_config(self.path, config)
      self._remove_leftovers()
      with storage.writing(self.path / run_files.CONFIG):
        if not run_files.is_run(self.path):
          files.write_json(self.path / run_files.CONFIG, config)
        self._watch = storage.Watch(watched)
        checkpoints.prepare(self.path)
    except BaseException:
      self.lock.close()
      raise

  def _remove_leftovers(self) -> None:
    files.remove_leftovers(self.path, _REPLACED.__contains__)
    files.remove_leftovers(self.path / _TENSORBOARD, _KEPT_EVENTS.__eq__)
    for file in self.path.iterdir():
      if re.fullmatch(rf'{run_files.METRICS}_temp\d{{4}}', file.name):
        file.unlink()

  def save(
    self, state, rounds_done: int, more: Mapping, model: Callable, best: int | None = None
  ) -> int:
    """Writes the rows of metrics.csv to disk, and then calls `checkpoints.save`."""
    if not checkpoints.path_of(self.path, rounds_done).exists():
      self._watch.check()
      file = self.path / run_files.METRICS
      with storage.writing(file):
        if file.exists():
          files.sync(file)
        files.sync(self.path)
    return checkpoints.save(self.path, state, rounds_done, more, model, best)

  def start_metrics(self, rounds_done: int) -> list[dict[str, float]]:
    """Opens metrics.csv and the tracker, and removes the rows of rounds after `rounds_done`.

    The method writes config.json again, because the number of rounds, versions and paths may
    have changed. Returns the remaining rows, beginning with round 0 (the initial model) if that
    round was evaluated. A cell without a value is nan.
    """
    file, folder = self.path / run_files.METRICS, self.path / _TENSORBOARD
    rows = []
    with storage.writing(file):
      kept = _rounds(file, rounds_done)
      files.write_json(self.path / run_files.CONFIG, self._config)
      if not rounds_done:
        checkpoints.keep_aside(self.path, file)
      if file.exists():
        with files.replacing(file) as temporary:
          temporary.write_text(kept)
        rows = run_files.read_metrics(file).to_dict('records')
      _rewrite_events(folder, rows)
      self._metrics = tff.program.CSVFileReleaseManager(str(file), key_fieldname='round')
      self._events = tff.program.TensorBoardReleaseManager(str(folder))
      self.tracked.start(self._config, rows)
    return rows

  def write_classes(self, names: Sequence[str], counts: Sequence[int]) -> None:
    """Writes classes.csv: the classes' names and their numbers of training examples."""
    path = self.path / run_files.CLASSES
    with storage.writing(path), files.csv_rows(path) as file:
      writer = csv.writer(file)
      writer.writerow(('class', 'name', 'count'))
      writer.writerows(zip(range(len(names)), names, counts, strict=True))

  def release(self, row: Mapping[str, float], round_number: int) -> None:
    """Appends the row of a round, completely or not at all. The row of round 0 has only scores."""
    try:
      with storage.writing(self.path / run_files.METRICS):
        _finish(self._metrics.release(dict(row), round_number))
    except errors.InputError:
      with contextlib.suppress(OSError):  # The directory itself may no longer exist.
        self._remove_leftovers()
      raise
    with storage.writing(self.path / _TENSORBOARD):
      measured = {k: float(v) for k, v in row.items() if v == v}
      _finish(self._events.release(measured, round_number))
      self.tracked.release(row, round_number)

  def write(self, name: str, content: Mapping[str, Any]) -> None:
    """Writes a file of the directory as JSON."""
    with storage.writing(self.path / name):
      files.write_json(self.path / name, content)


def _finish(release) -> None:
  """Runs a coroutine in a new thread, because a notebook's thread already has an event loop."""
  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    thread.submit(asyncio.run, release).result()


def _rounds(file: pathlib.Path, rounds_done: int) -> str:
  """Returns the text of metrics.csv without truncated lines and rounds after `rounds_done`."""
  try:
    text = files.read_text(file) if file.exists() else ''
    lines = text.splitlines(keepends=True)
  except (OSError, ValueError) as e:
    raise files.damaged(file, str(e)) from e

  def number(line):
    key = line.split(',', 1)[0]
    return int(key) if line.endswith('\n') and key.isdigit() else None

  expected = range(rounds_done + 1)
  kept = [line for line in lines[1:] if number(line) in expected]
  # A run that stopped during its first evaluation has no rows, not even a row of round 0.
  for wanted in expected if rounds_done else ():
    if wanted >= len(kept) or number(kept[wanted]) != wanted:
      raise files.damaged(
        file, f'there is a checkpoint of round {rounds_done}, but no row of round {wanted}'
      )
  return ''.join([*lines[:1], *kept])


def _rewrite_events(folder: pathlib.Path, rows: list[dict[str, float]]) -> None:
  """Replaces all of TensorBoard's events by events with the values of `rows`."""
  old = list(folder.glob('events.out.tfevents.*'))
  kept = folder / _KEPT_EVENTS
  if rows:
    folder.mkdir(exist_ok=True)
    with files.replacing(kept) as temporary, tf.io.TFRecordWriter(str(temporary)) as writer:
      seconds = [row.get('seconds', math.nan) for row in rows]
      seconds = [0.0 if math.isnan(taken) else taken for taken in seconds]
      ended = time.time() - sum(seconds)
      start = tf.compat.v1.Event(wall_time=ended, file_version='brain.Event:2')
      writer.write(start.SerializeToString())
      for row, taken in zip(rows, seconds, strict=True):
        ended += taken
        summary = tf.compat.v1.Summary(
          value=[
            tf.compat.v1.Summary.Value(tag=name, simple_value=value)
            for name, value in row.items()
            if name != 'round' and value == value
          ]
        )
        event = tf.compat.v1.Event(wall_time=ended, step=int(row['round']), summary=summary)
        writer.write(event.SerializeToString())
  for file in old:
    if file != kept or not rows:
      file.unlink()
