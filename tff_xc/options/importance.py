"""FedIR: weights examples as if every client had the same class distribution.

Hsu, Qi, Brown: "Federated Visual Classification with Real-World Data Distribution", ECCV 2020,
arXiv:2003.08082, equations (1) to (4).

An example of class y has the weight w_k(y) = p(y) / q_k(y). p is the target distribution, and q_k
is the class distribution of all examples of client k. A minibatch's loss is sum w l / sum w, so a
client with only one class trains as without weights. The server sends p(c) together with the row of
class c, except if p is uniform.
"""

import dataclasses
from typing import Any

from tff_xc import errors
from tff_xc.lazy import np, tf
from tff_xc.options import hyperparameters as hp, option

# Values of --importance_weights that are not names of files.
NAMED = NONE, UNIFORM, OF_TRAIN = 'none', 'uniform', 'train'


@hp.declared
class Importance(option.Option):
  """Weights a client's examples by p(y) / q_k(y)."""

  name = 'importance'

  importance_weights: str = hp.field(
    NONE,
    'target class distribution p of FedIR. FedIR weights an example of class y by p(y) / q_k(y),'
    " where q_k is the client's class distribution. 'uniform': equal probabilities; 'train': the"
    ' distribution of all training examples; FILE: a CSV file with the columns class,probability,'
    " which gives p for each class; 'none': all examples have equal weights",
  )
  # p, float32 [n] with sum 1, which the server sends with the class rows; None: uniform.
  beside: Any = dataclasses.field(default=None, compare=False)
  num_classes: int = 1  # n.

  @classmethod
  def check(cls, values):
    weights = values.get('importance_weights', NONE)
    prior = values.get('calibration_probabilities', '') or OF_TRAIN
    if values['calibration'] == 'prior' and weights not in (NONE, UNIFORM, prior):
      raise errors.InputError(
        f'--importance_weights={weights} and --calibration=prior with {prior} name different'
        ' class probabilities; leave one of them out'
      )

  def added(self, algorithm, facts):
    if self.importance_weights == NONE:
      return algorithm
    p = None
    if self.importance_weights != UNIFORM:
      p = facts.class_probabilities
      if p is None:
        raise ValueError(f'{self.importance_weights!r} needs class_probabilities')
    return self.weighted(algorithm, p)

  def weighted(self, algorithm, target=None):
    """Returns the algorithm with FedIR's weights in its loss.

    `target` is p up to a factor, [n]; None: uniform. Raises ValueError if `target` is not a
    distribution, and InputError if examples have sets of labels or if classes share rows.
    """
    model = algorithm.model
    if model.label_sets:
      raise errors.InputError(
        '--importance_weights needs one class for each example, and these examples have'
        ' sets of labels; leave it out'
      )
    if model.encoder.targets:
      raise errors.InputError(
        '--importance_weights needs one class for each example, and a sequence has several targets;'
        ' give --encoder=bag'
      )
    if model.shares_rows:
      raise errors.InputError(
        '--importance_weights needs a row for each class, because its probability is sent'
        ' with the row, and this algorithm hashes several classes into one row; leave it out'
      )
    if target is not None:
      target = distribution(target, model.num_classes).astype(np.float32)
    return algorithm.with_part(
      dataclasses.replace(self, beside=target, num_classes=model.num_classes)
    )

  def examples(self, examples, held, received):
    """Adds the weight w_k(y) of each example."""
    counts = tf.nn.relu(tf.cast(held.counts, tf.float32))
    p = 1.0 / self.num_classes if self.beside is None else received
    each = tf.math.divide_no_nan(p * tf.reduce_sum(counts), counts)
    return examples._replace(weights=tf.gather(each, examples.labels))


def distribution(p: Any, num_classes: int) -> 'np.ndarray':
  """Returns the class distribution p, which is given up to a factor, float64 [n].

  Raises ValueError if `p` is not [n], or is no distribution.
  """
  p = np.asarray(p, np.float64)
  total = p.sum()
  if p.shape != (num_classes,) or not ((p >= 0).all() and 0 < total < np.inf):
    raise ValueError(
      f'a distribution has {num_classes} finite numbers of at least 0, and not all 0; this one is'
      f' {p}'
    )
  return p / total
