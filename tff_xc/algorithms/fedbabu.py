"""FedBABU: clients train the encoder under class rows that nobody trains.

Oh, Kim, Yun: "FedBABU: Towards Enhanced Representation for Federated Image
Classification", ICLR 2022, arXiv:2106.06042.
"""

from __future__ import annotations

from tff_xc.algorithms import base, fedavg
from tff_xc.options import hyperparameters as hp


@hp.declared
class FedBABU(fedavg.FedAvg):
  """FedAvg of the encoder (body); class rows (head) keep their initial values.

  Clients have these rows from the start, so that a round sends none.
  `launch.evaluate --personalize` fine-tunes each client's head, as the paper does
  before its test, or encoder and head. `--trainable=body` does the same to other
  algorithms.
  """

  name = 'fedbabu'
  paper = 'Oh 2022'
  answers = base.Answers(
    'none: rows are fixed', 'softmax', 'no rows are sent', 'rows keep their values'
  )

  trainable: str = hp.own('body')


build_fedbabu = base.builder(FedBABU)
