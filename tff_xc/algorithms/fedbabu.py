"""FedBABU: clients train the encoder while the class rows stay fixed.

Oh, Kim, Yun: "FedBABU: Towards Enhanced Representation for Federated Image
Classification", ICLR 2022, arXiv:2106.06042.
"""

from tff_xc.algorithms import base, fedavg
from tff_xc.options import hyperparameters as hp


@hp.declared
class FedBABU(fedavg.FedAvg):
  """FedAvg of the encoder (body). Class rows (head) keep their initial values.

  Clients have these rows from the start, so a round sends no rows. Before the test,
  `launch.evaluate --personalize` fine-tunes each client's encoder and head. With
  `--personalize_part=head`, it fine-tunes only the head. With `--trainable=body`, other algorithms
  also keep the class rows fixed.
  """

  name = 'fedbabu'
  paper = 'Oh 2022'
  answers = base.Answers(
    'none: rows are fixed', 'softmax', 'no rows are sent', 'rows keep their values'
  )

  trainable: str = hp.own('body')


build_fedbabu = base.builder(FedBABU)
