"""Learning rates that change over the rounds.

Let W be the number of rounds of warm-up, R = `rounds` and f = `factor`. In round t = 0, 1, ... the
learning rate is multiplied by

  (t + 1) / W                            for t < W, with every shape; then, with s = t - W:
  1                                      constant
  f + (1 - f) (1 + cos(pi s / R)) / 2    cosine; f from s = R on
  f^floor(s / R)                         step

A client reads t from the round's seed. The server uses its number of steps as t. If every update of
a round was dropped, the server takes no step, so its learning rate does not change.
"""

from __future__ import annotations

import dataclasses
import math

from tff_xc.lazy import tf
from tff_xc.options import hyperparameters as hp, option

CONSTANT, COSINE, STEP = 'constant', 'cosine', 'step'


@dataclasses.dataclass(frozen=True)
class Schedule:
  """The factor of a learning rate, by round.

  Attributes:
    shape: 'constant', 'cosine' or 'step'.
    rounds: R, the number of rounds of the cosine, or between two steps, after the warm-up.
    factor: f, the cosine's last value, or the factor of each step.
    warmup: W, the number of rounds of warm-up.
  """

  shape: str = CONSTANT
  rounds: int = 0
  factor: float = 0.0
  warmup: int = 0

  def __call__(self, number: tf.Tensor) -> tf.Tensor:
    """Returns the factor, float32, for round numbers int32 of any shape."""
    t, warmup = tf.cast(number, tf.float32), float(self.warmup)
    since, rounds = tf.maximum(t - warmup, 0.0), float(self.rounds)
    if self.shape == COSINE:
      done = tf.minimum(since / rounds, 1.0)
      wave = 0.5 * (1.0 + tf.cos(math.pi * done))
      found = self.factor + (1.0 - self.factor) * wave
    elif self.shape == STEP:
      found = tf.pow(self.factor, tf.floor(since / rounds))
    else:
      found = tf.ones_like(t)
    if not self.warmup:
      return found
    return tf.where(t < warmup, (t + 1.0) / warmup, found)


def _shape(side: str):
  return hp.field(
    'constant',
    f'change of the {side} learning rate over the rounds. cosine: a cosine that ends at the rate'
    f' times --{side}_schedule_factor; step: steps that each multiply the rate by this factor',
    choices=('constant', 'cosine', 'step'),
  )


def _changing(side: str) -> dict:
  return {'of': f'{side}_schedule', 'only_with': ('cosine', 'step')}


def _rounds(side: str):
  return hp.field(
    0,
    'number of rounds of the cosine, or between two steps. The count starts after'
    f' --{side}_warmup_rounds',
    least=0,
    **_changing(side),
  )


def _factor(side: str):
  return hp.field(
    0.0,
    f'factor of the {side} learning rate at the end of the cosine, or at each step; default with'
    ' step: 0.1',
    least=0,
    most=1,
    defaults={'step': 0.1},
    **_changing(side),
  )


def _warmup(side: str):
  return hp.field(
    0, f'number of rounds at the start in which the {side} learning rate grows linearly', least=0
  )


@hp.declared
class OfClients(option.Option):
  """How the clients' learning rate changes."""

  client_schedule: str = _shape('client')
  client_schedule_rounds: int = _rounds('client')
  client_schedule_factor: float | None = _factor('client')
  client_warmup_rounds: int = _warmup('client')


@hp.declared
class OfServer(option.Option):
  """How the server's learning rate changes."""

  server_schedule: str = _shape('server')
  server_schedule_rounds: int = _rounds('server')
  server_schedule_factor: float | None = _factor('server')
  server_warmup_rounds: int = _warmup('server')


def of(settings, side: str) -> Schedule | None:
  """Returns the schedule of the side 'client' or 'server'; None for a constant rate."""
  names = ('schedule', 'schedule_rounds', 'schedule_factor', 'warmup_rounds')
  shape, rounds, factor, warmup = (getattr(settings, f'{side}_{name}') for name in names)
  if shape == CONSTANT and not warmup:
    return None
  return Schedule(shape, rounds, factor, warmup)
