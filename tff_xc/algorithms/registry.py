"""The algorithms by name. Free of TensorFlow: a builder is imported when used."""

import dataclasses
import importlib
from collections.abc import Callable

from datasets import errors
from tff_xc.algorithms import hyperparameters as hp

_FEDERATED = hp.LOCAL_TRAINING + hp.SERVER
_SAMPLED = _FEDERATED + hp.SAMPLED_ROWS


@dataclasses.dataclass(frozen=True)
class Algorithm:
  """An algorithm's line in the registry.

  Attributes:
    builder: 'module:function' of its builder, below `tff_xc.algorithms`.
    hyperparameters: the names that it takes.
    summary: one line for `--help`.
    cohort: 'uniform' (clients drawn uniformly) or 'pooled' (one virtual client
      with IID minibatches of all data).
    selects_rows: whether a client holds a selection of the class rows, or all.
  """

  builder: str
  hyperparameters: tuple[str, ...]
  summary: str
  cohort: str = 'uniform'
  selects_rows: bool = True

  def load_builder(self) -> Callable:
    """Imports and returns the builder."""
    module, function = self.builder.split(':')
    return getattr(
      importlib.import_module(f'tff_xc.algorithms.{module}'), function
    )


ALGORITHMS = {
  'fedss': Algorithm(
    'fedss:build_fedss',
    (*_SAMPLED, 'negatives', 'correction'),
    'federated sampled softmax: own classes and m sampled negatives',
  ),
  'negonly': Algorithm(
    'fedss:build_negonly',
    (*_SAMPLED, 'negatives', 'correction'),
    "FedSS's NegOnly: the target against the sampled negatives",
  ),
  'posonly': Algorithm(
    'fedss:build_posonly',
    _SAMPLED,
    "FedSS's PosOnly: softmax over the client's own classes",
  ),
  'fullsoftmax': Algorithm(
    'fedss:build_fullsoftmax',
    _FEDERATED,
    'softmax over all classes: FedAvg with a server optimizer',
    selects_rows=False,
  ),
  'centralized': Algorithm(
    'fedss:build_centralized',
    ('client_learning_rate', 'batch_size', 'steps_per_round'),
    'SGD on IID minibatches of all data, without clients',
    cohort='pooled',
    selects_rows=False,
  ),
}


def get(name: str) -> Algorithm:
  """Returns the algorithm; `errors.InputError` names the known ones."""
  if name not in ALGORITHMS:
    raise errors.InputError(
      f'unknown algorithm {name!r}: choose one of ' + ', '.join(ALGORITHMS)
    )
  return ALGORITHMS[name]
