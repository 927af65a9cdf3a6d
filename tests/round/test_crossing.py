"""If clients select rows, no table of n rows is sent. The numbers of bytes are correct."""

import numpy as np
import pytest
import tensorflow as tf

from tests import crossing, registered, tiny, tiny_sparse
from tff_xc.measure import communication
from tff_xc.round import examples

pytestmark = pytest.mark.usefixtures('in_process')

N, FEDERATED = registered.N, registered.FEDERATED
SELECTING = [n for n in FEDERATED if registered.algorithm(n).tables[0].request.selects]
# In a round, the algorithms of FedAvg's family differ only in the server's optimizer.
ALIKE = ('fedavg', 'fedavgm', 'fedadam', 'fedams', 'fedprox', 'fedvc', 'fedir')
# Client states are not sent.
REMEMBERING = [n for n in FEDERATED if registered.algorithm(n).client_state and n != 'scaffold']
# With selected features, FedSS also selects class rows. The tests of other algorithms are slow.
QUICK = ('fullsoftmax',)
FROZEN_AND_WEIGHTED = {'trainable': 'bottleneck', 'importance_weights': 'train'}
LABELS = [[0, 0, 3, 5], [7, 3]]
SPARSE = [[(3, [[0, 1], [2]]), (5, [[]]), (1, [[2]])], [(7, [[8, 1, 0]]), (9, [[3]])]]


def _selecting():
  """Yields all algorithms that select rows, also with selected features. Most of them are slow."""
  for name in SELECTING:
    for features, quick in ((0, QUICK), (5, ('fedss',))):
      marks = [] if name in quick else [pytest.mark.slow]
      yield pytest.param(name, features, marks=marks)


@pytest.mark.parametrize(('name', 'features'), _selecting())
def test_nothing_of_n_rows_crosses_where_rows_are_selected(name, features):
  """Reads the compiled computation instead of its source."""
  model = registered.SPARSE if features else registered.DENSE
  found = crossing.of(registered.process(name, model, features).next)
  forbidden = (N, tiny_sparse.NUM_FEATURES) if features else (N,)
  crossed = [*found.broadcasts.values(), *(t for pair in found.aggregates.values() for t in pair)]
  for type_spec in crossed:
    for tensor in crossing.tensors(type_spec):
      # A flattened table is not allowed either.
      assert not any(d and d % n == 0 for d in tensor.shape for n in forbidden)
  assert len(found.selects) == 1 + bool(features)
  for _, keys, row in found.selects.values():
    assert len(crossing.tensors(row)) == 1  # A slice is one row of a table.
    # The row of a prototype has one more number.
    widths = tiny.DIM, tiny_sparse.DIM, tiny_sparse.DIM + 1, 6
    assert tuple(row.shape) in [(width,) for width in widths]
    assert keys.dtype == np.int32
    assert keys.shape[0] in (8, 4, 5)  # The number of keys is static: positives plus negatives.


def test_the_reading_sees_a_whole_table():
  """Shows that the test above can fail: this computation broadcasts all n rows."""
  found = crossing.of(registered.process('fullsoftmax').next)
  shapes = [
    tuple(tensor.shape)
    for type_spec in found.broadcasts.values()
    for tensor in crossing.tensors(type_spec)
  ]
  assert (N, tiny.DIM) in shapes
  assert not found.selects


def _cases():
  """Yields (algorithm, feature rows that a client requests, hyperparameters).

  0 feature rows means that the client requests all rows. None means that examples are dense.
  """
  slow = pytest.mark.slow
  for name in FEDERATED:
    if name not in (*ALIKE, *REMEMBERING):
      yield pytest.param(name, None, {}, marks=() if name in QUICK else slow)
  yield 'fedss', 5, {}
  for name, features, given in (
    ('fedss', None, FROZEN_AND_WEIGHTED),
    ('fedss', 5, {'robust_aggregation': 'median'}),
    ('fullsoftmax', None, {'robust_aggregation': 'trimmed_mean'}),
    ('fullsoftmax', 5, {}),
    ('fedaws_baseline2', 5, {}),
    ('fedss', 0, {}),
    ('fullsoftmax', 0, {}),
    ('fedaws_baseline2', 0, {}),
    ('fullsoftmax', None, {'trainable': 'head', 'importance_weights': 'train'}),
    ('fedss', 5, {'trainable': 'head'}),
    ('fullsoftmax', 5, {'trainable': 'bottleneck'}),
    ('turbosvm', None, {'trainable': 'head'}),
    ('fedaws', None, {'trainable': 'head'}),
  ):
    yield pytest.param(name, features, given, marks=slow)


@pytest.mark.parametrize(('name', 'max_features', 'given'), _cases())
def test_the_bytes_are_those_that_a_round_fed_and_folded(name, max_features, given, monkeypatch):
  dense = max_features is None
  model = registered.DENSE if dense else registered.SPARSE
  made = name, model, max_features or 0
  learning = registered.process(*made, **given)
  cohort = tiny.cohort(LABELS) if dense else tiny_sparse.cohort(SPARSE)
  keeper = registered.algorithm(*made, **given).client_state
  cohort = registered.Clients(keeper).attach(cohort)
  state = learning.initialize()
  crossed = crossing.run(learning.next, state, cohort, monkeypatch)
  metrics = crossed['metrics']

  messages = communication.messages(registered.algorithm(*made, **given))

  def of(which):
    return {table: float(metrics[f'{table}_rows{which}']) for table in messages.tables}

  columns = messages.of_round(of(''), of('_largest'))

  def size(arrays):
    return sum(a.nbytes for a in arrays)

  # Count tensors and one weight, but not the seed and other scalars.
  def tensors(arrays):
    return [a for a in arrays if a.ndim]

  seeds = [a for a in crossed['broadcast'] if a.dtype == np.int32]
  assert [a.shape for a in seeds] == [(5,)]
  down = (
    size(crossed['broadcast'])
    - size(seeds)
    + np.mean([size(client) for client in zip(*crossed['selected'], strict=True)] or [0])
  )
  asked = [size(client) for client in zip(*crossed['ids'], strict=True)]
  sent = [size(tensors(folded)) for folded in crossed['folded']]
  up = np.mean(asked or [0]) + np.mean(sent) + tf.float32.size
  if keeper:
    # A simulation collects the clients' states and ids, which clients would not send.
    nothing = tf.nest.flatten(examples.nothing_kept(keeper.spec).value)
    up -= size(nothing) + np.dtype(np.int64).itemsize
  assert columns['bytes_down_per_client'] == pytest.approx(down)
  assert columns['bytes_up_per_client'] == pytest.approx(up)


def test_nothing_of_n_rows_crosses_with_probabilities():
  found = crossing.of(registered.process('fedss', **FROZEN_AND_WEIGHTED).next)
  for type_spec in found.broadcasts.values():
    for tensor in crossing.tensors(type_spec):
      assert N not in tensor.shape
  [(_, _, element)] = found.selects.values()
  shapes = [tuple(tensor.shape) for tensor in crossing.tensors(element)]
  assert shapes == [(tiny.DIM,), ()]  # A row, and the probability of its class.


def test_algorithms_that_send_the_same_have_the_same_bytes():
  def of(name):
    return communication.messages(registered.algorithm(name))

  for name in (*ALIKE, *REMEMBERING):
    # FedIR also sends p if it is not uniform. With FedRep, rows stay at clients.
    if name not in ('fedir', 'fedrep'):
      assert of(name) == of('fullsoftmax')
  assert of('fedrep') == of('fedbabu')
  # SCAFFOLD sends a control variate too, but the weight, a float, only once.
  rows = {'class': N}
  plain, twice = (of(name).of_round(rows, rows) for name in ('fedavg', 'scaffold'))
  assert twice['bytes_down_per_client'] == 2 * plain['bytes_down_per_client']
  assert twice['bytes_up_per_client'] == 2 * plain['bytes_up_per_client'] - 4
