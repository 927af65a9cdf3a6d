"""An algorithm as people name it, and how TFF's users build it.

Importing this does not import TensorFlow; its functions do.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any
from typing import NamedTuple

from tff_xc import errors
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import options
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc.round import algorithm as algorithm_lib


# What some algorithms need of a task (`Entry.needs`).
ONE_LABEL = 'examples with one label each'
COSINES = 'cosine logits'


class Answers(NamedTuple):
  """An algorithm's answers to the four questions of a round, as text.

  Attributes:
    request: the class rows that a client receives.
    minimise: the loss that it minimises on them.
    merge: how the server merges the clients' rows.
    server: what the server does last.
  """

  request: str
  minimise: str
  merge: str
  server: str


@dataclasses.dataclass(frozen=True)
class Entry:
  """An algorithm as people name it.

  Attributes:
    name: for `--algorithm`.
    function: returns the `tff_xc.round.algorithm.Algorithm`. Its arguments are
      `model`, `local_training`, hyper-parameters, and facts of the clients such
      as `max_positives`.
    summary: one line for users.
    paper: its source.
    answers: to the four questions.
    hyperparameters: those that it takes, in order.
    defaults: values that replace the general defaults.
    own: likewise, and the defaults of no task replace them: what the name says.
    warn: (values, num_classes, max_positives) -> sentences, for allowed
      settings that are likely to fail.
    needs: `ONE_LABEL`, `COSINES`, both or nothing.
  """

  name: str
  function: Callable[..., algorithm_lib.Algorithm]
  summary: str
  paper: str
  answers: Answers
  hyperparameters: tuple[hp.Hyperparameter, ...]
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  warn: Callable[..., list[str]] = lambda *_: []
  own: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  needs: tuple[str, ...] = ()

  @property
  def names(self) -> tuple[str, ...]:
    """The names of its hyper-parameters."""
    return tuple(h.name for h in self.hyperparameters)

  @property
  def has_clients(self) -> bool:
    """Whether there are clients, of which some take part in a round."""
    return 'clients_per_round' in self.names

  def resolve(self, given: Mapping, task_defaults: Mapping) -> dict[str, Any]:
    """Returns the values of its hyper-parameters, see `hp.resolve`."""
    if given.get('local_steps') and 'local_epochs' in given:
      raise errors.InputError(
        '--local_epochs does not apply with --local_steps; give one of them'
      )
    if 'local_epochs' in given and 'local_steps' not in given:
      # Not the task's steps, but these epochs.
      task_defaults = {**task_defaults, 'local_steps': 0}
    values = hp.resolve(
      self.hyperparameters,
      given,
      task_defaults,
      self.name,
      {**self.defaults, **self.own},
    )
    for name in ('local_steps', 'steps_per_round'):
      steps, size = values.get(name, 0), values['batch_size']
      if steps * size > hp.INT32_MAX:
        raise errors.InputError(
          f'--{name}={steps} and --batch_size={size}: expected a product of at'
          f' most {hp.INT32_MAX} examples in a round; lower one of them'
        )
    if self.own.get('virtual_clients') and not values['virtual_clients']:
      raise errors.InputError(
        f'--virtual_clients=0 leaves nothing of {self.name}; give a number above 0,'
        ' or --algorithm=fedavg'
      )
    options.check(values, given)
    return values

  def algorithm(
    self, values: Mapping, *, model, **facts
  ) -> algorithm_lib.Algorithm:
    """Returns the algorithm with resolved hyper-parameters.

    Args:
      values: from `resolve`.
      model: the embedding classifier.
      **facts: of the clients: `max_positives`, the largest number of class rows
        that a client's labels name; `class_probabilities`, see
        `options.with_terms`.
    """
    arguments = {
      'model': model,
      'local_training': settings.local_training(values),
    }
    arguments |= {**facts, **values}
    taken = inspect.signature(self.function).parameters
    made = self.function(**{k: v for k, v in arguments.items() if k in taken})
    left = {k: v for k, v in values.items() if k not in taken}
    return settings.with_server(
      options.with_terms(made, {**facts, **left}), values
    )


def builder(function: Callable[..., algorithm_lib.Algorithm]) -> Callable:
  """Returns `build_<algorithm>`, for people who come from TFF.

  It takes the function's arguments, `seed`, `table_optimizer` (the server's, of
  class rows) and any attribute of `Algorithm`, such as `model_aggregator` or
  `encoder_optimizer`. It returns a `tff.learning.templates.LearningProcess`
  (see `tff_xc.round.process.build_process`).

  Args:
    function: returns an algorithm.
  """

  def build(*, seed: int = 0, table_optimizer=None, **arguments):
    from tff_xc.round import process

    own = inspect.signature(function).parameters
    made = function(**{k: v for k, v in arguments.items() if k in own})
    made = dataclasses.replace(
      made, **{k: v for k, v in arguments.items() if k not in own}
    )
    if table_optimizer is not None:
      made = made.with_table(
        dataclasses.replace(made.tables[0], optimizer=table_optimizer)
      )
    return process.build_process(made, seed)

  build.__name__ = f'build_{function.__name__}'
  build.__doc__ = (
    f'Builds the learning process of `{function.__name__}`.\n\n'
    '  Its arguments are those of the function, and those of'
    ' `entry.builder`.\n  '
  )
  return build
