"""Properties of the rounds of all algorithms, and options that can be combined."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import registered, tiny
from tests.round import test_robust
from tff_xc import errors
from tff_xc.algorithms import base, fedss, registry
from tff_xc.round import local_training

pytestmark = pytest.mark.usefixtures('in_process_context')

COHORT = tiny.cohort([[0, 0, 3, 5], [7, 3], [11, 11, 11]], seed=1)
BROKEN = COHORT[0]._replace(x=np.full_like(COHORT[0].x, np.nan))


GIVEN = {
  'trainable': 'head',
  'importance_weights': 'train',
  'weight_decay': 0.1,
  'robust_aggregation': 'zeroing+clipping',
}
# In these combinations, only the class table trains, the table has other rows, or clients send
# more.
REFUSED = {
  'fedaws_baseline2': {'trainable': 'nothing would be trained'},
  'fedmlh': {'importance_weights': 'hashes several classes'},
  'scaffold': {'robust_aggregation': 'variates'},
  'fednova': {'robust_aggregation': 'numbers of steps'},
  'fedbabu': {'trainable': 'leaves nothing'},
  'fedrep': {'trainable': 'leaves nothing'},
  'fedproto': {'trainable': 'nobody trains', 'robust_aggregation': 'numbers of examples'},
}


@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_every_algorithm_takes_each_option_or_says_why_not(name):
  given = dict(GIVEN)
  if name == 'moon':
    given['trainable'] = 'bottleneck'
  found = registry.get(name)
  assert not found.has_clients or {*base.Federated.names} <= {*found.names}
  for option, message in REFUSED.get(name, {}).items():
    with pytest.raises(errors.InputError, match=message):
      registered.algorithm(name, **{option: given.pop(option)})
  made = registered.algorithm(name, **given)
  assert made.local_training.weight_decay == 0.1
  frozen = any('kernel' in weight for weight in made.frozen)
  assert frozen == ('trainable' in given)
  weighted = made.part('importance') is not None
  takes = 'importance_weights' in found.names
  assert weighted == (takes and 'importance_weights' in given)
  assert bool(made.part('bounds')) == (made.has_clients and 'robust_aggregation' in given)


def test_the_terms_change_the_objective():
  made = registered.algorithm('fedss', prox_mu=1.0)
  [penalty] = made.penalties
  assert penalty.weight == 0.5
  assert not registered.algorithm('fedss').penalties
  assert registered.algorithm('fedprox').penalties[0].weight == 0.01
  # The penalty is applied once, even if the algorithm's function also accepts it.
  assert len(registered.algorithm('fedprox', prox_mu=1.0).penalties) == 1


def test_numbers_that_are_not_finite_are_replaced_if_asked():
  descent = local_training.LocalTraining(replace_nonfinite=True).optimizer(0.1)
  gradients = tf.constant([1.0, np.nan, np.inf, -np.inf])
  _, moved = descent.next((), tf.ones([4]), gradients)
  np.testing.assert_allclose(moved, [0, 1e-5, 1e-5, 1e-5])
  made = registered.algorithm('fedavg', replace_nonfinite=True)
  state = test_robust.first_state(made)
  update, _ = test_robust.Sent(made).of(state, BROKEN)
  assert update.measured['dropped'] == 0
  kernel = state.weights.encoder['kernel'] + update.encoder_delta['kernel']
  np.testing.assert_allclose(kernel, 1e-5, rtol=1e-2)


def test_arguments_of_a_builder_that_do_not_fit_are_named():
  model = tiny.model(29)
  with pytest.raises(TypeError, match='prox_mu'):
    fedss.build_fedss(model=model, max_positives=4, prox_mue=0.1)
  with pytest.raises(TypeError, match='model'):
    fedss.build_fedss()
  with pytest.raises(TypeError, match='flip_labels'):
    fedss.build_fedss(model=model, max_positives=4, attack='flip_labels', num_clients=9)
  with pytest.raises(errors.InputError, match='one label'):
    fedss.build_fedss(model=dataclasses.replace(model, label_sets=True), max_positives=4)
  # The default number of negatives decreases to the number of other classes.
  made = fedss.FedSS.made(model=model, max_positives=4)
  assert made.tables[0].request.negatives == 28
  p = np.arange(29) + 1.0
  made = registry.get('fedir').made(model=model, class_probabilities=p)
  np.testing.assert_allclose(made.part('importance').beside, p / p.sum(), rtol=1e-6)
  with pytest.raises(TypeError, match='importance_weights'):
    registry.get('fedir').made(model=model, class_probabilities=p, importance_weights='uniform')
  with pytest.raises(TypeError, match='calibration'):
    registry.get('centralized').made(model=model, class_probabilities=p)
