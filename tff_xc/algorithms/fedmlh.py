"""FedMLH: labels hashed into several small tables.

Dai, Dun, Tang, Kyrillidis, Shrivastava: "Federated Multiple Label Hashing
(FedMLH): Communication Efficient Federated Learning on Extreme Classification
Tasks", arXiv:2110.12292. The hash functions are in `tff_xc.data.hashing`.
"""

import dataclasses

from tff_xc.algorithms import base, fedavg
from tff_xc.options import hyperparameters as hp


@hp.declared
class FedMLH(fedavg.FedAvg):
  """Labels are hashed into several small tables, with one network for each table.

  Each of the R tables has B buckets, and each label has one bucket in every table. R networks, side
  by side in one encoder, learn by binary cross entropy which buckets contain a label of the
  example. The head of these networks, a `heads.HashedHead`, replaces the model's head. A label's
  score is the mean log probability of its buckets. Clients receive and send R B rows, whereas
  FedAvg sends n rows, one for each label. The server takes the unweighted mean of the client
  updates (FedMLH, Algorithm 2). The clients' optimizer is Adam, as in the paper.
  """

  name = 'fedmlh'
  paper = 'FedMLH'
  answers = base.Answers(
    'all buckets', 'binary cross entropy', 'mean delta of the table', 'optimizer step'
  )

  client_optimizer: str = 'adam'
  hash_tables: int = hp.field(4, 'R, the number of hash tables of labels', least=1, most=1024)
  hash_buckets: int = hp.field(1000, 'B, the number of buckets of each hash table', least=1)
  bucket_score: str = hp.field(
    'logsigmoid',
    "how to compute the score of a label from its buckets. 'logsigmoid': the mean log"
    " probability; 'logit': the mean logit, as in FedMLH's published code; 'median': the median"
    ' log probability',
    choices=('logsigmoid', 'logit', 'median'),
  )
  select_buckets: bool = hp.field(
    False,
    'let clients request only the buckets of their labels and --bucket_negatives other buckets.'
    ' The FedMLH paper does not have this option',
  )
  bucket_negatives: int = hp.field(
    100,
    'number of additional buckets that a client requests, besides the buckets of its labels',
    least=0,
    of='select_buckets',
    only_with=(True,),
  )

  def make(self, model, facts):
    from tff_xc import classifier, heads
    from tff_xc.encoders import encoder
    from tff_xc.round import algorithm, losses, request, tables

    count = self.hash_tables
    model = dataclasses.replace(
      model,
      encoder=encoder.side_by_side(model.encoder, count),
      head=heads.HashedHead(model.num_classes, count, self.hash_buckets, self.bucket_score),
    )
    rows = model.num_rows
    requested = request.AllRows(rows)
    if self.select_buckets:
      # Each label has a bucket in each table.
      most = min((facts.max_positives or 0) * count, rows)
      requested = base.own_and_sampled(
        model,
        dataclasses.replace(facts, max_positives=most or None),
        min(self.bucket_negatives, rows - 1),
      )
    return algorithm.Algorithm(
      model,
      (tables.Table(classifier.CLASS, requested),),
      losses.BinaryCrossEntropy(count),
      local_training=self.local_training(),
      weighting='uniform',
    )


build_fedmlh = base.builder(FedMLH)
