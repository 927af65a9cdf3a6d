"""Federated averaging in plain TensorFlow: the cost of a round without TFF.

Both contenders use the same clients, weights and batch sizes as the others, and
average deltas with example counts as weights.
"""

import concurrent.futures
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from launch.benchmarks import arrays
from launch.benchmarks.peers import inputs

Logits = Callable[[Mapping[str, tf.Tensor], tf.Tensor], tf.Tensor]


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


def _mean_loss(logits, y):
  return tf.reduce_mean(
    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
  )


class PlainRounds:
  """Trains one client after another, in place on one model.

  A training step is one graph call. TensorFlow has its default threads.
  """

  def __init__(
    self,
    logits: Logits,
    weights: Mapping[str, np.ndarray],
    clients: Sequence[arrays.Client],
    batch_size: int,
    learning_rate: float,
  ):
    self._initial = weights
    self._clients = [(tf.constant(c.x), tf.constant(c.y)) for c in clients]
    self._batch_size = batch_size
    self._random = np.random.default_rng(0)
    self._snapshot = [tf.Variable(w) for w in weights.values()]
    self._sums = [tf.Variable(tf.zeros(w.shape)) for w in weights.values()]
    model = {name: tf.Variable(w) for name, w in weights.items()}
    self._build(logits, model, learning_rate)
    self._report = {}

  def _build(self, logits, model, learning_rate) -> None:
    variables = list(model.values())
    snapshot, sums = self._snapshot, self._sums

    @tf.function(reduce_retracing=True)
    def step(x, y, batch):
      with tf.GradientTape() as tape:
        loss = _mean_loss(
          logits(model, tf.gather(x, batch)), tf.gather(y, batch)
        )
      for v, g in zip(variables, tape.gradient(loss, variables), strict=True):
        tf.raw_ops.ResourceApplyGradientDescent(
          var=v.handle, alpha=learning_rate, delta=g
        )
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

    self._step, self._restore = step, restore
    self._accumulate, self._move = accumulate, move

  def run(self) -> None:
    loss_sum = examples = 0.0
    for x, y in self._clients:
      self._restore()
      order = self._random.permutation(len(y)).astype(np.int32)
      for start in range(0, len(y), self._batch_size):
        batch = order[start : start + self._batch_size]
        loss_sum += self._step(x, y, tf.constant(batch)) * len(batch)
      self._accumulate(tf.constant(float(len(y))))
      examples += len(y)
    self._move(tf.constant(examples))
    self._loss = float(loss_sum) / examples

  def report(self) -> dict:
    if not self._report:
      after = [v.numpy() for v in self._snapshot]
      self._report = _first_round(self._initial, after, self._loss)
    return self._report


class SideBySideRounds:
  """Trains two clients at a time, one thread each: a bound for two cores.

  A client's whole training is one graph call, a loop whose variables are the
  weights. The process must not have used TensorFlow before.
  """

  def __init__(
    self,
    logits: Logits,
    weights: Mapping[str, np.ndarray],
    clients: Sequence[arrays.Client],
    batch_size: int,
    learning_rate: float,
  ):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    self._initial = weights
    self._weights = [tf.constant(w) for w in weights.values()]
    self._clients = [(tf.constant(c.x), tf.constant(c.y)) for c in clients]
    self._random = np.random.default_rng(0)
    self._pool = concurrent.futures.ThreadPoolExecutor(2)
    self._report = {}
    names = list(weights)

    @tf.function(reduce_retracing=True)
    def train(weights, x, y, order):
      size = tf.size(y)

      def body(start, weights, loss_sum):
        batch = order[start : start + batch_size]
        with tf.GradientTape() as tape:
          tape.watch(weights)
          named = dict(zip(names, weights, strict=True))
          loss = _mean_loss(
            logits(named, tf.gather(x, batch)), tf.gather(y, batch)
          )
        moved = [
          w - learning_rate * g
          for w, g in zip(weights, tape.gradient(loss, weights), strict=True)
        ]
        count = tf.cast(tf.size(batch), tf.float32)
        return start + batch_size, moved, loss_sum + loss * count

      _, after, loss_sum = tf.while_loop(
        lambda start, *_: start < size,
        body,
        [tf.constant(0), weights, tf.constant(0.0)],
      )
      factor = tf.cast(size, tf.float32)
      deltas = [factor * (a - w) for a, w in zip(after, weights, strict=True)]
      return deltas, loss_sum

    @tf.function
    def add(sums, deltas):
      return [s + d for s, d in zip(sums, deltas, strict=True)]

    @tf.function
    def move(weights, sums, examples):
      return [w + s / examples for w, s in zip(weights, sums, strict=True)]

    self._train, self._add, self._move = train, add, move

  def run(self) -> None:
    examples = float(sum(len(y) for _, y in self._clients))
    orders = [
      tf.constant(self._random.permutation(len(y)).astype(np.int32))
      for _, y in self._clients
    ]
    trained = [
      self._pool.submit(self._train, self._weights, x, y, order)
      for (x, y), order in zip(self._clients, orders, strict=True)
    ]
    sums, loss_sum = None, 0.0
    for future in concurrent.futures.as_completed(trained):
      trained.remove(future)  # This frees its delta.
      deltas, loss = future.result()
      sums = self._add(sums, deltas) if sums else deltas
      loss_sum += float(loss)
      del future, deltas
    self._weights = self._move(self._weights, sums, tf.constant(examples))
    self._loss = loss_sum / examples

  def report(self) -> dict:
    if not self._report:
      self._report = _first_round(self._initial, self._weights, self._loss)
    return self._report


def _first_round(before, after, loss: float) -> dict:
  norm = inputs.distance(after, list(before.values()))
  return {'check': {'loss': loss, 'update_norm': norm}}
