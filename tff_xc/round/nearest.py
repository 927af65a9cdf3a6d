"""Finds the nearest rows in blocks.

The full matrix of similarities is never in memory.
"""

import tensorflow as tf

# A block has at most _ROWS rows. It has fewer, down to _LEAST_ROWS, if their
# similarities to all other rows would exceed _SIMILARITIES.
_ROWS, _LEAST_ROWS = 512, 16
_SIMILARITIES = 2**25
# Most blocks computed in parallel, if there are threads for them.
_PARALLEL = 8


def in_blocks(function, count: tf.Tensor, others: tf.Tensor, width):
  """Applies a function to blocks of the numbers in [0, count).

  It is one flat loop outside any condition: Grappler aborts on nested ones.

  Args:
    function: int32 [b] -> float32 [b, width], or a structure of such tensors.
    count: int32 scalar, may be 0.
    others: int32 scalar, similarities that each number needs.
    width: a structure of specs [width]: the results' dtypes and widths.

  Returns:
    The results [count, width].
  """
  at_once = tf.clip_by_value(
    _SIMILARITIES // tf.maximum(others, 1), _LEAST_ROWS, _ROWS
  )
  # The last number pads the last block; one block runs even if count is 0.
  last = tf.maximum(count - 1, 0)
  at_once = tf.minimum(at_once, last + 1)
  block = lambda first: function(
    tf.minimum(tf.range(first, first + at_once), last)
  )
  blocks = tf.map_fn(
    # AutoGraph would write a file, which stays after a kill.
    tf.autograph.experimental.do_not_convert(block),
    tf.range(0, last + 1, at_once),
    parallel_iterations=_PARALLEL,
    fn_output_signature=tf.nest.map_structure(
      lambda spec: tf.TensorSpec([None, *spec.shape], spec.dtype), width
    ),
  )
  join = lambda t: tf.reshape(t, tf.concat([[-1], tf.shape(t)[2:]], 0))[:count]
  return tf.nest.map_structure(join, blocks)


def nearest(
  queries: tf.Tensor, query_ids: tf.Tensor, rows: tf.Tensor, k
) -> tuple[tf.Tensor, tf.Tensor]:
  """Finds each query's k most similar rows, itself excluded.

  Args:
    queries: float32 [q, d].
    query_ids: int32 [q], their places in `rows`; -1 for a query not in `rows`.
    rows: float32 [n, d], n > k, except if q = 0.
    k: an int or int32 scalar.

  Returns:
    (similarities float32 [q, k], places int32 [q, k]), the most similar first,
    ties by place.
  """
  size, count = tf.shape(rows)[0], tf.shape(queries)[0]
  # One more query, because one block runs even without queries.
  queries = tf.pad(queries, [[0, 1], [0, 0]])
  query_ids = tf.pad(query_ids, [[0, 1]])

  def of_block(at):
    similarities = tf.matmul(tf.gather(queries, at), rows, transpose_b=True)
    # One more than k, because the query itself is usually among them.
    best = tf.math.top_k(similarities, tf.minimum(k + 1, size))
    itself = tf.equal(best.indices, tf.gather(query_ids, at)[:, None])
    values = tf.where(itself, -float('inf'), best.values)
    kept = tf.math.top_k(values, tf.minimum(k, size))
    return kept.values, tf.gather(best.indices, kept.indices, batch_dims=1)

  specs = (tf.TensorSpec([None], tf.float32), tf.TensorSpec([None], tf.int32))
  return in_blocks(of_block, count, size, specs)
