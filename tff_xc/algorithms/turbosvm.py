"""TurboSVM-FL: support vector machines over the clients' class rows.

Wang, Bodonhelyi, Bozkir, Kasneci: "TurboSVM-FL: Boosting Federated Learning
through SVM Aggregation for Lazy Clients", AAAI 2024, arXiv:2401.12012. The step is
`support_vectors.SupportVectors`; the encoder is averaged as in FedAvg.

The machines' C decreases over rounds, from 1 to 1 / 201, in the paper's experiments
and in its code: so does the default here. Its strategy is called "linearly
increasing", since support vectors become more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc.algorithms import entry
from tff_xc.algorithms import fedavg
from tff_xc.algorithms import settings
from tff_xc.algorithms import svm_settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib


def turbosvm(
  *,
  model: classifier.EmbeddingClassifier,
  logits_learning_rate: float = 0.01,
  logits_epsilon: float = 1e-5,
  svm_c: float = 1.0,
  svm_schedule: str = 'decreasing',
  svm_rounds: int = 201,
  svm_kernel: str = 'linear',
  svm_degree: int = 2,
  svm_tolerance: float = 1e-3,
  svm_steps: int = 50,
  svm_classes: float = 1.0,
  svm_spreadout: bool = True,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns TurboSVM-FL.

  Args:
    model: the embedding classifier, of at least 2 classes.
    logits_learning_rate: of the spread-out step's Adam.
    logits_epsilon: its epsilon; gradients well below it move nothing.
    svm_c: the largest C.
    svm_schedule: one of `svm_settings.SCHEDULES`.
    svm_rounds: rounds after which C stays.
    svm_kernel: one of `svm_settings.KERNELS`.
    svm_degree: of the polynomial kernel.
    svm_tolerance: of a fit.
    svm_steps: the most steps of a fit.
    svm_classes: classes drawn in each round, a fraction or a number.
    svm_spreadout: whether there is a spread-out step.
    local_training: the clients' SGD.

  Raises:
    errors.InputError: the model has one class, or fewer than `svm_classes`.
  """
  from tff_xc.algorithms import support_vectors
  from tff_xc.algorithms import svm_kernels
  from tff_xc.round import merge
  from tff_xc.round import optimizers
  from tff_xc.round import tables

  adam = optimizers.TorchAdam(logits_learning_rate, epsilon=logits_epsilon)
  made = fedavg.fedavg(model=model, local_training=local_training)
  [table, *_] = made.tables
  step = support_vectors.SupportVectors(
    model.num_rows,
    support_vectors.Bound(svm_c, svm_schedule, svm_rounds),
    svm_kernels.Kernel(svm_kernel, svm_degree),
    svm_classes,
    svm_tolerance,
    svm_steps,
    adam if svm_spreadout else None,
  )
  return made.with_table(
    tables.Table(table.name, table.request, merge.StackRows(), steps=(step,))
  )


ENTRY = entry.Entry(
  'turbosvm',
  turbosvm,
  'TurboSVM-FL: averages the support vectors of classes, and moves them apart',
  'TurboSVM-FL',
  entry.Answers(
    'all classes',
    'softmax',
    "clients' rows side by side",
    'mean of support vectors, Adam step along normals',
  ),
  (*settings.FEDERATED, *svm_settings.MACHINES, *svm_settings.SPREADOUT),
  own=settings.PLAIN_SERVER,
)

build_turbosvm = entry.builder(turbosvm)
