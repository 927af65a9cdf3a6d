"""FedMLH: labels hashed into several small tables.

Dai, Dun, Tang, Kyrillidis, Shrivastava: "Federated Multiple Label Hashing
(FedMLH): Communication Efficient Federated Learning on Extreme Classification
Tasks", arXiv:2110.12292.

Each of R tables has B buckets, and a label has one bucket in each. R networks,
side by side, learn by binary cross entropy which buckets an example's labels
touch. A label's score is the mean of its buckets' log probabilities. Clients
receive and send R B rows where FedAvg has one for each of n labels; the server
takes the plain mean (FedMLH, Algorithm 2).

A hash is that of `tff_xc.data.hashing`.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tff_xc import errors
from tff_xc.algorithms import entry
from tff_xc.algorithms import hyperparameters as hp
from tff_xc.algorithms import settings

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib
  from tff_xc.round import local_training as local_training_lib

_TABLES = (
  hp.Hyperparameter(
    'hash_tables',
    4,
    'R, tables that labels are hashed into',
    least=1,
    most=1024,
  ),
  hp.Hyperparameter('hash_buckets', 1000, 'B, buckets of a table', least=1),
  hp.Hyperparameter(
    'score',
    'logsigmoid',
    "what of a label's buckets is averaged to its score: the log of their"
    " probabilities, or their logits, as in FedMLH's published code",
    choices=('logsigmoid', 'logit'),
  ),
  hp.Hyperparameter(
    'select_buckets',
    False,
    'whether clients request only the buckets of their labels and'
    ' --bucket_negatives others (not in the paper)',
  ),
  hp.Hyperparameter(
    'bucket_negatives',
    100,
    'buckets that a client requests besides those of its labels',
    least=0,
    of='select_buckets',
    only_with=(True,),
  ),
)


def fedmlh(
  *,
  model: classifier.EmbeddingClassifier,
  hash_tables: int = 4,
  hash_buckets: int = 1000,
  score: str = 'logsigmoid',
  select_buckets: bool = False,
  bucket_negatives: int = 100,
  max_positives: int = 0,
  local_training: local_training_lib.LocalTraining | None = None,
) -> algorithm_lib.Algorithm:
  """Returns FedMLH.

  Its model has R copies of the encoder, side by side, and a `heads.HashedHead`
  in place of the model's head.

  Args:
    model: encoder and labels.
    hash_tables: R.
    hash_buckets: B.
    score: see `heads.HashedHead`.
    select_buckets: whether clients request some of the buckets only.
    bucket_negatives: buckets that they request besides those of their labels.
    max_positives: the largest number of labels of a client; needed to select.
    local_training: the clients' optimizer. The paper's is Adam.
  """
  from tff_xc import classifier
  from tff_xc import heads
  from tff_xc.encoders import encoder
  from tff_xc.round import algorithm
  from tff_xc.round import local_training as local_training_lib
  from tff_xc.round import losses
  from tff_xc.round import optimizers
  from tff_xc.round import request
  from tff_xc.round import tables

  _check(select_buckets, bucket_negatives, max_positives)
  model = dataclasses.replace(
    model,
    encoder=encoder.side_by_side(model.encoder, hash_tables),
    head=heads.HashedHead(model.num_classes, hash_tables, hash_buckets, score),
  )
  requested = request.AllRows(model.num_rows)
  if select_buckets:
    most = min(max_positives * hash_tables, model.num_rows)
    negatives = min(bucket_negatives, model.num_rows - 1)
    requested = request.OwnAndSampled(model.num_rows, most, negatives)
  return algorithm.Algorithm(
    model,
    (tables.Table(classifier.CLASS, requested),),
    losses.BinaryCrossEntropy(hash_tables),
    local_training=local_training
    or local_training_lib.LocalTraining(1e-3, optimizer_name='adam'),
    weighting='uniform',
    encoder_optimizer=optimizers.build_sgd(1.0),
  )


def _check(selects: bool, negatives: int, max_positives: int) -> None:
  if selects and max_positives < 1:
    raise errors.InputError(
      'select_buckets needs max_positives, the most labels of a client; give it'
    )
  if negatives < 0:
    raise errors.InputError(f'bucket_negatives is {negatives}; give 0 or more')


ENTRY = entry.Entry(
  'fedmlh',
  fedmlh,
  'FedMLH: labels hashed into several small tables, one network each',
  'FedMLH',
  entry.Answers(
    'all buckets',
    'binary cross entropy',
    'mean delta of the table',
    'optimizer step',
  ),
  (*settings.FEDERATED, *_TABLES),
  defaults={'client_optimizer': 'adam'},
  own=settings.PLAIN_SERVER,
)

build_fedmlh = entry.builder(fedmlh)
