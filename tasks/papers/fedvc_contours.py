"""FedVC's figure 8: scores over the clients' rate and the server's momentum."""

import math

from tasks.papers import fedvc_skew
from tasks.papers import fedvc_small
from tasks.papers import result
from tasks.papers import table

# The grids, the two alpha and FedAvg as momentum 0 are ours: the paper's are not known
# here. It ran 10,000 rounds on CIFAR-10.
_ROWS = tuple(
  table.Row(
    'cifar10-dirichlet',
    'fedavgm' if momentum else 'fedavg',
    {'top1': None},
    {
      'concentration': alpha,
      'client_learning_rate': rate,
      'rounds': 10_000,
      **({'server_momentum': momentum} if momentum else {}),
    },
  )
  for alpha in (1.0, 0.1)
  for momentum in (0.0, 0.5, 0.9, 0.97, 0.99)
  for rate in (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
)
_PLAIN = 'fedavg concentration={} client_learning_rate={}'.format
_MOMENTUM = (
  'fedavgm concentration={} client_learning_rate={} server_momentum={}'.format
)
# Steps of momentum are 1 / (1 - momentum) as long: it helps the smallest rate, and
# the largest momentum with the largest rate does not.
_SHAPE = (
  *(
    result.Expected(
      *('top1', _MOMENTUM(alpha, 0.001, 0.9), 0), than=_PLAIN(alpha, 0.001)
    )
    for alpha in (1.0, 0.1)
  ),
  *(
    result.Expected(
      *('top1', _MOMENTUM(alpha, 0.1, 0.99), -math.inf, 0),
      than=_MOMENTUM(alpha, 0.001, 0.99),
    )
    for alpha in (1.0, 0.1)
  ),
)

FIGURE8 = table.PaperTable(
  **fedvc_skew.PAPER,
  number='Fig. 8',
  caption="Accuracy by the clients' rate and the momentum, at two alpha",
  rows=_ROWS,
  notes='The paper draws contours without numbers; its grids are not known here, and'
  ' these are ours, and what they are to show. Its picture here has a curve for each'
  ' setting.',
  small=fedvc_small.rate_and_momentum(_ROWS),
  shape=_SHAPE,
  curves=('top1',),
)
