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

All builders share these arguments:
  model: the embedding classifier; the paper's head is cosine with scale 20.
  max_positives: the largest number of classes that any client holds; a select
    has a static number of keys, 'max_positives + negatives', padded and masked.
  local_training: the clients' SGD (paper: batch 32, one epoch, rate 0.01).
  server: the server's step (paper: SGD, rate 1, momentum 0.9, dense; if rows
    are selected, only the requested rows are computed, with equal results).
  row_merge: joins the rows (`tff_xc.round.merge.AddRows`).
  model_aggregator: joins the encoder's deltas, a `tff.aggregators` factory of
    means.
  max_features: for sparse examples, the largest number of distinct features of
    a client. It then receives and sends only the feature rows that it uses; 0:
    all rows.
  seed: seeds all randomness.
and return a `tff.learning.templates.LearningProcess` (see
`tff_xc.round.process.build_process`).
"""

import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.round import local_training as client_work
from tff_xc.round import losses as objective
from tff_xc.round import merge
from tff_xc.round import optimizers
from tff_xc.round import process
from tff_xc.round import request
from tff_xc.round import server as server_lib
from tff_xc.round import table_optimizers


def _build_sampled(
  denominator: str,
  negatives: int,
  correction: str,
  equal_negatives: bool = False,
  *,
  model: classifier.EmbeddingClassifier,
  max_positives: int,
  local_training: client_work.LocalTraining | None = None,
  server: server_lib.Server | None = None,
  row_merge: merge.AddRows | None = None,
  model_aggregator: tff.aggregators.AggregationFactory | None = None,
  max_features: int = 0,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  hp.check_negatives(negatives, model.num_classes)
  return process.build_process(
    model=model,
    request=request.OwnAndSampled(
      model.num_classes,
      max_positives,
      negatives,
      equal_negatives=equal_negatives,
    ),
    objective=objective.HeldSoftmax(model.num_classes, correction, denominator),
    local_training=local_training or client_work.LocalTraining(),
    server=server
    or server_lib.Server(
      table_optimizer=table_optimizers.RowMomentum(1.0, 0.9)
    ),
    row_merge=row_merge,
    model_aggregator=model_aggregator,
    max_features=max_features,
    seed=seed,
  )


def build_fedss(
  *, negatives: int = 80, correction: str = 'negatives', **shared
) -> tff.learning.templates.LearningProcess:
  """Builds FedSS (Algorithm 1).

  With m = n - |P_k| it is FullSoftmax, with m = 0 PosOnly.

  Args:
    negatives: m.
    correction: 'negatives' adds log((n - |P_k|) / m) to the negatives' logits
      (eq. 6); 'none' leaves them. The paper does not say which of the two its
      tables used; a constant on all terms would cancel.
    **shared: see the module.
  """
  return _build_sampled('held', negatives, correction, **shared)


def build_negonly(
  *,
  negatives: int = 80,
  correction: str = 'negatives',
  equal_negatives: bool = False,
  **shared,
) -> tff.learning.templates.LearningProcess:
  """Builds NegOnly (eq. 7).

  Args:
    negatives: m.
    correction: as in `build_fedss`.
    equal_negatives: draw m' = m + |P_k| - 1 negatives. In FedSS with m, this
      many classes push a target away: the fair comparison of figure 6.
    **shared: see the module.
  """
  return _build_sampled(
    'negatives', negatives, correction, equal_negatives, **shared
  )


def build_posonly(**shared) -> tff.learning.templates.LearningProcess:
  """Builds PosOnly (eq. 8): only a client's own classes, no correction."""
  return _build_sampled('positives', 0, 'none', **shared)


def build_fullsoftmax(
  *,
  model: classifier.EmbeddingClassifier,
  local_training: client_work.LocalTraining | None = None,
  server: server_lib.Server | None = None,
  model_aggregator: tff.aggregators.AggregationFactory | None = None,
  max_features: int = 0,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  """Builds FullSoftmax (eq. 2): every client receives and returns all rows."""
  return process.build_process(
    model=model,
    request=request.AllClasses(model.num_classes),
    objective=objective.HeldSoftmax(model.num_classes),
    local_training=local_training or client_work.LocalTraining(),
    server=server or server_lib.Server(),
    model_aggregator=model_aggregator,
    max_features=max_features,
    seed=seed,
  )


def build_centralized(
  *,
  model: classifier.EmbeddingClassifier,
  local_training: client_work.LocalTraining | None = None,
  server: server_lib.Server | None = None,
  seed: int = 0,
) -> tff.learning.templates.LearningProcess:
  """Builds centralised training with softmax over all classes.

  A round has one virtual client, whose examples are IID minibatches of all
  data. By default the server takes over the client's weights, which is SGD.
  With one minibatch a round and a local learning rate of 1, the server's
  optimizer receives the gradient itself, so that any optimizer works as in
  centralised training.

  Args:
    model: the embedding classifier.
    local_training: SGD on the round's minibatches.
    server: the server's optimizers. Default: SGD of rate 1.
    seed: seeds all randomness.
  """
  sgd = optimizers.build_sgd(1.0)
  return build_fullsoftmax(
    model=model,
    local_training=local_training,
    server=server or server_lib.Server(sgd, sgd),
    seed=seed,
  )
