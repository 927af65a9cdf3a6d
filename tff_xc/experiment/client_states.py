"""Stores the clients' states between the rounds of a run, in files of the run directory.

A state may be a whole model, and a run may have thousands of clients. Therefore only the
states of one round's clients are in memory, in up to four copies while a round collects them.
After a round, a client's new state is saved as a file `client_states/CLIENT_ROUND.npz`. Each
checkpoint records which files belong to it. Files that no checkpoint needs are removed.
"""

import concurrent.futures
import itertools
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_xc import errors, files
from tff_xc.experiment import checkpoints, storage
from tff_xc.round import cohort, examples as examples_lib

FOLDER = 'client_states'
_NAME = re.compile(r'(\d+)_(\d+)\.npz')
# Names of arrays in a checkpoint: the clients that have a state, and the rounds and checksums
# of these clients' files.
_IDS, _ROUNDS, _SUMS = 'client_ids', 'client_rounds', 'client_sums'
_SYNCED_AT_ONCE = 8

# The rounds of each client's files, ascending. The file of the last round has the client's
# current state. Only older checkpoints need the files of earlier rounds.
Kept = Mapping[int, tuple[int, ...]]


class ClientStates:
  """The states of all clients that have participated in a run.

  `kept` lists the existing files. After a round, the caller sets `kept` to the result of
  `write`.
  """

  def __init__(self, spec: Any, run_dir: pathlib.Path):
    self._spec = spec
    self._folder = pathlib.Path(run_dir) / FOLDER
    self._unknown = examples_lib.nothing_kept(spec)
    self._named = [(n or 'state', leaf) for n, leaf in storage.named(spec)]
    self.kept: Kept = {}
    self._sums: dict[tuple[int, int], int] = {}  # Checksums of files, by client and round.
    self._saved = 0  # The round of the newest checkpoint.

  def of(self, client_id: int) -> examples_lib.KeptState:
    """Reads the client's state. For a client without a file, `known` is False, and values are 0."""
    if client_id not in self.kept:
      return self._unknown
    path = self._path(client_id, self.kept[client_id][-1])
    try:
      found = storage.read_arrays(path)
      if difference := checkpoints.first_difference(found, self._named):
        raise storage.DamagedError(difference)
    except storage.DamagedError as e:
      raise errors.InputError(
        f"a client's state, {path}, cannot be read ({e}); restore it, or move it"
        ' away, and the same command goes on from the checkpoint before'
      ) from e
    leaves = [found[name] for name, _ in self._named]
    value = tf.nest.pack_sequence_as(self._spec, leaves)
    return examples_lib.KeptState(np.bool_(True), value)

  def attach(
    self, examples: Sequence[examples_lib.ClientExamples]
  ) -> Sequence[examples_lib.ClientExamples]:
    """Returns a cohort's examples with the clients' states. Each access reads one state."""
    return cohort.Values(
      lambda client: client._replace(state=self.of(int(client.client_id))), examples
    )

  def write(self, new: examples_lib.KeptStates, round_number: int) -> Kept:
    """Writes the new client states of a round. Returns `kept` including their files."""
    # Remove a client's file if it is newer than the last checkpoint, and if the client has an
    # even newer file. No checkpoint needs the removed file.
    kept = self._without(lambda at, by: at > self._saved)
    leaves = [np.asarray(t) for t in tf.nest.flatten(new.value)]
    names = [name for name, _ in self._named]
    with storage.writing(self._folder):
      self._folder.mkdir(exist_ok=True)
    for place, client_id in enumerate(np.asarray(new.ids).tolist()):
      named = dict(zip(names, (leaf[place] for leaf in leaves), strict=True))
      path = self._path(client_id, round_number)
      # `sync` makes the files durable later.
      found = storage.write_arrays(path, named, durable=False)
      self._sums[client_id, round_number] = found
      kept[client_id] = (*kept.get(client_id, ()), round_number)
    return kept

  def arrays(self) -> dict[str, np.ndarray]:
    """Returns by name the arrays with which a checkpoint records the current files."""
    last = [(i, self.kept[i][-1]) for i in sorted(self.kept)]
    sums = [self._sums[file] for file in last]
    return {
      _IDS: np.array([client for client, _ in last], np.int64),
      _ROUNDS: np.array([at for _, at in last], np.int64),
      _SUMS: np.array(sums, np.int64),
    }

  def sync(self) -> None:
    """Waits until the files that the next checkpoint names are on disk."""
    new = [
      self._path(client, rounds[-1])
      for client, rounds in self.kept.items()
      if rounds[-1] > self._saved
    ]
    # Sync files in parallel, because the file system then writes its journal once for many files.
    with (
      storage.writing(self._folder),
      concurrent.futures.ThreadPoolExecutor(_SYNCED_AT_ONCE) as pool,
    ):
      for _ in pool.map(files.sync, new):
        pass
      if new:
        files.sync(self._folder)

  def saved(self, oldest: int, newest: int, best: int | None = None) -> None:
    """Removes files that neither the checkpoints from `oldest` to `newest` nor `best` needs."""
    self.kept = self._without(
      lambda at, by: by <= oldest and not (best is not None and at <= best < by)
    )
    last = {(client, rounds[-1]) for client, rounds in self.kept.items()}
    self._sums = {file: n for file, n in self._sums.items() if file in last}
    self._saved = newest

  def _without(self, is_needless: Callable[[int, int], bool]) -> dict:
    """Removes files that no checkpoint needs. Returns `kept` without these files.

    A client's last file always remains. For every earlier file of the client, `is_needless`
    decides whether to remove it. The arguments are the round of the file and the round of the
    same client's next file.
    """
    left = {}
    for client, rounds in self.kept.items():
      needless = {p[0] for p in itertools.pairwise(rounds) if is_needless(*p)}
      for at in needless:
        self._path(client, at).unlink(missing_ok=True)
      left[client] = tuple(at for at in rounds if at not in needless)
    return left

  def restore(self, arrays: Mapping[str, np.ndarray], done: int) -> None:
    """Restores `kept` from the `arrays` of the checkpoint of round `done`."""
    files.remove_leftovers(self._folder, _NAME.fullmatch)
    if not done:
      return
    if set(arrays) != {_IDS, _ROUNDS, _SUMS}:
      raise errors.InputError(
        f"the checkpoint of round {done} has no clients' states, and this"
        ' algorithm has them; choose another --run_dir'
      )
    self._sums = _files(arrays)
    rounds, old = dict([*self._sums]), {}
    for path in self._folder.iterdir() if rounds else ():
      if match := _NAME.fullmatch(path.name):
        client, at = map(int, match.groups())
        # Ignore files of later rounds, because the run will write these files again.
        if at < rounds.get(client, -1):
          old.setdefault(client, []).append(at)
    self.kept = {client: (*sorted(old.get(client, ())), at) for client, at in rounds.items()}
    self._saved = done

  def problem(self, arrays: Mapping[str, np.ndarray]) -> str:
    """Describes the first file that is missing, truncated or from another run; '' if none."""
    for file, expected in _files(arrays).items():
      path = self._path(*file)
      found = storage.checksum(path)
      if found is None:
        what = 'damaged' if path.exists() else 'missing'
        return f"a client's state, {path}, is {what}"
      if found != expected:
        return f"a client's state, {path}, is not that of this run"
    return ''

  def _path(self, client_id: int, round_number: int) -> pathlib.Path:
    return self._folder / f'{client_id}_{round_number}.npz'


def of_checkpoint(
  spec: Any, run_dir: pathlib.Path, arrays: Mapping[str, np.ndarray]
) -> ClientStates:
  """Returns the client states of a checkpoint with these `arrays`, and changes no file.

  Raises `errors.InputError` if a file is missing, damaged or from another run.
  """
  found = ClientStates(spec, run_dir)
  if problem := found.problem(arrays):
    raise errors.InputError(f'{problem}; restore it')
  found.kept = {client: (at,) for client, at in _files(arrays)}
  return found


def _files(arrays: Mapping[str, np.ndarray]) -> dict[tuple[int, int], int]:
  """Returns the checksum of each (client, round) file from a checkpoint's arrays."""
  ids, rounds, sums = (arrays.get(name, np.zeros(0)).tolist() for name in (_IDS, _ROUNDS, _SUMS))
  return dict(zip(zip(ids, rounds, strict=True), sums, strict=True))
