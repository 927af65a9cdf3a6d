"""TurboSVM-FL: support vector machines over the clients' class rows.

Wang, Bodonhelyi, Bozkir, Kasneci: "TurboSVM-FL: Boosting Federated Learning through SVM Aggregation
for Lazy Clients", AAAI 2024, arXiv:2401.12012. `svm.SupportVectors` is the server's step on class
rows. The encoder is averaged as in FedAvg.
"""

import dataclasses
import math

from tff_xc import errors
from tff_xc.algorithms import base, fedavg, fedaws
from tff_xc.options import hyperparameters as hp

_OF_SPREADOUT = {'of': 'svm_spreadout', 'only_with': (True,)}


@hp.declared
class TurboSVM(fedavg.FedAvg):
  """Averages the support vectors of each class, and moves the class rows apart.

  The machines' C decreases over rounds from 1 to 1 / 201, as in the paper's experiments and in its
  code. The paper calls this schedule "linearly increasing", because the number of support vectors
  increases.

  The Adam step lowers the sum of eq. (8) over all pairs, as published. The mean over the n (n - 1)
  / 2 pairs would give the same step if `logits_epsilon` were divided by this number, because a
  constant factor of the gradient changes Adam's step only relative to epsilon.
  """

  name = 'turbosvm'
  paper = 'TurboSVM-FL'
  answers = base.Answers(
    'all classes',
    'softmax',
    "clients' rows side by side",
    'mean of support vectors, Adam step along normals',
  )

  svm_c: float = hp.field(
    1.0,
    'C of the support vector machines. If --svm_schedule changes C, this is the largest value',
    above=0,
  )
  svm_schedule: str = hp.field(
    'decreasing',
    "how C (--svm_c) changes over the rounds. 'decreasing': from svm_c to svm_c / svm_rounds, as"
    " in the published code; 'increasing': the reverse",
    choices=('decreasing', 'constant', 'increasing'),
  )
  svm_rounds: int = hp.field(
    201,
    'number of rounds over which --svm_schedule changes C (TurboSVM-FL: 201)',
    least=1,
    of='svm_schedule',
    not_with=('constant',),
  )
  svm_kernel: str = hp.field(
    'linear',
    'kernel of the support vector machines, with gamma = 1 and coef0 = 1 (TurboSVM-FL, Table 12)',
    choices=('linear', 'polynomial', 'rbf', 'sigmoid'),
  )
  svm_degree: int = hp.field(
    2,
    'degree of the polynomial kernel',
    least=1,
    most=10,
    of='svm_kernel',
    only_with=('polynomial',),
  )
  svm_tolerance: float = hp.field(
    1e-3,
    'the fit of a support vector machine ends when the largest violation of its optimality'
    ' conditions is below this value',
    above=0,
  )
  svm_steps: int = hp.field(
    50,
    'largest number of steps to fit a support vector machine (max_iter in scikit-learn)',
    least=1,
  )
  svm_classes: float = hp.field(
    1.0,
    'number of classes to sample for the support vector machines in each round. A value up to 1'
    ' is a fraction of all classes. The row of any other class becomes the mean of the rows that'
    ' clients sent. The Adam step of --svm_spreadout has gradient 0 for such a row, and moves it'
    ' only by its momentum from earlier rounds',
    above=0,
  )
  svm_spreadout: bool = hp.field(
    True,
    'move the class rows apart by an Adam step along the normals of the support vector machines',
  )
  logits_learning_rate: float = hp.again(
    fedaws.FedAwSSoftmax, 'logits_learning_rate', **_OF_SPREADOUT
  )
  logits_epsilon: float = hp.again(fedaws.FedAwSSoftmax, 'logits_epsilon', **_OF_SPREADOUT)

  def make(self, model, facts):
    from tff_xc.algorithms import svm, svm_kernel
    from tff_xc.round import merge, optimizers

    n = model.num_rows
    if n < 2:
      raise errors.InputError('turbosvm separates pairs of classes: expected at least 2 classes')
    adam = optimizers.TorchAdam(self.logits_learning_rate, epsilon=self.logits_epsilon)
    step = svm.SupportVectors(
      n,
      svm.Bound(self.svm_c, self.svm_schedule, self.svm_rounds),
      svm_kernel.Kernel(self.svm_kernel, self.svm_degree),
      subset_size(self.svm_classes, n),
      self.svm_tolerance,
      self.svm_steps,
      adam if self.svm_spreadout else None,
    )
    made = base.with_steps(super().make(model, facts), step)
    return made.with_table(dataclasses.replace(made.tables[0], merge=merge.StackRows()))

  @classmethod
  def fit(cls, values, given, num_classes):
    super().fit(values, given, num_classes)
    subset_size(values['svm_classes'], num_classes)


def subset_size(subset: float, num_classes: int | None) -> int | None:
  """Returns the number of classes in a subset, or None if it is not known.

  A `subset` up to 1 is a fraction of n. It is rounded down, but to at least 2 classes. A larger
  `subset` is the number of classes.
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


build_turbosvm = base.builder(TurboSVM)
