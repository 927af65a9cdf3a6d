"""The hyper-parameters that algorithms take: name, type, bounds, meaning.

This module does not import TensorFlow, so that a command can check its flags
before any large import. Each name is the builder's argument and the command's
flag.
"""

import dataclasses
import math
from collections.abc import Mapping

from tff_xc import errors

# TensorFlow counts steps, examples and classes in int32; larger numbers wrap.
INT32_MAX = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
  """One hyper-parameter.

  Attributes:
    name: the builder's argument and the flag.
    default: its value if neither user nor task sets it; its type is the
      hyper-parameter's type.
    help: one sentence, with unit or source.
    least: smallest value allowed, or None.
    most: largest value allowed, for numbers.
    above: exclusive lower bound, or None.
    below: exclusive upper bound, or None.
    choices: the allowed values, if there are few.
  """

  name: str
  default: bool | int | float | str
  help: str
  least: float | None = None
  most: float = INT32_MAX
  above: float | None = None
  below: float | None = None
  choices: tuple[str, ...] = ()

  def check(self, value) -> None:
    """Raises `errors.InputError` where `value` is not allowed."""
    if self.choices:
      if value not in self.choices:
        self._refuse(value, 'one of ' + ', '.join(self.choices))
      return
    if isinstance(value, bool | str):
      return
    if not math.isfinite(value):
      self._refuse(value, 'a finite number')
    if self.least is not None and value < self.least:
      self._refuse(value, f'at least {self.least}')
    if value > self.most:
      self._refuse(value, f'at most {self.most}')
    if self.above is not None and value <= self.above:
      self._refuse(value, f'more than {self.above}')
    if self.below is not None and value >= self.below:
      self._refuse(value, f'less than {self.below}')

  def _refuse(self, value, expected: str) -> None:
    raise errors.InputError(
      f'--{self.name}={value}: expected {expected} ({self.help})'
    )


_ALL = (
  Hyperparameter(
    'client_learning_rate', 0.01, "learning rate of a client's SGD", above=0
  ),
  Hyperparameter('batch_size', 32, 'examples in a minibatch', least=1),
  Hyperparameter(
    'local_epochs', 1, "passes over a client's data", least=1, most=1000
  ),
  Hyperparameter(
    'local_steps',
    0,
    'minibatches that a client takes in a round; 0: whole local epochs',
    least=0,
  ),
  Hyperparameter(
    'server_optimizer',
    'sgd',
    "the server's optimizer, on the encoder and, except in FedAwS, on the class"
    ' table',
    choices=('sgd', 'adam', 'adagrad'),
  ),
  Hyperparameter(
    'server_learning_rate', 1.0, "the server's learning rate", above=0
  ),
  Hyperparameter(
    'server_momentum', 0.9, "momentum of the server's SGD", least=0, below=1
  ),
  Hyperparameter(
    'server_beta_1',
    0.9,
    "decay of the mean in the server's Adam",
    least=0,
    below=1,
  ),
  Hyperparameter(
    'server_beta_2',
    0.999,
    "decay of the square in the server's Adam",
    least=0,
    below=1,
  ),
  Hyperparameter(
    'server_epsilon',
    1e-8,
    "epsilon of the server's Adam, added to the root as in PyTorch",
    above=0,
  ),
  Hyperparameter(
    'server_initial_accumulator',
    0.1,
    "initial sum of squares in the server's Adagrad",
    least=0,
  ),
  Hyperparameter(
    'server_adam_rows',
    'all',
    "rows that the server's Adam updates: 'all', or only those requested this"
    " round, 'requested' (lazy Adam: cheaper for many classes, not identical to"
    ' Adam)',
    choices=('all', 'requested'),
  ),
  Hyperparameter(
    'row_renormalise',
    False,
    'average a row over the examples of the clients that hold it, not over'
    ' those of the whole cohort (not in the FedSS paper)',
  ),
  Hyperparameter(
    'negatives', 80, 'm, negatives that a client samples in a round', least=1
  ),
  Hyperparameter(
    'equal_negatives',
    False,
    'NegOnly samples m + |P_k| - 1 negatives, so that each example has as many'
    ' classes besides its target as in FedSS with m (FedSS, fig. 6)',
  ),
  Hyperparameter(
    'correction',
    'negatives',
    'the logits that get the sampled-softmax correction',
    choices=('negatives', 'none'),
  ),
  Hyperparameter(
    'client_weighting',
    'uniform',
    "clients' weights in the encoder's mean: equal, or example counts",
    choices=('uniform', 'examples'),
  ),
  Hyperparameter(
    'row_update',
    'replace',
    "'replace' sets a class's row to the mean of its clients' rows (FedAwS,"
    " Algorithm 1); 'mean' moves it by the cohort's mean delta, like the"
    ' encoder',
    choices=('replace', 'mean'),
  ),
  Hyperparameter(
    'hinge_margin',
    0.9,
    'cosine of an embedding and its class row from which on the loss is 0'
    ' (FedAwS: 0.9)',
    above=0,
    least=0,
  ),
  Hyperparameter(
    'spreadout_weight',
    10.0,
    'lambda, weight of the spreadout step (FedAwS: 10)',
    least=0,
  ),
  Hyperparameter(
    'spreadout_learning_rate',
    0.001,
    'eta of the spreadout step; its size lambda eta must be below 1 / (2 k); 0:'
    ' client_learning_rate',
    least=0,
  ),
  Hyperparameter(
    'k',
    10,
    'number of nearest classes from which the spreadout step separates a class;'
    ' 0: all others',
    least=0,
  ),
  Hyperparameter(
    'distance',
    'sq_euclidean',
    'distance of two class rows in the spreadout step',
    choices=('sq_euclidean', 'cosine'),
  ),
  Hyperparameter(
    'spreadout_margin',
    0.0,
    'nu: if positive, the spreadout step separates all classes nearer than nu'
    ' (eq. 7), not the k nearest (eq. 8)',
    least=0,
  ),
  Hyperparameter(
    'spreadout_classes',
    'round',
    "classes of the spreadout step: those of the round's clients, or all",
    choices=('round', 'all'),
  ),
  Hyperparameter(
    'steps_per_round',
    0,
    'minibatches in a round of centralised training; 0: as many as the average'
    ' client has, ceil(mean n_k / batch_size)',
    least=0,
  ),
)

HYPERPARAMETERS: Mapping[str, Hyperparameter] = {h.name: h for h in _ALL}

LOCAL_TRAINING = (
  'client_learning_rate',
  'batch_size',
  'local_epochs',
  'local_steps',
)
SERVER = (
  'server_optimizer',
  'server_learning_rate',
  'server_momentum',
  'server_beta_1',
  'server_beta_2',
  'server_epsilon',
  'server_initial_accumulator',
)
SAMPLED_ROWS = ('server_adam_rows', 'row_renormalise')

# The server optimizer that a hyper-parameter needs, and default learning rates.
_ONLY_WITH = {
  'server_momentum': 'sgd',
  'server_beta_1': 'adam',
  'server_beta_2': 'adam',
  'server_epsilon': 'adam',
  'server_initial_accumulator': 'adagrad',
  'server_adam_rows': 'adam',
}
_SERVER_LEARNING_RATES = {'sgd': 1.0, 'adam': 1e-3, 'adagrad': 1e-2}


def resolve(
  taken: tuple[str, ...],
  given: Mapping,
  task_defaults: Mapping,
  who: str,
  own_defaults: Mapping | None = None,
) -> dict:
  """Returns the value of every hyper-parameter that applies.

  Args:
    taken: names that the algorithm takes.
    given: the user's values, by name.
    task_defaults: the task's defaults. Those that the algorithm does not take
      are ignored. Server settings apply only with the task's server optimizer.
    who: the algorithm's name, for messages.
    own_defaults: the algorithm's own defaults.

  Raises:
    errors.InputError: for a name not taken, or a value not allowed.
  """
  for name in given:
    if name not in taken:
      raise errors.InputError(
        f'--{name} is not a hyper-parameter of {who}, which takes: '
        + ', '.join(f'--{n}' for n in taken)
      )
  values = {n: HYPERPARAMETERS[n].default for n in taken} | (own_defaults or {})
  optimizer = given.get(
    'server_optimizer', task_defaults.get('server_optimizer', 'sgd')
  )
  if 'server_learning_rate' in values and optimizer in _SERVER_LEARNING_RATES:
    values['server_learning_rate'] = _SERVER_LEARNING_RATES[optimizer]
  other_optimizer = optimizer != task_defaults.get('server_optimizer', 'sgd')
  for name, value in task_defaults.items():
    if name in values and not (other_optimizer and name in SERVER):
      values[name] = value
  if 'local_epochs' in given and 'local_steps' in values:
    values['local_steps'] = 0  # Not the task's steps, but these epochs.
  values.update(given)
  if given.get('local_steps') and 'local_epochs' in given:
    raise errors.InputError(
      '--local_epochs does not apply with --local_steps; give one of them'
    )
  for name, value in values.items():
    HYPERPARAMETERS[name].check(value)
  _check_examples(values)
  if 'k' in given and values.get('spreadout_margin'):
    raise errors.InputError(
      f'--k only applies with --spreadout_margin=0, and it is'
      f' {values["spreadout_margin"]:g} here: eq. (7) takes all other classes'
    )
  for name, needed in _ONLY_WITH.items():
    if name in given and optimizer != needed:
      raise errors.InputError(
        f'--{name} only applies with --server_optimizer={needed}, and it is'
        f' {optimizer} here'
      )
    if optimizer != needed:
      values.pop(name, None)
  return values


def check_negatives(negatives: int, num_classes: int) -> None:
  """Raises `errors.InputError` unless there are more classes than negatives."""
  if negatives >= num_classes:
    raise errors.InputError(
      f'--negatives={negatives}: expected fewer than the {num_classes}'
      ' classes; use --algorithm=fullsoftmax to train on all of them'
    )


def _check_examples(values: Mapping) -> None:
  """Raises `errors.InputError` if a round has more than INT32_MAX examples."""
  for name in ('local_steps', 'steps_per_round'):
    steps, size = values.get(name, 0), values['batch_size']
    if steps * size > INT32_MAX:
      raise errors.InputError(
        f'--{name}={steps} and --batch_size={size}: expected a product of at'
        f' most {INT32_MAX} examples in a round; lower one of them'
      )
