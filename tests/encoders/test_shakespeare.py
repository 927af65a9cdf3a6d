"""The Shakespeare LSTM of LEAF."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiny
from tests.encoders import test_lstm
from tff_xc import classifier
from tff_xc import heads
from tff_xc.algorithms import fedavg
from tff_xc.encoders import leaf
from tff_xc.round import examples
from tff_xc.round import local_training

RANDOM = np.random.default_rng(0)
SEED = tf.constant([0, 1])


def windows(count: int, length: int) -> np.ndarray:
  return RANDOM.integers(0, 80, [count, length]).astype(np.uint8)


def test_the_embedding_is_the_papers_network_in_numpy():
  encoder = leaf.build_shakespeare_encoder(window=6, hidden_dim=5)
  weights = {k: w.numpy() for k, w in encoder.init(SEED).items()}
  x = windows(3, 6)
  h = weights['characters'][x].transpose(1, 0, 2)
  for layer in ('lstm0', 'lstm1'):
    of = lambda name, layer=layer: weights[f'{layer}/{name}']
    inputs = h @ of('kernel').T + of('bias') + of('recurrent_bias')
    h = test_lstm.hidden_states(inputs, of('recurrent'))
  embeddings, state = encoder.apply(
    weights, {}, tf.constant(x), training=True, seed=None
  )
  np.testing.assert_allclose(embeddings, h[-1], atol=1e-6)
  assert state == {}


def test_with_80_classes_it_has_the_published_number_of_parameters():
  model = classifier.EmbeddingClassifier(
    leaf.build_shakespeare_encoder(), heads.LinearHead(bias=True), 80
  )
  specs = tf.nest.flatten(model.weight_specs())
  assert sum(s.shape.num_elements() for s in specs) == 819_920
  spec = model.encoder.example_spec
  assert (spec.shape, spec.dtype) == ([80], tf.uint8)


def test_the_initial_weights_are_pytorchs():
  weights = leaf.build_shakespeare_encoder().init(SEED)
  characters = weights.pop('characters').numpy()
  assert characters.shape == (80, 8)
  assert np.mean(characters) == pytest.approx(0, abs=0.1)
  assert np.std(characters) == pytest.approx(1, abs=0.1)
  firsts = set()
  for name, w in weights.items():
    # All of them by the length of the state, also the kernel of 8 inputs.
    assert np.abs(w).max() <= 1 / 16, name
    assert np.abs(w).max() > 0.98 / 16, name
    assert np.std(w) == pytest.approx(3**-0.5 / 16, rel=0.05), name
    firsts.add(float(tf.reshape(w, [-1])[0]))
  assert len(firsts) == len(weights) == 8


def test_every_weight_gets_a_gradient():
  encoder = leaf.build_shakespeare_encoder(window=5, hidden_dim=4)
  weights = encoder.init(SEED)
  with tf.GradientTape() as tape:
    tape.watch(weights)
    embeddings, _ = encoder.apply(
      weights, {}, tf.constant(windows(4, 5)), training=True, seed=None
    )
    loss = tf.reduce_sum(embeddings**2)
  for name, gradient in tape.gradient(loss, weights).items():
    assert np.any(tf.convert_to_tensor(gradient).numpy() != 0), name


@pytest.mark.slow
def test_a_round_is_the_same_on_every_runtime(in_process, tff_worker):
  process = fedavg.build_fedavg(
    model=classifier.EmbeddingClassifier(
      leaf.build_shakespeare_encoder(window=5, hidden_dim=4),
      heads.LinearHead(bias=True),
      80,
    ),
    local_training=local_training.LocalTraining(1.0, 2, 1),
  )
  labels = [np.array(y, np.int32) for y in ([3, 79, 3], [0, 1, 2, 5])]
  cohort = [
    examples.ClientExamples(windows(len(y), 5), y, np.int64(i), y)
    for i, y in enumerate(labels)
  ]
  found = []
  for context in (in_process, tff_worker):
    tff.framework.set_default_context(context)
    state, metrics = tiny.run(process, 2, lambda _: cohort)
    found.append((process.get_model_weights(state), metrics['loss']))
  tiny.assert_same_weights(*found, 1e-5)
  before = process.get_model_weights(process.initialize()).encoder
  for name, after in found[0][0].encoder.items():
    assert np.any(np.asarray(after) != np.asarray(before[name])), name
