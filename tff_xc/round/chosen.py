"""Chooses with differential privacy which rows of a table the server updates in a round.

Chosen rows get noise. All other rows get no update and no noise.

The method is DP-AdaFEST by Ghazi, Huang, Kamath, Kumar, Manurangsi, Sinha, Zhang:
"Sparsity-Preserving Differentially Private Training of Large Embedding Models", NeurIPS 2023,
arXiv:2311.08357. In the paper, examples contribute to the count of a row. Here, clients contribute.
Each client adds the same number to the count of every row that it sends. The L2 norm of a client's
contributions is at most C1. The server adds noise to the counts of all n rows, and chooses the rows
with a noisy count above a threshold.

Clients do not send counts, because the ids of their rows determine the counts. A row that no client
sent is chosen if its noise alone exceeds the threshold. The server draws the set of these rows
directly, without a pass over all n rows. A round therefore costs O(rows sent and chosen).
"""

import dataclasses
import math

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.round import folding, merge, randomness


@dataclasses.dataclass(frozen=True)
class CountedRows(merge.SumRows):
  """Sums the clients' changes of rows. The `weights` of the result are the rows' counts.

  `tables` are the names of all tables whose rows are counted. `clip` is C1, the largest L2 norm of
  a client's contributions. A client that sends k rows adds min(1, C1 / sqrt(k)) to the count of
  each row.
  """

  tables: tuple[str, ...] = ()
  clip: float = 1.0

  def build(self, num_rows, row_dim, selects):
    fold = folding.build(row_dim + 1)

    @tff.tensorflow.computation
    def message(held, rows, weight, measured):
      count = tf.add_n([measured[f'{name}_rows'] for name in self.tables])
      each = tf.minimum(1.0, self.clip * tf.math.rsqrt(tf.maximum(count, 1.0)))
      column = tf.fill([tf.shape(rows)[0], 1], each)
      return folding.row_update(held, tf.concat([rows, column], 1), weight)

    @tff.tensorflow.computation
    def split(sums):
      return folding.RowSums(sums.ids, sums.rows[:, :-1], sums.rows[:, -1])

    return lambda held, rows, update: tff.federated_map(
      split, fold(tff.federated_map(message, (held, rows, update.weight, update.measured)))
    )


def chosen(
  counted: folding.RowSums, num_rows: int, stddev: float, threshold: float, seed: tf.Tensor
) -> folding.RowSums:
  """Returns the sums of the chosen rows. A chosen row that no client sent has the sum 0.

  Args:
    counted: the sums that `CountedRows` returns.
    num_rows: n.
    stddev: the standard deviation of the noise on counts.
    threshold: the threshold tau divided by `stddev`. A row is chosen if its noisy count exceeds
      tau. A row that no client sent is thus chosen if a standard normal number exceeds `threshold`.
    seed: [2], the seed of the noise.
  """
  noise = stddev * tf.random.stateless_normal(tf.shape(counted.ids), randomness.step_seed(seed, 0))
  # Without noise, all counted rows are chosen.
  tau = threshold * stddev if stddev else min(threshold, 0.0)
  above = counted.weights + noise > tau
  sent = tf.nest.map_structure(lambda t: tf.boolean_mask(t, above), counted)
  rate = math.erfc(threshold / math.sqrt(2.0)) / 2.0
  if not stddev:
    rate = float(threshold < 0.0)
  others = each_by_itself(rate, num_rows, randomness.step_seed(seed, 1))
  # Leave out rows that a client sent, because their noise is already drawn.
  place = tf.searchsorted(counted.ids, others)
  found = tf.gather(tf.concat([counted.ids, [-1]], 0), place)
  others = tf.boolean_mask(others, tf.not_equal(found, others))
  nothing = tf.zeros([tf.size(others), counted.rows.shape[1]])
  return folding.add_by_id(
    sent, folding.RowSums(others, nothing, tf.zeros_like(others, tf.float32))
  )


def each_by_itself(rate: float, count: int, seed: tf.Tensor) -> tf.Tensor:
  """Selects each number from 0 to `count` - 1 independently with probability `rate`.

  Returns the selected numbers, int32 [k], ascending. The function draws the gaps between them,
  which have a geometric distribution. The time is O(rate count).
  """
  if not rate:
    return tf.zeros([0], tf.int32)
  expected = rate * count
  block = int(expected + 6.0 * math.sqrt(expected)) + 16
  scale = 0.0 if rate == 1.0 else -1.0 / math.log1p(-rate)

  def more(step, places):
    uniform = tf.random.stateless_uniform(
      [block], randomness.step_seed(seed, step), dtype=tf.float64
    )
    gaps = tf.minimum(tf.floor(-tf.math.log1p(-uniform) * scale), float(count))
    further = places[-1] + tf.cumsum(1 + tf.cast(gaps, tf.int64))
    return step + 1, tf.concat([places, further], 0)

  # One block of random numbers is almost always enough.
  _, places = tf.while_loop(
    lambda step, places: places[-1] < count,
    more,
    [tf.constant(0), tf.constant([-1], tf.int64)],
    shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
  )
  places = places[1:]
  return tf.cast(tf.boolean_mask(places, places < count), tf.int32)
