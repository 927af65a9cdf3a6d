"""The algorithms by name. Builders, and TensorFlow, are imported when used."""

import dataclasses
import importlib
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

from tff_xc import errors
from tff_xc.algorithms import hyperparameters as hp

_FEDERATED = hp.LOCAL_TRAINING + hp.SERVER
_SAMPLED = _FEDERATED + hp.SAMPLED_ROWS
_POSITIVE = (*_FEDERATED, 'client_weighting', 'hinge_margin')
_MEAN = {'server_momentum': 0.0}
_OWN = 'own classes'
_OWN_SOFTMAX = 'softmax over own classes'
_HINGE = 'hinge of the positive cosine'
_ADDED = 'deltas added by class'
_REPLACED = 'rows replaced, or moved by the mean (--row_update)'
_STEP = 'optimizer step'


class Answers(NamedTuple):
  """An algorithm's answers to the four questions of a round, as text.

  Attributes:
    request: the class rows that a client receives.
    minimise: the loss that it minimises on them.
    merge: how the server merges the clients' row updates.
    server: what the server does last.
  """

  request: str
  minimise: str
  merge: str
  server: str


@dataclasses.dataclass(frozen=True)
class Algorithm:
  """An algorithm's entry in the registry.

  Attributes:
    builder: 'module:function' of its builder, below `tff_xc.algorithms`.
    hyperparameters: the names that it takes.
    summary: one line for users.
    paper: its source.
    answers: to the four questions.
    cohort: 'uniform' (clients drawn uniformly) or 'pooled' (one virtual client
      with IID minibatches of all data).
    selects_rows: whether a client holds selected class rows instead of all.
    sends_rows: whether a client sends class rows back.
    defaults: values of hyper-parameters that replace the general defaults.
  """

  builder: str
  hyperparameters: tuple[str, ...]
  summary: str
  paper: str
  answers: Answers
  cohort: str = 'uniform'
  selects_rows: bool = True
  sends_rows: bool = True
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

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
    'FedSS',
    Answers('own classes, m negatives', 'sampled softmax', _ADDED, _STEP),
  ),
  'negonly': Algorithm(
    'fedss:build_negonly',
    (*_SAMPLED, 'negatives', 'correction', 'equal_negatives'),
    "FedSS's NegOnly: softmax over the target and the sampled negatives",
    'FedSS',
    Answers(
      'own classes, m negatives',
      'softmax of the target and the negatives',
      _ADDED,
      _STEP,
    ),
  ),
  'posonly': Algorithm(
    'fedss:build_posonly',
    _SAMPLED,
    "FedSS's PosOnly: softmax over the client's own classes",
    'FedSS',
    Answers(_OWN, _OWN_SOFTMAX, _ADDED, _STEP),
  ),
  'fullsoftmax': Algorithm(
    'fedss:build_fullsoftmax',
    _FEDERATED,
    'softmax over all classes: FedAvg with a server optimizer',
    'FedSS',
    Answers('all classes', 'softmax', 'mean delta of the table', _STEP),
    selects_rows=False,
  ),
  'fedaws': Algorithm(
    'fedaws:build_fedaws',
    (
      *_POSITIVE,
      'row_update',
      'spreadout_weight',
      'spreadout_learning_rate',
      'k',
      'distance',
      'spreadout_margin',
      'spreadout_classes',
    ),
    'clients with only positive labels; the server spreads classes apart',
    'FedAwS',
    Answers(_OWN, _HINGE, _REPLACED, 'spreadout, then unit rows'),
    defaults=_MEAN,
  ),
  'fedaws_baseline1': Algorithm(
    'fedaws:build_baseline1',
    (*_POSITIVE, 'row_update'),
    "FedAwS's Baseline-1: no spreadout, so that classes collapse",
    'FedAwS',
    Answers(_OWN, _HINGE, _REPLACED, 'unit rows'),
    defaults=_MEAN,
  ),
  'fedaws_baseline2': Algorithm(
    'fedaws:build_baseline2',
    _POSITIVE,
    "FedAwS's Baseline-2: class rows keep their initial values",
    'FedAwS',
    Answers(_OWN, _HINGE, 'no rows are sent', 'rows keep their values'),
    sends_rows=False,
    defaults=_MEAN,
  ),
  'fedaws_posonly': Algorithm(
    'fedaws:build_fedaws_posonly',
    (*_SAMPLED, 'spreadout_weight', 'k', 'distance'),
    "FedAwS in FedSS's comparison: PosOnly, then spreadout on all rows",
    'FedSS',
    Answers(
      _OWN, _OWN_SOFTMAX, _ADDED, 'optimizer step, spreadout on all rows'
    ),
    defaults={'spreadout_weight': 0.01},
  ),
  'centralized': Algorithm(
    'fedss:build_centralized',
    ('client_learning_rate', 'batch_size', 'steps_per_round', *hp.SERVER),
    'softmax on IID minibatches of all data, without clients (the oracle)',
    'both',
    Answers('all classes, no clients', 'softmax', 'nothing', _STEP),
    cohort='pooled',
    selects_rows=False,
    defaults=_MEAN,
  ),
}


def get(name: str) -> Algorithm:
  """Returns the algorithm; raises `errors.InputError` for an unknown name."""
  if name not in ALGORITHMS:
    raise errors.InputError(
      f'unknown algorithm {name!r}: choose one of ' + ', '.join(ALGORITHMS)
    )
  return ALGORITHMS[name]
