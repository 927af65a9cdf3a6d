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

A row's gradient is a sum of rows times the derivative by s, so no more than a
block of similarities is ever held.
"""

import dataclasses

import tensorflow as tf

from tff_xc import classifier

DISTANCES = ('sq_euclidean', 'cosine')

# Similarities held at once by each of the blocks that are worked on.
_BLOCK = 2**22
_QUERIES = 512
# Blocks worked on at a time, where there are threads for them.
_PARALLEL = 8


def nearest(
  queries: tf.Tensor, query_ids: tf.Tensor, rows: tf.Tensor, k: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Finds each query's k most similar rows, itself excluded.

  Args:
    queries: float32 [q, d].
    query_ids: int32 [q], their places in `rows`; -1 for one that is not there.
    rows: float32 [n, d], n > k.
    k: static, at least 1.

  Returns:
    (similarities float32 [q, k], places int32 [q, k]), the most similar first,
    equal ones by place.
  """
  size, count = tf.shape(rows)[0], tf.shape(queries)[0]
  width = _BLOCK // _QUERIES

  def merged(best, first):
    """Merges the best k + 1 so far with those of a block of rows."""
    block = rows[first : first + width]
    found = tf.math.top_k(
      tf.matmul(mine, block, transpose_b=True),
      tf.minimum(k + 1, tf.shape(block)[0]),
    )
    values = tf.concat([best[0], found.values], axis=1)
    places = tf.concat([best[1], found.indices + first], axis=1)
    return _first_of(values, places, k + 1)

  def of_block(first):
    nonlocal mine
    at = tf.minimum(tf.range(first, first + _QUERIES), count - 1)
    mine = tf.gather(queries, at)
    empty = tf.fill([_QUERIES, k + 1], -float('inf'))
    _, values, places = tf.while_loop(
      lambda start, *_: start < size,
      lambda start, *best: (start + width, *merged(best, start)),
      [tf.constant(0), empty, tf.zeros([_QUERIES, k + 1], tf.int32)],
    )
    itself = tf.equal(places, tf.gather(query_ids, at)[:, None])
    return _first_of(tf.where(itself, -float('inf'), values), places, k)

  mine = None
  values, places = tf.map_fn(
    of_block,
    tf.range(0, count, _QUERIES),
    parallel_iterations=_PARALLEL,
    fn_output_signature=(
      tf.TensorSpec([_QUERIES, k], tf.float32),
      tf.TensorSpec([_QUERIES, k], tf.int32),
    ),
  )
  joined = lambda t: tf.reshape(t, [-1, k])[:count]
  return joined(values), joined(places)


def _first_of(values, places, k: int):
  found = tf.math.top_k(values, k)
  return found.values, tf.gather(places, found.indices, batch_dims=1)


@dataclasses.dataclass(frozen=True)
class Spreadout:
  """One gradient step, W <- W - lambda eta grad reg(W) (Algorithm 1, line 14).

  Attributes:
    step_size: lambda eta.
    nearest: k of eq. (8); 0, or one that is no smaller than the number of other
      rows, takes all others.
    distance: one of `DISTANCES`.
    margin: nu; if positive, eq. (7) takes the place of eq. (8).
    tangent: differentiate by the rows themselves, through their normalisation:
      the step then has no part along a row. Else the rows are taken for the
      unit rows that they are in FedAwS.
  """

  step_size: float
  nearest: int = 10
  distance: str = 'sq_euclidean'
  margin: float = 0.0
  tangent: bool = False

  def __post_init__(self):
    if self.distance not in DISTANCES:
      raise ValueError(f'unknown distance {self.distance!r}')

  def __call__(self, rows: tf.Tensor) -> tf.Tensor:
    """Returns `rows` float32 [U, d] after the step."""
    return rows - self.step_size * self.gradient(rows)

  def gradient(self, rows: tf.Tensor) -> tf.Tensor:
    """Returns the regulariser's gradient, float32 [U, d], at `rows` [U, d]."""
    units = classifier.unit_norm(rows)
    others = tf.shape(rows)[0] - 1
    of_all = lambda: self._of_all(units)
    if not self.margin and self.nearest:
      few = others <= self.nearest
      of_all = lambda: tf.cond(
        few, lambda: self._of_all(units), lambda: self._of_nearest(units)
      )
    gradient = tf.cond(others > 0, of_all, lambda: tf.zeros_like(rows))
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
    similarities, places = nearest(units, tf.range(size), units, self.nearest)
    each = tf.repeat(tf.range(size), self.nearest)
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
    at_once = tf.clip_by_value(_BLOCK // tf.maximum(size, 1), 1, _QUERIES)

    def of_block(first):
      at = tf.range(first, first + at_once)
      mine = tf.gather(units, tf.minimum(at, size - 1))
      factors = self._by_similarity(tf.matmul(mine, units, transpose_b=True))
      itself = tf.equal(at[:, None], tf.range(size)[None, :])
      # The pair stands in the sum twice, (c, y) and (y, c).
      return tf.matmul(tf.where(itself, 0.0, 2.0 * factors), units)

    blocks = tf.map_fn(
      of_block,
      tf.range(0, size, at_once),
      parallel_iterations=_PARALLEL,
      fn_output_signature=tf.TensorSpec([None, units.shape[1]], tf.float32),
    )
    return tf.reshape(blocks, [-1, units.shape[1]])[:size]
