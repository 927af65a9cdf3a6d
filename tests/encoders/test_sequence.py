"""Causal self-attention over histories, compared with NumPy."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tff_xc import classifier, heads
from tff_xc.data import sparse
from tff_xc.encoders import encoder as encoder_lib, sequence

ITEMS, LENGTH, DIM = 11, 6, 4
SEED = tf.constant([3, 5])


def build(**changes):
  how = {'num_items': ITEMS, 'length': LENGTH, 'dim': DIM, **changes}
  return sequence.build_sequence_encoder(**how)


def weights_of(encoder):
  """Returns random weights, different from the usual initial values."""
  random = np.random.default_rng(0)
  return {
    name: tf.constant(random.normal(size=w.shape), tf.float32)
    for name, w in encoder.init(SEED).items()
  }


def batch(*histories):
  """Returns examples of histories; the features of each history are in random order."""
  random = np.random.default_rng(1)
  ids, values = [], []
  for items in histories:
    order = random.permutation(len(items))
    ids.append(np.array(items, np.int32)[order])
    ages = np.arange(len(items), 0, -1)
    values.append((1 / ages[order]).astype(np.float32))
  splits = np.cumsum([0, *map(len, histories)]).astype(np.int32)
  return sparse.SparseFeatures(
    splits,
    np.concatenate([np.zeros(0, np.int32), *ids]),
    np.concatenate([np.zeros(0, np.float32), *values]),
  )


def numpy_all(weights, items, blocks):
  """Returns the embeddings after each item of one history, [T, DIM], without padding."""
  w = {name: np.asarray(value, np.float64) for name, value in weights.items()}

  def norm(h, layer):
    centred = h - h.mean(1, keepdims=True)
    unit = centred / np.sqrt(h.var(1, keepdims=True) + 1e-6)
    return unit * w[f'{layer}/scale'] + w[f'{layer}/offset']

  def dense(h, layer):
    return h @ w[f'{layer}/kernel'].T + w.get(f'{layer}/bias', 0.0)

  h = w['item'][items] + w['position'][: len(items)][::-1]
  for block in range(blocks):
    name = f'block{block}'
    inner = norm(h, f'{name}/attend')
    q, k, v = (dense(inner, f'{name}/{p}') for p in ('query', 'key', 'value'))
    rows = []
    for t in range(len(items)):
      scores = np.exp(k[: t + 1] @ q[t] / DIM**0.5)
      rows.append(scores @ v[: t + 1] / scores.sum())
    h = h + np.array(rows)
    inner = np.maximum(dense(norm(h, f'{name}/feed'), f'{name}/inner'), 0)
    h = h + dense(inner, f'{name}/outer')
  return norm(h, 'last')


@pytest.mark.parametrize('blocks', [1, 2])
def test_embeddings_are_those_of_numpy_whatever_the_padding(blocks):
  encoder = build(blocks=blocks, dropout=0.0)
  weights = weights_of(encoder)
  histories = [[3], [1, 2, 1, 9], [4, 10, 0, 7, 5, 6]]
  wanted = [numpy_all(weights, items, blocks) for items in histories]
  x = batch(*histories)
  found, state = encoder.apply(weights, {}, x, False, SEED)
  assert state == {}
  np.testing.assert_allclose(found, [w[-1] for w in wanted], atol=1e-4)
  # In training, each item has an embedding, in the order of the features.
  found, _ = encoder.apply(weights, {}, x, True, SEED)
  ages = np.rint(1 / x.values).astype(int)
  owners = np.repeat([0, 1, 2], np.diff(x.row_splits))
  each = [wanted[o][-a] for o, a in zip(owners, ages, strict=True)]
  np.testing.assert_allclose(found, each, atol=1e-4)


def test_padding_reaches_no_gradient():
  """The gradient for a padded batch is the sum of the gradients for its histories."""
  encoder = build(blocks=2, dropout=0.0)
  weights, histories = weights_of(encoder), [[3], [1, 2, 1, 9], [4, 10, 0, 7, 5, 6]]

  def gradient(*some):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      embeddings, _ = encoder.apply(weights, {}, batch(*some), True, SEED)
      loss = tf.reduce_sum(embeddings**3)
    return tape.gradient(loss, weights)

  apart = [gradient(items) for items in histories]
  for name, found in gradient(*histories).items():
    wanted = sum(tf.convert_to_tensor(of[name]).numpy() for of in apart)
    np.testing.assert_allclose(tf.convert_to_tensor(found), wanted, rtol=1e-3, atol=1e-3)


def test_a_user_without_items_has_a_finite_embedding():
  encoder = build()
  found, _ = encoder.apply(weights_of(encoder), {}, batch([], []), False, SEED)
  assert np.isfinite(found).all() and found.shape == (2, DIM)
  alone, _ = encoder.apply(weights_of(encoder), {}, batch([2, 3]), False, SEED)
  both, _ = encoder.apply(weights_of(encoder), {}, batch([], [2, 3]), False, SEED)
  np.testing.assert_allclose(both[1], alone[0], atol=1e-5)


def test_every_item_is_followed_by_its_target():
  x = batch([3, 1, 2], [5], [7, 7])
  targets, owners = build().targets(x, np.array([8, 9, 10], np.int32))
  ages = np.rint(1 / x.values).astype(int)
  after = [[1, 2, 8], [9], [7, 10]]
  assert owners.numpy().tolist() == [0, 0, 0, 1, 2, 2]
  for target, owner, age in zip(targets, owners.numpy(), ages, strict=True):
    assert target == after[owner][-age]


def test_targets_are_the_same_in_a_graph_as_tff_traces_it():
  """In TFF's graphs, `==` compares the identities of tensors."""
  x, y = batch([3, 1, 2], [5]), np.array([8, 9], np.int32)
  wanted, _ = build().targets(x, y)
  with tf.Graph().as_default() as graph:
    found, _ = build().targets(sparse.SparseFeatures(*map(tf.constant, x)), tf.constant(y))
  with tf.compat.v1.Session(graph=graph) as session:
    np.testing.assert_array_equal(session.run(found), wanted)


def test_dropout_follows_the_seed_and_is_of_training_alone():
  encoder = build(dropout=0.5)
  weights, x = weights_of(encoder), batch([1, 2, 3, 4])

  def of(training, seed):
    return encoder.apply(weights, {}, x, training, tf.constant(seed))[0].numpy()

  np.testing.assert_array_equal(of(True, [1, 2]), of(True, [1, 2]))
  assert np.abs(of(True, [1, 2]) - of(True, [1, 3])).max() > 0.01
  np.testing.assert_array_equal(of(False, [1, 2]), of(False, [1, 3]))


def test_it_is_tied_and_every_weight_has_a_name_of_its_own():
  encoder = build(blocks=2)
  with pytest.raises(ValueError, match='is tied'):
    classifier.EmbeddingClassifier(encoder, heads.CosineHead(), ITEMS)
  tied = encoder_lib.tied(encoder, sequence.ITEM)
  model = classifier.EmbeddingClassifier(tied, heads.CosineHead(), ITEMS)
  assert [*model.weight_specs().tables] == ['class']
  assert len(tied.init(SEED)) == 1 + 2 * (5 * 2 - 1 + 2 * 2) + 2
  one = dataclasses.replace(model, encoder=encoder_lib.tied(build(blocks=1), 'item'))
  assert len(one.weight_specs().encoder) == 1 + 13 + 2
