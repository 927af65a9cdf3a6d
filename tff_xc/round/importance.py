"""FedIR: examples weigh as if every client had the same classes.

Hsu, Qi, Brown: "Federated Visual Classification with Real-World Data
Distribution", ECCV 2020, arXiv:2003.08082, equations (1) to (4).

An example of class y weighs w_k(y) = p(y) / q_k(y), with the target distribution p
and the distribution q_k of the classes at client k, over all of its examples. A
minibatch's loss is sum w l / sum w, so that a client with one class trains as
without weights. The server sends p(c) together with the row of class c; a uniform
p is not sent.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from tff_xc import errors
from tff_xc.round import algorithm as algorithm_lib, request

# Of p of the rows held, among what a client received beside the model.
NAME = 'importance'


@dataclasses.dataclass(frozen=True, eq=False)
class Importance:
  """Weights p(y) / q_k(y); `target` is p, float32 [n] with sum 1; None: 1 / n each."""

  target: np.ndarray | None = None


def target_of(algorithm: algorithm_lib.Algorithm) -> np.ndarray | None:
  """Returns p float32 [n], if the server sends it with the class rows."""
  weights = algorithm.example_weights
  return weights.target if isinstance(weights, Importance) else None


def importance_weights(
  algorithm: algorithm_lib.Algorithm, target: np.ndarray | None = None
) -> algorithm_lib.Algorithm:
  """Returns the algorithm with FedIR's weights in its loss.

  `target` is p up to a factor, [n]; None: uniform. ValueError: it is no distribution;
  InputError: examples have sets of labels, or a class no row of its own.
  """
  model = algorithm.model
  if model.label_sets:
    raise errors.InputError(
      '--importance_weights needs one class for each example, and these have sets'
      ' of labels; leave it out'
    )
  if model.rows_per_label != 1:
    raise errors.InputError(
      '--importance_weights needs a row for each class, with which its'
      ' probability is sent, and this algorithm hashes several classes into one'
      ' row; leave it out'
    )
  if target is not None:
    target = np.asarray(target, np.float64)
    total = target.sum()
    if target.shape != (model.num_classes,) or not ((target >= 0).all() and 0 < total < np.inf):
      raise ValueError(
        f'a target distribution has {model.num_classes} finite numbers of at'
        f' least 0, and not all 0; this one is {target}'
      )
    target = (target / total).astype(np.float32)
  return dataclasses.replace(algorithm, example_weights=Importance(target))


def of_classes(held: request.SelectedRows, target: tf.Tensor | None, num_classes: int) -> tf.Tensor:
  """Returns w_k float32 [N] of the class rows held; 0 for those the client lacks.

  `target` is p float32 [N], of these classes; None: uniform.
  """
  counts = tf.nn.relu(tf.cast(held.counts, tf.float32))
  p = 1.0 / num_classes if target is None else target
  return tf.math.divide_no_nan(p * tf.reduce_sum(counts), counts)
