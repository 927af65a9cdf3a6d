"""Saves and loads the newest checkpoints of a run. Saving is atomic; loading deletes nothing.

A checkpoint is a file `checkpoints/round_N.npz`. The file has the tensors of the round's state in
order. The name of a tensor is its path in the state, such as `weights/tables/class`. Some rows
of a state may lack pending updates, such as FedSS's momentum. The file then also has the array
with these updates applied, such as `model/tables/class`. This module does not use the
SavedModels of `tff.program`, because every save leaves a part of its graph in memory.
"""

import os
import pathlib
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tff_xc import errors, files
from tff_xc.experiment import storage

_FOLDER, _DAMAGED = 'checkpoints', 'damaged'
_SECRET, _SECRET_BITS = 'secret_seed', 62  # `randomness.pair` keeps 62 bits.
# The secret seeds of runs before `keep_secret` has written them, by run directory.
_NEW_SECRETS: dict[str, int] = {}
_NAME = re.compile(r'round_(\d+)\.npz')
_KEPT = 3
# The prefix for the names of additional arrays in a checkpoint.
_MORE = 'more:'
_WEIGHTS, _MODEL = 'weights/', 'model/'
_ABOUT = (
  'The model consists of model/X where it exists, and of weights/X otherwise: if model/X exists,'
  ' weights/X still lacks momentum updates, or the noise of --dp. Resuming needs only weights/X.'
)


def prepare(run_dir: str | os.PathLike) -> None:
  """Creates the folder and removes old temporary files. The caller must hold the run's lock."""
  root = pathlib.Path(run_dir) / _FOLDER
  root.mkdir(exist_ok=True)
  files.remove_leftovers(root, re.compile(rf'{_NAME.pattern}|{_SECRET}').fullmatch)


def seed_of(privacy, run_dir: str | os.PathLike, seed: int) -> int:
  """Returns the seed of a run: `seed`, or the run's secret seed if `privacy` needs one.

  A run without checkpoints draws a new secret seed. Until `keep_secret` writes this seed,
  later calls in this process return the same seed.
  """
  if privacy is None or not privacy.needs_secret:
    return seed
  file = pathlib.Path(run_dir) / _FOLDER / _SECRET
  if not file.exists() and not kept(run_dir):
    return _NEW_SECRETS.setdefault(os.fspath(run_dir), secrets.randbits(_SECRET_BITS))
  try:
    return int(files.read_text(file))
  except (OSError, ValueError) as e:
    raise errors.DamageError(
      f'{file} is missing or damaged, and a private run cannot resume without its'
      ' secret seed; restore the file, or choose another --run_dir'
    ) from e


def keep_secret(run_dir: str | os.PathLike, seed: int) -> None:
  """Writes the secret seed of a private run. The caller must hold the run's lock.

  Other users can read neither this file nor the checkpoints, which also contain the seed.
  """
  file = pathlib.Path(run_dir) / _FOLDER / _SECRET
  if file.exists() and files.read_text(file).strip() != str(seed):
    raise errors.InputError(
      f'another process has begun this run meanwhile ({file}); start the same command again'
    )
  with storage.writing(file), files.replacing(file) as temporary:
    file.parent.chmod(0o700)
    temporary.touch(0o600)
    temporary.write_text(f'{seed}\n')
  _NEW_SECRETS.pop(os.fspath(run_dir), None)


def load_newest(
  run_dir: str | os.PathLike,
  like,
  problem: Callable[[Mapping], str] = lambda more: '',
  moves_damaged: bool = False,
  only: int | None = None,
):
  """Returns (state, finished rounds, additional arrays) of the newest undamaged checkpoint.

  Returns (`like`, 0, {}) if there is no undamaged checkpoint. A damaged checkpoint causes a
  warning on stderr. Raises InputError if the structure, shapes or dtypes of a state differ from
  those of `like`.

  Args:
    run_dir: the run's directory.
    like: a state of the same run.
    problem: a function that gets the additional arrays of a checkpoint, and returns a text
      about damaged files of the checkpoint, or ''.
    moves_damaged: whether to move damaged checkpoints to `checkpoints/damaged`.
    only: load only the checkpoint of this round. None: try all checkpoints, newest first.
  """
  root = pathlib.Path(run_dir) / _FOLDER
  versions = kept(run_dir) if only is None else [only]
  for version in reversed(versions):
    path = path_of(run_dir, version)
    try:
      named = storage.read_arrays(path, lambda n: not n.startswith(_MODEL))
      more = {
        name.removeprefix(_MORE): named.pop(name) for name in list(named) if name.startswith(_MORE)
      }
      if told := problem(more):
        raise storage.DamagedError(told)
    except storage.DamagedError as e:
      if not path.exists():  # The training process has removed this checkpoint.
        continue
      where = 'it stays in place'
      if moves_damaged:
        with storage.writing(root / _DAMAGED):
          (root / _DAMAGED).mkdir(exist_ok=True)
          where = f'it is now {path.rename(_aside(root, path))}'
      before = 'the one before is taken'
      if version == versions[0]:
        before = 'there is none before it'
      print(
        f'warning: the checkpoint of round {version} is damaged ({e}); {where}, and {before}',
        file=sys.stderr,
      )
      continue
    if difference := first_difference(named, storage.named(like)):
      raise errors.InputError(
        f'{path} is of another model: {difference}; choose another --run_dir,'
        ' or use the version of this program that wrote it'
      )
    tensors = [tf.convert_to_tensor(array) for array in named.values()]
    return tf.nest.pack_sequence_as(like, tensors), version, more
  return like, 0, {}


def save(
  run_dir: str | os.PathLike,
  state,
  rounds_done: int,
  more: Mapping[str, np.ndarray] | None = None,
  model: Callable[[], Any] = dict,
  best: int | None = None,
) -> int:
  """Saves a state, unless the round already has a checkpoint.

  The checkpoint also gets the additional arrays `more`, and those weights of `model` that
  differ from the weights in the state. Then all checkpoints are removed except the newest
  three and the checkpoint of the round `best`. Returns the oldest of the newest three rounds.
  """
  path = path_of(run_dir, rounds_done)
  if not path.exists():
    named = {name: np.asarray(leaf) for name, leaf in storage.named(state)}
    named |= _of_model(named, model())
    named |= {_MORE + name: array for name, array in (more or {}).items()}
    storage.write_arrays(path, named)
  versions = kept(run_dir)
  for version in versions[:-_KEPT]:
    if version != best:
      path_of(run_dir, version).unlink()
  return versions[-_KEPT:][0]


def keep_aside(run_dir: str | os.PathLike, file: pathlib.Path) -> None:
  """Copies a file to the folder of damaged checkpoints if this folder exists."""
  root = pathlib.Path(run_dir) / _FOLDER
  if file.exists() and (root / _DAMAGED).is_dir():
    shutil.copyfile(file, _aside(root, file))


def _aside(root: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
  target, number = root / _DAMAGED / path.name, 1
  while target.exists():
    number += 1
    target = target.with_name(f'{path.stem}_{number}{path.suffix}')
  return target


def path_of(run_dir: str | os.PathLike, version: int) -> pathlib.Path:
  """Returns the file of the checkpoint after `version` rounds."""
  return pathlib.Path(run_dir) / _FOLDER / f'round_{version}.npz'


def _of_model(named: Mapping[str, np.ndarray], model) -> dict:
  """Returns the arrays of a model that differ from the state's arrays in `named`."""
  found = {}
  for name, leaf in storage.named(model):
    kept = named.get(_WEIGHTS + name)
    if kept is not None and not np.array_equal(kept, array := np.asarray(leaf)):
      found[_MODEL + name] = array
  return found and {**found, f'{_MODEL}README': np.array(_ABOUT)}


def model_arrays(run_dir: str | os.PathLike, version: int) -> dict[str, np.ndarray]:
  """Returns the arrays of a round's global model by name, such as `tables/class`.

  Raises `storage.DamagedError` if the checkpoint is missing or damaged.
  """
  named = storage.read_arrays(
    path_of(run_dir, version), lambda n: n.startswith((_WEIGHTS, _MODEL)) and n != f'{_MODEL}README'
  )
  # In the file, model/X is after weights/X, so that it replaces weights/X here.
  return {name.partition('/')[2]: array for name, array in named.items()}


def load_model(run_dir: str | os.PathLike, version: int, like):
  """Returns a round's global model, with all pending updates of its state applied.

  `like` is the model's `EmbeddingClassifier.weight_specs`. Raises InputError if the weights
  have other names, shapes or dtypes. Raises `storage.DamagedError` if the checkpoint is
  missing or damaged.
  """
  path = path_of(run_dir, version)
  weights, expected = model_arrays(run_dir, version), storage.named(like)
  if difference := first_difference(weights, expected):
    raise errors.InputError(
      f'{path} is of another model: {difference}; use the version of this program that wrote it'
    )
  tensors = [tf.convert_to_tensor(weights[name]) for name, _ in expected]
  return tf.nest.pack_sequence_as(like, tensors)


def kept(run_dir: str | os.PathLike) -> list[int]:
  """Returns the rounds that have a checkpoint, ascending."""
  root = pathlib.Path(run_dir) / _FOLDER
  if not root.is_dir():
    return []
  found = [_NAME.fullmatch(path.name) for path in root.iterdir()]
  return sorted(int(match[1]) for match in found if match)


def first_difference(named: dict[str, np.ndarray], expected: list) -> str:
  """Describes the first difference between arrays and expected arrays; '' if there is none."""

  def described(leaf):
    return f'{np.dtype(leaf.dtype.name)} {list(leaf.shape)}'

  for name, leaf in expected:
    if name not in named:
      return f'it has no {name}'
    leaf = leaf if isinstance(leaf, tf.TensorSpec) else np.asarray(leaf)
    found, wanted = described(named[name]), described(leaf)
    if found != wanted:
      return f'{name} is {found} there and {wanted} is expected'
  more = list(named.keys() - dict(expected).keys())
  return f'it has {more[0]}, which is not expected' if more else ''
