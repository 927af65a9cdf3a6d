"""Hyper-parameters of TurboSVM-FL's server step.

Importing this does not import TensorFlow.
"""

import dataclasses
import math

from tff_xc import errors
from tff_xc.algorithms import fedaws_softmax
from tff_xc.algorithms import hyperparameters as hp

SCHEDULES = ('decreasing', 'constant', 'increasing')
KERNELS = ('linear', 'polynomial', 'rbf', 'sigmoid')
MACHINES = (
  hp.Hyperparameter(
    'svm_c',
    1.0,
    'C of the support vector machines, the largest of --svm_schedule',
    above=0,
  ),
  hp.Hyperparameter(
    'svm_schedule',
    'decreasing',
    "how C changes over rounds; 'decreasing', from svm_c to svm_c /"
    " svm_rounds, is the published code's",
    choices=SCHEDULES,
  ),
  hp.Hyperparameter(
    'svm_rounds',
    201,
    'rounds after which C stays (TurboSVM-FL: 201)',
    least=1,
    of='svm_schedule',
    not_with=('constant',),
  ),
  hp.Hyperparameter(
    'svm_kernel',
    'linear',
    'kernel of the machines, with gamma and coef0 1 (TurboSVM-FL, Table 12)',
    choices=KERNELS,
  ),
  hp.Hyperparameter(
    'svm_degree',
    2,
    'degree of the polynomial kernel',
    least=1,
    most=10,
    of='svm_kernel',
    only_with=('polynomial',),
  ),
  hp.Hyperparameter(
    'svm_tolerance', 1e-3, "tolerance of a machine's fit", above=0
  ),
  hp.Hyperparameter(
    'svm_steps',
    50,
    "most steps of a machine's fit, scikit-learn's max_iter",
    least=1,
  ),
  hp.Hyperparameter(
    'svm_classes',
    1.0,
    'classes drawn for the machines in each round: up to 1 a fraction of all,'
    ' above 1 their number; the others are averaged, and then move by what is'
    " left of the step's momentum",
    above=0,
  ),
  hp.Hyperparameter(
    'svm_spreadout',
    True,
    'whether an Adam step moves the class rows apart along the normals',
  ),
)
SPREADOUT = tuple(
  dataclasses.replace(h, of='svm_spreadout', only_with=(True,))
  for h in (fedaws_softmax.LOGITS_LEARNING_RATE, fedaws_softmax.LOGITS_EPSILON)
)


def subset_size(subset: float, num_classes: int | None) -> int | None:
  """Returns how many classes a subset has, or None if that is not known.

  Args:
    subset: up to 1 a fraction of all classes, of which at least 2 are taken;
      above 1 their number.
    num_classes: n, or None if it is not known yet.

  Raises:
    errors.InputError: for a number of classes that is no whole number from 2 to
      n.
  """
  if subset <= 1:
    if num_classes is None:
      return None
    # A product such as 0.29 * 100 may be just below a whole number.
    return min(max(2, math.floor(subset * num_classes + 1e-9)), num_classes)
  most = math.inf if num_classes is None else num_classes
  if subset != int(subset) or not 2 <= subset <= most:
    raise errors.InputError(
      f'--svm_classes={subset:g}: expected a fraction up to 1, or a whole number'
      f' of classes from 2 to {num_classes or "that of all"}'
    )
  return int(subset)
