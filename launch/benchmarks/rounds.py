"""Rounds of training as contenders: a plain TensorFlow loop, ours, TFF's own.

Each function returns a contender's round, see `peers.protocol`. Weights have
names, 'LAYER/kernel' [inputs, outputs] and 'LAYER/bias'; the last layer is
'class'. Imports TensorFlow.
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from launch.benchmarks import arrays
from launch.benchmarks.peers import inputs
from tff_xc import classifier
from tff_xc import heads
from tff_xc.algorithms import fedss
from tff_xc.round import examples as examples_lib
from tff_xc.round import local_training
from tff_xc.round import optimizers
from tff_xc.runtime import registry

Weights = Mapping[str, np.ndarray]
Clients = Sequence[arrays.Client]
Round = Callable[[], dict]


def femnist_cnn(weights: Mapping[str, tf.Tensor], x: tf.Tensor) -> tf.Tensor:
  """Returns the logits of LEAF's FEMNIST CNN, written as Keras writes it."""
  h = tf.reshape(x, [-1, 28, 28, 1])
  for layer in ('conv0', 'conv1'):
    h = tf.nn.conv2d(h, weights[f'{layer}/kernel'], 1, 'SAME')
    h = tf.nn.relu(tf.nn.bias_add(h, weights[f'{layer}/bias']))
    h = tf.nn.max_pool2d(h, 2, 2, 'VALID')
  return perceptron(weights, h)


def perceptron(weights: Mapping[str, tf.Tensor], x: tf.Tensor) -> tf.Tensor:
  """Returns the logits of a dense layer with ReLU and a class layer."""
  h = tf.reshape(x, [-1, weights['dense/kernel'].shape[0]])
  h = tf.nn.relu(h @ weights['dense/kernel'] + weights['dense/bias'])
  return h @ weights['class/kernel'] + weights['class/bias']


def plain(
  logits, weights: Weights, clients: Clients, batch_size: int, rate: float
) -> Round:
  """Trains one client after another, in place on one model, without TFF.

  A training step is one graph call. TensorFlow has its default threads. Deltas
  are averaged with example counts as weights.
  """
  data = [(tf.constant(c.x), tf.constant(c.y)) for c in clients]
  random = np.random.default_rng(0)
  snapshot = [tf.Variable(w) for w in weights.values()]
  sums = [tf.Variable(tf.zeros(w.shape)) for w in weights.values()]
  model = {name: tf.Variable(w) for name, w in weights.items()}
  variables = list(model.values())

  @tf.function(reduce_retracing=True)
  def step(x, y, batch):
    with tf.GradientTape() as tape:
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.gather(y, batch), logits=logits(model, tf.gather(x, batch))
      )
      loss = tf.reduce_mean(losses)
    for v, g in zip(variables, tape.gradient(loss, variables), strict=True):
      tf.raw_ops.ResourceApplyGradientDescent(var=v.handle, alpha=rate, delta=g)
    return loss

  @tf.function
  def restore():
    for v, s in zip(variables, snapshot, strict=True):
      v.assign(s)

  @tf.function
  def accumulate(weight):
    for total, v, s in zip(sums, variables, snapshot, strict=True):
      total.assign_add(weight * (v - s))

  @tf.function
  def move(weight):
    for s, total in zip(snapshot, sums, strict=True):
      s.assign_add(total / weight)
      total.assign(tf.zeros_like(total))

  def run():
    loss_sum = examples = 0.0
    for x, y in data:
      restore()
      order = random.permutation(len(y)).astype(np.int32)
      for start in range(0, len(y), batch_size):
        batch = order[start : start + batch_size]
        loss_sum += step(x, y, tf.constant(batch)) * len(batch)
      accumulate(tf.constant(float(len(y))))
      examples += len(y)
    move(tf.constant(examples))
    loss = float(loss_sum) / examples
    return {
      'check': lambda: {
        'loss': loss,
        'update_norm': inputs.distance(snapshot, list(weights.values())),
      }
    }

  run.weights = snapshot
  return run


def of_process(process, state, cohort: Sequence[Any], check) -> Round:
  """Returns rounds of a learning process, always with the same cohort."""
  kept = [state]

  def run():
    # As in `tff_xc.experiment.training`: the old state is not needed again, so the
    # runtime may update it in place.
    state, metrics = process.next(registry.donate(kept.pop()), cohort)
    kept.append(state)
    # Waits for every result; eager tensors on a CPU are complete already.
    for leaf in tf.nest.flatten((state, metrics)):
      if isinstance(leaf, tf.Tensor) and leaf.shape.rank == 0:
        leaf.numpy()
    return {'check': lambda: check(state, metrics)}

  return run


def ours(
  encoder,
  weights: Weights,
  clients: Clients,
  batch_size: int,
  rate: float,
  precision: str = 'float32',
  **of_fedss: int,
) -> Round:
  """Returns this package's FedAvg, or FedSS, started from the given weights."""
  build, table_optimizer = fedss.build_fullsoftmax, optimizers.build_sgd(1.0)
  if of_fedss:
    build, table_optimizer = fedss.build_fedss, optimizers.RowMomentum(1.0)
  process = build(
    model=classifier.EmbeddingClassifier(
      encoder,
      heads.LinearHead(bias=True),
      weights['class/bias'].size,
      precision=precision,
    ),
    local_training=local_training.LocalTraining(rate, batch_size, epochs=1),
    encoder_optimizer=optimizers.build_sgd(1.0),
    table_optimizer=table_optimizer,
    **of_fedss,
  )
  state = process.initialize()
  initial = process.get_model_weights(state)
  # As encoders and `LinearHead(bias=True)` keep them.
  kernel = np.ascontiguousarray(weights['dense/kernel'].T)
  of_encoder = {**weights, 'dense/kernel': kernel}
  table = np.concatenate(
    [weights['class/kernel'].T, weights['class/bias'][:, None]], axis=1
  )
  start = classifier.ModelWeights(
    type(initial.encoder)((name, of_encoder[name]) for name in initial.encoder),
    initial.encoder_state,
    collections.OrderedDict([(classifier.CLASS, table)]),
  )
  expected, given = tf.nest.flatten(initial), tf.nest.flatten(start)
  if [w.shape for w in expected] != [w.shape for w in given]:
    raise ValueError('the weights given are not the shapes of the model')

  def check(state, metrics):
    after = tf.nest.flatten(process.get_model_weights(state))
    return {
      'loss': float(metrics['loss']),
      'update_norm': inputs.distance(after, given),
    }

  cohort = [
    examples_lib.ClientExamples(c.x, c.y, np.int64(i), c.y)
    for i, c in enumerate(clients)
  ]
  state = process.set_model_weights(state, start)
  return of_process(process, state, cohort, check)


def tff_fedavg(
  build_keras: Callable[[], tf.keras.Model],
  weights: Weights,
  clients: Clients,
  batch_size: int,
  rate: float,
) -> Round:
  """Returns TFF's own weighted federated averaging of a Keras model.

  The model's weights have the order of `weights`.
  """

  def model_fn():
    return tff.learning.models.from_keras_model(
      build_keras(),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=(
        tf.TensorSpec([None, 28, 28], tf.float32),
        tf.TensorSpec([None], tf.int32),
      ),
    )

  process = tff.learning.algorithms.build_weighted_fed_avg(
    model_fn,
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(rate),
    server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
  )
  start = list(weights.values())
  state = process.set_model_weights(
    process.initialize(), tff.learning.models.ModelWeights(start, [])
  )
  cohort = [
    tf.data.Dataset.from_tensor_slices((c.x, c.y))
    .shuffle(len(c.y), seed=0)
    .batch(batch_size)
    for c in clients
  ]

  def check(state, metrics):
    after = list(state.global_model_weights.trainable)
    return {
      'loss': float(metrics['client_work']['train']['loss']),
      'update_norm': inputs.distance(after, start),
    }

  return of_process(process, state, cohort, check)
