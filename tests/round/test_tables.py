"""A feature table whose rows are requested gives the same values as a table sent whole."""

import dataclasses
import functools

import pytest
import tensorflow_federated as tff

from tests import tiny, tiny_sparse
from tff_xc.round import algorithm, local_training, losses, optimizers, process, request, tables

N = 12
# Clients are lists of (label, feature lists). One example has no features.
COHORTS = (
  [[(3, [[0, 1], [2]]), (5, [[]])], [(7, [[8, 1, 0]])]],
  [[(1, [[4, 5, 6, 7]])], [(3, [[0], [1]]), (2, [[3]])], [(0, [[8]])]],
  [[(6, [[1, 2], [1, 8]])], [(3, [[]])]],
)
ADAGRAD = tff.learning.optimizers.build_adagrad(0.1)
MOMENTUM = optimizers.RowMomentum(1.0, 0.9)
pytestmark = pytest.mark.usefixtures('in_process')


def cohort_of(round_number):
  return tiny_sparse.cohort(COHORTS[round_number])


@functools.cache
def build(max_features, feature_optimizer=None, encoder_optimizer=None):
  made = algorithm.Algorithm(
    tiny_sparse.model(N),
    (tables.Table('class', request.OwnAndSampled(N, 3, 2)),),
    losses.HeldSoftmax(N),
    local_training=local_training.LocalTraining(0.5, 2, 2),
    encoder_optimizer=encoder_optimizer or optimizers.build_sgd(1.0),
  )
  made = algorithm.own_rows(made, 'feature', max_features, feature_optimizer)
  return process.build_process(made, seed=4)


@pytest.mark.slow
@pytest.mark.parametrize(
  'feature_optimizer',
  [
    pytest.param(optimizers.RowMomentum(2.0), marks=pytest.mark.slow),
    MOMENTUM,
    pytest.param(optimizers.Dense(optimizers.TorchAdam(0.01)), marks=pytest.mark.slow),
  ],
)
@pytest.mark.parametrize('max_features', [5, pytest.param(9, marks=pytest.mark.slow)])
def test_selected_rows_train_as_all_rows_do(feature_optimizer, max_features):
  tiny.assert_same_weights(
    trained(max_features, feature_optimizer), trained(0, feature_optimizer), 1e-5
  )


@functools.cache
def trained(max_features, feature_optimizer):
  learning = build(max_features, feature_optimizer, ADAGRAD)
  return tiny.weights_after(learning, 3, cohort_of)


def test_a_table_that_the_encoder_lacks_is_refused():
  table = tables.Table('class', request.AllRows(N))
  made = algorithm.Algorithm(tiny_sparse.model(N), (table,), losses.HeldSoftmax(N))
  assert [t.name for t in made.tables] == ['class', 'feature']
  with pytest.raises(ValueError, match='pixel'):
    algorithm.own_rows(made, 'pixel', 3)
  for wrong in ((), (tables.Table('feature', request.AllRows(9)), table)):
    with pytest.raises(ValueError, match='class'):
      dataclasses.replace(made, tables=wrong)
  with pytest.raises(ValueError, match='name repeats'):
    dataclasses.replace(made, tables=(table, table))
  with pytest.raises(ValueError, match='unknown weighting'):
    dataclasses.replace(made, weighting='by age')


def test_tables_have_the_order_of_the_encoder():
  """The algorithm's tables may be in another order. A round uses the encoder's order."""
  model = tiny_sparse.model(N)
  two = dict.fromkeys('ab', model.encoder.tables['feature'])
  model = dataclasses.replace(model, encoder=dataclasses.replace(model.encoder, tables=two))
  given = (
    tables.Table('class', request.AllRows(N)),
    tables.Table('b', request.OwnAndSampled(9, 3)),
  )
  made = algorithm.Algorithm(model, given, losses.HeldSoftmax(N))
  assert [t.name for t in made.tables] == ['class', 'a', 'b']
  assert made.tables[2] == given[1]
  with pytest.raises(ValueError, match='no table'):
    made.with_table(tables.Table('c', request.AllRows(9)))
