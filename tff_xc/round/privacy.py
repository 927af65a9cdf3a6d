"""Central differential privacy, with clients as its unit, also of selected rows.

Each client clips all that it changed, the encoder and its rows of every table, to one
L2 norm C (`tff_xc.round.robust`). The server adds the clipped changes, adds Gaussian
noise of z C to every number of the sum, and divides by the number m of clients that it
expects: McMahan, Ramage, Talwar, Zhang: "Learning Differentially Private Recurrent
Language Models", ICLR 2018, arXiv:1710.06963, with Gaussian noise of fixed size and a
fixed denominator. How large z has to be is in `tff_xc.measure.privacy_loss`.

Rows that no client held get noise, too; else the model would tell who was there. Where
clients select rows, this would cost a pass over all n rows in every round. As in lazy
differentially private training of recommendation models (LazyDP: Lim, Kim, Lee, Kim,
Kwon, Rhu: "LazyDP: Co-Designing Algorithm-Software for Scalable Training of
Differentially Private Recommendation Models", ASPLOS 2024), it is therefore drawn when
a row is read. Here the server's step is linear in the noise, so a row is what it were
without noise plus a Gaussian process N(t) that depends on nothing but the run's seed,
the row and the steps t. `_Process` evaluates N at any t in O(log t) draws; it has the
very values of a sum over all steps, whoever reads when.

So the server's state has the rows without noise. It must not leave the server; rows
that clients read, and the weights that `get_model_weights` returns, have it.

Or rows are chosen first, in private, and the others get no noise and no update
(`tff_xc.round.chosen`). With server momentum all rows still move by theirs, which is
made of earlier rounds' noisy sums, and costs no privacy.
"""

import collections
import dataclasses
import math
from typing import Any

import numpy as np
import tensorflow as tf

from tff_xc import errors
from tff_xc.round import (
  carried,
  chosen,
  distributed,
  folding,
  merge,
  optimizers,
  randomness,
  robust,
)

# Numbers of a table whose noise is drawn at once, if that of all rows is.
_CHUNK = 2**20
# Parts of `randomness.noise_seed`: the tables, by number, are those from here on.
_ENCODER, _QUANTILE, _TABLES = 0, 1, 2
# Standard deviation of the noise on the count of unclipped clients, over the cohort
# (Andrew et al., 2019, section 3.2).
_COUNT_NOISE = 0.05
_QUANTILE_RATE = 0.2


@dataclasses.dataclass(frozen=True)
class Privacy:
  """How the changes that clients send are clipped and hidden.

  Attributes:
    noise_multiplier: z, the noise's standard deviation on the sum of clipped changes
      over the clipping norm. With 0 there is none, and nothing is private.
    clip: C, the L2 norm of a client's change from which on it is scaled down, of the
      first round if it adapts.
    cohort: m, the expected number of clients of a round, by which sums are divided.
    clip_quantile: if positive, C follows this quantile of the clients' norms, which
      takes a part of the noise's budget (Andrew et al., 2019, arXiv:1905.03871).
    delta: of (epsilon, delta), for the report.
    local: each client adds noise of z C to every number that it sends, and the server
      none. Rows that a client does not hold, which it sends no change of, get none.
    choice: of tables that select rows, only those chosen so move and get noise; or None.
      It takes a part of the noise's budget, too.
    bits: if positive, each client adds its share of the noise of z C on the sum, and
      sends integers of so many bits, see `tff_xc.round.distributed`; the server adds none.
    secret: the run's seed is a secret, and noise is drawn from all of its bits.
  """

  noise_multiplier: float
  clip: float
  cohort: float
  clip_quantile: float = 0.0
  delta: float = 1e-5
  local: bool = False
  choice: chosen.Choice | None = None
  bits: int = 0
  secret: bool = False

  def __post_init__(self):
    bounded = math.isfinite(self.clip) or not (self.noise_multiplier or self.bits)
    if not (self.noise_multiplier >= 0 and self.clip > 0 and self.cohort > 0):
      raise ValueError(f'{self}: expected noise of 0 or more, and above 0')
    if not (bounded and math.isfinite(self.noise_multiplier)):
      raise ValueError(f'{self}: expected finite numbers')
    if self.bits and 2 ** (self.bits - 2) < self.cohort:
      raise errors.InputError(
        f'--dp_bits={self.bits}: too few for sums over {self.cohort:g} clients; give more'
      )
    if self.of_clients and (self.clip_quantile or self.choice):
      raise ValueError('a norm that adapts, and a choice, need noise of the server')

  @property
  def needs_secret(self) -> bool:
    """Whether a run draws a secret in place of its seed: there is noise to hide."""
    return self.secret and self.noise_multiplier > 0

  def seed(self, seed: tf.Tensor) -> tf.Tensor:
    """Returns what noise derives from; `seed` is that of the run or of a round."""
    return randomness.wide(seed) if self.secret else seed

  @property
  def of_clients(self) -> bool:
    """Whether clients add the noise."""
    return self.local or self.bits > 0

  @property
  def integers(self) -> distributed.Integers:
    """What clients send, if `bits` are positive."""
    return distributed.Integers.of(self.bits, self.noise_multiplier, self.clip, self.cohort)

  @property
  def of_server(self) -> float:
    """The server's noise on the sum, over C."""
    return 0.0 if self.of_clients else self.value_noise_multiplier

  @property
  def count_noise(self) -> float:
    """The standard deviation of the noise on the count of unclipped clients."""
    return max(_COUNT_NOISE * self.cohort, self.noise_multiplier)

  @property
  def value_noise_multiplier(self) -> float:
    """The noise on the sum, over C: more than z where counts take their part.

    Together they have the privacy of z alone, of Gaussian mechanisms on the same
    clients: z^-2 = value^-2 + (2 count)^-2 + (of the rows' counts)^-2.
    """
    z = self.noise_multiplier
    if self.clip_quantile and z:
      z = (z**-2 - (2.0 * self.count_noise) ** -2) ** -0.5
    if self.choice:
      z *= math.sqrt(1.0 + self.choice.noise_ratio**-2)
    return z

  @property
  def rows_noise_multiplier(self) -> float:
    """The noise on the rows' counts, over their norm, with a `choice`."""
    return self.choice.noise_ratio * self.value_noise_multiplier

  def bounds(self, pair: list[int]) -> robust.Robust:
    """Returns the bound on a client's change; `pair` is the run's seed."""
    bound = Bound(self, tuple(pair))
    return robust.Robust(zeroing=None, clipping=bound)


@dataclasses.dataclass(frozen=True)
class Bound:
  """A clipping norm, fixed or by a private quantile: a `robust.Quantile`.

  Its state is (norm, step). Noise counts also where nobody's update is left.
  """

  privacy: Privacy
  pair: tuple[int, int]  # The run's seed.

  def start(self):
    return tf.constant(self.privacy.clip, tf.float32), tf.constant(0)

  def bound(self, state):
    return state[0]

  def vote(self, norm, state):
    # Centred, so that one client changes the sum by 1 / 2 at most. Who sends nothing
    # counts as nobody.
    return tf.where(norm > 0, tf.where(norm <= state[0], 0.5, -0.5), 0.0)

  def next(self, state, votes, of_round):
    privacy = self.privacy
    if not privacy.clip_quantile:
      return state
    norm, step = state
    if privacy.noise_multiplier:
      seed = randomness.noise_seed(privacy.seed(tf.constant(self.pair)), _QUANTILE)
      votes += privacy.count_noise * tf.random.stateless_normal(
        [], randomness.step_seed(seed, step)
      )
    share = votes / privacy.cohort + 0.5
    change = _QUANTILE_RATE * (privacy.clip_quantile - share)
    return norm * tf.exp(change), step + 1


def applied(algorithm, pair: list[int]):
  """Returns the algorithm whose tables draw the noise of its `privacy`, if any.

  `pair` is the run's seed, int32 [2]. Raises `errors.InputError` for an algorithm
  whose server needs more than sums of changes.
  """
  privacy = algorithm.privacy
  if privacy is None:
    return algorithm
  if algorithm.robust or algorithm.model_aggregator:
    raise errors.InputError(
      'differential privacy has bounds and an aggregator of its own:'
      ' --robust_aggregation, or a model_aggregator, does not go with it; leave it out'
    )
  if algorithm.compression:
    raise errors.InputError(
      'compression rounds updates that differential privacy has clipped, and they'
      ' would exceed its norm: leave out --compression and --message_precision, or'
      ' --dp'
    )
  for part in algorithm.carried:
    if type(part).on_server is not carried.Carried.on_server:
      raise errors.InputError(
        f'clients also tell the server what the part {part.name!r} makes use of, which'
        ' has no noise: leave out --dp, or choose an algorithm such as fedavg or fedss'
      )
  counted = tuple(
    table.name for table in algorithm.tables if table.merge.sends_rows and table.request.selects
  )
  if privacy.choice and not counted:
    raise errors.InputError(
      'clients send all rows here, so that there are none to choose: give'
      ' --dp_rows=all, or an algorithm that selects rows, such as fedss'
    )
  if privacy.bits and counted:
    raise errors.InputError(
      'secure sums are of whole tables, and here the server sees which rows of the'
      f' table {counted[0]!r} each client sends: choose fedavg, fullsoftmax or fedmlh,'
      ' give --select_features=false, or leave out --dp=distributed'
    )
  tables = []
  for i, table in enumerate(algorithm.tables):
    joined, optimizer = _joined(table, privacy), table.optimizer
    if privacy.bits and table.merge.sends_rows:
      joined = distributed.SecretRows(integers=privacy.integers, cohort=privacy.cohort)
    if privacy.choice and table.name in counted:
      joined = chosen.CountedRows(tables=counted, clip=privacy.choice.clip)
    if isinstance(table.merge, merge.ReplaceRows):
      # The sum of changes: of a class with one client it is the replacement.
      optimizer = optimizers.RowMomentum(privacy.cohort)
    if is_deferred(table, privacy):
      stddev = privacy.of_server * privacy.clip / privacy.cohort
      optimizer = DeferredNoise(optimizer, stddev, tuple(pair), _TABLES + i, privacy.secret)
    tables.append(dataclasses.replace(table, merge=joined, optimizer=optimizer))
  return dataclasses.replace(
    algorithm, tables=tuple(tables), robust=privacy.bounds(pair), weighting='uniform'
  )


def encoder_sum(privacy: Privacy | None) -> distributed.SecretEncoder | None:
  """Returns what adds the encoder's integers, if clients send such."""
  if privacy is None or not privacy.bits:
    return None
  return distributed.SecretEncoder(privacy.integers, privacy.cohort)


def _joined(table, privacy):
  """Returns how the server joins a table's rows: by sums of changes, or not at all."""
  found = table.merge
  if not found.sends_rows:
    return found
  if isinstance(found, merge.ReplaceRows):
    return merge.SumRows()
  if not isinstance(found, merge.SumRows):
    raise errors.InputError(
      f"the server needs each client's own rows of the table {table.name!r}, and"
      ' differential privacy gives it only a sum with noise: choose an algorithm other'
      ' than turbosvm, such as fedavg, or leave out --dp_noise_multiplier'
    )
  if found.row_renormalise:
    raise errors.InputError(
      f'the server divides rows of the table {table.name!r} by the weight of those'
      ' who hold them, which differential privacy has to hide: leave out'
      ' --row_renormalize'
    )
  return dataclasses.replace(found, takes_optimizer=True)


def is_deferred(table, privacy: Privacy) -> bool:
  """Whether a table's noise is drawn when a row is read, and not in every round.

  Not if the size of the noise is unknown before, rows are chosen first, or the server
  passes over all rows anyway.
  """
  return bool(
    table.merge.sends_rows
    and table.request.selects
    and isinstance(table.optimizer, optimizers.RowMomentum)
    and not table.steps
    and not privacy.clip_quantile
    and not privacy.choice
    and privacy.of_server
  )


def noised(
  algorithm, clip: tf.Tensor, delta, merged, total_weight, seed
) -> tuple[Any, Any, dict[str, tf.Tensor]]:
  """Returns (the encoder's delta, rows by table, metrics) of a round, over the cohort m.

  Args:
    algorithm: as `applied` returns it.
    clip: float32 scalar, the round's clipping norm C.
    delta: means of the encoder's deltas over the round's clients, by name.
    merged: `folding.RowSums` by table.
    total_weight: float32 scalar, the round's clients.
    seed: int32 [5], the round's.
  """
  privacy = algorithm.privacy
  seed = privacy.seed(seed)
  z, m = privacy.of_server, privacy.cohort
  if privacy.bits:  # Its sums are over m already.
    total_weight = m
  stddev = z * clip if z else None

  def noise(shape, part):
    return stddev * tf.random.stateless_normal(shape, part)

  of_encoder = randomness.noise_seed(seed, _ENCODER)
  scaled = type(delta)((n, t * (total_weight / m)) for n, t in delta.items())
  if z:
    for i, (name, value) in enumerate(scaled.items()):
      part = randomness.step_seed(of_encoder, i)
      scaled[name] = value + noise(tf.shape(value), part) / m
  rows, counts = collections.OrderedDict(), []
  for i, table in enumerate(algorithm.tables):
    sums = rows[table.name] = merged[table.name]
    part = randomness.noise_seed(seed, _TABLES + i)
    if isinstance(table.merge, chosen.CountedRows):
      choice = privacy.choice
      sums = chosen.chosen(
        sums,
        table.request.num_rows,
        privacy.rows_noise_multiplier * choice.clip,
        choice.threshold,
        part,
      )
      if z:
        of_rows = noise(tf.shape(sums.rows), randomness.step_seed(part, 2))
        sums = sums._replace(rows=sums.rows + of_rows)
      rows[table.name] = sums
      counts.append(tf.cast(tf.size(sums.ids), tf.float32))
      continue
    lazy = isinstance(table.optimizer, DeferredNoise)
    if not z or lazy or not table.merge.sends_rows:
      continue
    shape = table.request.num_rows, sums.rows.shape[1]
    everything = tf.tensor_scatter_nd_add(noise(shape, part), sums.ids[:, None], sums.rows)
    rows[table.name] = folding.all_rows(everything, total_weight)
  return scaled, rows, {'rows_chosen': tf.add_n(counts)} if counts else {}


def of_client(privacy: Privacy, delta, rows, held, seed) -> tuple[Any, Any]:
  """Returns (encoder's delta, rows by table) of a client with its own noise.

  `held` are `request.SelectedRows` by table, and `seed` [2] the client's, for noise.
  """
  if privacy.bits:
    return distributed.of_client(privacy.integers, delta, rows, seed)
  stddev = privacy.noise_multiplier * privacy.clip

  def noisy(value, part):
    normal = tf.random.stateless_normal(tf.shape(value), part)
    return value + stddev * normal

  parts = iter(range(len(delta) + len(rows)))

  def seeds():
    return randomness.step_seed(seed, next(parts))

  delta = type(delta)((n, noisy(value, seeds())) for n, value in delta.items())
  hidden = collections.OrderedDict()
  for name, value in rows.items():
    mask = held[name].mask[: tf.shape(value)[0], None]
    hidden[name] = tf.where(mask, noisy(value, seeds()), 0.0)
  return delta, hidden


@dataclasses.dataclass(frozen=True)
class DeferredNoise:
  """A `optimizers.TableOptimizer`: momentum with noise on every row's gradient.

  In every step each number of the table, held or not, has noise of `stddev` added to
  its gradient. It costs O(log t) draws of a row that is read. The state has, by name,
  that of the `optimizer`, whose table has no noise; the noise's seed (int32 [2], of a
  secret int64 [2]); and its steps (int32).
  """

  optimizer: optimizers.RowMomentum
  stddev: float
  pair: tuple[int, int]  # The run's seed.
  part: int  # The table's, see `randomness.noise_seed`.
  secret: bool = False  # See `Privacy`.

  reads_state = True

  def __post_init__(self):
    if self.optimizer.schedule:
      raise errors.InputError(
        '--server_schedule and --server_warmup_rounds do not go with noise on rows that'
        ' clients select, which is drawn later, at one rate of all rounds: leave them'
        ' out, or give --server_optimizer=adam'
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

  def read_all(self, state, table):
    return self.catch_up(state, table)[1]

  def next(self, state, table, ids, gradients, has_update, after=None):
    del has_update  # Noise is added also if nobody takes part.
    inner, table, more = self.optimizer.next(
      state['optimizer'], table, ids, gradients, tf.constant(True), after
    )
    new_state = collections.OrderedDict(
      optimizer=inner, noise_seed=state['noise_seed'], noise_steps=state['noise_steps'] + 1
    )
    return new_state, table, more

  def catch_up(self, state, table):
    """Adds the noise so far to rows and velocity; a new process of it begins."""
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
    """Returns the noise of rows and of their velocities, float32 [..., row_dim]."""
    rate, beta = self.optimizer.learning_rate, self.optimizer.momentum
    # Gradients are minus the noise: w <- w + rate v, v <- beta v + noise.
    scale = rate * self.stddev / (1.0 - beta)
    combined = [[scale, -scale * beta], [0.0, -self.stddev]]
    if not beta:
      combined = [[scale], [0.0]]
    both = _Process(beta, np.array(combined)).at(
      state['noise_steps'], state['noise_seed'], ids, row_dim
    )
    return both[0], both[1]


class _Process:
  """x(t) = A x(t - 1) + (1, 1) noise from x(0) = 0, at any t, by row and column.

  Its parts are W, the sum of the noise so far, and with momentum U, that of beta^(t -
  r) times the noise of step r. As x is Gaussian and Markov, x(2^(j + 1)) is drawn given
  x(2^j), and what lies between by halves, given both ends (Lévy's construction of
  Brownian motion). Each time has its own random numbers.
  """

  # More steps than a run has.
  _LEVELS = 30

  def __init__(self, momentum: float, combined: np.ndarray | None = None):
    """`combined` [outputs, parts] are what is wanted of the parts; None: these."""
    parts = 2 if momentum else 1
    rates = np.array([1.0, momentum])[:parts]

    def steps(h):
      return np.diag(rates**h)

    def covariance(h):
      # Sum over l < h of (a b)^l, for each pair of rates.
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
      # In float32 their products lose what a momentum near 1 leaves.
      tf.constant(np.stack(m), tf.float64)
      for m in (forward, drawn, gain, between)
    )
    self._parts = parts
    self._combined = np.eye(parts) if combined is None else combined

  def at(self, time: tf.Tensor, seed: tf.Tensor, ids: tf.Tensor, row_dim: int):
    """Returns x float32 [outputs, ..., row_dim] at `time`, an int32 scalar."""
    times, factors = self._draws(time)
    factors = tf.tensordot(tf.constant(self._combined), factors, 1)
    factors = tf.cast(factors, tf.float32)
    normals = randomness.row_normals(seed, times, ids, row_dim)
    # [outputs, draws], times [draws, ..., row_dim], of each part's normals.
    return tf.add_n(
      [tf.tensordot(factors[:, :, part], normals[part], 1) for part in range(self._parts)]
    )

  def _draws(self, time: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the times whose normals x(time) is made of, and their factors.

    They are int32 [draws] and float64 [parts, draws, parts].
    """
    most, parts = 2 * self._LEVELS, self._parts

    def of(times, at, x, matrix):
      # x plus the matrix times the normals of one more time.
      place = tf.size(times)
      place = tf.one_hot(place, most, dtype=tf.float64)[None, :, None]
      return tf.concat([times, [at]], 0), x + matrix[:, None, :] * place

    def moved(matrix, x):
      return tf.tensordot(matrix, x, 1)

    def onwards(times, level, x, at):
      level = tf.maximum(level, 0)
      return of(times, at, moved(self._forward[level], x), self._drawn[level])

    # The last power of 2 up to `time`: levels from -1, which leads from 0 to 1.
    def double(level, power, times, x):
      return level + 1, 2 * power, *onwards(times, level, x, power)

    some, whole = tf.TensorShape([None]), tf.TensorShape([parts, most, parts])
    level, power, times, x = tf.while_loop(
      lambda level, power, times, x: power <= time,
      double,
      [tf.constant(-1), tf.constant(1), tf.zeros([0], tf.int32), tf.zeros(whole, tf.float64)],
      shape_invariants=[tf.TensorShape([]), tf.TensorShape([]), some, whole],
    )
    # x is at power / 2 = 2^level; there is nothing to do if this is the time.
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
  """Returns a root of a covariance that may be singular."""
  values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
  return vectors * np.sqrt(np.maximum(values, 0.0))
