"""What crosses the wire in a round, and what FullSoftmax would have sent.

One client and round (spec of the messages: FedSS, Algorithm 1 and section 3):
  down: the encoder and the class rows requested;
  up:   the ids requested, then the encoder's delta, the updated rows with their
        ids, and the client's weight.
An algorithm that requests every row sends no ids in either message: row c is
at place c. Rows padded to a static length do not count.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class MessageSizes:
  """Sizes in bytes of what messages are made of.

  Attributes:
    encoder_bytes: the encoder's weights; its delta is as large.
    row_bytes: one row of the class table: 4 d, and 4 more with a bias.
    id_bytes: one class id (int32).
    weight_bytes: the weight of a client's update (float32).
  """

  encoder_bytes: int
  row_bytes: int
  id_bytes: int = 4
  weight_bytes: int = 4

  def __post_init__(self):
    for field in dataclasses.fields(self):
      if getattr(self, field.name) < 0:
        raise ValueError(f'{field.name} is negative.')


def bytes_down(sizes: MessageSizes, rows: float) -> float:
  """Returns the bytes that a client receives in a round.

  Args:
    sizes: of the message's parts.
    rows: class rows requested, |S_k|; a mean over clients gives mean bytes.
  """
  return sizes.encoder_bytes + rows * sizes.row_bytes


def bytes_up(
  sizes: MessageSizes, rows: float, requests_all: bool = False
) -> float:
  """Returns the bytes that a client sends in a round.

  Args:
    sizes: of the message's parts.
    rows: class rows requested, |S_k|, or n where all are.
    requests_all: whether the algorithm requests all rows, so sends no ids.
  """
  ids = 0 if requests_all else 2 * rows * sizes.id_bytes
  update = sizes.encoder_bytes + rows * sizes.row_bytes + sizes.weight_bytes
  return ids + update


def byte_saving(
  sizes: MessageSizes,
  rows: float,
  num_classes: int,
  requests_all: bool = False,
) -> float:
  """Returns which fraction of FullSoftmax's bytes, down and up, is saved.

  Negative where ids cost more than the rows that stay away, as with
  |S_k| = n.
  """
  sent = bytes_down(sizes, rows) + bytes_up(sizes, rows, requests_all)
  full = bytes_down(sizes, num_classes) + bytes_up(sizes, num_classes, True)
  return 1 - sent / full


def last_layer_share(
  num_classes: int, dim: int, encoder_parameters: int
) -> float:
  """Returns the class table's share of the model's parameters (FedSS, fig. 8).

  n d / (n d + the encoder's parameters), a fraction.
  """
  table = num_classes * dim
  return table / (table + encoder_parameters)


def parameter_saving(
  rows: float, num_classes: int, dim: int, encoder_parameters: int
) -> float:
  """Returns the fraction of parameters that a sub-model of `rows` rows saves.

  The papers' figure: parameters only, one direction, no ids. It is the class
  table's share times the part of the table left out, (1 - |S_k| / n).
  """
  share = last_layer_share(num_classes, dim, encoder_parameters)
  return share * (1 - rows / num_classes)


def class_parameters_sent(rows: float, dim: int) -> float:
  """Returns |S_k| d, the x axis of FedSS's figs 5 and 10 (parameters)."""
  return rows * dim
