"""Every registered algorithm on a tiny model, for tests that go through them."""

import functools

import numpy as np

from tests import tiny
from tests import tiny_sparse
from tff_xc.algorithms import registry
from tff_xc.round import algorithm as algorithm_lib
from tff_xc.round import process as process_lib

N = 29  # No other axis has this length.
DENSE, SPARSE = tiny.model(N), tiny_sparse.model(N)
FEDERATED = [
  name for name, found in registry.ALGORITHMS.items() if found.has_clients
]


@functools.cache
def algorithm(name: str, model=DENSE, max_features: int = 0, **given):
  """Returns an algorithm with few negatives and small batches.

  Args:
    name: of the algorithm.
    model: `DENSE` or `SPARSE`.
    max_features: the rows of the feature table that a client requests; 0: all.
    **given: other hyper-parameters, used if the algorithm has them.
  """
  entry = registry.get(name)
  given = {
    'client_learning_rate': 0.1,
    'batch_size': 2,
    'negatives': 4,
    **given,
  }
  given = {k: v for k, v in given.items() if k in entry.names}
  made = entry.made(
    model=model,
    max_positives=4,
    class_probabilities=np.arange(model.num_classes),
    **given,
  )
  for table in model.encoder.tables:
    made = algorithm_lib.own_rows(made, table, max_features)
  return made


@functools.lru_cache(maxsize=32)
def process(name: str, model=DENSE, max_features: int = 0, **given):
  """Returns the process of `algorithm`, built once for all tests."""
  made = algorithm(name, model, max_features, **given)
  return process_lib.build_process(made, 5)
