"""Table of settings that exclude each other, for flags and for Python alike.

Each row names two settings and says why they exclude each other. A setting has one of these forms:

  `dp`: the option dp is on.
  `dp=local|central`: dp has one of these values.
  `dp!=none`: dp has a different value.
  `a & b`: both a and b hold.
  `algorithm=fedavg`: the algorithm is FedAvg or one of its subclasses.

A setting that does not apply in a run never causes a conflict.

This table does not list conflicts of an option with a model's tables or network. The part of the
round that cannot work with a model refuses the model. Importing this module does not import
TensorFlow.
"""

import collections
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tff_xc import errors
from tff_xc.options import (
  attack,
  compression,
  contrastive,
  hyperparameters as hp,
  importance,
  participation,
  privacy,
  robust,
  secure_sums,
)

# Options of all algorithms with clients, in the order in which they process an update.
OF_CLIENTS = (
  contrastive.MoonTerm,
  importance.Importance,
  robust.Robust,
  privacy.Privacy,
  compression.Compression,
  secure_sums.SecureSums,
  participation.Participation,
  attack.Attack,
)

_REFUSE, LEAVE_OUT = object(), object()


class Conflict(NamedTuple):
  """Two settings that exclude each other.

  If the user has set the second setting, or if there is no `instead`, the settings are refused.
  Otherwise the second setting takes the value `instead`, or is removed if `instead` is `LEAVE_OUT`.
  """

  a: str
  b: str
  why: str
  instead: Any = _REFUSE


_ALIKE = 'there, all clients have the same weight'
_SUMS = 'a secure sum needs equal levels'
_STATE = 'clients already keep another state'
_ONE_STATE = 'it may draw a client twice in a round, and each client keeps one state'
_LEAVES_NOTHING = 'it leaves nothing of this algorithm; leave it out, or choose another --algorithm'
_EPOCH = 'such clients take one epoch over the examples that they draw'
_MEDIANS = 'robust_aggregation=median|trimmed_mean'
_STEPS = 'algorithm=scaffold & scaffold_variate=steps'
_NEEDS_ROUNDS = 'a schedule needs rounds; give their number (for a cosine, that of the whole run)'

CONFLICTS = (
  # Messages.
  Conflict('message_precision!=float32', 'compression', 'compression has its own levels'),
  Conflict('message_precision!=float32', 'dp', 'rounded updates may exceed its clipping norm'),
  Conflict('message_precision!=float32', 'secure_sums', 'in secure sums clients send integers'),
  Conflict('compression', 'dp', 'rounded updates may exceed its clipping norm'),
  Conflict('compression', 'secure_sums', f'each client has its own levels, and {_SUMS}'),
  Conflict(_MEDIANS, 'secure_sums', 'it needs single updates, and the server sees only sums'),
  Conflict('secure_sums', 'dp', 'differential privacy has its own aggregator'),
  Conflict('secure_sums', 'runtime=worker', "TFF's own runtime has no secure sums"),
  Conflict('dp=distributed', 'runtime=worker', "TFF's own runtime has no secure sums"),
  # Weights of clients.
  Conflict('dp', 'client_weighting=examples', _ALIKE, 'uniform'),
  Conflict('secure_sums', 'client_weighting=examples', _ALIKE, 'uniform'),
  Conflict(_MEDIANS, 'client_weighting=examples', _ALIKE, 'uniform'),
  # Differential privacy.
  Conflict('dp', 'robust_aggregation', 'differential privacy clips by --dp_clip'),
  Conflict('dp_epsilon', 'dp=none', 'epsilon needs noise; give --dp=central, or another kind'),
  Conflict('dp_epsilon', 'algorithm=centralized', 'there are no clients to hide'),
  Conflict('dp', 'row_renormalize', 'it would reveal which clients send a row'),
  Conflict(
    'dp=central & dp_rows=all',
    'server_adam_rows=requested',
    'noise moves all rows; leave one of them out, or give --dp_rows=chosen',
  ),
  Conflict('dp', 'spreadout_classes=round', 'it reveals the classes of a round', 'all'),
  Conflict('dp_epsilon', 'dp_clip=inf', 'noise needs a finite norm; give one'),
  Conflict('dp_epsilon', 'dp_noise_multiplier=0.0', 'epsilon needs noise'),
  Conflict('dp_clip=inf', 'dp_clip_quantile', 'a quantile needs a finite norm'),
  Conflict('dp_clip=inf', 'dp=distributed', 'integers need a finite norm'),
  Conflict(
    'dp_clip=inf',
    'dp_noise_multiplier',
    'noise needs a finite norm; give one, or --dp_noise_multiplier=0',
  ),
  Conflict(
    'dp_epsilon',
    'dp_noise_multiplier',
    'the noise follows from epsilon; give one of them, not both',
    LEAVE_OUT,
  ),
  Conflict(
    'virtual_client_size',
    'dp=distributed',
    'a client may be drawn several times in a round, and would exceed its norm in a secure sum',
  ),
  Conflict(
    'virtual_client_size & client_sampling=fixed',
    'dp=central',
    'the privacy of a fixed number of clients, drawn in proportion to their examples, is not'
    ' known; give --client_sampling=poisson',
  ),
  # Participation.
  Conflict(
    'virtual_client_replace',
    'client_sampling=poisson',
    'the first draws a fixed number of clients, and the second draws each client independently',
  ),
  Conflict('virtual_client_size', 'local_steps', _EPOCH, LEAVE_OUT),
  Conflict('virtual_client_size', 'local_epochs', _EPOCH, LEAVE_OUT),
  Conflict('virtual_client_size', 'shuffle=False', 'examples are drawn in random order'),
  Conflict(
    'virtual_client_size', 'examples_per_round', 'it sets how many examples a client draws', 0
  ),
  Conflict('virtual_client_replace', 'contrastive_weight', _ONE_STATE),
  Conflict('virtual_client_replace', 'algorithm=feddyn|scaffold|fedrep', _ONE_STATE),
  Conflict(
    'virtual_client_replace',
    'negatives_schedule!=fresh',
    'negatives depend on the client id, and a client that is drawn twice has two ids',
  ),
  Conflict(
    'algorithm=fedproto',
    'attack=scale|flip_signs',
    'clients send mean embeddings and numbers of examples; choose another --attack',
  ),
  # Local training.
  Conflict('client_schedule!=constant', 'client_schedule_rounds=0', _NEEDS_ROUNDS),
  Conflict('server_schedule!=constant', 'server_schedule_rounds=0', _NEEDS_ROUNDS),
  Conflict(
    'contrastive_weight',
    'trainable=head',
    'the contrastive term compares embeddings, and these would never change; give'
    ' --trainable=bottleneck or all',
  ),
  Conflict(
    'negatives_schedule=randomized',
    'negatives=0',
    "a client's own classes can hide only among negatives; give at least 1",
  ),
  Conflict(
    'negatives_schedule=randomized',
    'equal_negatives',
    "it depends on the number of a client's own classes, which is hidden",
  ),
  # Single algorithms.
  Conflict('algorithm=fedvc', 'virtual_client_size=0', _LEAVES_NOTHING),
  Conflict('algorithm=fedbabu', 'trainable!=body', _LEAVES_NOTHING),
  Conflict('algorithm=fedrs', 'calibration!=restricted', _LEAVES_NOTHING),
  Conflict('algorithm=fedlc', 'calibration!=counts', _LEAVES_NOTHING),
  Conflict('algorithm=logit_adjustment', 'calibration!=prior', _LEAVES_NOTHING),
  Conflict(
    'algorithm=centralized',
    'calibration=restricted|counts',
    'it depends on the examples of each client, and there are no clients; give --calibration=prior',
  ),
  Conflict('algorithm=feddyn|scaffold|fedrep', 'contrastive_weight', _STATE),
  *(
    Conflict(
      'algorithm=scaffold', other, 'it does not apply to control variates, which clients also send'
    )
    for other in ('dp', 'secure_sums', 'compression', 'robust_aggregation')
  ),
  Conflict(
    _STEPS,
    'client_optimizer!=sgd',
    'the mean gradient of local steps is known for SGD only; give --scaffold_variate=gradient',
  ),
  Conflict(
    _STEPS,
    'replace_nonfinite',
    'it moves weights by more than gradients, and the mean gradient of local steps is not known'
    ' then; give --scaffold_variate=gradient',
  ),
  *(
    Conflict(
      'algorithm=fednova', other, 'it does not apply to numbers of steps, which clients also send'
    )
    for other in ('dp', 'secure_sums', 'robust_aggregation')
  ),
  Conflict(
    'algorithm=fednova',
    'client_optimizer!=sgd',
    "it divides by the sum of a gradient's factors, which is known for SGD only",
  ),
  *(
    Conflict('algorithm=fedproto', other, 'clients send mean embeddings and numbers of examples')
    for other in ('dp', 'secure_sums', 'compression', 'robust_aggregation', 'calibration')
  ),
  Conflict(
    'algorithm=fedproto',
    'trainable=head|body',
    'class rows are means of embeddings, which nobody trains; leave it out, or give bottleneck',
  ),
  Conflict('algorithm=turbosvm', 'dp', "support vectors need single clients' rows"),
  Conflict(
    'algorithm=turbosvm',
    _MEDIANS,
    'class rows are merged by support vectors; give --robust_aggregation=clipping',
  ),
)


def check(algorithm: type, given: Mapping, *groups: dict) -> None:
  """Refuses settings that exclude each other, and changes or removes conflicting defaults.

  Args:
    algorithm: the algorithm's class.
    given: the user's settings by name.
    *groups: the settings that apply, by name; this function may change these dictionaries.
  """
  names = {getattr(cls, 'name', '') for cls in algorithm.__mro__}

  def holds(side: str) -> bool:
    known = collections.ChainMap(*groups)
    return all(_holds(setting, known, names) for setting in side.split(' & '))

  for a, b, why, instead in CONFLICTS:
    name = b.partition('=')[0]
    if holds(a) and holds(b) and (instead is _REFUSE or name in given):
      known = collections.ChainMap({'algorithm': algorithm.name}, *groups)
      cure = '' if ';' in why else '; leave one of them out'
      raise errors.InputError(
        f'{_shown(a, known)} does not go with {_shown(b, known)}: {why}{cure}'
      )
    if holds(a) and (holds(b) or instead is LEAVE_OUT):
      for group in groups:
        if name in group:
          group[name] = instead
        if group.get(name) is LEAVE_OUT:
          del group[name]


def _parts(setting: str) -> tuple[str, str, list[str]]:
  """Splits a setting of the table into (name; '', '=' or '!='; values)."""
  name, sign, values = re.fullmatch(r'(\w+)(!?=)?(.*)', setting).groups()
  return name, sign or '', values.split('|')


def _holds(setting: str, known: Mapping, algorithms: set[str]) -> bool:
  name, sign, values = _parts(setting)
  if name == 'algorithm':
    return not algorithms.isdisjoint(values)
  if name not in known:
    return False
  value = known[name]
  if not sign:
    return bool(value) and value != 'none'
  return (_text(value) in values) == (sign == '=')


def _text(value: Any) -> str:
  return 'inf' if value == hp.FLOAT32_MAX else str(value)


def _shown(side: str, known: Mapping) -> str:
  """Returns the flags of one side of a conflict, with their values in this run."""
  names = [_parts(setting)[0] for setting in side.split(' & ')]
  return ' and '.join(f'--{name}={_text(known[name])}' for name in names)
