"""Options against curious servers and harmful clients, which all federated algorithms take.

Bounds and medians, compression, secure sums, differential privacy, and attacks to try
them. Importing this does not import TensorFlow; its functions do.
"""

from __future__ import annotations

import dataclasses

from tff_xc import precision
from tff_xc.options import hyperparameters as hp

_BOTH = 'zeroing+clipping'
MEDIAN, TRIMMED_MEAN = 'median', 'trimmed_mean'
CENTRAL, LOCAL, DISTRIBUTED = 'central', 'local', 'distributed'
CHOSEN = 'chosen'
QUANTIZE, ROTATE = 'quantize', 'rotate_quantize'
_OF_DP = {'of': 'dp', 'only_with': (CENTRAL, LOCAL, DISTRIBUTED)}
_OF_ROWS = {'of': 'dp_rows', 'only_with': (CHOSEN,)}


@hp.declared
class Protection:
  """A part of `base.Federated`: what is done to the updates that clients send."""

  robust_aggregation: str = hp.field(
    'none',
    "bounds on a client's whole update, as tff.learning.robust_aggregator has them:"
    " 'zeroing' of one with a number far above those of others, 'clipping' of its L2"
    ' norm; both bounds follow the clients; or, in place of the mean of each number,'
    " the 'median' or 'trimmed_mean' over the clients that hold it, which then count"
    ' alike',
    choices=('none', 'zeroing', 'clipping', _BOTH, MEDIAN, TRIMMED_MEAN),
  )
  clipping_norm: float = hp.field(
    1.0,
    'L2 norm of an update above which it is clipped in the first round',
    above=0,
    of='robust_aggregation',
    only_with=('clipping', _BOTH),
  )
  clipping_quantile: float = hp.field(
    0.8,
    "quantile of the clients' norms that the clipping norm follows",
    above=0,
    most=1,
    of='robust_aggregation',
    only_with=('clipping', _BOTH),
  )
  compression: str = hp.field(
    'none',
    "lossy compression of a client's update: 'quantize', its numbers are rounded at"
    ' random to levels between the least and the largest of a row or a tensor;'
    " 'rotate_quantize', the same after a random rotation, which makes them alike",
    choices=('none', QUANTIZE, ROTATE),
  )
  compression_bits: int = hp.field(
    8,
    'bits of a number of a compressed update, of which there are 2^bits levels',
    least=1,
    most=16,
    of='compression',
    not_with=('none',),
  )
  message_precision: str = hp.field(
    precision.FLOAT32,
    "of weights that clients receive and of updates that they send: 'bfloat16' rounds"
    " their numbers, to half of the bytes; the server's model stays float32",
    choices=precision.NAMES,
  )
  secure_sums: bool = hp.field(
    False,
    'join updates by secure sums, of which the server sees no single summand; where'
    ' clients send whole tables; they then count alike',
  )
  secure_bound: float = hp.field(
    1.0,
    "size to which each number of a client's update is clipped for a secure sum",
    above=0,
    of='secure_sums',
    only_with=(True,),
  )
  trimmed_fraction: float = hp.field(
    0.1,
    'beta, share of the values of each number that the trimmed mean leaves out at'
    ' each end, rounded up; 0: the mean',
    least=0,
    most=0.5,
    of='robust_aggregation',
    only_with=(TRIMMED_MEAN,),
  )
  attack: str = hp.field(
    'none',
    "what some clients do to harm the model: 'flip_labels', train on the label n - 1"
    " - y in place of y; 'scale', send a multiple of their update; 'flip_signs', send"
    ' that with the opposite sign',
    choices=('none', 'flip_labels', 'scale', 'flip_signs'),
  )
  attack_fraction: float = hp.field(
    0.1,
    'share of the clients that attack, rounded, at least one of them; the same ones in all rounds',
    above=0,
    most=1,
    of='attack',
    not_with=('none',),
  )
  attack_scale: float = hp.field(
    10.0,
    'the multiple of their update that attackers send',
    above=0,
    of='attack',
    only_with=('scale', 'flip_signs'),
  )

  dp: str = hp.field(
    'none',
    "differential privacy with clients as the unit: 'central', of the model, by noise"
    " of the server on sums of clipped updates; 'local', of each update, by noise of"
    " its client on what it sends; 'distributed', of secure sums of updates, by shares"
    ' of noise of all clients; clients then count alike',
    choices=('none', CENTRAL, LOCAL, DISTRIBUTED),
  )
  dp_noise_multiplier: float = hp.field(
    1.0,
    "z, the noise's standard deviation on the sum of updates, or on each one of"
    ' them, over the clipping norm; --dp_epsilon computes it',
    least=0,
    **_OF_DP,
  )
  dp_clip: float = hp.field(
    1.0,
    "L2 norm of a client's update, encoder and rows together, above which it is"
    ' clipped; of the first round, if it adapts; inf, without noise: never',
    above=0,
    most=hp.FLOAT32_MAX,
    **_OF_DP,
  )
  dp_clip_quantile: float = hp.field(
    0.0,
    "if positive, the clipping norm follows this quantile of the clients' norms, in"
    " a private way; a round's noise then costs a pass over all rows",
    least=0,
    below=1,
    of='dp',
    only_with=(CENTRAL,),
  )
  dp_bits: int = hp.field(
    24,
    'bits of the integers that clients send in place of numbers, and of their sum',
    least=8,
    most=32,
    of='dp',
    only_with=(DISTRIBUTED,),
  )
  dp_rows: str = hp.field(
    'all',
    "rows that get noise, where clients select rows: 'all' of a table, or 'chosen',"
    ' those that more clients hold than a threshold, as noise on these counts has it;'
    ' no other row is updated in the round',
    choices=('all', CHOSEN),
    of='dp',
    only_with=(CENTRAL,),
  )
  dp_rows_threshold: float = hp.field(
    4.0,
    'count with noise above which a row is chosen, in standard deviations of this'
    ' noise; at 4, noise alone chooses 32 of a million rows',
    **_OF_ROWS,
  )
  dp_rows_clip: float = hp.field(
    1.0,
    "C1, L2 norm of a client's counts, of k rows: each counts min(1, C1 / sqrt(k))",
    above=0,
    **_OF_ROWS,
  )
  dp_rows_noise_ratio: float = hp.field(
    2.0,
    'noise on the counts over C1, as a multiple of that on the updates over their'
    ' norm; together they hide as much as --dp_noise_multiplier alone',
    above=0,
    **_OF_ROWS,
  )
  dp_noise_seed: str = hp.field(
    'secret',
    "seed of a private run: 'secret', drawn from the operating system and kept with the"
    " checkpoints alone; 'public', that of --seed, for tests and studies: anyone who"
    ' knows it can subtract the noise',
    choices=('secret', 'public'),
    **_OF_DP,
  )
  dp_delta: float = hp.field(
    1e-5,
    'delta of (epsilon, delta); below one over the number of clients',
    above=0,
    below=1,
    **_OF_DP,
  )

  def protected(self, made):
    """Returns the algorithm with all of these options but attacks."""
    made = self._with_privacy(self._with_bounds(made))
    return self._with_secure_sums(self._with_compression(made))

  def attacked(self, made, num_clients: int | None):
    """Returns the algorithm, of whose clients some attack if that is asked for."""
    if self.attack == 'none':
      return made
    from tff_xc.round import attack, cohort

    if num_clients is None:
      raise TypeError('num_clients is missing: the clients of the data set, of which some attack')
    return cohort.with_attack(
      made, attack.Attack(self.attack, self.attack_fraction, num_clients, self.attack_scale)
    )

  def _with_bounds(self, made):
    from tff_xc.round import robust

    if self.robust_aggregation == 'none':
      return made
    if self.robust_aggregation in (MEDIAN, TRIMMED_MEAN):
      from tff_xc.round import trimming

      median = self.robust_aggregation == MEDIAN
      fraction = trimming.MEDIAN if median else self.trimmed_fraction
      return trimming.trimmed(made, fraction)
    clipping = dataclasses.replace(
      robust.CLIPPING, initial=self.clipping_norm, quantile=self.clipping_quantile
    )
    bounds = robust.Robust(
      robust.ZEROING if 'zeroing' in self.robust_aggregation else None,
      clipping if 'clipping' in self.robust_aggregation else None,
    )
    return dataclasses.replace(made, robust=bounds)

  def _with_privacy(self, made):
    from tff_xc.round import chosen, privacy

    if self.dp == 'none':
      return made
    choice = None
    if self.dp == CENTRAL and self.dp_rows == CHOSEN:
      choice = chosen.Choice(self.dp_rows_noise_ratio, self.dp_rows_clip, self.dp_rows_threshold)
    hidden = privacy.Privacy(
      self.dp_noise_multiplier,
      self.dp_clip,
      float(self.clients_per_round),
      self.dp_clip_quantile if self.dp == CENTRAL else 0.0,
      self.dp_delta,
      self.dp == LOCAL,
      choice,
      self.dp_bits if self.dp == DISTRIBUTED else 0,
      secret=self.dp_noise_seed == 'secret',
    )
    return dataclasses.replace(made, privacy=hidden, weighting='uniform')

  def _with_compression(self, made):
    from tff_xc.round import compression

    if self.message_precision == precision.BFLOAT16:
      return dataclasses.replace(made, compression=compression.Bfloat16())
    if self.compression == 'none':
      return made
    used = compression.Compression(self.compression_bits, self.compression == ROTATE)
    return dataclasses.replace(made, compression=used)

  def _with_secure_sums(self, made):
    from tff_xc.round import secure

    if not self.secure_sums:
      return made
    return secure.secure_sums(made, self.secure_bound)
