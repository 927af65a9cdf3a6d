"""Finds nearest rows, in blocks among many rows, or in strips among a few thousand.

With blocks, the full matrix of similarities is never in memory. With strips, its U^2 floats
are.
"""

import itertools
from typing import NamedTuple

import tensorflow as tf

# A block has at most _ROWS rows. It has fewer, down to _LEAST_ROWS, if its rows would have
# more than _SIMILARITIES similarities to all other rows.
_ROWS, _LEAST_ROWS = 512, 16
_SIMILARITIES = 2**25
# The largest number of blocks computed in parallel, if there are enough threads.
_PARALLEL = 8


def in_blocks(function, count: tf.Tensor, others: tf.Tensor, width):
  """Applies a function to blocks of the numbers in [0, count) and concatenates the results.

  The function maps int32 [b] to [b, width]; `width` is a structure of specs [width]. Each
  number needs memory for `others` similarities, which bounds the block size. It is one flat
  loop outside any condition, because Grappler aborts on nested loops.
  """
  at_once = tf.clip_by_value(_SIMILARITIES // tf.maximum(others, 1), _LEAST_ROWS, _ROWS)
  # The last number pads the last block. One block runs even if count is 0.
  last = tf.maximum(count - 1, 0)
  at_once = tf.minimum(at_once, last + 1)

  def block(first):
    return function(tf.minimum(tf.range(first, first + at_once), last))

  blocks = tf.map_fn(
    # AutoGraph would write a temporary file, which a kill would leave behind.
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
  """Finds each query's k most similar rows, except itself.

  `queries` are float32 [q, d]. `query_ids` int32 [q] are their places in `rows` float32
  [n, d], or -1. n > k is required unless q = 0. Returns (similarities float32 [q, k],
  places int32 [q, k]), the most similar first, ties by place.
  """
  size, count = tf.shape(rows)[0], tf.shape(queries)[0]
  # One more query, because one block runs even without queries.
  queries = tf.pad(queries, [[0, 1], [0, 0]])
  query_ids = tf.pad(query_ids, [[0, 1]])

  def of_block(at):
    similarities = tf.matmul(tf.gather(queries, at), rows, transpose_b=True)
    # One more than k, because the query itself is usually among them.
    best, places = _top(similarities, tf.minimum(k + 1, size))
    itself = tf.equal(places, tf.gather(query_ids, at)[:, None])
    values = tf.where(itself, -float('inf'), best)
    kept = tf.math.top_k(values, tf.minimum(k, size))
    return kept.values, tf.gather(places, kept.indices, batch_dims=1)

  specs = (tf.TensorSpec([None], tf.float32), tf.TensorSpec([None], tf.int32))
  return in_blocks(of_block, count, size, specs)


# The smallest and largest number of values in a part of a row, and the smallest number of
# parts for each value wanted.
_LEAST, _PART, _PARTS = 8, 32, 8


def _top(values: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Does the same as `tf.math.top_k` for rows [b, n], faster if n is many times k.

  A row is divided into parts. Its k largest values are in the k parts with the largest
  maxima, because these maxima come before any value of another part, also in ties. For
  n = 100,000 and k = 11 it takes 0.3 of the time of `top_k`. With parts of 8 values it
  takes as long as `top_k`.
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


# The similarities are computed in strips of rows. A strip starts at the column of its first
# row, so about half of all products are left out.
_STRIPS = 16
# Similarity of a row to itself, below any cosine, so that it is not its own neighbour.
_ITSELF = -2.0


def similarities(units: tf.Tensor) -> list[tf.Tensor]:
  """Returns the similarities of unit rows [U, d], exactly symmetric; -2 of a row to itself.

  They are a list of strips [b, U], in order. A strip may be empty.
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
    # A product may round (c, y) and (y, c) differently.
    square = (square + tf.transpose(square)) / 2
    square = tf.linalg.set_diag(square, tf.fill([width], _ITSELF))
    strips.append(tf.concat([*left, square, right[i][:, width:]], axis=1))
  return strips


class Neighbours(NamedTuple):
  """The k nearest neighbours of each row of a strip."""

  mask: tf.Tensor  # float32 [b, U], 1 for a neighbour, 0 for others.
  # float32 [b], the similarity of the least similar neighbour.
  least: tf.Tensor
  # bool [b]. False for a row with a tie at the k-th largest similarity, whose neighbours
  # are ambiguous. Its mask is 0, and `least` is 2.
  known: tf.Tensor


def neighbours(strip: tf.Tensor, k: int) -> Neighbours:
  """Finds the k < U nearest neighbours of each row of a strip [b, U], without sorting."""
  guess = _guess(strip, k)
  # NthElement is `std::nth_element`, whose first pivot is the median of the second, the
  # middle and the last value. Inserting a slightly too low guess there halves the time and
  # does not change the k-th largest value.
  least = _nth(tf.concat([guess, guess, strip, guess], axis=1), k)
  mask = tf.cast(strip >= least, tf.float32)
  known = tf.equal(tf.reduce_sum(mask, axis=1), float(k))
  # Repeat rows whose guess was too high, and rows with a tie.
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
  """Returns [b, 1], usually just below the k-th largest value of a normal distribution."""
  others = tf.cast(tf.shape(strip)[1] - 1, tf.float32)
  total = tf.reduce_sum(strip, axis=1, keepdims=True) - _ITSELF
  norm = tf.math.reduce_euclidean_norm(strip, axis=1, keepdims=True)
  mean = total / others
  variance = (norm**2 - _ITSELF**2) / others - mean**2
  deviation = tf.sqrt(tf.maximum(variance, 0.0))  # Rounding may make it < 0.
  part = tf.minimum((k + k**0.5) / others, 1.0)
  return mean - deviation * tf.math.ndtri(part)
