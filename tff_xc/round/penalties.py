"""Terms of a client's objective that are no means over examples."""

import dataclasses

import tensorflow as tf

from tff_xc.round import algorithm as algorithm_lib
from tff_xc.round import losses


@dataclasses.dataclass(frozen=True)
class Proximal:
  """weight * |theta - theta_G|^2, over all trained weights (FedProx).

  Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: "Federated Optimization in
  Heterogeneous Networks", MLSys 2020, arXiv:1812.06127, eq. (2), which has mu / 2
  as the weight.

  theta_G are the weights that the client received: the encoder, and the rows
  that it holds of each table.

  Attributes:
    weight: of the squared distance.
  """

  weight: float

  def __call__(self, step: losses.LocalStep) -> tf.Tensor:
    now, received = (
      tf.nest.flatten([weights.encoder, weights.tables])
      for weights in (step.weights, step.initial_weights)
    )
    halves = [tf.nn.l2_loss(a - b) for a, b in zip(now, received, strict=True)]
    return 2.0 * self.weight * tf.add_n(halves)


def proximal(
  algorithm: algorithm_lib.Algorithm, weight: float
) -> algorithm_lib.Algorithm:
  """Returns the algorithm with a proximal term of this weight."""
  penalties = (*algorithm.penalties, Proximal(weight))
  return dataclasses.replace(algorithm, penalties=penalties)
