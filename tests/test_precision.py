"""Products in bfloat16: which numbers are rounded, and on which devices bfloat16 is refused."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tff_xc
from tests import tiny
from tff_xc import classifier, errors, heads, precision
from tff_xc.algorithms import fedss
from tff_xc.data import sparse
from tff_xc.encoders import bag, conv, leaf, mlp, mobilenet, plain_cnn, resnet
from tff_xc.round import local_training

SEED = tf.constant([0, 1])
# The relative error of a number that is rounded to 8 bits.
_ROUNDING = 2.0**-8


def rounded(x) -> np.ndarray:
  return tf.cast(tf.cast(x, tf.bfloat16), tf.float32).numpy()


def normal(*shape) -> np.ndarray:
  return np.random.default_rng(len(shape)).normal(size=shape).astype('f4')


def assert_rounded(found, exact):
  """Asserts that `found` equals `exact` rounded once."""
  assert found.dtype == tf.float32
  np.testing.assert_allclose(found, exact, rtol=_ROUNDING, atol=1e-5)
  np.testing.assert_array_equal(found, rounded(found))


@pytest.mark.parametrize('emulated', ['', '1'])
def test_factors_results_and_gradients_of_a_product_are_rounded(emulated, monkeypatch):
  monkeypatch.setenv(precision.EMULATED, emulated)
  a, b, upstream = normal(7, 300), normal(300, 5), normal(7, 5)
  given = tf.constant(a), tf.constant(b)
  with tf.GradientTape() as tape:
    tape.watch(given)
    with precision.of_products('bfloat16'):
      found = precision.product(tf.matmul, *given)
  gradients = tape.gradient(found, given, upstream)
  a, b, upstream = map(rounded, (a, b, upstream))
  assert_rounded(found, a @ b)
  assert_rounded(gradients[0], upstream @ b.T)
  assert_rounded(gradients[1], a.T @ upstream)
  assert precision.in_force() == 'float32'
  exact = precision.product(tf.matmul, *given)
  np.testing.assert_array_equal(exact, tf.matmul(*given))
  assert np.abs(found - exact).max() > 1e-3


def test_factors_and_results_of_a_convolution_are_rounded():
  x, kernel = normal(2, 6, 6, 3), normal(3, 3, 3, 4)
  with precision.of_products('bfloat16'):
    found = precision.product(tf.nn.conv2d, x, kernel, 2, 'SAME')
  exact = tf.nn.conv2d(rounded(x), rounded(kernel), 2, 'SAME')
  assert_rounded(found, exact)


# Functions that build encoders, by name.
_ENCODERS = {
  'small': lambda: conv.build_conv_encoder(image_size=16, embedding_dim=8),
  'femnist': lambda: leaf.build_femnist_encoder(embedding_dim=16),
  'celeba': lambda: leaf.build_celeba_encoder(side=32),
  'shakespeare': lambda: leaf.build_shakespeare_encoder(symbols=9, window=5, hidden_dim=16),
  'bag': lambda: bag.build_bag_encoder(
    num_features=20, feature_dim=8, hidden_dims=(8,), embedding_dim=8
  ),
  'fedmlh': lambda: mlp.build_mlp_encoder(20, 8, 2),
  'mlp': lambda: mlp.build_dense_mlp_encoder(6, 8, 8),
  'resnet': lambda: resnet.build_resnet_encoder(image_size=8, augment=False),
  'cifar': lambda: plain_cnn.build_cifar_encoder(augment=False),
  'mobilenet': lambda: mobilenet.build(mobilenet.V3_LARGE, image_size=32, embedding_dim=8),
}


def examples(encoder):
  """Returns six examples of an encoder and their labels."""
  random = np.random.default_rng(0)
  spec = encoder.example_spec
  if not isinstance(spec, tf.TensorSpec):
    ids = random.integers(0, spec.num_features, 18).astype(np.int32)
    splits = np.arange(0, 19, 3, np.int32)
    x = sparse.as_tensors(sparse.SparseFeatures(splits, ids, np.ones(18, 'f4')))
  elif spec.dtype == tf.uint8:
    most = 9 if spec.shape.rank == 1 else 256  # Characters, or pixels.
    x = tf.constant(random.integers(0, most, [6, *spec.shape]), tf.uint8)
  else:
    x = tf.constant(random.uniform(size=[6, *spec.shape]), tf.float32)
  return x, tf.range(6) % 4


def step(model, weights, x, y):
  """Returns a function of no arguments -> (loss, gradients) of a training step."""
  trained = weights.encoder, weights.tables

  @tf.function(autograph=False)
  def run():
    with tf.GradientTape() as tape:
      tape.watch(trained)
      embeddings, _ = model.encode(weights, x, True, SEED)
      logits = model.logits(embeddings, weights.class_table, None)
      loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
    gradients = tape.gradient(loss, trained)
    return loss, tf.nest.map_structure(tf.convert_to_tensor, tf.nest.flatten(gradients))

  return run


def made(name, chosen):
  """Returns a model with the named encoder, its initial weights, and its examples."""
  head = heads.LinearHead()
  if name == 'fedmlh':  # In these tests, labels are indices of the first buckets.
    head = heads.HashedHead(4, num_tables=2, num_buckets=3)
  encoder = _ENCODERS[name]()
  model = classifier.EmbeddingClassifier(encoder, head, 4, precision=chosen)
  return model, model.init(SEED), *examples(encoder)


# The numbers of float32 products that remain. They are in TensorFlow's gradient of a sparse
# product, in FedMLH's first layer if many features are nonzero, and in the sum over pixels that is
# the gradient of a bias (`layers.conv_bias`).
_LEFT = {'bag': 1, 'fedmlh': 5, 'celeba': 4, 'cifar': 2, 'femnist': 2}


@pytest.mark.parametrize(
  'name',
  [*sorted(_ENCODERS.keys() - {'mobilenet'}), pytest.param('mobilenet', marks=pytest.mark.slow)],
)
def test_no_product_of_an_encoder_is_left_in_float32(name, monkeypatch):
  monkeypatch.setattr(precision, '_is_emulated', lambda: False)
  for chosen in precision.NAMES:
    graph = step(*made(name, chosen)).get_concrete_function().graph
    definition = graph.as_graph_def()
    nodes = [*definition.node]
    for function in definition.library.function:
      nodes += function.node_def
    types = [
      tf.as_dtype(node.attr['T'].type).name
      for node in nodes
      if node.op in ('MatMul', 'BatchMatMulV2') or node.op.startswith('Conv2D')
    ]
    if chosen == 'float32':
      assert {*types} == {'float32'}
      assert len(types) >= 3
    else:
      assert types.count('float32') == _LEFT.get(name, 0)


@pytest.mark.parametrize('ids', [None, [4, 0, 2, 5, 1]])
@pytest.mark.parametrize(
  'head',
  [
    heads.CosineHead(),
    heads.LinearHead(),
    heads.LinearHead(bias=False),
    heads.PrototypeHead(),
    heads.HashedHead(4, 2, 3),
  ],
  ids=str,
)
def test_logits_are_of_rounded_factors(head, ids):
  several = (2,) if isinstance(head, heads.HashedHead) else ()
  embeddings, rows = normal(5, *several, 9), normal(6, head.row_dim(9))
  if isinstance(head, heads.PrototypeHead):
    rows[:, -1] = 1  # All labels have a prototype.
  if ids is not None:
    rows = rows[ids]
  ids = None if ids is None else tf.constant(ids)
  encoder = tiny.linear_encoder()
  model = classifier.EmbeddingClassifier(encoder, head, 4)
  exact = model.logits(embeddings, tf.constant(rows), ids)
  model = dataclasses.replace(model, precision='bfloat16')
  found = model.logits(embeddings, tf.constant(rows), ids)
  assert found.dtype == tf.float32
  apart = np.abs(found - exact).max() / np.abs(exact).max()
  assert 1e-4 < apart < 4 * _ROUNDING


def rounds(chosen: str, seed: int = 0):
  """Returns (weights, metrics) after two rounds of FedSS."""
  encoder = mlp.build_dense_mlp_encoder(tiny.FEATURES, 8, 6)
  model = classifier.EmbeddingClassifier(encoder, heads.CosineHead(4.0), 12, precision=chosen)
  process = fedss.build_fedss(
    model=model,
    local_training=local_training.LocalTraining(0.1, 4, epochs=1),
    negatives=3,
    max_positives=3,
    seed=seed,
  )
  state = process.initialize()
  for _ in range(2):
    state, metrics = process.next(state, tiny.cohort([[0, 1, 2] * 3, [3, 4]]))
  return process.get_model_weights(state), metrics


@pytest.mark.slow
@pytest.mark.parametrize(
  'runtime', ['in_process', pytest.param('tff_worker', marks=pytest.mark.slow)]
)
def test_rounds_of_bfloat16_keep_float32_weights(runtime, request):
  request.getfixturevalue(runtime)
  exact, measured = rounds('float32')
  found, of_found = rounds('bfloat16')
  for a, b in zip(*map(tf.nest.flatten, (found, exact)), strict=True):
    assert np.asarray(a).dtype == np.float32
    np.testing.assert_allclose(a, b, atol=0.05)
  assert any(np.abs(a - rounded(a)).max() > 0 for a in tf.nest.flatten(found.encoder))
  assert of_found['loss'] != measured['loss']
  assert float(of_found['loss']) == pytest.approx(float(measured['loss']), rel=0.02)


@pytest.fixture
def machine(monkeypatch):
  """Returns a function that simulates a machine with the given CPU and GPUs."""

  def become(cpu: str, *capabilities):
    precision._why_slow.cache_clear()
    gpus = {i: {'compute_capability': c} for i, c in enumerate(capabilities)}
    monkeypatch.setattr(precision, '_cpu_flags', lambda: {*cpu.split()})
    monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: list(gpus))
    monkeypatch.setattr(tf.config.experimental, 'get_device_details', gpus.get)

  monkeypatch.delenv(precision.EMULATED, raising=False)
  yield become
  precision._why_slow.cache_clear()


def refused(*devices) -> str:
  """Returns why bfloat16 is refused on the devices, or '' if it is not refused."""
  try:
    precision.check(devices)
  except errors.InputError as e:
    return str(e)
  return ''


def test_a_cpu_without_instructions_for_bfloat16_is_refused(machine, monkeypatch):
  for cpu in 'fpu avx2 avx512_bf16', 'amx_bf16':
    machine(cpu)
    assert not refused('')
  monkeypatch.setenv(tff_xc.ONEDNN, '0')
  machine('amx_bf16')
  assert tff_xc.ONEDNN in refused('')
  monkeypatch.setenv(tff_xc.ONEDNN, '1')
  for cpu in 'fpu avx512f avx512_vnni', '':
    machine(cpu)
    for device in '', '/device:CPU:0':
      assert 'AMX-BF16' in refused(device)
  monkeypatch.setenv(precision.EMULATED, '1')
  assert not refused('')


def test_a_gpu_that_is_older_than_ampere_is_refused(machine):
  machine('avx2', (8, 6), (7, 5))
  assert not refused('/device:GPU:0')
  assert 'GPU 1 has compute capability 7.5' in refused('/device:GPU:0', '/device:GPU:1')
  assert 'AMX-BF16' in refused('/device:GPU:0', '/device:CPU:0')  # All devices are checked.


def test_products_are_emulated_where_bfloat16_would_be_slow(machine, monkeypatch):
  x = tf.ones([2, 2])

  def emulated():
    return precision.factor(x).dtype == tf.float32

  with precision.of_products('bfloat16'):
    for gpus, of_slow in ((), True), (((8, 0),), False), (((7, 5),), True):
      machine('avx2', *gpus)
      assert emulated() == of_slow
      machine('amx_bf16', *gpus)
      assert emulated() == (gpus == ((7, 5),))
    machine('amx_bf16')
    monkeypatch.setenv(precision.EMULATED, '1')
    assert emulated()
