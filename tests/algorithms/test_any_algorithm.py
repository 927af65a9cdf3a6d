"""What holds in the rounds of every algorithm, on FedSS and full softmax."""

import collections

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import tiny

pytestmark = pytest.mark.usefixtures('tff_worker')

COHORT = tiny.cohort([[0, 0, 3, 5], [7, 3], [11, 11, 11]], seed=1)


def test_a_client_whose_update_is_not_finite_is_dropped_and_counted():
  broken = COHORT[0]._replace(x=np.full_like(COHORT[0].x, np.nan))
  process = tiny.process('fedss', max_positives=4, negatives=3)
  a, metrics = tiny.run(process, 1, lambda _: [broken, *COHORT[1:]])
  b, _ = tiny.run(process, 1, lambda _: COHORT[1:])
  assert metrics['clients_dropped'] == 1
  assert np.isfinite(metrics['loss'])
  tiny.assert_same_weights(a.weights, b.weights, 1e-6)


@pytest.mark.parametrize(
  ('name', 'own'),
  [('fedss', {'max_positives': 4, 'negatives': 3}), ('fullsoftmax', {})],
)
def test_a_round_with_nobody_left_keeps_the_state(name, own):
  process = tiny.process(name, **own)
  state = tiny.run(process, 1, lambda _: COHORT)[0]
  nobody = tiny.cohort([[]])
  broken = [c._replace(x=np.full_like(c.x, np.inf)) for c in COHORT]
  for cohort in (nobody, broken):
    after = process.next(state, cohort).state
    tiny.assert_same_weights(
      (after.weights, after.server), (state.weights, state.server), 0
    )
    assert after.round_number == state.round_number + 1


def test_any_aggregator_of_the_encoder_plugs_in():
  plain = tiny.process('fullsoftmax')
  clipped, unweighted = (
    tiny.process('fullsoftmax', model_aggregator=factory)
    for factory in (
      tff.aggregators.clipping_factory(1e-12, tff.aggregators.MeanFactory()),
      tff.aggregators.UnweightedMeanFactory(),
    )
  )
  start = clipped.initialize().weights
  end = tiny.run(clipped, 1, lambda _: COHORT)[0].weights
  tiny.assert_same_weights(end.encoder, start.encoder, 1e-6)
  assert not np.allclose(end.class_table, start.class_table)
  mean = tiny.run(unweighted, 1, lambda _: COHORT)[0].weights
  weighted = tiny.run(plain, 1, lambda _: COHORT)[0].weights
  assert not np.allclose(mean.encoder['kernel'], weighted.encoder['kernel'])
  tiny.assert_same_weights(mean.class_table, weighted.class_table, 1e-6)


def test_the_state_is_a_structure_of_named_weights():
  weights = tiny.process('fullsoftmax').initialize().weights
  assert isinstance(weights.encoder, collections.OrderedDict)
  assert list(weights.encoder) == ['kernel', 'bias']
