"""Bytes that a client receives and sends in a round, and FullSoftmax's bytes.

The rule: bytes are those of the payload of one client and round, without
padding (messages: FedSS, Algorithm 1 and section 3).
  down: the encoder and the requested class rows;
  up:   the requested ids, then the encoder's delta, the updated rows with their
        ids, and the client's weight, one float.
An algorithm that requests every row sends no ids in either message: row c is
at place c. If clients select from the table of sparse features, its rows are
sent in the same way, and the encoder's bytes are those without this table. The
round's seed and the sums behind its metrics, some 50 bytes, are not counted. A
client whose update is dropped is counted like any other.

`tests/round/test_crossing.py` compares these formulas with the values that a
round feeds to its clients and folds from them.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class MessageSizes:
  """Sizes of the parts of messages, in bytes.

  Attributes:
    encoder_bytes: the encoder's weights, except a feature table whose rows are
      sent separately; their delta has as many bytes.
    row_bytes: one row of the class table: 4 d, and 4 more with a bias.
    id_bytes: one class id (int32).
    weight_bytes: the weight of a client's update (float32).
    feature_row_bytes: one row of the feature table, if its rows are selected.
    feature_table_bytes: all of this table.
  """

  encoder_bytes: int
  row_bytes: int
  id_bytes: int = 4
  weight_bytes: int = 4
  feature_row_bytes: int = 0
  feature_table_bytes: int = 0

  def __post_init__(self):
    for field in dataclasses.fields(self):
      if getattr(self, field.name) < 0:
        raise ValueError(f'{field.name} is negative.')


def with_feature_rows(
  sizes: MessageSizes, num_features: int, dim: int
) -> MessageSizes:
  """Returns the sizes if clients select rows of the float32 feature table."""
  table = 4 * num_features * dim
  return dataclasses.replace(
    sizes,
    encoder_bytes=sizes.encoder_bytes - table,
    feature_row_bytes=4 * dim,
    feature_table_bytes=table,
  )


def bytes_down(
  sizes: MessageSizes, rows: float, feature_rows: float = 0.0
) -> float:
  """Returns the bytes that a client receives in a round.

  Args:
    sizes: of the message's parts.
    rows: requested class rows, |S_k|; a mean over clients gives mean bytes.
    feature_rows: requested rows of the feature table, if they are selected.
  """
  features = feature_rows * sizes.feature_row_bytes
  return sizes.encoder_bytes + rows * sizes.row_bytes + features


def bytes_up(
  sizes: MessageSizes,
  rows: float,
  requests_all: bool = False,
  feature_rows: float = 0.0,
  sends_rows: bool = True,
) -> float:
  """Returns the bytes that a client sends in a round.

  Args:
    sizes: of the message's parts.
    rows: requested class rows, |S_k|; n if all are requested.
    requests_all: whether the algorithm requests all rows and so sends no ids.
    feature_rows: requested rows of the feature table, if they are selected.
    sends_rows: whether class rows are sent back (FedAwS's Baseline-2 does not
      change them).
  """
  ids = 0 if requests_all else rows * sizes.id_bytes
  sent = ids + rows * sizes.row_bytes if sends_rows else 0
  features = feature_rows * (sizes.feature_row_bytes + 2 * sizes.id_bytes)
  return ids + sent + features + sizes.encoder_bytes + sizes.weight_bytes


def byte_saving(
  sizes: MessageSizes,
  sent: float,
  num_classes: int,
) -> float:
  """Returns the saved fraction of FullSoftmax's bytes, down and up.

  Args:
    sizes: of the message's parts.
    sent: bytes down and up of a client and round.
    num_classes: n.

  The result is negative if the ids cost more than the omitted rows save, as for
  |S_k| = n.
  """
  full = bytes_down(sizes, num_classes) + bytes_up(sizes, num_classes, True)
  return 1 - sent / (full + 2 * sizes.feature_table_bytes)


def last_layer_share(
  num_classes: int, dim: int, encoder_parameters: int
) -> float:
  """Returns the class table's share of the model's parameters (FedSS, fig. 8).

  This fraction is n d / (n d + the encoder's parameters).
  """
  table = num_classes * dim
  return table / (table + encoder_parameters)


def parameter_saving(
  rows: float, num_classes: int, dim: int, encoder_parameters: int
) -> float:
  """Returns the fraction of parameters that a sub-model of `rows` rows saves.

  This is the papers' figure: it counts parameters in one direction, without
  ids. It is the class table's share times the omitted part of the table,
  (1 - |S_k| / n).
  """
  share = last_layer_share(num_classes, dim, encoder_parameters)
  return share * (1 - rows / num_classes)


def class_parameters_sent(rows: float, dim: int) -> float:
  """Returns |S_k| d, the x axis of FedSS's figs 5 and 10 (parameters)."""
  return rows * dim
