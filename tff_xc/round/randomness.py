"""Random numbers that depend only on (seed, round, client, purpose)."""

import enum
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf


class Purpose(enum.IntEnum):
  """The uses of a client's random numbers; each has its own stream.

  The numbers from TABLES on are those of the tables after the first.
  """

  NEGATIVES = 0
  ORDER = 1
  ENCODER = 2
  TABLES = 3


class Lasting(NamedTuple):
  """What a client draws from where its draws outlast a round."""

  seed: tf.Tensor  # int32 [2], the client's, of the whole run.
  round_number: tf.Tensor  # int32 scalar, the rounds before this one.


def _fold(seed: tf.Tensor, data) -> tf.Tensor:
  return tf.random.experimental.stateless_fold_in(seed[:2], data)


def round_seed(seed: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
  """Returns the seed of a round; `seed` is the run's, int32 [2].

  It is int32 [5]: the two numbers that seed what is drawn afresh in the round, then
  the run's seed and the round's number, for `lasting`.
  """
  number = tf.cast(round_number, tf.int32)[None]
  return tf.concat([_fold(seed, round_number), seed, number], axis=0)


def private(seed: tf.Tensor, secret: Sequence[int]) -> tf.Tensor:
  """Returns the seed of the same round of a run with the seed `secret`, two numbers."""
  return round_seed(tf.constant([*secret], tf.int32), seed[4])


def client_seed(seed: tf.Tensor, client_id: tf.Tensor, purpose: int):
  """Returns a client's seed int32 [2] in the round whose seed is `seed`."""
  return _fold(_fold(seed, client_id), int(purpose))


def lasting(seed: tf.Tensor, client_id: tf.Tensor, purpose: int) -> Lasting:
  """Returns a client's seed of the run to which the round's `seed` int32 [5] belongs."""
  return Lasting(client_seed(seed[2:4], client_id, purpose), seed[4])


def step_seed(seed: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
  """Returns the seed int32 [2] of a step or epoch under `seed`."""
  return _fold(seed, step)
