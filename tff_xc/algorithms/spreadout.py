"""Spreadout: a server step that pushes class rows apart (FedAwS).

Yu, Rawat, Menon, Kumar: "Federated Learning with Only Positive Labels", ICML 2020,
arXiv:2004.10342.

For unit rows v and similarities s_cy = v_c . v_y, the regularizers are

  eq. (7)  reg(W) = sum_c sum_{y != c} max(0, nu - d(v_c, v_y))^2
  eq. (8)  reg_top(W) = sum_c sum_{y in N_k(c)} -d(v_c, v_y)^2

N_k(c) are the k classes nearest to c, without c itself. The gradient treats N_k(c) as constant. The
distance is Euclidean, d^2 = 2 - 2 s, or cosine, d = 1 - s. The paper does not say which distance
eq. (8) uses. At right angles, both distances have the same gradient. At a small angle t, the
Euclidean distance pushes two rows apart by 2 sin t. The cosine distance pushes them apart by 2 (1 -
cos t) sin t, about t^3, so it does not separate rows that have almost collapsed. Neither distance
separates rows that are exactly equal.

Over all pairs, eq. (8) with Euclidean distances is 2 |sum_c v_c|^2 plus a constant. Any rows whose
sum is zero minimise it, even if some of these rows are close. Use a k well below the number of
classes, or eq. (7).

Consider a step on unit rows that pushes every class away from k other classes. Such a step
multiplies the component that all rows share by about 1 - 4 k lambda eta. If lambda eta exceeds 1 /
(2 k), this component grows in magnitude and alternates in sign, and the rows collapse.

If the distance of two rows is half the margin, eq. (7) pushes them apart as hard as eq. (8). Eq.
(7) can push a row away from all other rows at once. For U rows, the same bound therefore holds for
eq. (7) with k = U - 1, except if rows are nearer than half the margin (see `Spreadout.step_limit`).

The gradient of a row is a sum of rows, each times the derivative with respect to s. With few
neighbours, or many rows, the gradient is computed in blocks of rows, so that the full matrix of
similarities is never in memory. With many neighbours among a few thousand rows, dense products
compute the gradient (`tff_xc.round.nearest`).
"""

import dataclasses
import math

import tensorflow as tf

from tff_xc.encoders import layers
from tff_xc.round import nearest

# Dense products are used if k is at least _MANY and at least the number of rows divided by _SHARE,
# and if there are at most _SIMILARITIES similarities. So many similarities take 128 MB, and several
# such tensors are in memory.
_MANY, _SHARE = 64, 64
_SIMILARITIES = 2**25

DISTANCES = ('sq_euclidean', 'cosine')
# The penalty of TurboSVM-FL's FedAwS, sum_{c < y} max(0, s_cy), over all pairs.
POSITIVE_COSINE = 'positive_cosine'


@dataclasses.dataclass(frozen=True)
class Spreadout:
  """One gradient step W <- W~ - lambda eta grad reg(W~) (Algorithm 1, line 14).

  The step starts at the normalised rows of W~. Therefore the lengths that rows have after the
  clients' SGD do not change the effect of the step.

  Attributes:
    step_size: lambda eta.
    nearest: k of eq. (8). 0, or a k larger than the number of other rows, means all other rows.
    distance: one of `DISTANCES`, or `POSITIVE_COSINE`.
    margin: nu. If it is positive, eq. (7) replaces eq. (8).
    tangent: whether to start at the rows without normalising them, and to differentiate through
      their normalisation. The step then has no component along a row.
  """

  step_size: float
  nearest: int = 10
  distance: str = 'sq_euclidean'
  margin: float = 0.0
  tangent: bool = False

  def step_limit(self, num_rows: int) -> float:
    """Returns 1 / (2 k), the upper bound of lambda eta for `num_rows` rows.

    With `tangent`, the bound holds for rows of norm 1.
    """
    others = max(num_rows - 1, 1)
    pushed = min(self.nearest, others)
    return 1 / (2 * (others if self.margin or not pushed else pushed))

  def __call__(self, rows: tf.Tensor) -> tf.Tensor:
    """Returns float32 [U, d], the rows after the step, which are not normalised again."""
    start = rows if self.tangent else layers.unit_norm(rows)
    return start - self.step_size * self.gradient(rows)

  def gradient(self, rows: tf.Tensor) -> tf.Tensor:
    """Returns the regularizer's gradient [U, d] at the normalised rows float32 [U, d]."""
    units = layers.unit_norm(rows)
    gradient = self._of_all(units) if self.margin or not self.nearest else self._of_nearest(units)
    if not self.tangent:
      return gradient
    along = tf.reduce_sum(gradient * units, axis=1, keepdims=True)
    return tf.math.divide_no_nan(gradient - along * units, tf.norm(rows, axis=1, keepdims=True))

  def _by_similarity(self, s: tf.Tensor) -> tf.Tensor:
    """Returns the derivative of a pair's term with respect to s.

    The derivative has the shape of `s`. If it is the same for all pairs, it is a scalar.
    """
    if self.distance == POSITIVE_COSINE:
      # The derivative is halved, because each pair occurs as two terms here.
      return 0.5 * tf.cast(s > 0, tf.float32)
    euclidean = self.distance == 'sq_euclidean'
    if not self.margin:
      return tf.constant(2.0) if euclidean else 2.0 * (1.0 - s)
    if not euclidean:
      return 2.0 * tf.nn.relu(self.margin - 1.0 + s)
    d = tf.sqrt(tf.maximum(2.0 - 2.0 * s, 1e-12))
    return 2.0 * tf.nn.relu(self.margin - d) / d

  def _of_nearest(self, units):
    size = tf.shape(units)[0]
    most = min(_SHARE * self.nearest, math.isqrt(_SIMILARITIES))
    known = most if units.shape[0] is None else units.shape[0]
    if self.nearest < _MANY or not self.nearest < known <= most:
      return self._of_rows(units, tf.range(size))
    gradient, rest = tf.cond(
      (size > self.nearest) & (size <= most),
      lambda: self._of_thresholds(units),
      lambda: (tf.zeros_like(units), tf.range(size)),
    )
    return gradient + self._of_rows(units, rest)

  def _of_rows(self, units, places):
    """Returns the gradient of the terms of eq. (8) for the classes c in `places`."""
    size = tf.shape(units)[0]
    k = tf.clip_by_value(size - 1, 0, self.nearest)
    mine = tf.gather(units, places)
    similarities, near = nearest.nearest(mine, places, units, k)
    pairs = tf.stack([tf.repeat(places, k), tf.reshape(near, [-1])], axis=1)
    factors = self._by_similarity(similarities)
    factors = tf.SparseTensor(
      tf.cast(pairs, tf.int64),
      tf.reshape(tf.broadcast_to(factors, tf.shape(similarities)), [-1]),
      tf.cast(tf.stack([size, size]), tf.int64),
    )
    # A term moves both rows of its pair.
    forth = tf.sparse.sparse_dense_matmul(factors, units)
    back = tf.sparse.sparse_dense_matmul(factors, units, adjoint_a=True)
    return forth + back

  def _of_thresholds(self, units):
    """Returns (gradient by dense products, indices of rows with ambiguous neighbours).

    The gradient leaves out the terms of these rows.
    """
    strips = nearest.similarities(units)
    found = [nearest.neighbours(strip, self.nearest) for strip in strips]
    # A term moves both rows of its pair.
    least = tf.concat([near.least for near in found], axis=0)
    gradient = []
    for strip, near in zip(strips, found, strict=True):
      terms = near.mask + tf.cast(strip >= least, tf.float32)
      factors = self._by_similarity(strip)
      if factors.shape.rank == 0:
        gradient.append(tf.matmul(terms, factors * units))
      else:
        gradient.append(tf.matmul(factors * terms, units))
    rest = tf.where(~tf.concat([near.known for near in found], axis=0))
    return tf.concat(gradient, axis=0), tf.cast(rest[:, 0], tf.int32)

  def _of_all(self, units):
    if not self.margin and self.distance == 'sq_euclidean':
      # Every pair has the same factor.
      return 4.0 * (tf.reduce_sum(units, axis=0, keepdims=True) - units)
    size = tf.shape(units)[0]
    padded = tf.pad(units, [[0, 1], [0, 0]])

    def of_block(at):
      mine = tf.gather(padded, at)
      factors = self._by_similarity(tf.matmul(mine, units, transpose_b=True))
      itself = tf.equal(at[:, None], tf.range(size)[None, :])
      # The sum contains the pair twice, as (c, y) and (y, c).
      return tf.matmul(tf.where(itself, 0.0, 2.0 * factors), units)

    spec = tf.TensorSpec(units.shape[1:], tf.float32)
    gradient = nearest.in_blocks(of_block, size, size, spec)
    return tf.ensure_shape(gradient, units.shape)
