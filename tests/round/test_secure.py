"""Secure sums of whole updates: their values, and values that are summed without them."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import crossing, tiny, tiny_sparse
from tff_xc import errors
from tff_xc.algorithms import registry
from tff_xc.options import secure_sums
from tff_xc.round import algorithm as algorithm_lib, merge, process as process_lib, request, tables

pytestmark = pytest.mark.usefixtures('in_process')

N = 12
CLIENTS = tiny.cohort([[0, 0, 3, 5], [7, 3, 2], [9, 2]])


def made(name='fullsoftmax', model=None, **given):
  return registry.get(name).made(**{'model': model or tiny.model(N), **tiny.settings(), **given})


def change(algorithm, clients=CLIENTS, seed=7):
  """Returns (the change of the model in a round, the process, metrics)."""
  process = process_lib.build_process(algorithm, seed)
  moved, metrics = changed(process, clients)
  return moved, process, metrics


def changed(process, clients):
  state = process.initialize()
  output = process.next(state, clients)
  before, after = (
    np.concatenate([np.ravel(t) for t in tiny.as_numpy(process.get_model_weights(s))])
    for s in (state, output.state)
  )
  return after - before, output.metrics


def sums(block, secure: bool) -> list:
  """Returns the shapes of all tensors that are summed over clients."""
  found = []
  if isinstance(block, tff.framework.Intrinsic):
    uris = ['federated_secure_sum_bitwidth']
    if not secure:
      uris = ['federated_sum', 'federated_aggregate', 'federated_reduce']
    if block.uri in uris:
      of_values = block.type_signature.parameter
      if isinstance(of_values, tff.StructType):
        of_values = of_values[0]
      found = [tuple(t.shape) for t in crossing.tensors(of_values.member)]
  return found + [s for b in block.children() for s in sums(b, secure)]


def test_the_server_sees_sums_of_encoder_and_rows():
  # Clients with equal numbers of examples have equal weights.
  clients = tiny.cohort([[0, 0, 3], [7, 3, 2], [9, 2, 2]])
  process = tiny.shared_process()
  plain, _ = changed(process, clients)
  assert (N, tiny.DIM) in sums(process.next.to_building_block(), False)
  found, process, metrics = change(made(secure_sums=True), clients, seed=0)
  assert np.abs(plain).max() > 0.01
  np.testing.assert_allclose(found, plain, atol=1e-6)
  body = process.next.to_building_block()
  assert {s for s in sums(body, False) if s} == set()
  secure = sums(body, True)
  for shape in ((N, tiny.DIM), (tiny.FEATURES, tiny.DIM), (tiny.DIM,)):
    assert shape in secure
  clipped = 'aggregator/mean_value/secure_upper_clipped_count'
  assert metrics[clipped] == metrics['clients_rows_clipped'] == 0


@pytest.mark.slow
def test_numbers_are_clipped_to_the_bound():
  bound = 2e-3
  plain, _, _ = change(made(), CLIENTS[:1])
  algorithm = made(secure_sums=True, secure_bound=bound)
  found, _, metrics = change(algorithm, CLIENTS[:1])
  np.testing.assert_allclose(found, np.clip(plain, -bound, bound), atol=1e-6)
  assert np.abs(plain).max() > 2 * bound
  assert metrics['clients_rows_clipped'] == 1


@pytest.mark.slow
@pytest.mark.parametrize('name', ['fedss', 'fullsoftmax'])
def test_tffs_secure_aggregator_joins_the_encoder(name):
  """Rows are summed as without it."""
  given = {'max_positives': 5, 'negatives': 3} if name == 'fedss' else {}
  plain, _, _ = change(made(name, **given))
  secure = tff.learning.secure_aggregator(clipping=False, zeroing=False)
  found, process, _ = change(made(name, **given, model_aggregator=secure))
  np.testing.assert_allclose(found, plain, atol=1e-5)
  body = process.next.to_building_block()
  assert (tiny.FEATURES, tiny.DIM) in sums(body, True)
  assert any(s and s[-1] == tiny.DIM for s in sums(body, False))


@pytest.mark.slow
def test_where_the_encoder_is_frozen_the_table_alone_is_summed():
  given = {'trainable': 'head'}
  plain, _, _ = change(made(**given), CLIENTS[:1])
  found, process, _ = change(made(**given, secure_sums=True), CLIENTS[:1])
  assert np.abs(plain).max() > 0.01
  np.testing.assert_allclose(found, plain, atol=1e-6)
  assert (N, tiny.DIM) in sums(process.next.to_building_block(), True)


@pytest.mark.parametrize(
  'given',
  [
    *({'name': n} for n in ('fedss', 'fedaws', 'turbosvm')),
    {'name': 'fedmlh', 'select_buckets': True},
  ],
)
def test_single_rows_are_refused(given):
  with pytest.raises(errors.InputError, match='secure_sums'):
    made(**given, max_positives=5, secure_sums=True)
  table = tables.Table('class', request.AllRows(N), merge.ReplaceRows())
  with pytest.raises(errors.InputError, match='secure_sums'):
    secure_sums.SecureSums(secure_sums=True).added(made().with_table(table), ())


def test_selected_features_are_refused():
  sparse = made(model=tiny_sparse.model(N), secure_sums=True)
  with pytest.raises(errors.InputError, match='select_features'):
    algorithm_lib.own_rows(sparse, 'feature', 5)
