"""Randomness as a function of (seed, round, client, purpose) and nothing else."""

import enum

import tensorflow as tf


class Purpose(enum.IntEnum):
  """What a client's random numbers are for; each has a stream of its own."""

  NEGATIVES = 0
  ORDER = 1
  ENCODER = 2
  FEATURES = 3


def _fold(seed: tf.Tensor, data) -> tf.Tensor:
  return tf.random.experimental.stateless_fold_in(seed, data)


def round_seed(seed: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
  """Returns the seed int32 [2] of a round; `seed` is the run's, int32 [2]."""
  return _fold(seed, round_number)


def client_seed(seed: tf.Tensor, client_id: tf.Tensor, purpose: Purpose):
  """Returns a client's seed int32 [2] in the round that `seed` stands for."""
  return _fold(_fold(seed, client_id), int(purpose))


def step_seed(seed: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
  """Returns the seed int32 [2] of a step or epoch under `seed`."""
  return _fold(seed, step)
