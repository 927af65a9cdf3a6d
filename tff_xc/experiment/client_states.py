"""What clients keep between the rounds of a run, saved with its checkpoints."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tree

from tff_xc import errors
from tff_xc.round import client_states as states_lib
from tff_xc.round import examples as examples_lib

_IDS = 'client_ids'
_STATE = 'client_states'


class ClientStates:
  """The states of all clients that have taken part, in memory.

  Attributes:
    kept: by client, the leaves of its state.
  """

  def __init__(self, spec: Any):
    """Args: a structure of `tf.TensorSpec`s, the algorithm's."""
    self._spec = spec
    self._unknown = examples_lib.KeptState(
      np.bool_(False),
      tf.nest.map_structure(
        lambda s: np.zeros(s.shape, s.dtype.as_numpy_dtype), spec
      ),
    )
    self.kept: dict[int, list[np.ndarray]] = {}

  def of(self, client_id: int) -> examples_lib.KeptState:
    """Returns what the client kept; zeros, not known, for a new client."""
    if client_id not in self.kept:
      return self._unknown
    value = tf.nest.pack_sequence_as(self._spec, self.kept[client_id])
    return examples_lib.KeptState(np.bool_(True), value)

  def attach(
    self, examples: Sequence[examples_lib.ClientExamples]
  ) -> Sequence[examples_lib.ClientExamples]:
    """Returns a cohort's examples with the clients' states, as they are read."""
    with_state = lambda client: client._replace(
      state=self.of(int(client.client_id))
    )
    return _Mapped(with_state, examples)

  def with_new(self, new: states_lib.KeptStates) -> dict[int, list[np.ndarray]]:
    """Returns `kept` with what a round's clients returned."""
    leaves = [np.asarray(t) for t in tf.nest.flatten(new.value)]
    # Copied, so that no view keeps the whole round in memory.
    return self.kept | {
      client_id: [leaf[i].copy() for leaf in leaves]
      for i, client_id in enumerate(np.asarray(new.ids).tolist())
    }

  def arrays(self) -> dict[str, np.ndarray]:
    """Returns everything by name, for a checkpoint."""
    ids = sorted(self.kept)
    found = {_IDS: np.array(ids, np.int64)}
    for i, (name, spec) in enumerate(self._named()):
      each = [self.kept[client_id][i] for client_id in ids]
      empty = np.zeros([0, *spec.shape], spec.dtype.as_numpy_dtype)
      found[name] = np.stack(each) if each else empty
    return found

  def restore(self, arrays: Mapping[str, np.ndarray], done: int) -> None:
    """Takes over what `arrays` returned.

    Args:
      arrays: from a checkpoint; empty before the first.
      done: the checkpoint's round.

    Raises:
      errors.InputError: they are not of this algorithm's states.
    """
    if not done:
      return
    if _IDS not in arrays:
      raise errors.InputError(
        f"the checkpoint of round {done} has no clients' states, and this"
        ' algorithm has them; choose another --run_dir'
      )
    ids, leaves = arrays[_IDS], []
    for name, spec in self._named():
      found = arrays.get(name, np.zeros(0))
      dtype = spec.dtype.as_numpy_dtype
      if found.dtype != dtype or found.shape != (len(ids), *spec.shape):
        raise errors.InputError(
          f'the checkpoint of round {done} is of another algorithm: {name} is'
          f' {found.dtype.name} {list(found.shape)} there, expected'
          f' {np.dtype(dtype).name} {[len(ids), *spec.shape]}; choose another'
          ' --run_dir'
        )
      leaves.append(found)
    self.kept = {
      client_id: [leaf[i].copy() for leaf in leaves]
      for i, client_id in enumerate(ids.tolist())
    }

  def _named(self):
    """Returns the specs of a state's leaves in order, by their paths."""
    return [
      ('/'.join(map(str, (_STATE, *path))), spec)
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
