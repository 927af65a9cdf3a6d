"""Adds noise to every row of a table in every step, and draws the noise when a row is read.

Rows that no client requested need noise, too. Otherwise the model would reveal which clients
participated. If clients select rows, adding noise to all n rows would cost a pass over the table in
every round. Therefore the noise of a row is drawn when the row is read, as in LazyDP (Lim, Kim,
Lee, Kim, Kwon, Rhu: "LazyDP: Co-Designing Algorithm-Software for Scalable Training of
Differentially Private Recommendation Models", ASPLOS 2024).

The server's step is linear in the noise. Therefore each row equals its noise-free value plus a
Gaussian process N(t). N depends only on the run's seed, the row and the number of steps t.
`_Process` evaluates N at any t in O(log t) draws. The values of N do not depend on when rows are
read.

The server's state has the rows without noise, so this state must not leave the server. The rows
that clients receive have noise. The weights that `get_model_weights` returns also have noise.
"""

import collections
import dataclasses

import numpy as np
import tensorflow as tf

from tff_xc import errors
from tff_xc.round import optimizers, randomness

# When all rows get noise, this many numbers of a table get noise at a time.
_CHUNK = 2**20


@dataclasses.dataclass(frozen=True)
class DeferredNoise(optimizers.TableOptimizer):
  """An `optimizers.TableOptimizer`: momentum with noise on every row's gradient.

  In every step, each number of the table gets noise on its gradient, whether or not a client
  requested its row. The noise has the standard deviation `stddev`. After t steps, reading a row
  costs O(log t) draws. The state has three entries:

    optimizer: the state of `optimizer`, which updates the table without noise.
    noise_seed: the seed of the noise, int32 [2], or int64 [2] if it is secret.
    noise_steps: the number of steps with noise, int32.
  """

  optimizer: optimizers.RowMomentum
  stddev: float
  pair: tuple[int, int]  # The run's seed.
  part: int  # The table's number, see `randomness.noise_seed`.
  secret: bool = False  # Whether the seed is secret, see `options.privacy.Privacy`.

  reads_state = True

  def __post_init__(self):
    if self.optimizer.schedule:
      raise errors.InputError(
        '--server_schedule and --server_warmup_rounds do not go with noise on rows that'
        ' clients select, because this noise is drawn later and needs a constant rate:'
        ' leave them out, or give --server_optimizer=adam'
      )

  def initialize(self, table_spec):
    seed = tf.constant(self.pair)
    seed = randomness.wide(seed) if self.secret else seed
    return collections.OrderedDict(
      optimizer=self.optimizer.initialize(table_spec),
      noise_seed=randomness.noise_seed(seed, self.part),
      noise_steps=tf.constant(0, tf.int32),
    )

  def read(self, state, table, ids):
    rows = self.optimizer.read(state['optimizer'], table, ids)
    return rows + self._noise(state, ids, table.shape[1])[0]

  def next(self, state, table, ids, gradients, has_update, after=optimizers.unchanged):
    # Noise is added even if no client participates.
    inner, table, more = self.optimizer.next(
      state['optimizer'], table, ids, gradients, tf.constant(True), after
    )
    new_state = collections.OrderedDict(
      optimizer=inner, noise_seed=state['noise_seed'], noise_steps=state['noise_steps'] + 1
    )
    return new_state, table, more

  def catch_up(self, state, table):
    """Adds the noise of all past steps to rows and velocity, and starts a new noise process."""
    inner, table = self.optimizer.catch_up(state['optimizer'], table)
    rows, dim = table.shape
    size = max(1, min(rows, _CHUNK // dim))
    starts = tf.range(0, rows, size)

    def of_chunk(start):
      return self._noise(state, start + tf.range(size), dim)

    moved, velocity = tf.map_fn(
      of_chunk, starts, fn_output_signature=(tf.float32, tf.float32), parallel_iterations=1
    )

    def flat(noise):
      return tf.reshape(noise, [-1, dim])[:rows]

    if self.optimizer.momentum:
      inner = collections.OrderedDict(inner)
      inner['velocity'] += flat(velocity)
    new_state = collections.OrderedDict(
      optimizer=inner,
      noise_seed=randomness.step_seed(state['noise_seed'], state['noise_steps']),
      noise_steps=tf.zeros_like(state['noise_steps']),
    )
    return new_state, table + flat(moved)

  def _noise(self, state, ids, row_dim):
    """Returns (noise of the rows, noise of their velocities), each float32 [..., row_dim]."""
    rate, beta = self.optimizer.learning_rate, self.optimizer.momentum
    # The gradient is minus the noise. A step is v <- beta v + noise, w <- w + rate v, where v is
    # the negative velocity.
    scale = rate * self.stddev / (1.0 - beta)
    combined = [[scale, -scale * beta], [0.0, -self.stddev]]
    if not beta:
      combined = [[scale], [0.0]]
    both = _Process(beta, np.array(combined)).at(
      state['noise_steps'], state['noise_seed'], ids, row_dim
    )
    return both[0], both[1]


class _Process:
  """Evaluates x(t) = A x(t - 1) + (1, 1) noise, with x(0) = 0, at any t, row and column.

  The first component of x is W, the sum of the noise of all steps. With momentum, there is a second
  component U, the sum over steps r of beta^(t - r) times the noise of step r. Because x is Gaussian
  and Markov, x(2^(j + 1)) can be drawn given x(2^j). A value between two known times is drawn by
  repeated halving, given the values at both ends (Lévy's construction of Brownian motion). Each
  time has its own random numbers.
  """

  # Runs have fewer than 2^_LEVELS steps.
  _LEVELS = 30

  def __init__(self, momentum: float, combined: np.ndarray | None = None):
    """`combined` [outputs, parts] maps the components of x to outputs.

    If `combined` is None, the outputs are the components.
    """
    parts = 2 if momentum else 1
    rates = np.array([1.0, momentum])[:parts]

    def steps(h):
      return np.diag(rates**h)

    def covariance(h):
      # Return the sum over l < h of (a b)^l, for each pair of rates a, b.
      products = np.outer(rates, rates)
      one = products == 1.0
      safe = np.where(one, 0.0, products)
      return np.where(one, h, (1.0 - safe**h) / (1.0 - safe))

    forward, drawn, gain, between = [], [], [], []
    for level in range(self._LEVELS):
      h = 2.0**level
      moved, noise = steps(h), covariance(h)
      gained = noise @ moved.T @ np.linalg.inv(covariance(2 * h))
      forward.append(moved)
      drawn.append(_root(noise))
      gain.append(gained)
      between.append(_root(noise - gained @ moved @ noise))
    self._forward, self._drawn, self._gain, self._between = (
      # float64, because float32 products are too inexact for a momentum near 1.
      tf.constant(np.stack(m), tf.float64)
      for m in (forward, drawn, gain, between)
    )
    self._parts = parts
    self._combined = np.eye(parts) if combined is None else combined

  def at(self, time: tf.Tensor, seed: tf.Tensor, ids: tf.Tensor, row_dim: int):
    """Returns the outputs float32 [outputs, ..., row_dim] at `time`, an int32 scalar."""
    times, factors = self._draws(time)
    factors = tf.tensordot(tf.constant(self._combined), factors, 1)
    factors = tf.cast(factors, tf.float32)
    normals = randomness.row_normals(seed, times, ids, row_dim)
    # For each component, multiply [outputs, draws] by its normals [draws, ..., row_dim].
    return tf.add_n(
      [tf.tensordot(factors[:, :, part], normals[part], 1) for part in range(self._parts)]
    )

  def _draws(self, time: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (times int32 [draws], factors float64 [parts, draws, parts]).

    Each of these times has its own normals. x(time) is the sum of these normals, multiplied by the
    factors.
    """
    most, parts = 2 * self._LEVELS, self._parts

    def of(times, at, x, matrix):
      # Append the time `at`, whose normals enter x with the factor `matrix`.
      place = tf.size(times)
      place = tf.one_hot(place, most, dtype=tf.float64)[None, :, None]
      return tf.concat([times, [at]], 0), x + matrix[:, None, :] * place

    def moved(matrix, x):
      return tf.tensordot(matrix, x, 1)

    def onwards(times, level, x, at):
      level = tf.maximum(level, 0)
      return of(times, at, moved(self._forward[level], x), self._drawn[level])

    # Go to the largest power of 2 that is at most `time`. Level -1 leads from time 0 to 1.
    def double(level, power, times, x):
      return level + 1, 2 * power, *onwards(times, level, x, power)

    some, whole = tf.TensorShape([None]), tf.TensorShape([parts, most, parts])
    level, power, times, x = tf.while_loop(
      lambda level, power, times, x: power <= time,
      double,
      [tf.constant(-1), tf.constant(1), tf.zeros([0], tf.int32), tf.zeros(whole, tf.float64)],
      shape_invariants=[tf.TensorShape([]), tf.TensorShape([]), some, whole],
    )
    # Now x is the value at time power / 2 = 2^level. If this time is `time`, x is the result.
    low = power // 2
    exact = tf.logical_or(tf.equal(low, time), time < 1)
    further, end = onwards(times, level, x, power)
    times = tf.cond(exact, lambda: times, lambda: further)

    def halve(level, low, times, x, end):
      level = level - 1
      middle = low + tf.bitwise.left_shift(1, level)
      straight = moved(self._forward[level], x)
      missed = end - moved(self._forward[level + 1], x)
      mean = straight + moved(self._gain[level], missed)
      times, found = of(times, middle, mean, self._between[level])
      right = middle <= time
      return (
        level,
        tf.where(right, middle, low),
        times,
        tf.where(right, found, x),
        tf.where(right, end, found),
      )

    _, _, times, x, _ = tf.while_loop(
      lambda level, low, times, x, end: tf.logical_and(tf.logical_not(exact), low < time),
      halve,
      [level, low, times, x, end],
      shape_invariants=[tf.TensorShape([]), tf.TensorShape([]), some, whole, whole],
    )
    return times, x[:, : tf.size(times)]


def _root(covariance: np.ndarray) -> np.ndarray:
  """Returns a matrix square root of a covariance, which may be singular."""
  values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
  return vectors * np.sqrt(np.maximum(values, 0.0))
