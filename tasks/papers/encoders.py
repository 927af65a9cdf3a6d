"""Encoders that small forms start from, as the papers' networks start from ImageNet.

Each is trained centrally for about two minutes of a core, on classes that no form has. A row
whose changes have `start_from=NAME` starts with this encoder and with fresh class rows.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Encoder(NamedTuple):
  """A run of `centralized`, with the network of the forms that start from it."""

  task: str
  changes: Mapping[str, Any]  # Of the task's defaults.


ENCODERS: Mapping[str, Encoder] = {
  'handwriting': Encoder(
    'glyphs',
    {
      'data_seed': 99,  # Of other classes.
      'num_classes': 400,
      'num_clients': 400,
      'examples_per_client': 50,
      'steps_per_round': 60,
      'batch_size': 64,
      'server_optimizer': 'adam',
      'server_learning_rate': 0.001,
      'client_learning_rate': 0.001,
      'rounds': 120,
      'eval_every': 20,
    },
  )
}
