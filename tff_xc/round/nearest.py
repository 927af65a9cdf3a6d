"""Finds the nearest rows of each row.

`nearest` works in blocks, so the full matrix of similarities is never in memory. `neighbours` works
on strips of this matrix. All U^2 similarities of the strips are in memory, so `neighbours` is for a
few thousand rows.
"""

import itertools
from typing import NamedTuple

import tensorflow as tf

# A block has at most _ROWS rows. If the similarities of its rows to all rows would be more than
# _SIMILARITIES numbers, it has fewer rows, but at least _LEAST_ROWS.
_ROWS, _LEAST_ROWS = 512, 16
_SIMILARITIES = 2**25
# The largest number of blocks computed in parallel, if there are enough threads.
_PARALLEL = 8


def in_blocks(function, count: tf.Tensor, others: tf.Tensor, width):
  """Applies a function to blocks of the numbers in [0, count) and concatenates the results.

  The function maps int32 [b] to a structure of tensors [b, ...]. `width` has the same structure,
  with the spec [...] of each tensor. `others` is the number of similarities that the function
  computes for each number. The more similarities, the smaller are the blocks. All blocks run in one
  flat loop, because Grappler aborts on nested loops.
  """
  at_once = tf.clip_by_value(_SIMILARITIES // tf.maximum(others, 1), _LEAST_ROWS, _ROWS)
  # The last number pads the last block. One block runs even if count is 0.
  last = tf.maximum(count - 1, 0)
  at_once = tf.minimum(at_once, last + 1)

  def block(first):
    return function(tf.minimum(tf.range(first, first + at_once), last))

  blocks = tf.map_fn(
    # AutoGraph would write a temporary file, which stays if the process is killed.
    tf.autograph.experimental.do_not_convert(block),
    tf.range(0, last + 1, at_once),
    parallel_iterations=_PARALLEL,
    fn_output_signature=tf.nest.map_structure(
      lambda spec: tf.TensorSpec([None, *spec.shape], spec.dtype), width
    ),
  )

  def join(t):
    return tf.reshape(t, tf.concat([[-1], tf.shape(t)[2:]], 0))[:count]

  return tf.nest.map_structure(join, blocks)


def nearest(
  queries: tf.Tensor, query_ids: tf.Tensor, rows: tf.Tensor, k
) -> tuple[tf.Tensor, tf.Tensor]:
  """Finds the k most similar rows of each query, except the query itself.

  `queries` are float32 [q, d]. `rows` are float32 [n, d]. `query_ids` int32 [q] are the indices of
  the queries in `rows`, or -1 for queries that are not in `rows`. n must be larger than k, except
  if q = 0. Returns (similarities float32 [q, k], indices int32 [q, k]). The most similar row comes
  first, and equally similar rows are in the order of their indices.
  """
  size, count = tf.shape(rows)[0], tf.shape(queries)[0]
  # Add a query, because one block runs even if there are no queries.
  queries = tf.pad(queries, [[0, 1], [0, 0]])
  query_ids = tf.pad(query_ids, [[0, 1]])

  def of_block(at):
    similarities = tf.matmul(tf.gather(queries, at), rows, transpose_b=True)
    # Find k + 1 rows, because the query itself is usually one of them.
    best, places = _top(similarities, tf.minimum(k + 1, size))
    itself = tf.equal(places, tf.gather(query_ids, at)[:, None])
    values = tf.where(itself, -float('inf'), best)
    kept = tf.math.top_k(values, tf.minimum(k, size))
    return kept.values, tf.gather(places, kept.indices, batch_dims=1)

  specs = (tf.TensorSpec([None], tf.float32), tf.TensorSpec([None], tf.int32))
  return in_blocks(of_block, count, size, specs)


# Limits for the segments into which `_top` divides a row: the smallest and the largest number of
# values in a segment, and the smallest number of segments divided by k.
_LEAST, _PART, _PARTS = 8, 32, 8


def _top(values: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Does the same as `tf.math.top_k` for rows [b, n], faster if n is many times k.

  The function divides a row into segments. The k largest values are in the k segments with the
  largest maxima, also if values are equal. For n = 100,000 and k = 11 it takes 0.3 times as long as
  `top_k`. With segments of 8 values it takes as long as `top_k`.
  """
  count, size = tf.unstack(tf.shape(values))
  width = tf.minimum(size // (_PARTS * tf.maximum(k, 1)), _PART)

  def of_parts():
    padding = [[0, 0], [0, -size % width]]
    padded = tf.pad(values, padding, constant_values=-float('inf'))
    parts = tf.reshape(padded, [count, -1, width])
    best = tf.math.top_k(tf.reduce_max(parts, axis=2), k, sorted=False)
    numbers = tf.sort(best.indices, axis=1)
    few = tf.gather(parts, numbers, batch_dims=1)
    found = tf.math.top_k(tf.reshape(few, [count, k * width]), k)
    of_part = tf.gather(numbers, found.indices // width, batch_dims=1)
    return found.values, of_part * width + found.indices % width

  return tf.cond(width < _LEAST, lambda: tuple(tf.math.top_k(values, k)), of_parts)


# Number of strips of rows in which similarities are computed. Products of a strip start at the
# column of its first row. The columns before that column are copied from earlier strips, which
# saves about half of all products.
_STRIPS = 16
# The value for the similarity of a row to itself, below any cosine, so that no row is its own
# neighbour.
_ITSELF = -2.0


def similarities(units: tf.Tensor) -> list[tf.Tensor]:
  """Returns the similarities of unit rows [U, d] as a list of strips [b, U], in order.

  The similarities are exactly symmetric. The similarity of a row to itself is set to -2. A strip
  may be empty.
  """
  size = tf.shape(units)[0]
  ends = [size * i // _STRIPS for i in range(_STRIPS + 1)]
  right = [
    tf.matmul(units[start:end], units[start:], transpose_b=True)
    for start, end in itertools.pairwise(ends)
  ]
  strips = []
  for i, (start, end) in enumerate(itertools.pairwise(ends)):
    left = [tf.transpose(right[j][:, start - ends[j] : end - ends[j]]) for j in range(i)]
    width = end - start
    square = right[i][:, :width]
    # Rounding may make the products (c, y) and (y, c) different.
    square = (square + tf.transpose(square)) / 2
    square = tf.linalg.set_diag(square, tf.fill([width], _ITSELF))
    strips.append(tf.concat([*left, square, right[i][:, width:]], axis=1))
  return strips


class Neighbours(NamedTuple):
  """The k nearest neighbours of each row of a strip."""

  mask: tf.Tensor  # float32 [b, U], 1 for a neighbour, else 0.
  # float32 [b], the similarity of the least similar neighbour.
  least: tf.Tensor
  # bool [b]. False if several rows tie as the k-th nearest, so that the neighbours are ambiguous.
  # The row's mask is then 0, and its `least` is 2.
  known: tf.Tensor


def neighbours(strip: tf.Tensor, k: int) -> Neighbours:
  """Finds the k < U nearest neighbours of each row of a strip [b, U], without sorting."""
  guess = _guess(strip, k)
  # NthElement is `std::nth_element`, whose first pivot is the median of the second, the middle and
  # the last value. If a guess slightly below the result is at these places, the call takes half the
  # time. The guess does not change the k-th largest value.
  least = _nth(tf.concat([guess, guess, strip, guess], axis=1), k)
  mask = tf.cast(strip >= least, tf.float32)
  known = tf.equal(tf.reduce_sum(mask, axis=1), float(k))
  # Repeat the search without a guess for rows whose guess was too high, and for rows with a tie.
  again = tf.where(~known)
  few = tf.gather(strip, again[:, 0])
  least_of_few = _nth(few, k)
  mask_of_few = tf.cast(few >= least_of_few, tf.float32)
  found = tf.equal(tf.reduce_sum(mask_of_few, axis=1), float(k))
  least_of_few = tf.where(found, least_of_few[:, 0], 2.0)
  mask_of_few *= tf.cast(found, tf.float32)[:, None]
  put = tf.tensor_scatter_nd_update
  return Neighbours(
    put(mask, again, mask_of_few), put(least[:, 0], again, least_of_few), put(known, again, found)
  )


def _nth(values: tf.Tensor, n: int) -> tf.Tensor:
  """Returns the n-th largest value of each row, [b, 1]."""
  return tf.raw_ops.NthElement(input=values, n=n - 1, reverse=True)[:, None]


def _guess(strip, k: int):
  """Returns [b, 1], a guess that is usually just below the k-th largest value of each row.

  The guess assumes normally distributed values.
  """
  others = tf.cast(tf.shape(strip)[1] - 1, tf.float32)
  total = tf.reduce_sum(strip, axis=1, keepdims=True) - _ITSELF
  norm = tf.math.reduce_euclidean_norm(strip, axis=1, keepdims=True)
  mean = total / others
  variance = (norm**2 - _ITSELF**2) / others - mean**2
  # Rounding may make `variance` negative.
  deviation = tf.sqrt(tf.maximum(variance, 0.0))
  part = tf.minimum((k + k**0.5) / others, 1.0)
  return mean - deviation * tf.math.ndtri(part)
