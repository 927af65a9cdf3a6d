"""A whole learning process whose server updates only requested rows."""

import numpy as np
import pytest

from tests import tiny
from tff_xc.round import optimizers

pytestmark = pytest.mark.usefixtures('tff_worker')

COHORTS = (
  tiny.cohort([[0, 0, 3, 5], [7, 3], [11, 11, 11]], seed=1),
  tiny.cohort([[1, 2, 2], [3, 4, 5, 9, 9]], seed=2),
  tiny.cohort([[]]),
  tiny.cohort([[10], [0, 1, 2, 3], [6, 6]], seed=3),
)


MOMENTUM = optimizers.build_sgd(1.0, 0.9), optimizers.RowMomentum(1.0, 0.9)


def momentum(full=False):
  """Returns two processes with equal results: one updates all rows, one only requested rows."""
  name, own = ('fullsoftmax', {}) if full else ('fedss', {'max_positives': 4, 'negatives': 2})
  return [tiny.process(name, table_optimizer=optimizer, **own) for optimizer in MOMENTUM]


@pytest.mark.slow
@pytest.mark.parametrize('full', [False, True])
def test_momentum_on_requested_rows_is_momentum_on_all(full):
  dense, of_rows = momentum(full)
  expected = tiny.weights_after(dense, 4, COHORTS.__getitem__)
  state, _ = tiny.run(of_rows, 4, COHORTS.__getitem__)
  weights = of_rows.get_model_weights(state)
  tiny.assert_same_weights(weights, expected, 1e-5)
  behind = np.any(state.weights.class_table != weights.class_table, axis=1)
  assert np.any(behind) != full
  # One of the four rounds had no client.
  assert state.server.tables['class'].optimizer['step'] == 3


@pytest.mark.slow
def test_weights_that_are_set_keep_the_velocity_and_nothing_else():
  after = []
  for process in momentum():
    state, _ = tiny.run(process, 2, COHORTS.__getitem__)
    # Weights that are got and set again change nothing.
    weights = process.get_model_weights(state)
    again = process.set_model_weights(state, weights)
    tiny.assert_same_weights(process.get_model_weights(again), weights, 0)
    tiny.assert_same_weights(again.weights, weights, 0)
    a, b = (process.next(s, COHORTS[3]).state for s in (state, again))
    tiny.assert_same_weights(process.get_model_weights(a), process.get_model_weights(b), 1e-6)
    fresh = process.initialize().weights
    state = process.set_model_weights(state, fresh)
    tiny.assert_same_weights(process.get_model_weights(state), fresh, 0)
    state = process.next(state, COHORTS[3]).state
    after.append(process.get_model_weights(state))
  tiny.assert_same_weights(*after, 1e-5)
