"""Frozen weights keep their values, and are not sent, averaged or optimized."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf

from tests import registered, tiny, tiny_sparse
from tff_xc import errors
from tff_xc.algorithms import fedavg
from tff_xc.encoders import bag, conv, encoder as encoder_lib, leaf, mlp, mobilenet, resnet
from tff_xc.round import frozen, local_training, losses, process as process_lib

pytestmark = pytest.mark.usefixtures('in_process')

COHORT = tiny.cohort([[0, 0, 3, 5], [7, 3], [11, 11, 11]], seed=1)
SPARSE = tiny_sparse.cohort([[(3, [[0, 1], [2]])], [(7, [[8, 1]]), (9, [[3]])]])
ENCODERS = {
  'conv': conv.build_conv_encoder,
  'resnet': resnet.build_resnet_encoder,
  'femnist': leaf.build_femnist_encoder,
  'shakespeare': leaf.build_shakespeare_encoder,
  'bag': lambda: bag.build_bag_encoder(num_features=5),
  'mlp': lambda: mlp.build_mlp_encoder(5, 3),
  'mlps': lambda: encoder_lib.side_by_side(mlp.build_mlp_encoder(5, 3), 2),
  'mobilenet': functools.partial(mobilenet.build, mobilenet.V3_LARGE),
  'copies': lambda: encoder_lib.side_by_side(conv.build_conv_encoder(), 2),
}


@pytest.mark.parametrize('name', ENCODERS)
def test_encoders_name_weights_of_their_last_layer(name):
  encoder = ENCODERS[name]()
  names = tf.nest.map_structure(str, dict(encoder.init(tf.constant([0, 1]))))
  assert set(encoder.last_layer) < set(names)
  # The embedding depends on these weights.
  assert any('kernel' in weight for weight in encoder.last_layer)


@pytest.mark.slow
@pytest.mark.parametrize('part', ['head', 'bottleneck'])
def test_what_is_frozen_is_in_the_weights_and_in_no_optimizers_state(part):
  given = {'trainable': part, 'server_optimizer': 'adam'}
  learning = registered.process('fedss', **given)
  state = learning.initialize()
  before = learning.get_model_weights(state)
  after = tiny.run(learning, 2, lambda _: COHORT)[0]
  weights = learning.get_model_weights(after)
  assert list(weights.encoder) == ['kernel', 'bias']
  for name, value in weights.encoder.items():
    moves = name == 'bias' and part == 'bottleneck'
    assert np.array_equal(value, before.encoder[name]) != moves
    assert (name in after.server.encoder['sum']) == moves
  assert not np.allclose(weights.class_table, before.class_table)
  # The initial weights are the same as without frozen weights.
  plain = registered.process('fedss').initialize().weights
  tiny.assert_same_weights(before, plain, 1e-6)


@pytest.mark.parametrize(
  ('name', 'given', 'trained', 'message'),
  [
    ('fedss', {'trainable': 'head', 'server_optimizer': 'adam'}, 'tables', r'kernel.* differs'),
    ('fedbabu', {}, 'encoder', r'class.* differs'),
  ],
)
def test_other_values_of_frozen_weights_cannot_be_set(name, given, trained, message):
  learning = registered.process(name, **given)
  state = learning.initialize()
  weights = learning.get_model_weights(state)
  other = tf.nest.map_structure(lambda t: 2 * np.asarray(t), weights)
  moved = weights._replace(**{trained: getattr(other, trained)})
  found = learning.set_model_weights(state, moved).weights
  tiny.assert_same_weights(found, moved, 0)
  with pytest.raises(Exception, match=message):
    learning.set_model_weights(state, other)


@pytest.mark.slow
def test_frozen_statistics_are_those_of_test_time_in_training_too():
  made = frozen.train_only(fedavg.FedAvg.made(model=tiny.model_with_statistics()), 'head')
  made = dataclasses.replace(made, local_training=local_training.LocalTraining(1e-9, 64))
  learning = process_lib.build_process(made)
  state, metrics = tiny.run(learning, 2, lambda _: COHORT)
  np.testing.assert_array_equal(state.weights.encoder_state['mean'], 0)
  # With the initial mean 0, an embedding is x A.
  kernel, table = state.weights.encoder['kernel'], state.weights.class_table
  each = []
  for client in COHORT:
    step = losses.LocalStep(
      made.model.head.logits(client.x @ np.asarray(kernel), table, None),
      client.labels,
      made.tables[0].request.held_rows(client.labels, None),
      (),
    )
    each += list(made.loss(step).numpy())
  np.testing.assert_allclose(metrics['loss'], np.mean(each), rtol=1e-4)


def test_what_cannot_be_frozen_is_refused():
  made = registered.algorithm('fedss', registered.SPARSE, 0, trainable='head')
  with pytest.raises(errors.InputError, match='feature'):
    process_lib.build_process(made)  # All clients would receive the table.
  with pytest.raises(ValueError, match='KeepRows'):
    dataclasses.replace(registered.algorithm('fedavg'), frozen=frozenset({'class'}))
  baseline = registered.algorithm('fedaws_baseline2')
  assert baseline.frozen == {'class'}
  with pytest.raises(errors.InputError, match='nothing would be trained'):
    frozen.train_only(baseline, 'head')
  model = dataclasses.replace(tiny.model(), encoder=leaf.build_celeba_encoder(side=16))
  with pytest.raises(errors.InputError, match='names no last layer'):
    frozen.train_only(fedavg.FedAvg.made(model=model), 'bottleneck')
