"""The algorithms by name. Free of TensorFlow: a builder is imported when used."""

import dataclasses
import importlib
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from datasets import errors
from tff_xc.algorithms import hyperparameters as hp

_FEDERATED = hp.LOCAL_TRAINING + hp.SERVER
_SAMPLED = _FEDERATED + hp.SAMPLED_ROWS
_POSITIVE = (*_FEDERATED, 'client_weighting', 'hinge_margin')
_MEAN = {'server_momentum': 0.0}


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
    sends_rows: whether it sends rows back.
    defaults: hyper-parameters' defaults that differ from the general ones.
  """

  builder: str
  hyperparameters: tuple[str, ...]
  summary: str
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
  ),
  'negonly': Algorithm(
    'fedss:build_negonly',
    (*_SAMPLED, 'negatives', 'correction', 'equal_negatives'),
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
    'only positive labels on clients; the server drives classes apart',
    defaults=_MEAN,
  ),
  'fedaws_baseline1': Algorithm(
    'fedaws:build_baseline1',
    (*_POSITIVE, 'row_update'),
    "FedAwS's Baseline-1: no spreadout, which collapses",
    defaults=_MEAN,
  ),
  'fedaws_baseline2': Algorithm(
    'fedaws:build_baseline2',
    _POSITIVE,
    "FedAwS's Baseline-2: class rows stay as they were drawn",
    sends_rows=False,
    defaults=_MEAN,
  ),
  'fedaws_posonly': Algorithm(
    'fedaws:build_fedaws_posonly',
    (*_SAMPLED, 'spreadout_weight', 'k', 'distance'),
    "FedAwS in FedSS's comparison: PosOnly, then spreadout on all rows",
    defaults={'spreadout_weight': 0.01},
  ),
  'centralized': Algorithm(
    'fedss:build_centralized',
    ('client_learning_rate', 'batch_size', 'steps_per_round', *hp.SERVER),
    'softmax on IID minibatches of all data, without clients (the oracle)',
    cohort='pooled',
    selects_rows=False,
    defaults=_MEAN,
  ),
}


def get(name: str) -> Algorithm:
  """Returns the algorithm; `errors.InputError` names the known ones."""
  if name not in ALGORITHMS:
    raise errors.InputError(
      f'unknown algorithm {name!r}: choose one of ' + ', '.join(ALGORITHMS)
    )
  return ALGORITHMS[name]
