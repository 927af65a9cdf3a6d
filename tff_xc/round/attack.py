"""Clients that attack the training: which ones, and what they do.

They follow the round's program, except in one respect.

flip_labels: their examples have the label n - 1 - y in place of y, of a set each of
  its labels (Fang, Cao, Jia, Gong: "Local Model Poisoning Attacks to Byzantine-Robust
  Federated Learning", USENIX Security 2020). So they request and train the rows of
  these classes. Of an odd n the class in the middle is its own mirror image.
scale: they send a multiple of what they changed, of the encoder and of all rows.
flip_signs: the same, with the opposite sign.

What they send is as large as they like: bounds (`tff_xc.round.robust`) apply after it,
and an update that is not finite is dropped as any other.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_xc.data import sparse
from tff_xc.round import examples as examples_lib, randomness

FLIP_LABELS, SCALE, FLIP_SIGNS = KINDS = ('flip_labels', 'scale', 'flip_signs')
# Keeps the draw of who attacks apart from others by the run's seed.
_OF_ATTACK = 0x61747461


class Attackers(NamedTuple):
  """The clients that attack in a run: those whose draw is up to a threshold."""

  pair: tuple[int, int]  # The run's seed.
  num_clients: int  # N. Ids above it are further draws of a client, id modulo N.
  threshold: int

  def include(self, client_ids: tf.Tensor) -> tf.Tensor:
    """Returns whether clients of these ids, int64 [...], attack: bool [...]."""
    return _draws(self.pair, client_ids % self.num_clients) <= self.threshold


@dataclasses.dataclass(frozen=True)
class Attack:
  """What a share of the clients does, the same clients in all rounds.

  Attributes:
    kind: one of `KINDS`.
    fraction: of the clients, rounded to a number of them, at least one. Those of a
      fraction are among those of any larger one.
    num_clients: N, of the data set.
    scale: the factor of what they changed, for scale and flip_signs.
    attackers: who it is; `drawn` finds it.
  """

  kind: str
  fraction: float
  num_clients: int
  scale: float = 10.0
  attackers: Attackers | None = None

  def __post_init__(self):
    if self.kind not in KINDS:
      raise ValueError(f'attack {self.kind!r}: expected one of {KINDS}')
    if not 0 < self.fraction <= 1:
      raise ValueError(f'attack_fraction {self.fraction}: expected 0 < f <= 1')

  @property
  def factor(self) -> float:
    """By which attackers multiply what they changed."""
    factors = {FLIP_LABELS: 1.0, SCALE: self.scale, FLIP_SIGNS: -self.scale}
    return factors[self.kind]

  def drawn(self, pair: Sequence[int]) -> 'Attack':
    """Returns the attack with the attackers of a run's seed, int32 [2].

    A client's draw depends on (seed, client id) only.
    """
    count = max(1, round(self.fraction * self.num_clients))
    draws = _draws(pair, tf.range(self.num_clients, dtype=tf.int64)).numpy()
    threshold = int(np.partition(draws, count - 1)[count - 1])
    who = Attackers(tuple(pair), self.num_clients, threshold)
    return dataclasses.replace(self, attackers=who)


def _draws(pair, client_ids):
  """Returns a draw of each client id, int64 [...] in [0, 2^32)."""
  seed = tf.constant([*pair], tf.int32)
  bits = randomness.random_bits(seed, tf.constant(_OF_ATTACK), client_ids)
  upper = tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64))
  return tf.cast(upper, tf.int64)


def applied(algorithm, pair: Sequence[int]):
  """Returns the algorithm that knows its attackers; `pair` is the run's seed."""
  if algorithm.adversary is None:
    return algorithm
  return dataclasses.replace(algorithm, adversary=algorithm.adversary.drawn(pair))


def flipped(client: examples_lib.ClientExamples, num_classes: int) -> examples_lib.ClientExamples:
  """Returns a client's value with the label n - 1 - y in place of each y."""
  y, last = client.y, num_classes - 1
  if isinstance(y, sparse.LabelSets):
    ids = last - y.ids
    owner = np.repeat(np.arange(len(y.row_splits) - 1), np.diff(y.row_splits))
    y = y._replace(ids=ids[np.lexsort((ids, owner))])
  else:
    y = last - y
  return client._replace(y=y, all_y=last - client.all_y)
