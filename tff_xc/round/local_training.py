"""A client's local training: SGD on the encoder and the rows it holds."""

import collections
import dataclasses
from typing import NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.encoders import encoder as encoder_lib
from tff_xc.round import losses as objective_lib
from tff_xc.round import randomness
from tff_xc.round import request

WEIGHTINGS = ('examples', 'uniform')


class ClientUpdate(NamedTuple):
  """The update that a client sends to the server.

  Attributes:
    encoder_delta: by name, weights after minus weights before; zeros if the
      update is dropped.
    row_delta: float32 [N, row_dim], likewise; exactly zero on padding.
    weight: float32 scalar, the client's weight in means: its number of
      examples, or 1 with 'uniform' weighting; 0 if the client has no examples
      or its update is not finite.
    measured: sums over the client's examples, by name (see
      `tff_xc.round.process`); all zero for a client without examples.
    feature_delta: as `row_delta`, for the encoder's feature table when its rows
      are sent separately (`tff_xc.round.features`). `encoder_delta` then lacks
      this table.
  """

  encoder_delta: encoder_lib.Weights
  row_delta: tf.Tensor
  weight: tf.Tensor
  measured: collections.OrderedDict
  feature_delta: tf.Tensor | tuple = ()


@dataclasses.dataclass(frozen=True)
class LocalTraining:
  """Minibatch SGD over a client's examples (FedSS, Algorithm 1, lines 9-14).

  Every epoch visits all examples in a fresh order; the last, partial batch is
  kept and its loss is the mean over its own examples.

  Attributes:
    learning_rate: eta.
    batch_size: B.
    epochs: E.
    steps: if positive, the number of minibatches to take, instead of epochs.
  """

  learning_rate: float = 0.01
  batch_size: int = 32
  epochs: int = 1
  steps: int = 0

  def optimizer(self) -> tff.learning.optimizers.Optimizer:
    return tff.learning.optimizers.build_sgdm(self.learning_rate)


def _steps_and_visits(size, training: LocalTraining):
  """Returns (steps to take, examples visited, counting repetitions)."""
  per_epoch = -(-size // training.batch_size)
  if not training.steps:
    return training.epochs * per_epoch, training.epochs * size
  steps = tf.where(size > 0, training.steps, 0)
  epochs = steps // tf.maximum(per_epoch, 1)
  rest = (steps - epochs * per_epoch) * training.batch_size
  return steps, epochs * size + tf.minimum(rest, size)


class _Parameters(NamedTuple):
  """The trained parameters: encoder weights by name, and the held rows."""

  encoder: encoder_lib.Weights
  rows: tf.Tensor


def _batch_indices(seed, step, size, training: LocalTraining):
  """Returns int32 [B'], the examples of `step`; B' < B at an epoch's end."""
  per_epoch = -(-size // training.batch_size)
  epoch, batch = step // per_epoch, step % per_epoch
  order = tf.random.experimental.stateless_shuffle(
    tf.range(size), randomness.step_seed(seed, epoch)
  )
  start = batch * training.batch_size
  return order[start : start + training.batch_size]


def build_client_update(
  model: classifier.EmbeddingClassifier,
  objective: objective_lib.Objective,
  training: LocalTraining,
  weighting: str = 'examples',
):
  """Returns a function of tensors that trains on one client.

  The function takes (weights: `ModelWeights` whose `class_table` is the rows
  held, float32 [N, row_dim]; held: `HeldClasses`; x [n_k, ...]; y int32 [n_k];
  round_seed int32 [2]; client_id int64) and returns a `ClientUpdate`.

  Args:
    model: the embedding classifier.
    objective: the loss to minimise.
    training: settings of the local SGD.
    weighting: one of `WEIGHTINGS`: a client's weight is its number of examples,
      or 1.
  """
  if weighting not in WEIGHTINGS:
    raise ValueError(f'unknown weighting {weighting!r}')
  optimizer = training.optimizer()

  def gradients(params, encoder_state, initial, held, x, targets, seed):
    with tf.GradientTape() as tape:
      tape.watch(params)
      embeddings, encoder_state = model.encoder.apply(
        params.encoder, encoder_state, x, training=True, seed=seed
      )
      logits = model.head.logits(embeddings, params.rows)
      loss = objective(
        objective_lib.LocalStep(
          logits, targets, held, embeddings, params, initial
        )
      )
    best = tf.argmax(
      tf.where(held.mask, logits, logits.dtype.min),
      axis=1,
      output_type=tf.int32,
    )
    correct = tf.reduce_sum(tf.cast(tf.equal(best, targets), tf.float32))
    # A weight that the objective does not depend on has a zero gradient.
    grads = tape.gradient(loss, params, unconnected_gradients='zero')
    return loss, correct, grads, encoder_state

  def train(weights, held, x, y, round_seed, client_id):
    initial = _Parameters(weights.encoder, weights.class_table)
    size = tf.size(y)
    one_each = request.fail_unless(
      tf.equal(encoder_lib.count(x), size),
      'it has {} examples x and {} labels y',
      (encoder_lib.count(x), size),
      client_id,
    )
    with tf.control_dependencies([one_each]):
      targets = request.positions(held, y, client_id)
    order_seed = randomness.client_seed(
      round_seed, client_id, randomness.Purpose.ORDER
    )
    encoder_seed = randomness.client_seed(
      round_seed, client_id, randomness.Purpose.ENCODER
    )
    steps, visits = _steps_and_visits(size, training)
    # Turns sums over visits into sums over the client's examples.
    share = tf.math.divide_no_nan(
      tf.cast(size, tf.float32), tf.cast(visits, tf.float32)
    )

    def body(
      step, params, encoder_state, optimizer_state, loss_sum, correct_sum
    ):
      batch = _batch_indices(order_seed, step, size, training)
      loss, correct, grads, encoder_state = gradients(
        params,
        encoder_state,
        initial,
        held,
        encoder_lib.take(x, batch),
        tf.gather(targets, batch),
        randomness.step_seed(encoder_seed, step),
      )
      optimizer_state, params = optimizer.next(optimizer_state, params, grads)
      count = tf.cast(tf.size(batch), tf.float32)
      return (
        step + 1,
        params,
        encoder_state,
        optimizer_state,
        loss_sum + loss * count,
        correct_sum + correct,
      )

    specs = tf.nest.map_structure(
      lambda t: tf.TensorSpec(t.shape, t.dtype), initial
    )
    _, params, encoder_state, _, loss_sum, correct_sum = tf.while_loop(
      lambda step, *_: step < steps,
      body,
      [
        tf.constant(0),
        initial,
        weights.encoder_state,
        optimizer.initialize(specs),
        tf.constant(0.0),
        tf.constant(0.0),
      ],
    )
    before = classifier.merged(weights.encoder, weights.encoder_state)
    after = classifier.merged(params.encoder, encoder_state)
    return _update(
      tf.nest.map_structure(tf.subtract, after, before),
      tf.where(held.mask[:, None], params.rows - initial.rows, 0.0),
      size,
      weighting,
      collections.OrderedDict(
        loss=loss_sum * share,
        correct=correct_sum * share,
        rows=tf.reduce_sum(tf.cast(held.mask, tf.float32)),
      ),
    )

  return train


def _update(
  encoder_delta, row_delta, size, weighting, measured
) -> ClientUpdate:
  """Replaces an update that is not finite by zeros of weight 0; counts it."""
  finite = tf.reduce_all(
    [
      tf.reduce_all(tf.math.is_finite(t))
      for t in [*tf.nest.flatten(encoder_delta), row_delta]
    ]
  )
  # `multiply_no_nan` by zero gives zero even for NaN.
  one = tf.cast(finite, tf.float32)
  kept = lambda t: tf.math.multiply_no_nan(t, one)
  examples = tf.cast(size, tf.float32)
  takes_part = tf.minimum(examples, 1.0)
  measured = collections.OrderedDict(
    loss=kept(measured['loss']),
    correct=kept(measured['correct']),
    examples=kept(examples),
    rows=measured['rows'] * takes_part,
    clients=takes_part,
    dropped=takes_part - kept(takes_part),
  )
  counted = takes_part if weighting == 'uniform' else examples
  return ClientUpdate(
    tf.nest.map_structure(kept, encoder_delta),
    kept(row_delta),
    kept(counted),
    measured,
  )
