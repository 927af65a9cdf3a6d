"""Options of learning rates that change with the rounds, see `tff_xc.round.schedules`.

Importing this does not import TensorFlow; its functions do.
"""

from __future__ import annotations

from tff_xc.options import hyperparameters as hp


def _shape(side: str):
  return hp.field(
    'constant',
    f'the {side} learning rate over the rounds: constant; down to'
    f' --{side}_schedule_factor of it on a cosine; or times that factor in steps',
    choices=('constant', 'cosine', 'step'),
  )


def _changing(side: str) -> dict:
  return {'of': f'{side}_schedule', 'only_with': ('cosine', 'step')}


def _rounds(side: str):
  return hp.field(
    0,
    'rounds that the cosine takes, or from one step to the next, counted after'
    f' --{side}_warmup_rounds',
    least=0,
    **_changing(side),
  )


def _factor(side: str):
  return hp.field(
    0.0,
    f"what is left of the {side} learning rate at the cosine's end, or what a step"
    ' multiplies it by; default for step 0.1',
    least=0,
    most=1,
    defaults={'step': 0.1},
    **_changing(side),
  )


def _warmup(side: str):
  return hp.field(0, f'first rounds, in which the {side} learning rate grows linearly', least=0)


@hp.declared
class OfClients:
  """A part of `base.Base`: how the clients' learning rate changes."""

  client_schedule: str = _shape('client')
  client_schedule_rounds: int = _rounds('client')
  client_schedule_factor: float | None = _factor('client')
  client_warmup_rounds: int = _warmup('client')


@hp.declared
class OfServer:
  """A part of `base.Server`: how the server's learning rate changes."""

  server_schedule: str = _shape('server')
  server_schedule_rounds: int = _rounds('server')
  server_schedule_factor: float | None = _factor('server')
  server_warmup_rounds: int = _warmup('server')


def schedule(options: OfClients | OfServer, side: str):
  """Returns the `schedules.Schedule` of 'client' or 'server', or None."""
  from tff_xc.round import schedules

  names = 'schedule', 'schedule_rounds', 'schedule_factor', 'warmup_rounds'
  return schedules.made(*(getattr(options, f'{side}_{n}') for n in names))
