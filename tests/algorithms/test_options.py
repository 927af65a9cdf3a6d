"""What holds in the rounds of every algorithm, and options that compose."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import registered, tiny
from tff_xc import errors
from tff_xc.algorithms import base, fedss, registry
from tff_xc.round import cohort, local_training

pytestmark = pytest.mark.usefixtures('in_process_context')

AMSGRAD = {'server_optimizer': 'amsgrad', 'server_learning_rate': 0.05}
COHORT = tiny.cohort([[0, 0, 3, 5], [7, 3], [11, 11, 11]], seed=1)
BROKEN = COHORT[0]._replace(x=np.full_like(COHORT[0].x, np.nan))


# `test_same_as_worker` has options together that are quick.
@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'given'),
  [
    ('fedss', {'contrastive_weight': 1.0, **AMSGRAD}),
    ('fedaws', {'server_optimizer': 'adam', 'prox_mu': 0.2}),
    ('fedaws_softmax', {'server_optimizer': 'adam', 'contrastive_weight': 1.0}),
    ('turbosvm', {**AMSGRAD, 'prox_mu': 0.02}),
    # `test_process` has Adam on requested rows.
    ('posonly', {**AMSGRAD, 'server_adam_rows': 'requested'}),
    ('moon', {'prox_mu': 0.02, 'server_momentum': 0.9}),
    ('fedavgm', {'importance_weights': 'train', 'trainable': 'bottleneck'}),
  ],
)
def test_a_combination_trains(name, given):
  given |= {'client_learning_rate': 0.5, 'local_epochs': 2}
  made = registered.algorithm(name, **given)
  process = registered.process(name, **given)
  found = registered.run(process, [COHORT] * 6, made.client_state)
  assert not any(m['clients_dropped'] for m in found.metrics)
  losses = [float(m['loss']) for m in found.metrics]
  assert np.isfinite(losses).all()
  # With MOON's term only from the second round on.
  assert losses[-1] < losses[1 if found.kept else 0]


GIVEN = {
  'trainable': 'head',
  'importance_weights': 'train',
  'weight_decay': 0.1,
  'robust_aggregation': 'zeroing+clipping',
}
# Here nothing is trained but the class table, it has other rows, or clients send more.
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
  if not made.has_clients:
    return
  drawn = cohort.virtual_clients(made, 2, 6)
  assert drawn.weighting == 'uniform'


@pytest.mark.slow
@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_every_algorithm_trains_with_the_options(name):
  given = dict(GIVEN)
  if name == 'moon':
    given['trainable'] = 'bottleneck'
  for option in REFUSED.get(name, {}):
    del given[option]
  process = registered.process(name, **given)
  keeps = registered.algorithm(name, **given).client_state
  found = registered.run(process, [COHORT] * 2, keeps)
  for metrics in found.metrics:
    assert np.isfinite(float(metrics['loss']))
    assert metrics['clients_dropped'] == 0
  before, after = map(process.get_model_weights, found[:2])
  [kernel, *_] = [weight for weight in before.encoder if 'kernel' in weight]
  kept = np.array_equal(after.encoder[kernel], before.encoder[kernel])
  assert kept == ('trainable' in given)


def test_the_terms_change_the_objective():
  made = registered.algorithm('fedss', prox_mu=1.0)
  [penalty] = made.penalties
  assert penalty.weight == 0.5
  assert not registered.algorithm('fedss').penalties
  assert registered.algorithm('fedprox').penalties[0].weight == 0.01
  # Applied once, also where the algorithm's function takes it.
  assert len(registered.algorithm('fedprox', prox_mu=1.0).penalties) == 1


def test_numbers_that_are_not_finite_are_replaced_if_asked():
  descent = local_training.LocalTraining(replace_nonfinite=True).optimizer(0.1)
  gradients = tf.constant([1.0, np.nan, np.inf, -np.inf])
  _, moved = descent.next((), tf.ones([4]), gradients)
  np.testing.assert_allclose(moved, [0, 1e-5, 1e-5, 1e-5])
  process = registered.process('fedavg', replace_nonfinite=True)
  output = process.next(process.initialize(), [BROKEN])
  assert output.metrics['clients_dropped'] == 0
  weights = process.get_model_weights(output.state)
  np.testing.assert_allclose(weights.encoder['kernel'], 1e-5, rtol=1e-2)


def test_without_shuffling_examples_come_in_their_order():
  training = local_training.LocalTraining(0.1, 2, shuffle=False)
  batches = [
    training.batch(training.order(tf.constant([0, 1]), step, tf.range(5)), step).numpy().tolist()
    for step in range(4)
  ]
  assert batches == [[0, 1], [2, 3], [4], [0, 1]]


def test_a_client_whose_update_is_not_finite_is_dropped_and_counted():
  process = tiny.process('fedss', max_positives=4, negatives=3)
  a, metrics = tiny.run(process, 1, lambda _: [BROKEN, *COHORT[1:]])
  b, _ = tiny.run(process, 1, lambda _: COHORT[1:])
  assert metrics['clients_dropped'] == 1
  assert np.isfinite(metrics['loss'])
  tiny.assert_same_weights(a.weights, b.weights, 1e-6)


@pytest.mark.parametrize(
  ('name', 'own'), [('fedss', {'max_positives': 4, 'negatives': 3}), ('fullsoftmax', {})]
)
def test_a_round_with_nobody_left_keeps_the_state(name, own):
  process = tiny.process(name, **own)
  state = tiny.run(process, 1, lambda _: COHORT)[0]
  nobody = tiny.cohort([[]])
  broken = [c._replace(x=np.full_like(c.x, np.inf)) for c in COHORT]
  for clients in (nobody, broken):
    after = process.next(state, clients).state
    tiny.assert_same_weights((after.weights, after.server), (state.weights, state.server), 0)
    assert after.round_number == state.round_number + 1


@pytest.mark.slow
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


def test_arguments_of_a_builder_that_do_not_fit_are_named():
  model = tiny.model(29)
  with pytest.raises(TypeError, match='prox_mu'):
    fedss.build_fedss(model=model, max_positives=4, prox_mue=0.1)
  with pytest.raises(TypeError, match='model'):
    fedss.build_fedss()
  # The default number of negatives is lowered to the classes.
  made = fedss.FedSS.made(model=model, max_positives=4)
  assert made.tables[0].request.negatives == 28
  p = np.arange(29) + 1.0
  made = registry.get('fedir').made(model=model, class_probabilities=p)
  np.testing.assert_allclose(made.part('importance').beside, p / p.sum(), rtol=1e-6)
  with pytest.raises(TypeError, match='importance_weights'):
    registry.get('fedir').made(model=model, class_probabilities=p, importance_weights='uniform')
