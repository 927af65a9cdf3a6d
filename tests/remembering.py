"""What clients keep between rounds, given back to them as a run does."""

import numpy as np
import tensorflow as tf

from tff_xc.round import examples


class Clients:
  """Keeps the states of clients, if their algorithm has states.

  Attributes:
    kept: by client, what it keeps.
  """

  def __init__(self, client_state):
    """Args: the algorithm's `client_state`, or None."""
    self._spec = client_state and client_state.spec
    self.kept = {}

  def attach(self, cohort):
    """Returns the cohort's values with the clients' states."""
    return [self._with_state(c) for c in cohort] if self._spec else cohort

  def _with_state(self, client):
    client_id = int(client.client_id)
    state = examples.nothing_kept(self._spec)
    if client_id in self.kept:
      state = examples.KeptState(np.bool_(True), self.kept[client_id])
    return client._replace(state=state)

  def take(self, metrics) -> None:
    """Takes what a round's clients returned among its metrics."""
    if not self._spec:
      return
    found = metrics[examples.NAME]
    for place, client in enumerate(np.asarray(found.ids).tolist()):
      self.kept[client] = tf.nest.map_structure(
        lambda t, i=place: np.asarray(t)[i], found.value
      )
