"""Settings of a client's local training, and the examples of each local step."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.round import optimizers, randomness


@dataclasses.dataclass(frozen=True)
class LocalTraining:
  """Minibatch SGD (FedSS, Algorithm 1), or Adam, over a client's examples.

  Every epoch visits all examples in a new order. If the last batch of an epoch is smaller, its loss
  is the mean over its examples.

  Attributes:
    steps: if positive, the number of minibatches to take, instead of epochs.
    shuffle: whether each epoch shuffles the examples.
    replace_nonfinite: whether to set trained numbers that are not finite to 1e-5 after every step,
      as TurboSVM-FL's published code does. `replace_nonfinite` works with SGD only.
    optimizer_name: 'sgd', or 'adam' as in PyTorch. A client starts Adam with zero moments in every
      round, as in FedMLH.
    weight_decay: for L2 regularization, weight_decay times w is added to the gradient of every
      trained weight w, as in PyTorch's SGD and Adam.
    schedule: a function from a round number to a factor of the learning rate. None: the learning
      rate is constant.
  """

  learning_rate: float = 0.01
  batch_size: int = 32
  epochs: int = 1
  steps: int = 0
  shuffle: bool = True
  replace_nonfinite: bool = False
  optimizer_name: str = 'sgd'
  weight_decay: float = 0.0
  schedule: Callable[[tf.Tensor], tf.Tensor] | None = None

  def __post_init__(self):
    if self.optimizer_name not in ('sgd', 'adam'):
      raise ValueError(f'unknown optimizer {self.optimizer_name!r}')
    if self.replace_nonfinite and self.optimizer_name != 'sgd':
      raise ValueError('replace_nonfinite is an option of SGD')

  def rate(self, round_seed: tf.Tensor) -> float | tf.Tensor:
    """Returns the learning rate of the round whose seed is `round_seed`."""
    if not self.schedule:
      return self.learning_rate
    number = randomness.number_of(round_seed)
    return self.learning_rate * self.schedule(number)

  def optimizer(self, rate) -> tff.learning.optimizers.Optimizer:
    """Returns the optimizer of the local steps, for gradients of the loss times `loss_scale`."""
    if self.optimizer_name == 'adam':
      return optimizers.TorchAdam(rate, weight_decay=self.weight_decay)
    return optimizers.Descent(
      1e-5 if self.replace_nonfinite else None,
      rate * self.weight_decay if self.weight_decay else None,
    )

  def loss_scale(self, rate) -> float | tf.Tensor:
    """Returns the factor of the loss.

    With SGD, the factor is the learning rate. Multiplying the gradients instead would cost a pass
    over all weights.
    """
    return rate if self.optimizer_name == 'sgd' else 1.0

  def steps_and_visits(self, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns (number of steps, number of examples in all batches, counting repetitions)."""
    per_epoch = -(-size // self.batch_size)
    if not self.steps:
      return self.epochs * per_epoch, self.epochs * size
    steps = tf.where(size > 0, self.steps, 0)
    epochs = steps // tf.maximum(per_epoch, 1)
    rest = (steps - epochs * per_epoch) * self.batch_size
    return steps, epochs * size + tf.minimum(rest, size)

  def order(self, seed: tf.Tensor, step: tf.Tensor, before: tf.Tensor) -> tf.Tensor:
    """Returns int32 [size], the order of the examples in the epoch of `step`.

    `before` is the order in the previous step, initially 0, 1, ..., size - 1. Only the first step
    of an epoch draws a new order, because drawing in every step would take quadratic time.
    """
    if not self.shuffle:
      return before
    size = tf.size(before)
    epoch, number = self._place(step, size)

    def drawn():
      shuffled = tf.random.experimental.stateless_shuffle(
        tf.range(size), randomness.step_seed(seed, epoch)
      )
      return tf.ensure_shape(shuffled, before.shape)

    return tf.cond(tf.equal(number, 0), drawn, lambda: before)

  def batch(self, order: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """Returns int32 [B'], the indices of the examples in the batch of `step`.

    B' is the batch size, or smaller for the last batch of an epoch.
    """
    _, number = self._place(step, tf.size(order))
    start = number * self.batch_size
    return order[start : start + self.batch_size]

  def _place(self, step: tf.Tensor, size: tf.Tensor):
    """Returns (the epoch of a step, the number of the step in this epoch)."""
    per_epoch = -(-size // self.batch_size)
    return step // per_epoch, step % per_epoch
