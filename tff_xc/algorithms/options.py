"""Options that any algorithm with clients takes, and how they are applied.

Importing this does not import TensorFlow; its functions do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tff_xc import errors
from tff_xc.algorithms import hyperparameters as hp

if TYPE_CHECKING:
  from tff_xc.round import algorithm as algorithm_lib

# FedVC; see `tff_xc.experiment.cohort`.
VIRTUAL_CLIENTS = (
  hp.Hyperparameter(
    'virtual_clients',
    0,
    'N_VC, examples that every client draws for a round (FedVC): clients are then'
    ' drawn in proportion to their examples, count alike, and take one local epoch,'
    ' N_VC / batch_size steps; 0: clients are drawn uniformly and use their own'
    ' examples',
    least=0,
    most=10_000_000,
  ),
  hp.Hyperparameter(
    'virtual_clients_replace',
    False,
    'draw the clients of a round with replacement, so that one may take part'
    ' twice, with other examples',
    of='virtual_clients',
    not_with=(0,),
  ),
)
# See `tff_xc.experiment.cohort`.
CLIENT_DROPOUT = hp.Hyperparameter(
  'client_dropout',
  0.0,
  'probability that a drawn client leaves the round before it sends anything; the'
  ' round goes on with the others',
  least=0,
  below=1,
)
PROXIMAL_WEIGHT = hp.Hyperparameter(
  'proximal_weight',
  0.0,
  'weight of the squared distance from the weights received (FedProx); no'
  ' factor of 1/2: mu / 2 in the usual convention',
  least=0,
)
CONTRASTIVE_WEIGHT = hp.Hyperparameter(
  'contrastive_weight',
  0.0,
  "mu, weight of MOON's contrastive term, for which each client keeps its last"
  ' model; of sparse text, clients then receive all feature rows',
  least=0,
)
CONTRASTIVE_TEMPERATURE = hp.Hyperparameter(
  'contrastive_temperature',
  0.5,
  "temperature of MOON's contrastive term",
  above=0,
  of='contrastive_weight',
  not_with=(0.0,),
)
NAMED_IMPORTANCE = NO_IMPORTANCE, UNIFORM, OF_TRAIN = 'none', 'uniform', 'train'
IMPORTANCE_WEIGHTS = hp.Hyperparameter(
  'importance_weights',
  NO_IMPORTANCE,
  "FedIR: examples weigh p(y) / q_k(y), where q_k is of the client's classes and p"
  " is 'uniform', that of all training examples ('train'), or in a CSV FILE"
  " class,probability; 'none': all alike",
)
TRAIN = hp.Hyperparameter(
  'train',
  'all',
  "what clients train: 'all'; 'head', the class table; 'bottleneck', the class"
  " table and the encoder's last layer; the rest keeps its initial values and is"
  ' not sent',
  choices=('all', 'head', 'bottleneck'),
)
_BOTH = 'zeroing+clipping'
ROBUST = hp.Hyperparameter(
  'robust',
  'none',
  "bounds on a client's whole update, as tff.learning.robust_aggregator has them:"
  " 'zeroing' of one with a number far above those of others, 'clipping' of its L2"
  ' norm; both bounds follow the clients',
  choices=('none', 'zeroing', 'clipping', _BOTH),
)
_OF_CLIPPING = {'of': 'robust', 'only_with': ('clipping', _BOTH)}
CLIPPING_NORM = hp.Hyperparameter(
  'clipping_norm',
  1.0,
  'L2 norm of an update above which it is clipped in the first round',
  above=0,
  **_OF_CLIPPING,
)
CLIPPING_QUANTILE = hp.Hyperparameter(
  'clipping_quantile',
  0.8,
  "quantile of the clients' norms that the clipping norm follows",
  above=0,
  most=1,
  **_OF_CLIPPING,
)
TERMS = (
  PROXIMAL_WEIGHT,
  CONTRASTIVE_WEIGHT,
  CONTRASTIVE_TEMPERATURE,
  IMPORTANCE_WEIGHTS,
  TRAIN,
  ROBUST,
  CLIPPING_NORM,
  CLIPPING_QUANTILE,
)


def check(values: dict, given: Mapping) -> None:
  """Raises errors.InputError for values that exclude each other.

  Args:
    values: by name; those that do not apply with virtual clients are removed.
    given: the user's values.
  """
  if values.get('contrastive_weight'):
    if values.get('train') == 'head':
      raise errors.InputError(
        '--train=head does not go with the contrastive term (of MOON, or'
        ' --contrastive_weight), which compares embeddings, and these would never'
        ' change; give --train=bottleneck or all'
      )
    if values.get('virtual_clients_replace'):
      raise errors.InputError(
        '--virtual_clients_replace may draw a client twice in a round, and with the'
        ' contrastive term (of MOON, or --contrastive_weight) each client keeps one'
        ' model; leave one of them out'
      )
  examples, size = values.get('virtual_clients', 0), values['batch_size']
  if not examples:
    return
  if examples % size:
    raise errors.InputError(
      f'--virtual_clients={examples} is no multiple of --batch_size={size}; give a'
      ' multiple, since a client takes exactly virtual_clients / batch_size steps'
    )
  for name in ('local_steps', 'local_epochs'):
    if given.get(name):
      raise errors.InputError(
        f'--{name} does not apply with --virtual_clients, whose clients take one'
        ' epoch over the examples that they draw; leave it out'
      )
    values.pop(name, None)
  if given.get('shuffle') is False:
    raise errors.InputError(
      '--shuffle=false does not apply with --virtual_clients, whose examples are'
      ' drawn in random order; leave it out'
    )


def with_terms(
  made: algorithm_lib.Algorithm, values: Mapping
) -> algorithm_lib.Algorithm:
  """Returns the algorithm with those `TERMS` of which values are given.

  Args:
    made: the algorithm.
    values: by name; and `class_probabilities`, FedIR's p, for values of
      --importance_weights other than 'uniform'.
  """
  from tff_xc.algorithms import contrast
  from tff_xc.round import frozen
  from tff_xc.round import importance
  from tff_xc.round import losses

  if weight := values.get('proximal_weight', 0.0):
    made = losses.proximal(made, weight)
  if weight := values.get('contrastive_weight', 0.0):
    made = contrast.contrastive(made, weight, values['contrastive_temperature'])
  target = values.get('importance_weights', NO_IMPORTANCE)
  if target != NO_IMPORTANCE:
    p = None if target == UNIFORM else values['class_probabilities']
    made = importance.importance_weights(made, p)
  made = frozen.train_only(made, values.get('train', 'all'))
  made = _with_bounds(made, values)
  return contrast.keep_trained(made)


def _with_bounds(made, values: Mapping):
  """Returns the algorithm with the chosen bounds on clients' updates."""
  from tff_xc.round import robust

  kinds = values.get('robust', 'none').split('+')
  if kinds == ['none']:
    return made
  zeroing = robust.ZEROING if 'zeroing' in kinds else None
  clipping = None
  if 'clipping' in kinds:
    clipping = dataclasses.replace(
      robust.CLIPPING,
      initial=values['clipping_norm'],
      quantile=values['clipping_quantile'],
    )
  bounds = robust.Robust(zeroing, clipping)
  return dataclasses.replace(made, robust=bounds)
