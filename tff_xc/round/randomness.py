"""Random numbers that depend only on (seed, round, client, purpose)."""

import enum

import tensorflow as tf


class Purpose(enum.IntEnum):
  """The uses of a client's random numbers; each has its own stream.

  The numbers from TABLES on are those of the tables after the first.
  """

  NEGATIVES = 0
  ORDER = 1
  ENCODER = 2
  TABLES = 3


def _fold(seed: tf.Tensor, data) -> tf.Tensor:
  return tf.random.experimental.stateless_fold_in(seed, data)


def round_seed(seed: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
  """Returns the seed int32 [2] of a round; `seed` is the run's, int32 [2]."""
  return _fold(seed, round_number)


def client_seed(seed: tf.Tensor, client_id: tf.Tensor, purpose: int):
  """Returns a client's seed int32 [2] in the round whose seed is `seed`."""
  return _fold(_fold(seed, client_id), int(purpose))


def step_seed(seed: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
  """Returns the seed int32 [2] of a step or epoch under `seed`."""
  return _fold(seed, step)
