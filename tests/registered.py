"""Builds every registered algorithm on a tiny model, and runs rounds whose clients keep states."""

import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tests import tiny, tiny_sparse
from tff_xc.algorithms import registry
from tff_xc.round import algorithm as algorithm_lib, examples, process as process_lib

N = 29  # No other axis has the length N.
DENSE, SPARSE = tiny.model(N), tiny_sparse.model(N)
FEDERATED = [name for name, found in registry.ALGORITHMS.items() if found.has_clients]


@functools.cache
def algorithm(name: str, model=DENSE, max_features: int = 0, **given):
  """Returns an algorithm with few negatives and small batches.

  Args:
    name: the algorithm's name.
    model: `DENSE` or `SPARSE`.
    max_features: how many rows of the feature table a client requests; 0 means all rows.
    **given: other hyperparameters, used if the algorithm has them.
  """
  entry = registry.get(name)
  given = {'client_learning_rate': 0.1, 'batch_size': 2, 'negatives': 4, **given}
  given = {k: v for k, v in given.items() if k in entry.names}
  chosen = given.get('calibration', entry.defaults['calibration'])
  needs_p = 'importance_weights' in given or chosen == 'prior'
  p = np.arange(model.num_classes) if needs_p else None
  made = entry.made(model=model, max_positives=4, num_clients=12, class_probabilities=p, **given)
  for table in model.encoder.tables:
    made = algorithm_lib.own_rows(made, table, max_features)
  return made


@functools.lru_cache(maxsize=32)
def process(name: str, model=DENSE, max_features: int = 0, **given):
  """Returns the learning process of `algorithm`, which is built once for all tests."""
  made = algorithm(name, model, max_features, **given)
  return process_lib.build_process(made, 5)


class Clients:
  """Keeps the states of clients, if the algorithm has client states.

  Attributes:
    kept: the state of each client, by client.
  """

  def __init__(self, client_state):
    """Takes the algorithm's `client_state`, or None."""
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
    """Stores the client states that are among a round's metrics."""
    if not self._spec:
      return
    found = metrics[examples.NAME]
    for place, client in enumerate(np.asarray(found.ids).tolist()):
      self.kept[client] = tf.nest.map_structure(lambda t, i=place: np.asarray(t)[i], found.value)


class Run(NamedTuple):
  """The result of some rounds."""

  first: Any  # The server's state before the first round.
  last: Any
  kept: dict  # The state of each client, by client.
  metrics: list  # The metrics of each round.


def run(learning, cohorts, client_state=None) -> Run:
  """Runs a round for each cohort. `client_state` defines the states of clients, if any."""
  clients, metrics = Clients(client_state), []
  first = state = learning.initialize()
  for cohort in cohorts:
    state, measured = learning.next(state, clients.attach(cohort))
    clients.take(measured)
    metrics.append(measured)
  return Run(first, state, clients.kept, metrics)
