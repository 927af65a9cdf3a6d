"""Bytes that a client receives and sends in a round, and FullSoftmax's bytes.

The rule: bytes are those of the payload of one client and round, without
padding (messages: FedSS, Algorithm 1 and section 3).
  down: the encoder's trained weights and the requested rows of every table; with
        a class row its probability, if the server sends these; and what parts of
        a round carry (`tff_xc.round.carried`), such as SCAFFOLD's variate;
  up:   the requested ids, then the encoder's delta, the updated rows with their
        ids, and the client's weight, one float. With compression
        (`tff_xc.round.compression`), a row or tensor in whole bytes, and its
         least and largest number. With distributed privacy, integers in whole bytes.
         And replies of carried parts.
With `Bfloat16`, weights, rows and deltas have 2 bytes a number in both directions, and
all else has 4.
A table of which every row is requested has no ids in either message: row c is
at place c. The round's seed, other scalars, and the sums behind its metrics, some 50
bytes, are not counted. A client whose update is dropped is counted like any other.
`tests/round/test_crossing.py` compares this with what a round feeds and folds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.round import algorithm as algorithm_lib

_ID, _FLOAT = 4, 4


@dataclasses.dataclass(frozen=True)
class TableSizes:
  """Sizes of a table's messages."""

  num_rows: int  # All rows of the table.
  row_bytes: int  # One row: 4 d, and 4 more with a bias.
  selects: bool = True  # Whether clients request some rows by their ids.
  sends_rows: bool = True  # Whether clients send rows back.
  # What comes with a row and is not sent back: a class's probability
  # (`tff_xc.round.importance`).
  beside_bytes: int = 0
  # One row as clients send it, if that is compressed.
  sent_row_bytes: int | None = None
  is_held: bool = (
    False  # Whether clients have it from the start (`round.frozen`).
  )
  # One row as clients receive it, if that is compressed.
  received_row_bytes: int | None = None

  def down(self, rows: float) -> float:
    """Returns the bytes that a client receives if it requests `rows` rows."""
    each = self.row_bytes
    if self.received_row_bytes is not None:
      each = self.received_row_bytes
    return rows * (self.beside_bytes + (not self.is_held) * each)

  def up(self, rows: float) -> float:
    """Returns the bytes that a client sends if it requests `rows` rows."""
    ids = rows * _ID if self.selects else 0
    each = self.row_bytes
    if self.sent_row_bytes is not None:
      each = self.sent_row_bytes
    return ids + (ids + rows * each if self.sends_rows else 0)


@dataclasses.dataclass(frozen=True)
class Messages:
  """Converts numbers of requested rows into bytes."""

  # The encoder's trained weights, except tables, and their delta, both in float32.
  encoder_bytes: int
  tables: Mapping[str, TableSizes]  # The sizes by name of table.
  # False for training without clients, which sends no messages.
  has_clients: bool = True
  frozen_bytes: int = 0  # The encoder's other weights, which clients hold.
  sent_encoder_bytes: int | None = None  # Of its delta, if that is compressed.
  # Of the parts that a round carries, to a client and from it.
  carried_down: int = 0
  carried_up: int = 0
  received_encoder_bytes: int | None = (
    None  # If what is sent to clients is compressed.
  )

  def of_round(
    self, rows: Mapping[str, float], largest: Mapping[str, float]
  ) -> dict[str, float]:
    """Returns the columns of bytes of a round, of mean and `largest` rows by table."""
    down = up = held = 0.0
    for name, table in self.tables.items():
      down += table.down(rows[name])
      up += table.up(rows[name])
      held += largest[name] * table.row_bytes
    encoder = received = sent = self.encoder_bytes
    if self.received_encoder_bytes is not None:
      received = self.received_encoder_bytes
    if self.sent_encoder_bytes is not None:
      sent = self.sent_encoder_bytes
    down += received + self.carried_down
    up += sent + self.carried_up + _FLOAT
    return {
      'bytes_down_per_client': down if self.has_clients else 0.0,
      'bytes_up_per_client': up if self.has_clients else 0.0,
      'client_parameters_peak': (encoder + self.frozen_bytes + held) // _FLOAT,
    }

  def saving(self, sent: float) -> float:
    """Returns the saved fraction of FullSoftmax's bytes in float32, down and up.

    `sent` are bytes down and up, per client and round. The fraction is negative if the ids
    cost more than the omitted rows save.
    """
    if not self.has_clients:
      return 1.0
    rows = sum(t.num_rows * t.row_bytes for t in self.tables.values())
    return 1 - sent / (2 * (self.encoder_bytes + rows) + _FLOAT)


def messages(algorithm: algorithm_lib.Algorithm) -> Messages:
  """Returns the sizes of an algorithm's messages."""
  import tensorflow as tf

  from tff_xc import classifier
  from tff_xc.round import carried
  from tff_xc.round import frozen
  from tff_xc.round import importance

  beside = 0 if importance.target_of(algorithm) is None else _FLOAT
  whole = algorithm.model.weight_specs()
  specs, all_bytes = whole.tables, _encoder_bytes(whole)
  part = frozen.trained_part(algorithm, whole)
  trained, sent = _encoder_bytes(part), None
  size = algorithm.compression and algorithm.compression.size
  if algorithm.privacy and algorithm.privacy.bits:
    size = lambda numbers: -(-numbers * algorithm.privacy.bits // 8)
  if size:
    sent = sum(size(s.shape.num_elements()) for s in _of_encoder(part))
  both_ways = algorithm.compression and algorithm.compression.both_ways
  with tf.Graph().as_default():  # Nothing is computed.
    messages_ = [*carried.messages(algorithm).values()]
  replies = [part.reply_spec for part in carried.parts(algorithm).values()]
  return Messages(
    trained,
    {
      table.name: TableSizes(
        specs[table.name].shape[0],
        _FLOAT * specs[table.name].shape[1],
        table.request.selects,
        table.merge.sends_rows,
        beside if table.name == classifier.CLASS else 0,
        size(specs[table.name].shape[1]) if size else None,
        frozen.is_held(algorithm, table),
        size(specs[table.name].shape[1]) if both_ways else None,
      )
      for table in algorithm.tables
    },
    algorithm.has_clients,
    all_bytes - trained,
    sent,
    *map(_bytes_of, (messages_, replies)),
    sent if both_ways else None,
  )


def _bytes_of(tensors) -> int:
  """Returns the bytes of tensors or of their specs; scalars are not counted."""
  import tensorflow as tf

  flat = [t for t in tf.nest.flatten(tensors) if t.shape.rank]
  return sum(t.shape.num_elements() * t.dtype.size for t in flat)


def _of_encoder(specs: classifier.ModelWeights) -> list:
  return [*specs.encoder.values(), *specs.encoder_state.values()]


def _encoder_bytes(specs: classifier.ModelWeights) -> int:
  return sum(s.shape.num_elements() * s.dtype.size for s in _of_encoder(specs))
