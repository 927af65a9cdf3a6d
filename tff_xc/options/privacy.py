"""Differential privacy with clients as the unit, including selected rows.

Each client clips its whole update to one L2 norm C (`tff_xc.options.robust`). The update consists
of the encoder and the rows of every table. With central privacy, the server sums the clipped
updates, adds Gaussian noise of standard deviation z C to every number of the sum, and divides by
the expected number m of clients. The method is by McMahan, Ramage, Talwar, Zhang: "Learning
Differentially Private Recurrent Language Models", ICLR 2018, arXiv:1710.06963, with Gaussian noise
of fixed size and a fixed denominator. `tff_xc.measure.privacy_loss` computes the z that a privacy
budget requires.

Rows that no client requested need noise, too. Otherwise the model would reveal which clients
participated. If clients select rows, a row's noise is drawn when the row is read
(`tff_xc.round.deferred_noise`).

Alternatively, the server first chooses rows privately (`tff_xc.round.chosen`). All other rows get
no noise and no update. With server momentum, these rows still move by their momentum. The momentum
consists of noisy sums of earlier rounds, so this move costs no privacy.
"""

from __future__ import annotations

import collections
import dataclasses
import math
from typing import Any

from tff_xc import errors
from tff_xc.lazy import tf
from tff_xc.options import hyperparameters as hp, option, robust
from tff_xc.round import parts, randomness

CENTRAL, LOCAL, DISTRIBUTED = 'central', 'local', 'distributed'
CHOSEN = 'chosen'
_OF_DP = {'of': 'dp', 'only_with': (CENTRAL, LOCAL, DISTRIBUTED)}
_OF_ROWS = {'of': 'dp_rows', 'only_with': (CHOSEN,)}
# The purpose of a client's random numbers for noise. No table has this number.
_OF_NOISE = -1
# Values of the argument `part` of `randomness.noise_seed`. Table i has the number _TABLES + i.
_ENCODER, _QUANTILE, _TABLES = 0, 1, 2
# Standard deviation of the noise on the count of unclipped clients, divided by the cohort
# size (Andrew et al., 2019, section 3.2).
_COUNT_NOISE = 0.05
_QUANTILE_RATE = 0.2


@hp.declared
class Privacy(option.Option):
  """Clips client updates and adds noise to them.

  z is `dp_noise_multiplier`. If it is 0, there is no noise and no privacy. C is `dp_clip`. Sums are
  divided by m, which is `clients_per_round`, the expected number of clients. An adaptive clipping
  norm (Andrew et al., 2019, arXiv:1905.03871) and the choice of rows each use a part of the privacy
  budget. With local noise, a row gets noise only from clients that requested it.
  """

  name = 'dp'

  dp: str = hp.field(
    'none',
    "differential privacy with clients as the unit. 'central': the server adds noise to sums of"
    " clipped updates; 'local': each client adds noise to its own update; 'distributed': each"
    ' client adds a share of the noise, and a secure sum hides single updates. In all three,'
    ' clients have equal weights',
    choices=('none', CENTRAL, LOCAL, DISTRIBUTED),
  )
  dp_noise_multiplier: float = hp.field(
    1.0,
    'z, the standard deviation of the noise divided by the clipping norm. The noise is added to'
    ' the sum of the updates; with --dp=local, to each update. With --dp_epsilon, the program'
    ' computes z',
    least=0,
    **_OF_DP,
  )
  dp_clip: float = hp.field(
    1.0,
    'clip the update of each client, encoder and rows together, to this L2 norm. With'
    ' --dp_clip_quantile, this is the norm in the first round. inf: no clipping, which is possible'
    ' only without noise',
    above=0,
    most=hp.FLOAT32_MAX,
    **_OF_DP,
  )
  dp_clip_quantile: float = hp.field(
    0.0,
    "adapt the clipping norm privately to this quantile of the norms of the clients' updates; 0:"
    ' the norm does not change. With an adaptive norm, adding the noise takes a pass over all rows'
    ' in each round',
    least=0,
    below=1,
    of='dp',
    only_with=(CENTRAL,),
  )
  dp_bits: int = hp.field(
    24,
    'with --dp=distributed: number of bits of the integers that clients send, and of the sum of'
    ' these integers',
    least=8,
    most=32,
    of='dp',
    only_with=(DISTRIBUTED,),
  )
  dp_rows: str = hp.field(
    'all',
    'rows that the server updates and to which it adds noise, if clients request only some rows.'
    " 'all': all rows of a table; 'chosen': only rows that many clients send (--dp_rows_threshold)",
    choices=('all', CHOSEN),
    of='dp',
    only_with=(CENTRAL,),
  )
  dp_rows_threshold: float = hp.field(
    4.0,
    'threshold in standard deviations of the noise. The server counts for each row the clients that'
    ' send it, and adds noise to this count. It chooses a row if the noisy count exceeds the'
    ' threshold. With a threshold of 4, noise alone chooses about 32 of a million rows',
    **_OF_ROWS,
  )
  dp_rows_clip: float = hp.field(
    1.0,
    "C1, a bound on a client's influence on the choice of rows. The server counts for each row"
    ' the clients that send it. A client that sends k rows adds min(1, C1 / sqrt(k)) to the count'
    ' of each of these rows, so its contributions have an L2 norm of at most C1',
    above=0,
    **_OF_ROWS,
  )
  dp_rows_noise_ratio: float = hp.field(
    2.0,
    'ratio of two noise multipliers: that of the counts of clients that send a row (noise / C1,'
    ' see --dp_rows_clip), divided by that of the updates (noise / clipping norm). The program'
    ' chooses both multipliers so that counts and updates together are as private as updates with'
    ' --dp_noise_multiplier alone',
    above=0,
    **_OF_ROWS,
  )
  dp_noise_seed: str = hp.field(
    'secret',
    "seed of a private run. 'secret': a seed from the operating system, which is stored only in"
    " the checkpoints; 'public': --seed, for tests and studies. Anyone who knows the seed can"
    ' subtract the noise',
    choices=('secret', 'public'),
    **_OF_DP,
  )
  dp_delta: float = hp.field(
    1e-5,
    'delta of (epsilon, delta)-differential privacy. Choose a value below 1 / (number of clients)',
    above=0,
    below=1,
    **_OF_DP,
  )

  clients_per_round: float = 16.0
  # The run's seed, and the tables whose rows get noise.
  pair: tuple[int, int] = (0, 0)
  tables: tuple = ()

  def __post_init__(self):
    super().__post_init__()
    if self.dp_clip == hp.FLOAT32_MAX and (self.dp_noise_multiplier or self.bits):
      raise ValueError(f'{self}: expected a finite norm')
    if self.bits and 2 ** (self.bits - 2) < self.clients_per_round:
      raise errors.InputError(
        f'--dp_bits={self.bits}: too few for sums over {self.clients_per_round:g} clients; give'
        ' more'
      )
    if self.of_clients and (self.dp_clip_quantile or self.chooses):
      raise ValueError('an adaptive clipping norm and chosen rows need noise of the server')

  def added(self, algorithm, facts):
    if self.dp == 'none':
      return algorithm
    return dataclasses.replace(algorithm.with_part(self), weighting='uniform')

  @property
  def local(self) -> bool:
    """Whether each client adds noise with standard deviation z C to every number that it sends."""
    return self.dp == LOCAL

  @property
  def bits(self) -> int:
    """The number of bits of clients' integers with --dp=distributed, else 0.

    See `tff_xc.round.distributed`.
    """
    return self.dp_bits if self.dp == DISTRIBUTED else 0

  @property
  def chooses(self) -> bool:
    """Whether only chosen rows get updates and noise, if clients select rows."""
    return self.dp == CENTRAL and self.dp_rows == CHOSEN

  @property
  def is_secret(self) -> bool:
    """Whether the run's seed is secret. If so, noise depends on all bits of the seed."""
    return self.dp_noise_seed == 'secret'

  @property
  def needs_secret(self) -> bool:
    """Whether a run draws a secret seed, because there is noise that the seed must protect."""
    return self.is_secret and self.dp_noise_multiplier > 0

  def seed(self, seed: tf.Tensor) -> tf.Tensor:
    """Returns the seed of the noise. `seed` is the seed of the run or of a round."""
    return randomness.wide(seed) if self.is_secret else seed

  @property
  def of_clients(self) -> bool:
    """Whether clients add the noise."""
    return self.local or self.bits > 0

  @property
  def integers(self) -> Any:
    """The encoding of updates as integers, if `bits` is positive."""
    from tff_xc.round import distributed

    return distributed.Integers.of(
      self.bits, self.dp_noise_multiplier, self.dp_clip, self.clients_per_round
    )

  @property
  def of_server(self) -> float:
    """The standard deviation of the server's noise on the sum, divided by C."""
    return 0.0 if self.of_clients else self.value_noise_multiplier

  @property
  def count_noise(self) -> float:
    """The standard deviation of the noise on the count of unclipped clients."""
    return max(_COUNT_NOISE * self.clients_per_round, self.dp_noise_multiplier)

  @property
  def value_noise_multiplier(self) -> float:
    """The standard deviation of the noise on the sum, divided by C.

    This number exceeds z if noisy counts use a part of the privacy budget. Together, the Gaussian
    mechanisms on the same clients are as private as z alone: z^-2 = value^-2 + (2 count)^-2 +
    (noise on the rows' counts)^-2.
    """
    z = self.dp_noise_multiplier
    if self.dp_clip_quantile and z:
      z = (z**-2 - (2.0 * self.count_noise) ** -2) ** -0.5
    if self.chooses:
      z *= math.sqrt(1.0 + self.dp_rows_noise_ratio**-2)
    return z

  @property
  def rows_noise_multiplier(self) -> float:
    """The standard deviation of the noise on the rows' counts, divided by C1 (`dp_rows_clip`).

    This number is used only if rows are chosen.
    """
    return self.dp_rows_noise_ratio * self.value_noise_multiplier

  @property
  def metrics(self) -> tuple[str, ...]:
    """The names of a round's metrics, which are columns of metrics.csv."""
    return (*robust.METRICS['clipping'], *(['rows_chosen'] if self.chooses else []))

  def size(self, numbers: int) -> int:
    """Returns the size of a vector of an update in bytes."""
    return -(-numbers * self.bits // 8) if self.bits else numbers * 4

  @property
  def always_counts(self) -> bool:
    """True if clients add noise, because the server must not learn that an update was dropped."""
    return self.of_clients

  # The server's state of this part is (clipping norm, number of steps).

  def initial(self):
    return tf.constant(self.dp_clip, tf.float32), tf.constant(0)

  def sent(self, local):
    norm, _ = local.received
    change, norms, exceeded = robust.bounded(local.change, {'clipping': norm})
    own = norms['clipping']
    # A vote is 1 / 2 or -1 / 2, so that one client changes the sum by at most 1 / 2. A client that
    # sends no update has no vote.
    vote = tf.where(own > 0, tf.where(own <= norm, 0.5, -0.5), 0.0)
    if self.of_clients:
      seed = randomness.client_seed(self.seed(local.round_seed), local.client_id, _OF_NOISE)
      change = self.hidden(*change, local.held, seed)
    return parts.Answer(reply=(vote, exceeded['clipping']), change=change)

  def hidden(self, encoder, rows, held, seed) -> tuple[Any, Any]:
    """Returns a client's (encoder changes, rows by table) with the noise that it adds.

    `held` are `request.SelectedRows` by table. `seed` [2] seeds the client's noise.
    """
    from tff_xc.round import distributed

    if self.bits:
      return distributed.of_client(self.integers, encoder, rows, seed)
    stddev = self.dp_noise_multiplier * self.dp_clip
    numbers = iter(range(len(encoder) + len(rows)))

    def noisy(value):
      number = randomness.step_seed(seed, next(numbers))
      return value + stddev * tf.random.stateless_normal(tf.shape(value), number)

    encoder = type(encoder)((n, noisy(value)) for n, value in encoder.items())
    hidden = collections.OrderedDict()
    for name, value in rows.items():
      mask = held[name].mask[: tf.shape(value)[0], None]
      hidden[name] = tf.where(mask, noisy(value), 0.0)
    return encoder, hidden

  def on_server(self, state, total, of_round, merged):
    votes, clipped = total
    norm, _ = state
    merged, chosen = self.noised(norm, merged)
    metrics = dict(zip(robust.METRICS['clipping'], (clipped, norm), strict=True))
    return parts.Next(self._next(state, votes), merged, metrics | chosen)

  def _next(self, state, votes):
    """Returns the state after a round. Noise is added even if every update was dropped."""
    if not self.dp_clip_quantile:
      return state
    norm, step = state
    if self.dp_noise_multiplier:
      seed = randomness.noise_seed(self.seed(tf.constant(self.pair)), _QUANTILE)
      votes += self.count_noise * tf.random.stateless_normal([], randomness.step_seed(seed, step))
    share = votes / self.clients_per_round + 0.5
    change = _QUANTILE_RATE * (self.dp_clip_quantile - share)
    return norm * tf.exp(change), step + 1

  def of_run(self, algorithm, pair):
    """Returns the algorithm with merges and optimizers that add the noise.

    Raises `errors.InputError` if the server of the algorithm needs more than sums of updates.
    """
    from tff_xc.round import chosen, deferred_noise, distributed, merge, optimizers

    self._check(algorithm)
    sending = [table for table in algorithm.tables if table.merge.sends_rows]
    counted = tuple(table.name for table in sending if table.request.selects)
    if self.chooses and not counted:
      raise errors.InputError(
        'clients send all rows here, so there are none to choose: give'
        ' --dp_rows=all, or an algorithm that selects rows, such as fedss'
      )
    if self.bits and counted:
      raise errors.InputError(
        'secure sums are of whole tables, and here the server sees which rows of the'
        f' table {counted[0]!r} each client sends: choose fedavg, fullsoftmax or fedmlh,'
        ' give --select_features=false, or leave out --dp=distributed'
      )
    m, tables = self.clients_per_round, []
    for number, table in enumerate(algorithm.tables):
      joined, optimizer = _joined(table), table.optimizer
      if self.bits and table.merge.sends_rows:
        joined = distributed.SecretRows(integers=self.integers, cohort=m)
      if self.chooses and table.name in counted:
        joined = chosen.CountedRows(tables=counted, clip=self.dp_rows_clip)
      if isinstance(table.merge, merge.ReplaceRows):
        # With the learning rate m, the server adds the sum of the changes. If a class has one
        # client, the class's row then equals the client's row.
        optimizer = optimizers.RowMomentum(m)
      if self.is_deferred(table):
        optimizer = deferred_noise.DeferredNoise(
          optimizer,
          self.of_server * self.dp_clip / m,
          tuple(pair),
          _TABLES + number,
          self.is_secret,
        )
      tables.append(dataclasses.replace(table, merge=joined, optimizer=optimizer))
    found = dataclasses.replace(self, pair=tuple(pair), tables=tuple(tables))
    aggregator = distributed.SecretEncoder(self.integers, m) if self.bits else None
    return dataclasses.replace(
      algorithm.with_part(found),
      tables=found.tables,
      weighting='uniform',
      model_aggregator=aggregator,
    )

  def _check(self, algorithm) -> None:
    """Refuses aggregators and parts that need or reveal more than noisy sums."""
    if algorithm.model_aggregator:
      raise errors.InputError(
        'differential privacy has its own aggregator: --robust_aggregation, or a'
        ' model_aggregator, does not go with it; leave it out'
      )
    for part in algorithm.parts:
      if part.name in ('bounds', 'compression'):
        raise errors.InputError(
          f'{part.name} can exceed the clipping norm of differential privacy: leave'
          ' out --robust_aggregation, --compression and --message_precision, or --dp'
        )
      if part is not self and type(part).on_server is not parts.Part.on_server:
        raise errors.InputError(
          f'clients also send numbers for the part {part.name!r}, which'
          ' have no noise: leave out --dp, or choose an algorithm such as fedavg or fedss'
        )

  def is_deferred(self, table) -> bool:
    """Returns whether a table's noise is drawn when a row is read, and not in every round.

    The noise cannot be drawn later if its size changes over rounds. If rows are chosen first, or if
    the server passes over all rows anyway, the noise is drawn in every round.
    """
    from tff_xc.round import optimizers

    return bool(
      table.merge.sends_rows
      and table.request.selects
      and isinstance(table.optimizer, optimizers.RowMomentum)
      and not table.steps
      and not self.dp_clip_quantile
      and not self.chooses
      and self.of_server
    )

  def noised(self, clip: tf.Tensor, merged: parts.Merged):
    """Returns (merged updates with noise, divided by m; metrics) of a round.

    `clip` is the round's clipping norm C, float32 scalar.
    """
    from tff_xc.round import chosen, deferred_noise, folding

    seed = self.seed(merged.seed)
    z, m = self.of_server, self.clients_per_round
    # The encoder's sums of integers are already divided by m.
    total_weight = m if self.bits else merged.weight
    stddev = z * clip if z else None

    def noise(shape, part):
      return stddev * tf.random.stateless_normal(shape, part)

    of_encoder = randomness.noise_seed(seed, _ENCODER)
    encoder = merged.encoder
    encoder = type(encoder)((n, t * (total_weight / m)) for n, t in encoder.items())
    if z:
      for number, (name, value) in enumerate(encoder.items()):
        part = randomness.step_seed(of_encoder, number)
        encoder[name] = value + noise(tf.shape(value), part) / m
    rows, counts = collections.OrderedDict(), []
    for number, table in enumerate(self.tables):
      sums = rows[table.name] = merged.tables[table.name]
      part = randomness.noise_seed(seed, _TABLES + number)
      if isinstance(table.merge, chosen.CountedRows):
        sums = chosen.chosen(
          sums,
          table.request.num_rows,
          self.rows_noise_multiplier * self.dp_rows_clip,
          self.dp_rows_threshold,
          part,
        )
        if z:
          of_rows = noise(tf.shape(sums.rows), randomness.step_seed(part, 2))
          sums = sums._replace(rows=sums.rows + of_rows)
        rows[table.name] = sums
        counts.append(tf.cast(tf.size(sums.ids), tf.float32))
        continue
      lazy = isinstance(table.optimizer, deferred_noise.DeferredNoise)
      if not z or lazy or not table.merge.sends_rows:
        continue
      shape = table.request.num_rows, sums.rows.shape[1]
      everything = tf.tensor_scatter_nd_add(noise(shape, part), sums.ids[:, None], sums.rows)
      rows[table.name] = folding.all_rows(everything, total_weight)
    m = tf.constant(m, tf.float32)
    merged = merged._replace(encoder=encoder, tables=rows, weight=m, clients=m)
    return merged, {'rows_chosen': tf.add_n(counts)} if counts else {}


def _joined(table):
  """Returns a table's merge with differential privacy.

  The merge sums the clients' changes of rows. If clients send no rows, the table's merge stays the
  same.
  """
  from tff_xc.round import merge

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
      f'the server divides rows of the table {table.name!r} by the weight of the clients'
      ' that sent them, which differential privacy has to hide: leave out'
      ' --row_renormalize'
    )
  return dataclasses.replace(found, takes_optimizer=True)
