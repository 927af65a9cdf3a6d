"""Finds the nearest rows of many, in blocks, or of a few thousand, in strips.

Of many rows, the full matrix of similarities is never in memory; of a few
thousand, U^2 floats are.
"""

import itertools
from typing import NamedTuple

import tensorflow as tf

# A block has at most _ROWS rows. It has fewer, down to _LEAST_ROWS, if their
# similarities to all other rows would exceed _SIMILARITIES.
_ROWS, _LEAST_ROWS = 512, 16
_SIMILARITIES = 2**25
# Most blocks computed in parallel, if there are threads for them.
_PARALLEL = 8


def in_blocks(function, count: tf.Tensor, others: tf.Tensor, width):
  """Applies a function to blocks of the numbers in [0, count), each with its `others`.

  It is one flat loop outside any condition: Grappler aborts on nested ones. The
  function maps int32 [b] to [b, width]; `width` is a structure of specs [width].
  """
  at_once = tf.clip_by_value(_SIMILARITIES // tf.maximum(others, 1), _LEAST_ROWS, _ROWS)
  # The last number pads the last block; one block runs even if count is 0.
  last = tf.maximum(count - 1, 0)
  at_once = tf.minimum(at_once, last + 1)

  def block(first):
    return function(tf.minimum(tf.range(first, first + at_once), last))

  blocks = tf.map_fn(
    # AutoGraph would write a file, which stays after a kill.
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
  """Finds each query's k most similar rows, itself excluded.

  `queries` float32 [q, d] have the places `query_ids` int32 [q] in `rows` float32
  [n, d], or -1; n > k, except if q = 0. Returns (similarities float32 [q, k], places
  int32 [q, k]), the most similar first, ties by place.
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


# Values of a part of a row, at least and at most, and parts of a row for each value
# wanted, at least.
_LEAST, _PART, _PARTS = 8, 32, 8


def _top(values: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns what `tf.math.top_k` does of rows [b, n], sooner if n is many times k.

  The k largest of a row are in the k parts of it with the largest maxima: these maxima
  come before any value of another part, ties by place included. Measured: 0.3 of the
  time of `top_k` for n = 100,000 and k = 11, as long for parts of 8; not for fewer.
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


# The similarities are computed in strips of rows. A strip starts at its own
# first row, so that about half of all products are left out.
_STRIPS = 16
# Less than any cosine: a row is no neighbour of itself.
_ITSELF = -2.0


def similarities(units: tf.Tensor) -> list[tf.Tensor]:
  """Returns similarities of unit rows [U, d], exactly symmetric; -2 of a row to itself.

  They are in strips [b, U] in order, of which one may be empty.
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
  """The k nearest of some rows."""

  mask: tf.Tensor  # float32 [b, U], 1 for a neighbour, 0 for others.
  # float32 [b], the similarity of the least similar neighbour.
  least: tf.Tensor
  # bool [b]. A row of which more than k others are as similar is in a tie, and
  # its neighbours are not known: its mask is 0, and `least` is 2.
  known: tf.Tensor


def neighbours(strip: tf.Tensor, k: int) -> Neighbours:
  """Finds the k < U nearest of each row of a strip [b, U]; nothing is sorted."""
  guess = _guess(strip, k)
  # NthElement is `std::nth_element`. Its first pivot is the median of the
  # second, the middle and the last value. A guess there that is a little too
  # low halves the time, and does not change the k-th largest.
  least = _nth(tf.concat([guess, guess, strip, guess], axis=1), k)
  mask = tf.cast(strip >= least, tf.float32)
  known = tf.equal(tf.reduce_sum(mask, axis=1), float(k))
  # Rows whose guess was too high, and those in a tie.
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
  """Returns [b, 1], usually just below the k-th largest, for a normal law."""
  others = tf.cast(tf.shape(strip)[1] - 1, tf.float32)
  total = tf.reduce_sum(strip, axis=1, keepdims=True) - _ITSELF
  norm = tf.math.reduce_euclidean_norm(strip, axis=1, keepdims=True)
  mean = total / others
  variance = (norm**2 - _ITSELF**2) / others - mean**2
  deviation = tf.sqrt(tf.maximum(variance, 0.0))  # Rounding may make it < 0.
  part = tf.minimum((k + k**0.5) / others, 1.0)
  return mean - deviation * tf.math.ndtri(part)
