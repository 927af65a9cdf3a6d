"""Compares rounds of LEAF's FEMNIST CNN: a plain TensorFlow loop, this package and TFF.

All contenders average 6.6 M parameters. Each builder returns a function that runs a round, see
`peers.protocol`. Weights are named 'LAYER/kernel' [inputs, outputs] and 'LAYER/bias'. The last
layer is 'class'. Importing this module imports TensorFlow.
"""

import collections
import types

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from launch.benchmarks.peers import protocol
from tff_xc import classifier, heads, precision
from tff_xc.algorithms import fedss
from tff_xc.encoders import leaf
from tff_xc.round import examples as examples_lib, local_training, optimizers
from tff_xc.runtime import registry
from tff_xc.runtime.in_process import context

NUM_CLASSES = 62
_RATE = 0.1


def make_arrays(sizes):
  """Returns (initial weights by name, x [K, m, 28, 28], y [K, m]), with a fixed seed.

  An image is the mean of its class's pattern and noise. Weights and biases are drawn from
  U(-1, 1) / sqrt(fan_in), as PyTorch does.
  """
  random, weights, fan_in = np.random.default_rng(0), {}, 1
  width = sizes.embedding_dim
  for name, shape in {
    'conv0/kernel': (5, 5, 1, 32),
    'conv0/bias': (32,),
    'conv1/kernel': (5, 5, 32, 64),
    'conv1/bias': (64,),
    'dense/kernel': (3136, width),
    'dense/bias': (width,),
    'class/kernel': (width, NUM_CLASSES),
    'class/bias': (NUM_CLASSES,),
  }.items():
    if name.endswith('/kernel'):
      fan_in = int(np.prod(shape[:-1]))
    values = random.uniform(-1.0, 1.0, shape) * fan_in**-0.5
    weights[name] = values.astype(np.float32)
  shape = [sizes.clients, sizes.examples]
  patterns = random.random([NUM_CLASSES, 28, 28], np.float32)
  y = random.integers(0, NUM_CLASSES, shape, dtype=np.int32)
  x = (patterns[y] + random.random([*shape, 28, 28], np.float32)) / 2
  return weights, x, y


def write_arrays(sizes: dict, path: str) -> None:
  """Writes the initial weights and the clients' x and y to a file for the peers."""
  weights, x, y = make_arrays(types.SimpleNamespace(**sizes))
  rates = {'batch_size': sizes['batch_size'], 'learning_rate': _RATE}
  np.savez(path, x=x, y=y, **rates, **weights)


def build(contender, sizes):
  """Builds a contender of the benchmark `round`."""
  if contender == 'plain':
    return plain(sizes)
  runtimes = {'tff_fedavg_worker': 'worker', 'worker': 'worker', 'cluster': 'cluster'}
  # A cluster has one worker per core, with one thread each.
  threads = int(contender == 'cluster')
  registry.install(runtimes.get(contender, 'in_process'), client_threads=threads)
  if contender.startswith('tff_fedavg'):
    return tff_fedavg(sizes)
  if contender == precision.BFLOAT16:
    precision.check(context.visible_devices())
    return ours(sizes, precision.BFLOAT16)
  return ours(sizes, 'float32')


def keras_model(sizes) -> tf.keras.Model:
  """Returns the network as a Keras model that ends with logits."""
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.Reshape([28, 28, 1], input_shape=[28, 28]),
      layers.Conv2D(32, 5, padding='same', activation='relu'),
      layers.MaxPool2D(),
      layers.Conv2D(64, 5, padding='same', activation='relu'),
      layers.MaxPool2D(),
      layers.Flatten(),
      layers.Dense(sizes.embedding_dim, 'relu'),
      layers.Dense(NUM_CLASSES),
    ]
  )


def plain(sizes):
  """Returns a round without TFF. One model trains in place on one client after another.

  A training step is one graph call. TensorFlow uses its default threads. Deltas are
  averaged with example counts as weights.
  """
  weights, *clients = make_arrays(sizes)
  data = [(tf.constant(x), tf.constant(y)) for x, y in zip(*clients, strict=True)]
  random, batch_size = np.random.default_rng(0), sizes.batch_size
  model = keras_model(sizes)
  model.set_weights(list(weights.values()))
  variables = model.trainable_variables
  snapshot = [tf.Variable(w) for w in weights.values()]
  sums = [tf.Variable(tf.zeros(w.shape)) for w in weights.values()]

  @tf.function(reduce_retracing=True)
  def step(x, y, batch):
    with tf.GradientTape() as tape:
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.gather(y, batch), logits=model(tf.gather(x, batch))
      )
      loss = tf.reduce_mean(losses)
    for v, g in zip(variables, tape.gradient(loss, variables), strict=True):
      tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=_RATE, delta=g)
    return loss

  @tf.function
  def end_client(weight):
    for total, v, s in zip(sums, variables, snapshot, strict=True):
      total.assign_add(weight * (v - s))
      v.assign(s)

  @tf.function
  def end_round(weight):
    for total, v, s in zip(sums, variables, snapshot, strict=True):
      s.assign_add(total / weight)
      v.assign(s)
      total.assign(tf.zeros_like(total))

  def run():
    loss_sum = examples = 0.0
    for x, y in data:
      order = random.permutation(len(y)).astype(np.int32)
      for start in range(0, len(y), batch_size):
        batch = order[start : start + batch_size]
        loss_sum += step(x, y, tf.constant(batch)) * len(batch)
      end_client(tf.constant(float(len(y))))
      examples += len(y)
    end_round(tf.constant(examples))
    return {'check': lambda: _checked(loss_sum / examples, snapshot, weights.values())}

  return run


def _checked(loss, after, before) -> dict[str, float]:
  """Returns the values that contenders must agree on: the loss and the norm of the update."""
  moved = protocol.distance(map(np.asarray, after), before)
  return {'loss': float(loss), 'update_norm': moved}


def of_process(process, state, cohort, check):
  """Returns a function that runs rounds of a learning process, always with the same cohort."""
  kept = [state]

  def run():
    # The runtime may update the old state in place, because nothing reads it again;
    # `tff_xc.experiment.training` does the same.
    state, metrics = process.next(registry.donate(kept.pop()), cohort)
    kept.append(state)
    # Reading the scalars waits for all results. Other eager tensors on a CPU are complete already.
    for leaf_value in tf.nest.flatten((state, metrics)):
      if isinstance(leaf_value, tf.Tensor) and leaf_value.shape.rank == 0:
        leaf_value.numpy()
    return {'check': lambda: check(state, metrics)}

  return run


def ours(sizes, precision_name):
  """Returns rounds of this package's FedAvg, which starts from the weights of `make_arrays`."""
  weights, x, y = make_arrays(sizes)
  encoder = leaf.build_femnist_encoder(embedding_dim=sizes.embedding_dim)
  process = fedss.build_fullsoftmax(
    model=classifier.EmbeddingClassifier(
      encoder, heads.LinearHead(bias=True), NUM_CLASSES, precision=precision_name
    ),
    local_training=local_training.LocalTraining(_RATE, sizes.batch_size, epochs=1),
    encoder_optimizer=optimizers.build_sgd(1.0),
    table_optimizer=optimizers.build_sgd(1.0),
  )
  state = process.initialize()
  initial = process.get_model_weights(state)
  # Encoders and `LinearHead(bias=True)` have these layouts.
  weights['dense/kernel'] = np.ascontiguousarray(weights['dense/kernel'].T)
  table = np.column_stack([weights['class/kernel'].T, weights['class/bias']])
  start = classifier.ModelWeights(
    type(initial.encoder)((name, weights[name]) for name in initial.encoder),
    initial.encoder_state,
    collections.OrderedDict([(classifier.CLASS, table)]),
  )
  cohort = [examples_lib.ClientExamples(x[k], y[k], np.int64(k), y[k]) for k in range(len(y))]

  def check(state, metrics):
    after = tf.nest.flatten(process.get_model_weights(state))
    return _checked(metrics['loss'], after, tf.nest.flatten(start))

  return of_process(process, process.set_model_weights(state, start), cohort, check)


def tff_fedavg(sizes):
  """Returns rounds of TFF's weighted federated averaging of the Keras model."""
  weights, *clients = make_arrays(sizes)

  def model_fn():
    return tff.learning.models.from_keras_model(
      keras_model(sizes),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=(tf.TensorSpec([None, 28, 28], tf.float32), tf.TensorSpec([None], tf.int32)),
    )

  process = tff.learning.algorithms.build_weighted_fed_avg(
    model_fn,
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(_RATE),
    server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
  )
  start = tff.learning.models.ModelWeights(list(weights.values()), [])
  cohort = [
    tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(y), seed=0).batch(sizes.batch_size)
    for x, y in zip(*clients, strict=True)
  ]

  def check(state, metrics):
    after = list(state.global_model_weights.trainable)
    return _checked(metrics['client_work']['train']['loss'], after, start.trainable)

  state = process.set_model_weights(process.initialize(), start)
  return of_process(process, state, cohort, check)
