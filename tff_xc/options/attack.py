"""Simulated attacks on the training: which clients attack, and how.

Attackers run the round's program with one of these changes:

flip_labels: each label y becomes n - 1 - y (Fang, Cao, Jia, Gong: "Local Model Poisoning
  Attacks to Byzantine-Robust Federated Learning", USENIX Security 2020). Attackers request
  and train the rows of these classes. If n is odd, the middle class keeps its label.
scale: attackers multiply their update, the changes of the encoder and of all rows.
flip_signs: like scale, with the opposite sign.

Bounds (`tff_xc.options.robust`) apply after the attack, and updates that are not finite are
dropped, as for every client.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from tff_xc import errors
from tff_xc.lazy import np, tf
from tff_xc.options import hyperparameters as hp, option
from tff_xc.round import parts, randomness

FLIP_LABELS, SCALE, FLIP_SIGNS = KINDS = ('flip_labels', 'scale', 'flip_signs')
# The stream of random numbers that draws the attackers from the run's seed.
_OF_ATTACK = 0x61747461


class Attackers(NamedTuple):
  """The clients that attack in a run: those whose random number is at most `threshold`."""

  pair: tuple[int, int]  # The run's seed.
  num_clients: int  # N. If a round draws client i twice, the second id is i + N.
  threshold: int

  def include(self, client_ids: tf.Tensor) -> tf.Tensor:
    """Returns bool [...], whether the clients with ids int64 [...] attack."""
    return _draws(self.pair, client_ids % self.num_clients) <= self.threshold


@hp.declared
class Attack(option.Option):
  """An attack by a share of the clients, the same clients in all rounds."""

  name = 'attack'

  attack: str = hp.field(
    'none',
    "attack that some clients carry out. 'flip_labels': with n classes, train on the label n - 1"
    " - y instead of y; 'scale': multiply the update by --attack_scale; 'flip_signs': multiply"
    ' the update by minus --attack_scale',
    choices=('none', *KINDS),
  )
  attack_fraction: float = hp.field(
    0.1,
    'share of the clients that attack. Their number is rounded, and is at least 1. The same clients'
    ' attack in all rounds',
    above=0,
    most=1,
    of='attack',
    not_with=('none',),
  )
  attack_scale: float = hp.field(
    10.0,
    'factor by which attackers multiply their updates',
    above=0,
    most=hp.FLOAT32_MAX,
    of='attack',
    only_with=('scale', 'flip_signs'),
  )

  num_clients: int = 1  # N, the number of clients in the data set.
  attackers: Attackers | None = None  # Set by `drawn`.

  def added(self, algorithm, facts):
    if self.attack == 'none':
      return algorithm
    if self.attack == FLIP_LABELS and algorithm.model.encoder.tied:
      raise errors.InputError(
        '--attack=flip_labels changes labels, and tied items are also features; give'
        ' --tie_items=false'
      )
    among = dataclasses.replace(self, num_clients=facts.all_clients())
    sampling = attacked(algorithm.sampling, among)
    return dataclasses.replace(algorithm.with_part(among), sampling=sampling)

  @property
  def factor(self) -> float:
    """The factor by which attackers multiply their updates."""
    factors = {FLIP_LABELS: 1.0, SCALE: self.attack_scale, FLIP_SIGNS: -self.attack_scale}
    return factors[self.attack]

  def drawn(self, pair: Sequence[int]) -> Attack:
    """Draws the attackers by a run's seed, int32 [2]. Returns the attack with `attackers`.

    A client's random number depends only on the seed and the client id. With a larger
    --attack_fraction, the same clients and additional ones attack.
    """
    count = max(1, round(self.attack_fraction * self.num_clients))
    draws = _draws(pair, tf.range(self.num_clients, dtype=tf.int64)).numpy()
    draws.partition(count - 1)
    attackers = Attackers(tuple(pair), self.num_clients, int(draws[count - 1]))
    return dataclasses.replace(self, attackers=attackers)

  def of_run(self, algorithm, pair):
    drawn = self.drawn(pair)
    same = tuple(drawn if part is self else part for part in algorithm.parts)
    return dataclasses.replace(algorithm, parts=same)

  def on_client(self, local):
    if self.factor == 1.0:
      return parts.Answer()
    attacks = self.attackers.include(local.client_id)

    def multiplied():
      return tf.nest.map_structure(lambda t: t * self.factor, local.change)

    return parts.Answer(change=tf.cond(attacks, multiplied, lambda: local.change))


def _draws(pair, client_ids):
  """Returns a random number for each client id, int64 [...] in [0, 2^32)."""
  seed = tf.constant([*pair], tf.int32)
  bits = randomness.random_bits(seed, tf.constant(_OF_ATTACK), client_ids)
  upper = tf.bitwise.right_shift(bits, tf.constant(32, tf.uint64))
  return tf.cast(upper, tf.int64)


def flipped(client, num_classes: int):
  """Returns a client's `ClientExamples` with the label n - 1 - y in place of each y."""
  from tff_xc.data import sparse

  labels, last = client.labels, num_classes - 1
  if isinstance(labels, sparse.LabelSets):
    ids, splits = last - labels.ids, labels.row_splits
    owner = np.repeat(np.arange(len(splits) - 1), np.diff(splits))
    labels = labels._replace(ids=ids[np.lexsort((ids, owner))])
  else:
    labels = last - labels
  return client._replace(labels=labels, all_labels=last - client.all_labels)


def attacked(sampling, attack: Attack) -> Any:
  """Returns a sampling like `sampling` in which some clients attack."""
  from tff_xc.round import cohort as cohort_lib

  @dataclasses.dataclass(frozen=True)
  class Attacked(cohort_lib.Changed):
    """Counts the attackers in each cohort, and flips their labels for 'flip_labels'.

    Whether a client attacks depends only on the seed and the client, even if a round draws the
    client repeatedly.
    """

    attack: Attack

    def cohorts(self, dataset, seed: int):
      """Returns a function from a round number to the round's cohort.

      Raises ValueError if the data do not have `attack.num_clients` clients.
      """
      drawn, count = self.sampling.cohorts(dataset, seed), self.attack.num_clients
      if count != len(dataset.train.partition):
        raise ValueError(
          f'an attack among {count} clients, and the data have {len(dataset.train.partition)}'
        )
      attackers = self.attack.drawn(randomness.pair(seed)).attackers
      attacks = attackers.include(tf.range(count, dtype=tf.int64)).numpy()
      flips = self.attack.attack == FLIP_LABELS

      def value(client):
        if attacks[int(client.client_id) % count]:
          return flipped(client, dataset.num_classes)
        return client

      def cohort(round_number: int):
        found = drawn(round_number)
        return dataclasses.replace(
          found,
          examples=cohort_lib.Values(value, found.examples) if flips else found.examples,
          attackers=sum(bool(attacks[n % count]) for n in cohort_lib.numbers_of(found)),
        )

      return cohort

  return Attacked(sampling, attack)
