"""Keeps the newest states of a run: saves atomically, never deletes on loading.

A state is a file `checkpoints/round_N.npz`, which holds its tensors in order,
under their paths in the state, such as `weights/tables/class`. Rows of a state may
lack updates that are still to come, such as FedSS's momentum; where they do, the
file also holds the model's array, `model/tables/class`. (A SavedModel, as
`tff.program` writes it, leaves some of its graph in the memory of the process with
every save.)
"""

import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_xc import errors
from tff_xc.experiment import storage
from tff_xc.report import run_files

_FOLDER, _DAMAGED = 'checkpoints', 'damaged'
_NAME = re.compile(r'round_(\d+)\.npz')
_KEPT = 3
# Before the names of arrays that are saved with a state.
_MORE = 'more:'
_WEIGHTS, _MODEL = 'weights/', 'model/'
_ABOUT = (
  'The model is model/X where there is one, and weights/X for all others: rows of'
  ' these weights/X still lack momentum updates. To resume needs only weights/X.'
)


def load_newest(
  run_dir: str | os.PathLike,
  like,
  on_damage: Callable[[pathlib.Path], str] = lambda path: 'it stays in place',
  problem: Callable[[Mapping], str] = lambda more: '',
):
  """Returns (state, rounds done, more) of a run's newest sound checkpoint.

  Reports damaged ones on stderr and takes the one before. Writes nothing.

  Args:
    run_dir: the run's directory.
    like: a state of the same structure, shapes and dtypes.
    on_damage: called with a damaged checkpoint; says where it is now.
    problem: says what else of a checkpoint is damaged, from the arrays that were
      saved with it; '' if nothing is.

  Returns:
    The state; the round; and the arrays that were saved with it, by name.
    (`like`, 0, {}) where there is no sound checkpoint.

  Raises:
    errors.InputError: for a checkpoint of another structure, shape or dtype,
      naming the first difference, and for one that cannot be read.
  """
  root = pathlib.Path(run_dir) / _FOLDER
  versions = _versions(root)
  for version in reversed(versions):
    path = _path(root, version)
    try:
      named = storage.read_arrays(path, without=_MODEL)
      more = {
        name.removeprefix(_MORE): named.pop(name)
        for name in list(named)
        if name.startswith(_MORE)
      }
      if told := problem(more):
        raise storage.DamagedError(told)
    except storage.DamagedError as e:
      if not path.exists():  # The training run has removed it.
        continue
      before = 'the one before is taken'
      if version == versions[0]:
        before = 'there is none before it'
      print(
        f'warning: the checkpoint of round {version} is damaged ({e});'
        f' {on_damage(path)}, and {before}',
        file=sys.stderr,
      )
      continue
    if difference := _first_difference(named, storage.named(like)):
      raise errors.InputError(
        f'{path} is of another model: {difference}; choose another --run_dir,'
        ' or the version of this program that wrote it'
      )
    tensors = [tf.convert_to_tensor(array) for array in named.values()]
    return tf.nest.pack_sequence_as(like, tensors), version, more
  return like, 0, {}


class Checkpoints:
  """The checkpoints of a run that trains."""

  def __init__(
    self,
    run_dir: str | os.PathLike,
    check: Callable[[], None] = lambda: None,
  ):
    """Makes a folder `checkpoints`, and removes files that a kill left in it.

    The caller holds the run's lock, so no other process is saving.

    Args:
      run_dir: the run's directory.
      check: called before a state is saved; it raises if the state must not be.
    """
    self._run_dir, self._check = run_dir, check
    self._root = pathlib.Path(run_dir) / _FOLDER
    self._root.mkdir(exist_ok=True)
    run_files.remove_leftovers(self._root, _NAME.fullmatch)

  def load(self, like, problem: Callable[[Mapping], str] = lambda more: ''):
    """As `load_newest`; moves damaged checkpoints into `checkpoints/damaged`."""
    return load_newest(self._run_dir, like, self._move_aside, problem)

  def save(
    self,
    state,
    rounds_done: int,
    more: Mapping[str, np.ndarray] | None = None,
    model: Callable[[], Any] = dict,
  ) -> int:
    """Saves the state after `rounds_done` rounds, unless already saved.

    Returns the round of the oldest checkpoint that is kept.

    Args:
      state: a structure of tensors.
      rounds_done: names the file.
      more: arrays of any shape, by names that are in no state.
      model: returns the weights of the model, of the structure of those in the
        state. Where they are not equal, they are saved, too.
    """
    path = _path(self._root, rounds_done)
    if not path.exists():
      self._check()
      named = {name: np.asarray(leaf) for name, leaf in storage.named(state)}
      named |= _of_model(named, model())
      named |= {_MORE + name: array for name, array in (more or {}).items()}
      storage.write_arrays(path, named)
    versions = _versions(self._root)
    for version in versions[:-_KEPT]:
      _path(self._root, version).unlink()
    return versions[-_KEPT:][0]

  def keep_aside(self, file: pathlib.Path) -> None:
    """Copies a file to the damaged checkpoints, if there are any."""
    if file.exists() and (self._root / _DAMAGED).is_dir():
      shutil.copyfile(file, self._aside(file))

  def _move_aside(self, path: pathlib.Path) -> str:
    with storage.writing(self._root / _DAMAGED):
      (self._root / _DAMAGED).mkdir(exist_ok=True)
      target = self._aside(path)
      path.rename(target)
    return f'it is now {target}'

  def _aside(self, path: pathlib.Path) -> pathlib.Path:
    folder = self._root / _DAMAGED
    target, number = folder / path.name, 1
    while target.exists():
      number += 1
      target = folder / f'{path.stem}_{number}{path.suffix}'
    return target


def _path(root: pathlib.Path, version: int) -> pathlib.Path:
  return root / f'round_{version}.npz'


def _of_model(named: Mapping[str, np.ndarray], model) -> dict:
  """Returns the arrays of a model that differ from those of its state."""
  found = {}
  for name, leaf in storage.named(model):
    kept = named.get(_WEIGHTS + name)
    if kept is not None and not np.array_equal(kept, array := np.asarray(leaf)):
      found[_MODEL + name] = array
  return found and {**found, f'{_MODEL}README': np.array(_ABOUT)}


def _versions(root: pathlib.Path) -> list[int]:
  """Returns the rounds that have a checkpoint, ascending."""
  if not root.is_dir():
    return []
  found = [_NAME.fullmatch(path.name) for path in root.iterdir()]
  return sorted(int(match[1]) for match in found if match)


def _first_difference(named: dict[str, np.ndarray], expected: list) -> str:
  """Says where arrays differ from leaves expected; '' where nowhere."""
  described = lambda array: f'{array.dtype.name} {list(array.shape)}'
  for name, leaf in expected:
    if name not in named:
      return f'it has no {name}'
    found, wanted = described(named[name]), described(np.asarray(leaf))
    if found != wanted:
      return f'{name} is {found} there and {wanted} is expected'
  more = list(named.keys() - dict(expected).keys())
  return f'it has {more[0]}, which is not expected' if more else ''
