"""FedSS, federated sampled softmax, and its reference methods.

Waghmare, Qi, Chen, Sirotenko, Meron: "Efficient Image Representation Learning
with Federated Sampled Softmax", 2022, arXiv:2203.04888.

A client requests the rows of its own classes P_k and of m sampled negatives
N_k, trains a sampled softmax on them, and sends row deltas back. The server
adds row deltas by class and takes a momentum step. The reference methods differ
in the requested rows and in the terms of the softmax's denominator:

  FedSS         S_k = P_k and N_k   eq. (5), (6)
  NegOnly       {t} and N_k         eq. (7)
  PosOnly       P_k                 eq. (8)
  FullSoftmax   all n               eq. (2)
  Centralized   all n, IID minibatches, no clients

Sign on the server: the paper's Algorithm 1 defines a delta as after minus
before and then subtracts it. Here it is added, because subtracting would
diverge.

All algorithms take `model`, the embedding classifier (the paper's head is cosine
with scale 20), and `local_training`, the clients' SGD (paper: batch 32, one
epoch, rate 0.01). Those that select rows take `max_positives`, the largest
number of classes that any client holds: a select has a static number of keys,
'max_positives + negatives', padded and masked. The server takes the paper's
step: SGD of rate 1 and momentum 0.9, dense; if rows are selected, only the
requested rows are computed, with equal results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tff_xc import errors
from tff_xc.algorithms import entry
from tff_xc.algorithms import fullsoftmax
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib

NEGATIVES = hp.Hyperparameter(
  'negatives', 80, 'm, negatives that a client samples in a round', least=1
)
CORRECTION = hp.Hyperparameter(
  'softmax_correction',
  'negatives',
  'the logits that get the sampled-softmax correction',
  choices=('negatives', 'none'),
)


def check_negatives(negatives: int, num_classes: int) -> None:
  """Raises `errors.InputError` unless there are more classes than negatives."""
  if negatives >= num_classes:
    raise errors.InputError(
      f'--negatives={negatives}: expected fewer than the {num_classes}'
      ' classes; use --algorithm=fullsoftmax to train on all of them'
    )


def fedss(
  *,
  model: classifier.EmbeddingClassifier,
  max_positives: int,
  negatives: int = 80,
  softmax_correction: str = 'negatives',
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FedSS (Algorithm 1).

  With m = n - |P_k| it is FullSoftmax, with m = 0 PosOnly.

  Args:
    model: see the module.
    max_positives: see the module.
    negatives: m.
    softmax_correction: 'negatives' adds log((n - |P_k|) / m) to the negatives'
      logits (eq. 6); 'none' leaves them. The paper does not say which of the
      two its tables used; a constant on all terms would cancel.
    local_training: see the module.
  """
  return sampled(
    model,
    local_training,
    'held',
    max_positives,
    negatives,
    softmax_correction,
  )


def sampled(
  model,
  local_training,
  denominator: str,
  max_positives: int,
  negatives: int = 0,
  correction: str = 'none',
  equal_negatives: bool = False,
) -> algorithm_lib.Algorithm:
  """Returns sampled softmax training.

  Args:
    model: the embedding classifier.
    local_training: the clients' SGD, or None.
    denominator: see `losses.HeldSoftmax`.
    max_positives: the largest number of classes that any client holds.
    negatives: m.
    correction: see `losses.HeldSoftmax`.
    equal_negatives: see `request.OwnAndSampled`.
  """
  from tff_xc.round import losses
  from tff_xc.round import request

  check_negatives(negatives, model.num_rows)
  return fullsoftmax.softmax(
    model,
    local_training,
    request.OwnAndSampled(
      model.num_rows,
      max_positives,
      negatives,
      equal_negatives=equal_negatives,
    ),
    losses.HeldSoftmax(model.num_rows, correction, denominator),
  )


ENTRY = entry.Entry(
  'fedss',
  fedss,
  'federated sampled softmax: own classes and m sampled negatives',
  'FedSS',
  entry.Answers(
    'own classes, m negatives',
    'sampled softmax',
    'deltas added by class',
    'optimizer step',
  ),
  (*settings.SAMPLED, NEGATIVES, CORRECTION),
  needs=(entry.ONE_LABEL,),
)

build_fedss = entry.builder(fedss)
