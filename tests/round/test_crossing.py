"""Values sent: no table of n rows where rows are selected; numbers of bytes."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests import crossing
from tests import tiny
from tests import tiny_sparse
from tff_xc.algorithms import registry as algorithms
from tff_xc.measure import communication
from tff_xc.round import algorithm
from tff_xc.round import process

pytestmark = pytest.mark.usefixtures('in_process')

N = 29  # No other axis has this length.
FEDERATED = [
  n for n, found in algorithms.ALGORITHMS.items() if found.has_clients
]
SELECTING = [n for n in FEDERATED if n != 'fullsoftmax']
DENSE, SPARSE_MODEL = tiny.model(N), tiny_sparse.model(N)
LABELS = [[0, 0, 3, 5], [7, 3]]
SPARSE = [
  [(3, [[0, 1], [2]]), (5, [[]]), (1, [[2]])],
  [(7, [[8, 1, 0]]), (9, [[3]])],
]


@functools.cache
def algorithm_of(name, model, max_features=0):
  entry = algorithms.get(name)
  given = {'client_learning_rate': 0.1}
  if 'negatives' in entry.names:
    given['negatives'] = 4
  made = entry.algorithm(entry.resolve(given, {}), model=model, max_positives=4)
  for table in model.encoder.tables:
    made = algorithm.own_rows(made, table, max_features)
  return made


@functools.cache
def build_process(name, model, max_features=0):
  return process.build_process(algorithm_of(name, model, max_features), 3)


@pytest.mark.parametrize('name', SELECTING)
def test_nothing_of_n_rows_crosses_where_rows_are_selected(name):
  """Reads the computation that runs, not its source."""
  for model, features in ((DENSE, 0), (SPARSE_MODEL, 5)):
    found = crossing.of(build_process(name, model, features).next)
    forbidden = (N, tiny_sparse.NUM_FEATURES) if features else (N,)
    crossed = [
      *found.broadcasts.values(),
      *(t for pair in found.aggregates.values() for t in pair),
    ]
    for type_spec in crossed:
      for tensor in crossing.tensors(type_spec):
        # Also not flattened.
        assert not any(
          d and d % n == 0 for d in tensor.shape for n in forbidden
        )
    assert len(found.selects) == 1 + bool(features)
    for _, keys, row in found.selects.values():
      assert len(crossing.tensors(row)) == 1  # A row of a table, and no more.
      assert tuple(row.shape) in ((tiny.DIM,), (tiny_sparse.DIM,), (6,))
      assert keys.dtype == np.int32
      assert keys.shape[0] in (8, 4, 5)  # Static: positives plus negatives.


def test_the_reading_sees_a_whole_table():
  """The test above can fail: this computation broadcasts all n rows."""
  found = crossing.of(build_process('fullsoftmax', DENSE).next)
  shapes = [
    tuple(tensor.shape)
    for type_spec in found.broadcasts.values()
    for tensor in crossing.tensors(type_spec)
  ]
  assert (N, tiny.DIM) in shapes
  assert not found.selects


@pytest.mark.parametrize(
  ('name', 'max_features'),
  [(n, None) for n in FEDERATED]
  + [(n, 5) for n in ('fedss', 'fullsoftmax', 'fedaws_baseline2')]
  + [
    pytest.param(n, 0, marks=pytest.mark.slow)
    for n in ('fedss', 'fullsoftmax', 'fedaws_baseline2')
  ],
)  # fmt: skip
def test_the_bytes_are_those_that_a_round_fed_and_folded(
  name, max_features, monkeypatch
):
  dense = max_features is None
  model = DENSE if dense else SPARSE_MODEL
  learning = build_process(name, model, max_features or 0)
  cohort = tiny.cohort(LABELS) if dense else tiny_sparse.cohort(SPARSE)
  state = learning.initialize()
  crossed = crossing.run(learning.next, state, cohort, monkeypatch)
  metrics = crossed['metrics']

  messages = communication.messages(
    algorithm_of(name, model, max_features or 0)
  )
  of = lambda which: {
    table: float(metrics[f'{table}_rows{which}']) for table in messages.tables
  }
  columns = messages.of_round(of(''), of('_largest'))
  size = lambda arrays: sum(a.nbytes for a in arrays)
  # Tensors and one weight are counted; the seed and other scalars are not.
  tensors = lambda arrays: [a for a in arrays if a.ndim]
  seeds = [a for a in crossed['broadcast'] if a.dtype == np.int32]
  assert [a.shape for a in seeds] == [(2,)]
  down = (
    size(crossed['broadcast'])
    - size(seeds)
    + np.mean(
      [size(client) for client in zip(*crossed['selected'], strict=True)] or [0]
    )
  )
  asked = [size(client) for client in zip(*crossed['ids'], strict=True)]
  sent = [size(tensors(folded)) for folded in crossed['folded']]
  up = np.mean(asked or [0]) + np.mean(sent) + tf.float32.size
  assert columns['bytes_down_per_client'] == pytest.approx(down)
  assert columns['bytes_up_per_client'] == pytest.approx(up)


def test_baseline_2_sends_no_rows():
  found = crossing.of(build_process('fedaws_baseline2', DENSE).next)
  for value, _ in found.aggregates.values():
    for tensor in crossing.tensors(value):
      assert tuple(tensor.shape) != (None, tiny.DIM)
