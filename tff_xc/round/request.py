"""Question 1: which rows of a table does a client request?

A client requests all rows, only its own rows, or its own rows and m sampled negatives (FedSS,
Algorithm 1). A client's own rows are the rows that its examples name. The request leaves the client
as a shuffled list of ids, so its order does not show which rows are the client's own.
"""

import dataclasses
import secrets
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_xc.round import randomness


class SelectedRows(NamedTuple):
  """The rows that a client requests and receives, in N places (slots).

  A federated select has a fixed number of keys. If a client requests fewer rows than N, the last
  slots are padding, which repeats the first id. `mask` excludes the padding.
  """

  ids: tf.Tensor  # int32 [N], row ids, in random order if clients select rows.
  mask: tf.Tensor  # bool [N], False on padding.
  # int32 [N], how often the client's labels name the row. Rows with a positive count are the
  # positives P_k. If clients select rows, a row that only features name has the count -1. Counts
  # never leave the client.
  counts: tf.Tensor


def sample_distinct(
  seed: tf.Tensor, count: int, population: tf.Tensor, max_population: int
) -> tf.Tensor:
  """Draws int32 [min(count, population)] without replacement from [0, population).

  The time is O(count) for any population. If `count` is a large part of the population, the
  function permutes the whole population, which is cheap in this case. `count` and `max_population`
  are Python integers. `max_population` is an upper bound of `population`.
  """
  if max_population <= 4 * count + 1024:
    everyone = tf.range(population)
    return tf.random.experimental.stateless_shuffle(everyone, seed)[:count]

  # Rejecting repetitions in a stream of independent draws gives exactly a sample without
  # replacement. One block of draws is almost always enough.
  block = 2 * count + 16

  def draw(i, drawn):
    fresh = tf.random.stateless_uniform(
      [block], randomness.step_seed(seed, i), maxval=population, dtype=tf.int32
    )
    return i + 1, tf.unique(tf.concat([drawn, fresh], axis=0)).y

  wanted = tf.minimum(count, population)
  _, drawn = tf.while_loop(
    lambda i, drawn: tf.size(drawn) < wanted,
    draw,
    [tf.constant(0), tf.zeros([0], tf.int32)],
    shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
  )
  return drawn[:wanted]


def skip(ranks: tf.Tensor, excluded: tf.Tensor) -> tf.Tensor:
  """Returns int32 [m], the ids with these ranks among the ids that are not `excluded`.

  `excluded` must be sorted and distinct. An id is its rank plus the number of excluded ids below
  it.
  """
  smaller_kept = excluded - tf.range(tf.size(excluded))
  return ranks + tf.searchsorted(smaller_kept, ranks, side='right')


def window(seed: tf.Tensor, count: int, population: tf.Tensor, moved: tf.Tensor) -> tf.Tensor:
  """Returns int32 [min(count, population)], a window of a random order of [0, population).

  `seed` int32 [2] draws the order, which is circular, and the start of the window. The window then
  moves by `moved` float64, which the seed rounds up or down at random. Windows with the same seed
  overlap if their moves differ little. Each window alone is a sample without replacement. The time
  is O(count) for any population.
  """
  phase = tf.random.stateless_uniform([2], randomness.step_seed(seed, 1), dtype=tf.float64)
  size = tf.cast(population, tf.int64)
  start = tf.cast(phase[0] * tf.cast(size, tf.float64), tf.int64)
  start += tf.cast(tf.floor(phase[1] + moved), tf.int64)
  wanted = tf.minimum(tf.cast(count, tf.int64), size)
  places = (start + tf.range(wanted)) % tf.maximum(size, 1)
  # The order is uniform only with random keys and with more rounds of the cipher than
  # `tf.random.experimental.index_shuffle` uses.
  key = tf.random.stateless_uniform([3], randomness.step_seed(seed, 2), None, None, tf.int32)
  drawn = tf.raw_ops.RandomIndexShuffle(
    index=places, seed=key, max_index=tf.maximum(size, 1) - 1, rounds=12
  )
  return tf.cast(drawn, tf.int32)


def fail_unless(
  holds: tf.Tensor, template: str, values: tuple, client_id: tf.Tensor
) -> tf.Operation:
  """Returns an op that fails if `holds` is False, with a message that names the client.

  Each `{}` of the template is replaced by one of the tensors `values`.
  """
  message = tf.strings.format('client {}: ' + template, (client_id, *values))
  # `tf.debugging.Assert` would add a `tf.cond` to the graph.
  return tf.raw_ops.Assert(condition=holds, data=[message])


def checked_ids(ids: tf.Tensor, bound: int, noun: str, client_id: tf.Tensor) -> tf.Tensor:
  """Returns `ids` int32 [k]; fails if one of them is outside [0, bound)."""
  outside = tf.logical_or(ids < 0, ids >= bound)
  check = _fail_where(outside, ids, f'{noun} {{}} is outside [0, {bound})', client_id)
  with tf.control_dependencies([check]):
    return tf.identity(ids)


def _fail_where(bad, ids, template: str, client_id) -> tf.Operation:
  """Returns an op that fails if `bad` is True for some ids, and names the first of them."""
  return fail_unless(
    tf.logical_not(tf.reduce_any(bad)), template, (tf.boolean_mask(ids, bad)[:1],), client_id
  )


_UNKNOWN = -1


@dataclasses.dataclass(frozen=True)
class AllRows:
  """Requests all n rows (FedAvg, FullSoftmax).

  Clients send no ids, and the server broadcasts the table.
  """

  num_rows: int

  selects = False
  omits = False
  secret = None

  @property
  def slots(self) -> int:
    """N, the number of rows that a client receives."""
    return self.num_rows

  def mean_rows(self, own: np.ndarray) -> np.ndarray:
    """Returns float64 [K], the number of rows that each of K clients requests.

    `own` [K] is the number of own rows of each client.
    """
    return np.full(len(own), float(self.num_rows))

  def held_rows(
    self,
    ids: tf.Tensor,
    seed: tf.Tensor,
    client_id=_UNKNOWN,
    noun='class',
    lasting=None,
    features=None,
  ) -> SelectedRows:
    """Returns the `SelectedRows` of all rows. `OwnAndSampled.held_rows` explains the arguments."""
    own = checked_ids(ids, self.num_rows, noun, client_id)
    checks = [own]
    if features is not None:
      checks += [checked_ids(features, self.num_rows, noun, client_id)]
    with tf.control_dependencies(checks):  # Otherwise unused ids would not be checked.
      everything = tf.identity(tf.range(self.num_rows))
    return SelectedRows(
      ids=everything,
      mask=tf.ones([self.num_rows], tf.bool),
      counts=tf.math.bincount(own, minlength=self.num_rows, maxlength=self.num_rows),
    )

  def positions(self, held, ids, client_id=_UNKNOWN, noun='class'):
    """Returns the slots of `ids`, see `OwnAndSampled.positions`."""
    # Row i is in slot i.
    return checked_ids(ids, self.num_rows, noun, client_id)


SCHEDULES = FRESH, STICKY, PARTIAL, RANDOMIZED = ('fresh', 'sticky', 'partial', 'randomized')


class Secret(tuple):
  """Two int32 numbers that seed a run's requests and are never printed.

  With these numbers, a simulation draws requests that the server cannot compute from the run's
  seed. The numbers are no real protection, because TensorFlow folds seeds into 32 bits, and a
  server could try all of them.
  """

  @classmethod
  def drawn(cls) -> 'Secret':
    """Returns a secret from the operating system's randomness."""
    return cls(secrets.randbits(32) - 2**31 for _ in range(2))

  def __repr__(self) -> str:
    return 'Secret'


@dataclasses.dataclass(frozen=True)
class OwnAndSampled:
  """Requests the client's own rows and m negatives (FedSS: S_k = P_k and N_k).

  Negatives are drawn uniformly without replacement from [n] minus P_k. A client with fewer than m
  other rows requests all of them. A client without examples requests nothing. The schedule
  determines how a client's negatives change over rounds:

    fresh: the negatives are drawn independently in every round, as in the paper.
    sticky: the negatives are drawn once, and depend on the client and its own rows, not on the
      round.
    partial: the client once arranges all other rows in a random circular order. The client's
      negatives are a window of this order. In every round of training, the window moves by m times
      `renewed` rows, whether or not the client participates. Therefore each round replaces the
      share `renewed` of the negatives, and each negative stays for 1 / `renewed` rounds.

  Attributes:
    num_rows: n.
    max_positives: the largest |P_k| of any client.
    negatives: m; with 0, clients request only their own rows.
    equal_negatives: whether to draw m + |P_k| - 1 negatives instead of m. In FedSS, a target
      competes with this many classes in the softmax: m negatives and the client's other own
      classes.
    schedule: one of `SCHEDULES`; 'randomized' is only for `randomized.Randomized`.
    renewed: the share of negatives that the partial schedule replaces in each round.
    secret: seeds the draws. None: the run's seed, which the server knows, seeds them.
  """

  num_rows: int
  max_positives: int
  negatives: int = 0
  _: dataclasses.KW_ONLY
  equal_negatives: bool = False
  schedule: str = FRESH
  renewed: float = 0.0
  secret: Secret | None = None

  selects = True
  omits = False  # Whether requests may omit own rows.

  @property
  def slots(self) -> int:
    """N, the number of rows that a client receives, including padding."""
    return min(self.max_positives + self._most_negatives, self.num_rows)

  @property
  def _most_negatives(self) -> int:
    more = self.max_positives - 1 if self.equal_negatives else 0
    return self.negatives + more

  def mean_rows(self, own: np.ndarray) -> np.ndarray:
    """Returns float64 [K], the number of rows that each of K clients requests.

    `own` [K] is the number of own rows of each client.
    """
    more = own - 1 if self.equal_negatives else 0
    wanted = np.minimum(own + self.negatives + more, self.num_rows)
    return np.where(own > 0, wanted, 0).astype(np.float64)

  def held_rows(
    self,
    ids: tf.Tensor,
    seed: tf.Tensor,
    client_id=_UNKNOWN,
    noun='class',
    lasting: randomness.Lasting | None = None,
    features: tf.Tensor | None = None,
  ) -> SelectedRows:
    """Returns the rows that a client requests.

    Fails if an id is outside [0, n), or if there are more than `max_positives` distinct ids. The
    error message names the client.

    Args:
      ids: int32 [k], the rows that the labels of all the client's examples name.
      seed: int32 [2], draws the negatives and the order of the ids in this round.
      client_id: the client's id for error messages.
      noun: the word for an item of the table in error messages.
      lasting: the source of draws that a client keeps, for schedules different from 'fresh'.
      features: int32 [m], the rows that the client's features name, or None. The client requests
        these rows, too. A row that both labels and features name is requested once.
    """
    ids = checked_ids(ids, self.num_rows, noun, client_id)
    if features is None:
      own, _, counts = tf.unique_with_counts(tf.sort(ids))
    else:
      own, counts = _of_both(ids, checked_ids(features, self.num_rows, noun, client_id))
    fits = fail_unless(
      tf.size(own) <= self.max_positives,
      f'it has {{}} distinct {noun} ids, and this process was built for'
      f' clients with at most {self.max_positives}',
      (tf.size(own),),
      client_id,
    )
    with tf.control_dependencies([fits]):
      own = tf.identity(own)
    kept, others = self._requested(own, seed, lasting)
    ids, counts = (
      tf.concat([tf.gather(own, kept), others], axis=0),
      tf.pad(tf.gather(counts, kept), [[0, tf.size(others)]]),
    )
    order = tf.random.experimental.stateless_shuffle(
      tf.range(tf.size(ids)), randomness.step_seed(seed, 1)
    )[: self.slots]
    ids, counts = tf.gather(ids, order), tf.gather(counts, order)
    return self._padded(ids, counts, tf.size(ids))

  def _requested(self, own, seed, lasting) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (indices into `own`, ids of other rows) of the rows that are requested."""
    return tf.range(tf.size(own)), self._sampled(own, seed, lasting)

  def _sampled(self, own, seed, lasting) -> tf.Tensor:
    if not self._most_negatives:
      return own[:0]
    most, others = self._most_negatives, self.num_rows - tf.size(own)
    wanted = self.negatives
    if self.equal_negatives:
      # A prefix of a uniform sample is a uniform sample; a prefix of a window is a window.
      wanted = wanted + tf.size(own) - 1
    if self.schedule == PARTIAL:
      rounds = tf.cast(lasting.round_number, tf.float64)
      moved = rounds * (self.renewed * tf.cast(wanted, tf.float64))
      ranks = window(lasting.seed, most, others, moved)
    else:
      of = lasting.seed if self.schedule == STICKY else seed
      ranks = sample_distinct(randomness.step_seed(of, 0), most, others, self.num_rows)
    ranks = ranks[: tf.where(tf.size(own) > 0, wanted, 0)]
    return skip(ranks, own)

  def _padded(self, ids, counts, held) -> SelectedRows:
    padding = self.slots - held
    # If a client without examples requests nothing, its padding repeats row 0.
    first = tf.concat([ids, [0]], axis=0)[0]
    return SelectedRows(
      ids=tf.ensure_shape(tf.pad(ids, [[0, padding]], constant_values=first), [self.slots]),
      mask=tf.range(self.slots) < held,
      counts=tf.ensure_shape(tf.pad(counts, [[0, padding]]), [self.slots]),
    )

  def positions(self, held, ids, client_id=_UNKNOWN, noun='class'):
    """Returns int32 [B], the slot in `held` of each of `ids` int32 [B].

    Fails if an id is not in `held`. The time is O((N + B) log N), without a table of size n.
    """
    slots, found = _search(held, ids)
    strange = tf.logical_not(found)
    check = _fail_where(
      strange,
      ids,
      f'its examples have {noun} {{}}, which is not among the ids that it holds',
      client_id,
    )
    with tf.control_dependencies([check]):
      return tf.identity(slots)


def _of_both(ids, features) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns (distinct ids of both arguments, ascending; how often `ids` has each of them).

  The second result is -1 for an id that is only in `features`.
  """
  own = tf.unique(tf.sort(tf.concat([ids, features], axis=0))).y
  counts = tf.math.unsorted_segment_sum(tf.ones_like(ids), tf.searchsorted(own, ids), tf.size(own))
  return own, tf.where(counts > 0, counts, -1)


def _search(held: SelectedRows, ids) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns (slots int32 [B], found bool [B]) of `ids` int32 [B] among held.ids."""
  # Padding repeats the id of slot 0. A stable sort keeps slot 0 before the
  # padding, and the search finds the first match.
  order = tf.argsort(held.ids, stable=True)
  ascending = tf.gather(held.ids, order)
  ranks = tf.minimum(tf.searchsorted(ascending, ids), tf.size(order) - 1)
  return tf.gather(order, ranks), tf.equal(tf.gather(ascending, ranks), ids)


def holds(held: SelectedRows, ids: tf.Tensor) -> tf.Tensor:
  """Returns bool [B], whether each of `ids` int32 [B] is among the rows of `held`."""
  # If a client requests no rows, all slots are padding and repeat row 0.
  return tf.logical_and(_search(held, ids)[1], tf.reduce_any(held.mask))
