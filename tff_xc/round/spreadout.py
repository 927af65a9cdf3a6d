"""Spreadout: a server's step that keeps the rows of classes apart (FedAwS).

Yu, Rawat, Menon, Kumar: "Federated Learning with Only Positive Labels", ICML
2020, arXiv:2004.10342.

For unit rows v and similarities s_cy = v_c . v_y the regularisers are

  eq. (7)  reg(W) = sum_c sum_{y != c} max(0, nu - d(v_c, v_y))^2
  eq. (8)  reg_top(W) = sum_c sum_{y in N_k(c)} -d(v_c, v_y)^2

with N_k(c) the k classes nearest to c, c itself excluded, held constant in the
gradient. The distance is Euclidean, d^2 = 2 - 2 s, or cosine, d = 1 - s. Which
one eq. (8) means, the paper does not say. They act alike at right angles; but
two rows at a small angle t are driven apart by 2 sin t with the Euclidean one,
and by 2 (1 - cos t) sin t, about t^3, with the cosine one: it does not part rows
that have almost collapsed. Rows exactly equal stay together with both.

Over all pairs, eq. (8) with Euclidean distances is 2 |sum_c v_c|^2 and a
constant: rows whose sum is zero satisfy it, however close some of them are. Take
a k well below the number of classes, or eq. (7).

A step on unit rows that drives every class away from k others multiplies the
component that all rows share by about 1 - 4 k lambda eta. From lambda eta = 1 /
(2 k) on its magnitude grows and its sign alternates: the rows collapse. Eq. (7)
pushes rows at half its margin as hard as eq. (8) pushes them, and pushes all
other rows at once: the same bound holds for it with k = U - 1, as long as rows
are no nearer than half the margin (see `Spreadout.step_limit`).

A row's gradient is a sum of rows times the derivative by s, so no more than a
block of similarities is ever held.
"""

import dataclasses

import tensorflow as tf

from tff_xc import classifier

DISTANCES = ('sq_euclidean', 'cosine')

# Rows whose similarities to all others are held at once: at most so many, fewer
# where there are so many others that this would be more similarities than that.
_ROWS, _LEAST_ROWS = 512, 16
_SIMILARITIES = 2**25
# Blocks worked on at a time, where there are threads for them.
_PARALLEL = 8


def _in_blocks(function, count: tf.Tensor, others: tf.Tensor, width):
  """Applies a function to blocks of the numbers in [0, count).

  One flat loop, without a condition around it: Grappler aborts on more.

  Args:
    function: int32 [b] -> float32 [b, width], or a structure of such tensors.
    count: int32 scalar, may be 0.
    others: int32 scalar, similarities that a number needs.
    width: a structure of the dtypes and widths of the results: specs [width].

  Returns:
    The results [count, width].
  """
  at_once = tf.clip_by_value(
    _SIMILARITIES // tf.maximum(others, 1), _LEAST_ROWS, _ROWS
  )
  # Numbers beyond the last repeat it, and even without any there is a block.
  last = tf.maximum(count - 1, 0)
  blocks = tf.map_fn(
    lambda first: function(tf.minimum(tf.range(first, first + at_once), last)),
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
    query_ids: int32 [q], their places in `rows`; -1 for one that is not there.
    rows: float32 [n, d], n > k, but for q = 0.
    k: an int or int32 scalar.

  Returns:
    (similarities float32 [q, k], places int32 [q, k]), the most similar first,
    equal ones by place.
  """
  size, count = tf.shape(rows)[0], tf.shape(queries)[0]
  # So that there is something to look at.
  queries = tf.pad(queries, [[0, 1], [0, 0]])
  query_ids = tf.pad(query_ids, [[0, 1]])

  def of_block(at):
    similarities = tf.matmul(tf.gather(queries, at), rows, transpose_b=True)
    # One more, for the query itself is most often among them.
    best = tf.math.top_k(similarities, tf.minimum(k + 1, size))
    itself = tf.equal(best.indices, tf.gather(query_ids, at)[:, None])
    values = tf.where(itself, -float('inf'), best.values)
    kept = tf.math.top_k(values, tf.minimum(k, size))
    return kept.values, tf.gather(best.indices, kept.indices, batch_dims=1)

  specs = (tf.TensorSpec([None], tf.float32), tf.TensorSpec([None], tf.int32))
  return _in_blocks(of_block, count, size, specs)


@dataclasses.dataclass(frozen=True)
class Spreadout:
  """One gradient step, W <- W~ - lambda eta grad reg(W~) (Algorithm 1, line 14).

  The rows of W are normalised, so the step starts at the normalised rows of W~:
  what a client's SGD adds to a row's length does not weaken the step.

  Attributes:
    step_size: lambda eta.
    nearest: k of eq. (8); 0, or one that is no smaller than the number of other
      rows, takes all others.
    distance: one of `DISTANCES`.
    margin: nu; if positive, eq. (7) takes the place of eq. (8).
    tangent: step from the rows as they are, of any length, and differentiate
      through their normalisation: the step then has no part along a row.
  """

  step_size: float
  nearest: int = 10
  distance: str = 'sq_euclidean'
  margin: float = 0.0
  tangent: bool = False

  def __post_init__(self):
    if self.distance not in DISTANCES:
      raise ValueError(f'unknown distance {self.distance!r}')

  def step_limit(self, num_rows: int) -> float:
    """Returns 1 / (2 k), which lambda eta must stay below, on `num_rows` rows.

    With `tangent`, it is the limit at rows of norm 1.
    """
    others = max(num_rows - 1, 1)
    pushed = min(self.nearest, others)
    return 1 / (2 * (others if self.margin or not pushed else pushed))

  def __call__(self, rows: tf.Tensor) -> tf.Tensor:
    """Returns float32 [U, d], the rows after the step, not normalised again.

    Args:
      rows: float32 [U, d], of any length.
    """
    start = rows if self.tangent else classifier.unit_norm(rows)
    return start - self.step_size * self.gradient(rows)

  def gradient(self, rows: tf.Tensor) -> tf.Tensor:
    """Returns the regulariser's gradient, float32 [U, d].

    Args:
      rows: float32 [U, d]. The gradient is taken at their directions.
    """
    units = classifier.unit_norm(rows)
    if self.margin or not self.nearest:
      gradient = self._of_all(units)
    else:
      gradient = self._of_nearest(units)
    if not self.tangent:
      return gradient
    along = tf.reduce_sum(gradient * units, axis=1, keepdims=True)
    return tf.math.divide_no_nan(
      gradient - along * units, tf.norm(rows, axis=1, keepdims=True)
    )

  def _by_similarity(self, s: tf.Tensor) -> tf.Tensor:
    """Returns the derivative by s of a pair's term in the regulariser."""
    euclidean = self.distance == 'sq_euclidean'
    if not self.margin:
      return tf.fill(tf.shape(s), 2.0) if euclidean else 2.0 * (1.0 - s)
    if not euclidean:
      return 2.0 * tf.nn.relu(self.margin - 1.0 + s)
    d = tf.sqrt(tf.maximum(2.0 - 2.0 * s, 1e-12))
    return 2.0 * tf.nn.relu(self.margin - d) / d

  def _of_nearest(self, units):
    size = tf.shape(units)[0]
    k = tf.clip_by_value(size - 1, 0, self.nearest)
    similarities, places = nearest(units, tf.range(size), units, k)
    each = tf.repeat(tf.range(size), k)
    pairs = tf.stack([each, tf.reshape(places, [-1])], axis=1)
    factors = tf.SparseTensor(
      tf.cast(pairs, tf.int64),
      tf.reshape(self._by_similarity(similarities), [-1]),
      tf.cast(tf.stack([size, size]), tf.int64),
    )
    # A term moves both rows of its pair.
    forth = tf.sparse.sparse_dense_matmul(factors, units)
    back = tf.sparse.sparse_dense_matmul(factors, units, adjoint_a=True)
    return forth + back

  def _of_all(self, units):
    size = tf.shape(units)[0]
    padded = tf.pad(units, [[0, 1], [0, 0]])

    def of_block(at):
      mine = tf.gather(padded, at)
      factors = self._by_similarity(tf.matmul(mine, units, transpose_b=True))
      itself = tf.equal(at[:, None], tf.range(size)[None, :])
      # The pair stands in the sum twice, (c, y) and (y, c).
      return tf.matmul(tf.where(itself, 0.0, 2.0 * factors), units)

    spec = tf.TensorSpec(units.shape[1:], tf.float32)
    gradient = _in_blocks(of_block, size, size, spec)
    return tf.ensure_shape(gradient, units.shape)
