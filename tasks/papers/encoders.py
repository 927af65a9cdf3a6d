"""Pretrained encoders for tables at the small scale, instead of the papers' ImageNet weights.

Each encoder is trained centrally for about two minutes on one core, on classes that no table
uses. A row with the change `start_from=NAME` starts with this encoder and random class rows.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Encoder(NamedTuple):
  """A run of `centralized` that trains an encoder.

  A row of a table with `start_from=NAME` must use the same network as this run.
  """

  task: str
  changes: Mapping[str, Any]  # Settings that differ from the task's defaults.


ENCODERS: Mapping[str, Encoder] = {
  'handwriting': Encoder(
    'glyphs',
    {
      'data_seed': 99,  # The classes differ from those of the tables.
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
