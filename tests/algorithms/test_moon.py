"""MOON compared with NumPy, and the states of its clients."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests import sameness, tiny, tiny_sparse
from tests.algorithms import numpy_fedavg, test_fedavg
from tff_xc import errors
from tff_xc.algorithms import base, fedavg
from tff_xc.options import contrastive
from tff_xc.round import algorithm, examples, local_training, losses, parts, request

pytestmark = pytest.mark.usefixtures('tff_worker')

COHORTS = test_fedavg.COHORTS
MOON = {
  'local_training': test_fedavg.FULL_BATCH,
  'contrastive_weight': 2.0,
  'contrastive_temperature': 0.5,
}


def test_three_rounds_equal_the_numpy_reference():
  made = fedavg.MOON.made(model=tiny.model(), **MOON)
  weights, models, kept = test_fedavg.check_three_rounds(
    tiny.process('moon', **MOON),
    numpy_fedavg.Server('sgd', 1.0),
    client_state=made.client_state,
    contrastive_weight=2.0,
    temperature=0.5,
  )
  assert set(kept) == set(models)
  for client, (kernel, bias, _) in models.items():
    mine = kept[client]['encoder']
    np.testing.assert_allclose(mine['kernel'], kernel, atol=2e-5)
    np.testing.assert_allclose(mine['bias'], bias, atol=2e-5)
  assert not np.allclose(weights[0], test_fedavg.plain_kernel(), atol=1e-3)


PUBLISHED = {'moon_published': True, 'client_learning_rate': 0.1, 'batch_size': 2}
STORED = local_training.LocalTraining(0.1, 2, shuffle=False)


def test_the_published_form_and_no_weight_are_fedavg():
  published = fedavg.MOON.made(model=tiny.model(), **PUBLISHED)
  assert published.local_training == STORED

  def plain(training):
    return fedavg.FedAvg.made(model=tiny.model(), local_training=training)

  assert sameness.same(published, plain(STORED))
  shuffled = dataclasses.replace(STORED, shuffle=True)
  assert not sameness.same(published, plain(shuffled))
  without = fedavg.MOON.made(model=tiny.model(), contrastive_weight=0.0)
  assert sameness.same(without, fedavg.FedAvg.made(model=tiny.model()))


@pytest.mark.parametrize('given', [{'local_epochs': 2}, {'local_steps': 3}])
def test_the_published_form_has_one_epoch(given):
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


TERM = contrastive.MoonTerm(contrastive_weight=1.0)


def terms(model, received, kept, x, embeddings, known=True, each=(0.0, 0.0)):
  """Returns the losses `each` plus MOON's contrast, with weight 3, of two examples."""
  step = losses.LocalStep(
    *[()] * 3,
    embeddings=tf.constant(embeddings, tf.float32),
    x=tf.constant(x, tf.float32),
    seed=tf.constant([0, 0]),
    initial_weights=received,
    state=examples.KeptState(tf.constant(known), kept),
  )
  loss = contrastive.Contrastive(lambda step: tf.constant(each), model, 3.0, 0.5)
  return loss(step).numpy()


def _kept(part, after):
  """Returns the state of a client whose training ended with these weights."""
  return part.on_client(parts.Local(*[()] * 3, after, *[()] * 5)).kept


def test_a_client_that_is_new_has_no_contrast():
  model = tiny.model()
  received = model.init(tf.constant([0, 1]))
  kept = _kept(contrastive.LastModel(None), received)
  assert 'class' not in kept['tables']

  def of(known):
    return terms(model, received, kept, np.ones([2, 5]), np.eye(2, 3), known, (1.0, 2.0))

  np.testing.assert_allclose(of(False), [1, 2])
  # Both models are equal, so MOON's term is log 2.
  np.testing.assert_allclose(of(True), [1, 2] + 3 * np.log(2), rtol=1e-6)


def test_the_previous_model_has_its_own_batch_statistics():
  model = tiny.model_with_statistics()
  received = model.init(tf.constant([0, 1]))
  kept = _kept(contrastive.LastModel(None), received)
  kept['encoder_state'] = {'mean': tf.constant([3.0, 0, 0, -1, 0])}
  x, kernel = np.eye(2, 5), received.encoder['kernel'].numpy()

  def unit(e):
    return e / np.linalg.norm(e, axis=1, keepdims=True)

  now = unit(x @ kernel)
  to_previous = (now * unit((x - [3, 0, 0, -1, 0]) @ kernel)).sum(1)
  expected = 3 * np.log(1 + np.exp((to_previous - 1) / 0.5))
  found = terms(model, received, kept, x, x @ kernel)
  np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_client_keeps_only_what_it_trains():
  model = tiny.model()
  made = fedavg.MOON.made(model=model, trainable='bottleneck', batch_size=2)
  whole = TERM.added(fedavg.FedAvg.made(model=model), base.Facts())
  assert [*made.client_state.spec['encoder']] == ['bias']
  assert [*whole.client_state.spec['encoder']] == ['kernel', 'bias']
  received = model.init(tf.constant([0, 1]))
  bias = received.encoder['bias'] + [2.0, 0.0, -1.0]
  trained = received._replace(encoder={**received.encoder, 'bias': bias})
  x = np.eye(2, 5)

  def of(one):
    return terms(
      model, received, _kept(one.client_state, trained), x, x @ received.encoder['kernel'].numpy()
    )

  np.testing.assert_array_equal(of(made), of(whole))
  assert np.abs(of(made) - 3 * np.log(2)).min() > 1e-2


def test_rows_of_an_encoder_that_are_selected_are_refused():
  made = fedavg.FedAvg.made(model=tiny_sparse.model(12))
  [_, table] = made.tables
  assert TERM.added(made, base.Facts()).client_state is not None
  selects = algorithm.own_rows(made, table.name, 3)
  assert isinstance(selects.tables[1].request, request.OwnAndSampled)
  with pytest.raises(ValueError, match='hold only some rows'):
    TERM.added(selects, base.Facts())
  twice = TERM.added(made, base.Facts())
  with pytest.raises(errors.InputError, match='another state'):
    TERM.added(twice, base.Facts())
