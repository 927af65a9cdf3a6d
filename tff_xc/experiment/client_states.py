"""What clients keep between the rounds of a run: files beside its checkpoints.

A state may be a whole model, and a run may have thousands of clients, so states
are neither held in memory nor copied into every checkpoint. A client's state after
a round is a file `client_states/CLIENT_ROUND.npz`, with CLIENT its number. A
checkpoint says which of them belong to it. A file that no checkpoint needs any
more is removed.
"""

import itertools
import pathlib
import re
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from tff_xc import errors
from tff_xc.report import run_files
from tff_xc.round import client_states as states_lib
from tff_xc.round import examples as examples_lib

FOLDER = 'client_states'
_NAME = re.compile(r'(\d+)_(\d+)\.npz')
_LEFTOVER = re.compile(r'\.\d+_\d+\.\d+\.tmp\.npz')
# In a checkpoint: the clients that have a state, and the rounds of their files.
_IDS, _ROUNDS = 'client_ids', 'client_rounds'


class ClientStates:
  """The states of all clients that have taken part in a run.

  Attributes:
    rounds: by client, the round after which it last kept a state.
  """

  def __init__(self, spec: Any, run_dir: pathlib.Path):
    """Args: a structure of `tf.TensorSpec`s, and the run's directory."""
    self._spec = spec
    self._folder = pathlib.Path(run_dir) / FOLDER
    self._unknown = examples_lib.nothing_kept(spec)
    self.rounds: dict[int, int] = {}
    # Files that only older checkpoints need: (client, round, round from which
    # on another file has its place).
    self._old: list[tuple[int, int, int]] = []

  def of(self, client_id: int) -> examples_lib.KeptState:
    """Returns what the client kept; zeros, not known, for a new client.

    Raises:
      errors.InputError: its file is missing or damaged.
    """
    if client_id not in self.rounds:
      return self._unknown
    path = self._path(client_id, self.rounds[client_id])
    try:
      with np.load(path, allow_pickle=False) as file:
        leaves = [file[name] for name, _ in self._named()]
    except Exception as e:  # NumPy raises many types for a damaged file.
      raise self._damaged(path, str(e).splitlines()[0]) from e
    for leaf, (name, spec) in zip(leaves, self._named(), strict=True):
      dtype = spec.dtype.as_numpy_dtype
      if leaf.dtype != dtype or leaf.shape != tuple(spec.shape):
        raise self._damaged(path, f'{name} is {leaf.dtype} {list(leaf.shape)}')
    value = tf.nest.pack_sequence_as(self._spec, leaves)
    return examples_lib.KeptState(np.bool_(True), value)

  def attach(
    self, examples: Sequence[examples_lib.ClientExamples]
  ) -> Sequence[examples_lib.ClientExamples]:
    """Returns a cohort's examples with the clients' states, as they are read."""
    with_state = lambda client: client._replace(
      state=self.of(int(client.client_id))
    )
    return _Mapped(with_state, examples)

  def write(
    self, new: states_lib.KeptStates, round_number: int
  ) -> dict[int, int]:
    """Writes what a round's clients returned; returns `rounds` with them.

    Raises:
      errors.InputError: a file cannot be written.
    """
    leaves = [np.asarray(t) for t in tf.nest.flatten(new.value)]
    ids = np.asarray(new.ids).tolist()
    try:
      self._folder.mkdir(exist_ok=True)
      for place, client_id in enumerate(ids):
        named = {
          name: leaf[place]
          for (name, _), leaf in zip(self._named(), leaves, strict=True)
        }
        path = self._path(client_id, round_number)
        with run_files.replacing(path) as temporary:
          np.savez(temporary, **named)
    except OSError as e:
      raise errors.InputError(
        f'{self._folder} cannot be written ({e.strerror}); mend that, and the'
        ' same command goes on from the checkpoint before'
      ) from e
    return self.rounds | dict.fromkeys(ids, round_number)

  def take(self, rounds: dict[int, int]) -> None:
    """Takes over what `write` returned, once the round is done."""
    self._old += [
      (client, at, rounds[client])
      for client, at in self.rounds.items()
      if rounds[client] != at
    ]
    self.rounds = rounds

  def arrays(self) -> dict[str, np.ndarray]:
    """Returns what a checkpoint records, by name."""
    ids = sorted(self.rounds)
    return {
      _IDS: np.array(ids, np.int64),
      _ROUNDS: np.array([self.rounds[i] for i in ids], np.int64),
    }

  def forget(self, oldest: int) -> None:
    """Removes the files that no checkpoint from round `oldest` on needs."""
    for client, at, _ in (old for old in self._old if old[2] <= oldest):
      self._path(client, at).unlink(missing_ok=True)
    self._old = [old for old in self._old if old[2] > oldest]

  def restore(self, arrays: Mapping[str, np.ndarray], done: int) -> None:
    """Takes over the states that belong to a checkpoint.

    It removes files that a kill left half-written.

    Args:
      arrays: from the checkpoint, as `arrays` returned them; empty before the
        first.
      done: the checkpoint's round.

    Raises:
      errors.InputError: the checkpoint is of an algorithm without such states,
        or a file is missing.
    """
    if self._folder.is_dir():
      for path in list(self._folder.iterdir()):
        if _LEFTOVER.fullmatch(path.name):
          path.unlink()
    if not done:
      return
    if set(arrays) != {_IDS, _ROUNDS}:
      raise errors.InputError(
        f"the checkpoint of round {done} has no clients' states, and this"
        ' algorithm has them; choose another --run_dir'
      )
    ids, rounds = (arrays[name].tolist() for name in (_IDS, _ROUNDS))
    self.rounds = dict(zip(ids, rounds, strict=True))
    for client, at in self.rounds.items():
      if not self._path(client, at).is_file():
        raise self._damaged(self._path(client, at), 'it is missing')
    self._old = self._older_files()

  def _older_files(self) -> list[tuple[int, int, int]]:
    """Returns `_old` from the files that there are."""
    of_client: dict[int, list[int]] = {}
    for path in self._folder.iterdir() if self.rounds else ():
      if match := _NAME.fullmatch(path.name):
        client, at = map(int, match.groups())
        # Files of later rounds will be written again.
        if at <= self.rounds.get(client, -1):
          of_client.setdefault(client, []).append(at)
    found = []
    for client, each in of_client.items():
      each.sort()
      found += [(client, a, b) for a, b in itertools.pairwise(each)]
    return found

  def _path(self, client_id: int, round_number: int) -> pathlib.Path:
    return self._folder / f'{client_id}_{round_number}.npz'

  def _damaged(self, path: pathlib.Path, what: str) -> errors.InputError:
    return errors.InputError(
      f"a client's state, {path}, cannot be read ({what}); restore it, or delete"
      f' {self._folder.parent} and train again'
    )

  def _named(self):
    """Returns the specs of a state's leaves in order, by their paths."""
    return [
      ('/'.join(map(str, path)) or 'state', spec)
      for path, spec in tree.flatten_with_path(self._spec)
    ]


class _Mapped(Sequence):
  """A sequence whose elements are changed at each access."""

  def __init__(self, function: Callable, elements: Sequence):
    self._function, self._elements = function, elements

  def __len__(self) -> int:
    return len(self._elements)

  def __getitem__(self, place: int):
    return self._function(self._elements[place])
