"""Keeps the newest states of a run: saves atomically, never deletes on loading.

A checkpoint is a SavedModel `checkpoints/round_N` with the state's tensors in
the order of `tf.nest.flatten`.
"""

import asyncio
import os
import pathlib
import re
import sys

import tensorflow as tf
import tensorflow_federated as tff
import tree

from datasets import errors

_PREFIX = 'round_'
_DAMAGED = 'damaged'
# Errors that prevent reading a sound file.
_NOT_DAMAGE = (
  MemoryError,
  PermissionError,
  tf.errors.PermissionDeniedError,
  tf.errors.ResourceExhaustedError,
)


def load_newest(run_dir: str | os.PathLike, like):
  """Returns (state, rounds done) of a run's newest sound checkpoint.

  It reports damaged checkpoints on stderr and tries older ones. It writes
  nothing.

  Args:
    run_dir: the run's directory.
    like: a state of the same structure, shapes and dtypes.

  Returns:
    (`like`, 0) if there is no sound checkpoint.

  Raises:
    errors.InputError: for a checkpoint of another structure, shape or dtype,
      naming the first difference, and for one that cannot be read.
  """
  return _load_newest(_root(run_dir), like, lambda path: 'it stays in place')


def _root(run_dir) -> pathlib.Path:
  return pathlib.Path(run_dir) / 'checkpoints'


class Checkpoints:
  """The checkpoints of a training run."""

  def __init__(self, run_dir: str | os.PathLike):
    """Makes a folder `checkpoints` in the run's directory.

    It removes files left by a kill during a save. The caller holds the run's
    lock, so no other process is saving.
    """
    self._root = _root(run_dir)
    self._manager = tff.program.FileProgramStateManager(
      str(self._root), prefix=_PREFIX, keep_total=3, keep_first=False
    )
    for path in self._root.iterdir():
      if re.fullmatch(rf'{_PREFIX}\d+_temp\d{{4}}', path.name):
        tf.io.gfile.rmtree(str(path))

  def load(self, like):
    """As `load_newest`; moves damaged checkpoints to `checkpoints/damaged`."""
    return _load_newest(self._root, like, self._move_aside)

  def save(self, state, rounds_done: int) -> None:
    """Saves the state after `rounds_done` rounds, unless already saved."""
    if rounds_done not in _versions(self._root):
      asyncio.run(self._manager.save(tf.nest.flatten(state), rounds_done))

  def _move_aside(self, path: pathlib.Path) -> str:
    folder = self._root / _DAMAGED
    folder.mkdir(exist_ok=True)
    target, number = folder / path.name, 1
    while target.exists():
      number += 1
      target = folder / f'{path.name}_{number}'
    path.rename(target)
    return f'it is now {target}'


def _versions(root: pathlib.Path) -> list[int]:
  """Returns the rounds that have a checkpoint, ascending."""
  if not root.is_dir():
    return []
  names = [path.name for path in root.iterdir()]
  return sorted(
    int(name.removeprefix(_PREFIX))
    for name in names
    if re.fullmatch(rf'{_PREFIX}\d+', name)
  )


def _load_newest(root: pathlib.Path, like, on_damage):
  for version in reversed(_versions(root)):
    path = root / f'{_PREFIX}{version}'
    try:
      tensors = _read(path)
    except _NOT_DAMAGE as e:
      raise errors.InputError(
        f'{path} cannot be read ({_first_line(e)}); mend that, and start the'
        ' same command again'
      ) from e
    except Exception as e:  # TF raises many types for a damaged SavedModel.
      if not path.exists():  # The training run has removed it.
        continue
      print(
        f'warning: the checkpoint of round {version} is damaged'
        f' ({_first_line(e)}); {on_damage(path)}, and the one before is taken',
        file=sys.stderr,
      )
      continue
    if difference := _first_difference(tensors, like):
      raise errors.InputError(
        f'{path} is of another model: {difference}; choose another --run_dir,'
        ' or the version of this program that wrote it'
      )
    return tf.nest.pack_sequence_as(like, tensors), version
  return like, 0


def _first_line(error) -> str:
  return (str(error).strip() or repr(error)).splitlines()[0][:120]


def _read(path: pathlib.Path) -> list:
  module = tf.saved_model.load(str(path))
  return [tf.convert_to_tensor(t).numpy() for t in tf.nest.flatten(module())]


def _first_difference(tensors: list, like) -> str:
  """Describes the first difference of the tensors from `like`; '' if none."""
  expected = tree.flatten_with_path(like)
  for (path, old), new in zip(expected, tensors, strict=False):
    old, new = map(_described, (old, new))
    if old != new:
      name = '/'.join(map(str, path))
      return f'{name} is {new} there and {old} is expected'
  if len(tensors) < len(expected):
    name = '/'.join(map(str, expected[len(tensors)][0]))
    return f'it ends before {name}'
  if len(tensors) > len(expected):
    return f'it has {len(tensors)} tensors and {len(expected)} are expected'
  return ''


def _described(value) -> str:
  tensor = tf.convert_to_tensor(value)
  return f'{tensor.dtype.name} {tensor.shape.as_list()}'
