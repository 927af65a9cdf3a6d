"""MOON beside NumPy, and what its clients keep."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import registered
from tests import sameness
from tests import tiny
from tests.algorithms import numpy_fedavg
from tests.algorithms import test_fedavg
from tff_xc import errors
from tff_xc.algorithms import contrast
from tff_xc.algorithms import fedavg
from tff_xc.round import algorithm
from tff_xc.round import examples
from tff_xc.round import local_training
from tff_xc.round import losses
from tff_xc.round import process
from tff_xc.round import request

pytestmark = pytest.mark.usefixtures('tff_worker')

COHORTS = test_fedavg.COHORTS
MOON = {
  'local_training': test_fedavg.FULL_BATCH,
  'contrastive_weight': 2.0,
  'contrastive_temperature': 0.5,
}


def test_three_rounds_equal_the_numpy_reference():
  learning = tiny.process('moon', **MOON)
  made = fedavg.MOON.made(model=tiny.model(), **MOON)
  clients = registered.Clients(made.client_state)
  state = learning.initialize()
  weights, previous = tiny.as_numpy(state.weights), {}
  for cohort in COHORTS:
    trained = {
      int(c.client_id): numpy_fedavg.train_client(
        weights,
        c.x,
        c.y,
        rate=0.1,
        epochs=2,
        scale=4.0,
        previous=previous.get(int(c.client_id)),
        contrastive_weight=2.0,
        temperature=0.5,
      )[0]
      for c in cohort
    }
    weights = numpy_fedavg.mean(
      list(trained.values()), [len(c.y) for c in cohort]
    )
    previous |= trained
    output = learning.next(state, clients.attach(cohort))
    state = output.state
    clients.take(output.metrics)
  for client, (kernel, bias, _) in previous.items():
    mine = clients.kept[client]['encoder']
    np.testing.assert_allclose(mine['kernel'], kernel, atol=2e-5)
    np.testing.assert_allclose(mine['bias'], bias, atol=2e-5)
  found = tiny.as_numpy(learning.get_model_weights(state))
  for a, b in zip(found, weights, strict=True):
    np.testing.assert_allclose(a, b, atol=2e-5)
  plain = tiny.weights_after(
    tiny.process('fedavg', local_training=test_fedavg.FULL_BATCH),
    3,
    COHORTS.__getitem__,
  )
  assert not np.allclose(weights[0], plain.encoder['kernel'], atol=1e-3)


def test_without_weight_it_is_fedavg():
  made = fedavg.MOON.made(model=tiny.model(), contrastive_weight=0.0)
  assert made.client_state is None
  assert made.loss == fedavg.FedAvg.made(model=tiny.model()).loss


PUBLISHED = {
  'moon_published': True,
  'client_learning_rate': 0.1,
  'batch_size': 2,
}
STORED = local_training.LocalTraining(0.1, 2, shuffle=False)


def test_the_published_form_is_fedavg_without_shuffling():
  published = fedavg.MOON.made(model=tiny.model(), **PUBLISHED)
  assert published.local_training == STORED
  plain = lambda training: fedavg.FedAvg.made(
    model=tiny.model(), local_training=training
  )
  assert sameness.same(published, plain(STORED))
  shuffled = dataclasses.replace(STORED, shuffle=True)
  assert not sameness.same(published, plain(shuffled))


@pytest.mark.parametrize('given', [{'local_epochs': 2}, {'local_steps': 3}])
def test_the_published_form_has_one_epoch(given):
  with pytest.raises(ValueError, match='one local epoch'):
    fedavg.MOON(moon_published=True, **given)
  # On every task.
  values = fedavg.MOON.resolve({'moon_published': True}, given)
  training = fedavg.MOON(**values).local_training()
  assert (training.epochs, training.steps) == (1, 0)


@pytest.mark.parametrize(
  'given',
  [
    {'moon_published': True, 'contrastive_weight': 0.5},
    {'moon_published': True, 'contrastive_temperature': 0.1},
    {'moon_published': True, 'shuffle': True},
    {'moon_published': True, 'local_epochs': 2},
    {'moon_published': True, 'local_steps': 3},
    {'contrastive_weight': 0.0, 'contrastive_temperature': 0.3},
  ],
)
def test_what_has_no_effect_is_refused(given):
  with pytest.raises(errors.InputError, match=[*given][1]):
    fedavg.MOON.resolve(given, {})


def test_a_client_that_is_new_has_no_contrast():
  class Loss:
    def __call__(self, step):
      return tf.constant([1.0, 2.0])

  loss = contrast.Contrastive(Loss(), tiny.model(), 3.0, 0.5)
  model = tiny.model().init(tf.constant([0, 1]))
  spec = contrast.LastModel(None)
  kept = spec.next((), (), model)
  assert 'class' not in kept['tables']
  step = lambda known: losses.LocalStep(
    *[()] * 3,
    embeddings=tf.constant([[1.0, 0, 0], [0, 1.0, 0]]),
    x=tf.ones([2, 5]),
    seed=tf.constant([0, 0]),
    weights=model,
    initial_weights=model,
    state=examples.KeptState(tf.constant(known), kept),
  )
  np.testing.assert_allclose(loss(step(False)), [1, 2])
  # Both models are equal, so the term is log 2.
  expected = np.array([1, 2]) + 3 * np.log(2)
  np.testing.assert_allclose(loss(step(True)), expected, rtol=1e-6)


def test_the_previous_model_has_its_own_batch_statistics():
  model = tiny.model_with_statistics()
  received = model.init(tf.constant([0, 1]))
  kept = contrast.LastModel(None).next((), (), received)
  kept['encoder_state'] = {'mean': tf.constant([3.0, 0, 0, -1, 0])}
  x, kernel = np.eye(2, 5), received.encoder['kernel'].numpy()
  unit = lambda e: e / np.linalg.norm(e, axis=1, keepdims=True)
  now = unit(x @ kernel)
  to_previous = (now * unit((x - [3, 0, 0, -1, 0]) @ kernel)).sum(1)
  step = losses.LocalStep(
    *[()] * 3,
    embeddings=tf.constant(x @ kernel, tf.float32),
    x=tf.constant(x, tf.float32),
    seed=tf.constant([0, 0]),
    initial_weights=received,
    state=examples.KeptState(tf.constant(True), kept),
  )
  loss = contrast.Contrastive(lambda step: tf.zeros([2]), model, 1.0, 0.5)
  expected = np.log(1 + np.exp((to_previous - 1) / 0.5))
  np.testing.assert_allclose(loss(step), expected, rtol=1e-5)


def keeping_a_part_and_all():
  """Returns MOON of which the bias alone is trained and kept, or all is kept."""
  made = fedavg.MOON.made(
    model=tiny.model(), trainable='bottleneck', batch_size=2
  )
  assert [*made.client_state.spec['encoder']] == ['bias']
  whole = dataclasses.replace(
    made,
    client_state=contrast.contrastive(
      fedavg.FedAvg.made(model=tiny.model()), 1.0, 0.5
    ).client_state,
  )
  assert [*whole.client_state.spec['encoder']] == ['kernel', 'bias']
  return made, whole


def test_a_client_keeps_only_what_it_trains():
  made, whole = keeping_a_part_and_all()
  received = tiny.model().init(tf.constant([0, 1]))
  bias = received.encoder['bias'] + [2.0, 0.0, -1.0]
  trained = received._replace(encoder={**received.encoder, 'bias': bias})
  x = tf.eye(2, 5)
  loss = contrast.Contrastive(
    lambda step: tf.zeros([2]), tiny.model(), 1.0, 0.5
  )
  of = lambda one: loss(
    losses.LocalStep(
      *[()] * 3,
      embeddings=x @ received.encoder['kernel'],
      x=x,
      seed=tf.constant([0, 0]),
      initial_weights=received,
      state=examples.KeptState(
        tf.constant(True), one.client_state.next((), (), trained)
      ),
    )
  )
  np.testing.assert_array_equal(of(made), of(whole))
  assert np.abs(of(made) - np.log(2)).min() > 1e-2


@pytest.mark.slow  # The test before has the loss, in which they could differ.
def test_rounds_are_the_same_if_a_client_keeps_what_it_does_not_train():
  found = []
  for one in keeping_a_part_and_all():
    learning = process.build_process(one, 0)
    clients = registered.Clients(one.client_state)
    state = learning.initialize()
    for cohort in (COHORTS[0], COHORTS[0]):
      output = learning.next(state, clients.attach(cohort))
      state = output.state
      clients.take(output.metrics)
    found.append(learning.get_model_weights(state))
  tiny.assert_same_weights(*found, 0)


def test_rows_of_an_encoder_that_are_selected_are_refused():
  from tests import tiny_sparse

  made = fedavg.FedAvg.made(model=tiny_sparse.model(12))
  [_, table] = made.tables
  assert contrast.contrastive(made, 1.0, 0.5).client_state is not None
  selects = algorithm.own_rows(made, table.name, 3)
  assert isinstance(selects.tables[1].request, request.OwnAndSampled)
  with pytest.raises(ValueError, match='hold only some rows'):
    contrast.contrastive(selects, 1.0, 0.5)
  twice = contrast.contrastive(made, 1.0, 0.5)
  with pytest.raises(errors.InputError, match='another state'):
    contrast.contrastive(twice, 1.0, 0.5)
