"""Clients whose updates are poisoned, and what each client would send."""

import collections
import dataclasses

import numpy as np
import tensorflow as tf

from tests import tiny
from tff_xc.round import algorithm as algorithm_lib
from tff_xc.round import client_update
from tff_xc.round import losses
from tff_xc.round import randomness
from tff_xc.round import tables as tables_lib

# The first number of a poisoned client's examples.
MARK = 7.0


@dataclasses.dataclass(frozen=True)
class Poisoned:
  """A loss that is a million times as large on marked examples."""

  loss: losses.Loss

  def __call__(self, step):
    marked = tf.equal(step.x[:, 0], MARK)
    return self.loss(step) * tf.where(marked, 1e6, 1.0)


def poisoned(algorithm: algorithm_lib.Algorithm) -> algorithm_lib.Algorithm:
  """Returns the algorithm whose marked clients send a million times as much."""
  return dataclasses.replace(algorithm, loss=Poisoned(algorithm.loss))


def mark(client):
  """Returns the client, poisoned where the loss is `Poisoned`."""
  x = client.x.copy()
  x[:, 0] = MARK
  return client._replace(x=x)


def cohort(bad=(3,), clients=8, seed=1):
  """Returns clients of two to five examples of 12 classes, some of them marked."""
  random = np.random.default_rng(seed)
  labels = [random.integers(0, 12, 2 + i % 4) for i in range(clients)]
  made = tiny.cohort(labels, seed)
  return [mark(c) if i in bad else c for i, c in enumerate(made)]


class Sent:
  """What clients would send without bounds, computed by TensorFlow alone."""

  def __init__(self, algorithm: algorithm_lib.Algorithm):
    self._algorithm = dataclasses.replace(algorithm, robust=None)
    # As TFF traces it, and once for clients of all sizes.
    train = client_update.build(self._algorithm)
    self._train = tf.function(train, autograph=False, reduce_retracing=True)

  def of(self, state, client):
    """Returns (the client's `ClientUpdate`, its `SelectedRows` by table)."""
    seed = randomness.round_seed(state.seed, state.round_number)
    client = tf.nest.map_structure(tf.constant, client)
    held, rows = collections.OrderedDict(), collections.OrderedDict()
    for table in self._algorithm.tables:
      keys = tables_lib.keys(self._algorithm.model, table.name).of(client)
      held[table.name] = table.request.held_rows(
        keys,
        randomness.client_seed(
          seed, client.client_id, randomness.Purpose.NEGATIVES
        ),
      )
      rows[table.name] = tf.gather(
        tf.constant(state.weights.tables[table.name]), held[table.name].ids
      )
    weights = tf.nest.map_structure(tf.constant, state.weights)
    return self._train(weights._replace(tables=rows), held, client, seed), held

  def changes(self, state, client):
    """Returns (changes of the whole model by name, dense; the weight)."""
    update, held = self.of(state, client)
    found = {k: v.numpy() for k, v in update.encoder_delta.items()}
    table = self._algorithm.tables[0]
    mask, ids = held['class'].mask.numpy(), held['class'].ids.numpy()
    sent = update.rows['class'].numpy()
    before = np.asarray(state.weights.tables['class'])
    dense = np.zeros_like(before)
    if table.merge.sends_deltas:
      dense[ids[mask]] = sent[mask]
    else:
      dense[ids[mask]] = sent[mask] - before[ids[mask]]
    return found | {'class': dense}, float(update.weight)
