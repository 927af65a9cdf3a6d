"""Computes the bytes that a client receives and sends in a round, and FullSoftmax's bytes.

The bytes are the payload of one client in one round, without padding. FedSS (Algorithm 1 and
section 3) describes the messages.
  down: the encoder's trained weights and the requested rows of every table. If the server
        sends class probabilities, each class row comes with its probability. The parts of
        an algorithm (`tff_xc.round.parts`) may add messages, such as SCAFFOLD's control
        variate.
  up:   the requested ids, the encoder's delta, the updated rows with their ids, and the
        client's weight, which is one float. With compression
        (`tff_xc.options.compression`), each row or tensor takes whole bytes, and the
        client also sends the smallest and largest number of each row or tensor. With
        distributed privacy, clients send integers of `dp_bits` bits, and each row or tensor
        takes whole bytes. Parts of an algorithm may add replies.
With --message_precision=bfloat16, a number in weights, rows and deltas has 2 bytes in both
directions. Without these options, all numbers have 4 bytes. If a client requests all rows of a
table, neither message contains ids, because row c is at index c. The round's seed, other scalars,
and the sums for the metrics (together about 50 bytes) do not count. A client with a dropped update
counts like any other client.
`tests/round/test_crossing.py` compares these bytes with the values that a round passes to
clients and aggregates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from tff_xc.lazy import np, tf

if TYPE_CHECKING:
  from tff_xc import classifier
  from tff_xc.data import client_data
  from tff_xc.round import algorithm as algorithm_lib

_ID, _FLOAT = 4, 4


class TableSizes(NamedTuple):
  """Sizes of a table's messages, in bytes."""

  row_bytes: int  # The bytes of a row in a client's memory: 4 d, and 4 more with a bias.
  down: int  # The bytes that a client receives for each row that it requests.
  up: int  # The bytes that a client sends for each requested row: ids and the row.


@dataclasses.dataclass(frozen=True)
class Messages:
  """Sizes of messages. The methods convert numbers of requested rows into bytes."""

  encoder_bytes: int  # The encoder's trained weights in a client's memory, without tables.
  frozen_bytes: int  # The encoder's other weights in a client's memory.
  # Bytes that FullSoftmax sends in one direction: all weights of the task's model, including
  # all class rows.
  full_bytes: int
  # Bytes that a client receives and sends in addition to rows of `tables`.
  down: int
  up: int
  tables: Mapping[str, TableSizes]  # The sizes of each table's messages, by table name.
  # False for training without clients, which sends no messages.
  has_clients: bool = True

  def of_round(self, rows: Mapping[str, float], largest: Mapping[str, float]) -> dict[str, float]:
    """Returns a round's metrics of message and client sizes.

    `rows` has for each table the mean number of rows that a client requests. `largest` has
    the largest number of rows that any client requests.
    """
    tables = self.tables.items()
    down = self.down + sum(rows[name] * t.down for name, t in tables)
    up = self.up + sum(rows[name] * t.up for name, t in tables)
    held = sum(largest[name] * t.row_bytes for name, t in tables)
    encoder = self.encoder_bytes + self.frozen_bytes
    return {
      'bytes_down_per_client': down if self.has_clients else 0.0,
      'bytes_up_per_client': up if self.has_clients else 0.0,
      'client_parameters_peak': (encoder + held) // _FLOAT,
    }

  def saving(self, sent: float) -> float | None:
    """Returns which fraction of FullSoftmax's bytes, in both directions together, is saved.

    Args:
      sent: the sum of the bytes that a client receives and sends in a round.

    Returns:
      A number up to 1. The number is negative if `sent` is larger than with FullSoftmax, for
      example because of row ids, control variates, or wide hash tables. None for training
      without clients, which has no messages.
    """
    if not self.has_clients:
      return None
    return 1 - sent / (2 * self.full_bytes + _FLOAT)


def messages(algorithm: algorithm_lib.Algorithm) -> Messages:
  """Returns the sizes of an algorithm's messages."""
  from tff_xc import classifier
  from tff_xc.round import frozen, parts

  # Privacy and compression exclude each other.
  compressing = next((part for part in algorithm.parts if part.size), parts.Part())

  def held(spec):
    return spec.shape.num_elements() * spec.dtype.size

  def sent(spec):
    return compressing.size(spec.shape.num_elements()) if compressing.size else held(spec)

  received = sent if compressing.both_ways else held
  specs = algorithm.model.weight_specs()

  def of_table(table):
    row = tf.TensorSpec(specs.tables[table.name].shape[1:])
    ids = _ID if table.request.selects else 0
    weighs = any(part.beside is not None for part in algorithm.parts)
    beside = _FLOAT if weighs and table.name == classifier.CLASS else 0
    return TableSizes(
      held(row),
      beside + (0 if frozen.is_held(algorithm, table) else received(row)),
      ids + (ids + sent(row) if table.merge.sends_rows else 0),
    )

  with tf.Graph().as_default():  # Only shapes are needed, so compute nothing.
    messages_ = tf.nest.flatten([*parts.initial(algorithm).values()])
  replies = tf.nest.flatten([part.reply_spec for part in algorithm.parts])

  def no_scalars(tensors):
    return [t for t in tensors if t.shape.rank]

  trained = _of_encoder(frozen.trained_part(algorithm, specs))
  trained_bytes = sum(map(held, trained))
  all_bytes = sum(map(held, _of_encoder(specs)))
  # FullSoftmax is assumed to train the same share of the encoder. Take this share of the task's
  # encoder, because FedMLH's model has several copies of the encoder.
  plain = (algorithm.task_model or algorithm.model).weight_specs()
  encoder = sum(map(held, _of_encoder(plain))) * trained_bytes // max(all_bytes, 1)
  return Messages(
    trained_bytes,
    all_bytes - trained_bytes,
    encoder + sum(map(held, plain.tables.values())),
    sum(map(received, trained)) + sum(map(held, no_scalars(messages_))),
    sum(map(sent, trained)) + sum(map(held, no_scalars(replies))) + _FLOAT,
    {table.name: of_table(table) for table in algorithm.tables},
    algorithm.has_clients,
  )


# `own_rows` counts features for about this many clients.
_MOST_READ = 1000


class OwnRows(NamedTuple):
  """The number of rows of a table that each client's examples need."""

  counts: np.ndarray  # int [k], the number of rows of each client that has examples.
  sizes: np.ndarray  # int [k], the number of examples of each of these clients.


def own_rows(
  train: client_data.PartitionedClientData, num_classes: int, drawn: int = 0, tied: bool = False
) -> dict[str, OwnRows]:
  """Returns for each table the number of rows that each client's examples need in a round.

  A client needs the class rows of all its examples. The client needs the features of only `drawn`
  of its examples (0: all of them). Features are counted for about 1,000 clients, each with one
  random draw of examples. If features are `tied` to class rows, one table has both.
  """
  from tff_xc import classifier
  from tff_xc.encoders import bag
  from tff_xc.measure import skew

  sizes = train.partition.sizes
  active = np.flatnonzero(sizes)
  shape = len(train.partition), num_classes
  counts = np.diff(skew.class_counts(*train.owned_labels(), shape).indptr)
  found = {classifier.CLASS: OwnRows(counts[active], sizes[active])}
  if train.pool.entries is not None:
    some = active[:: -(-len(active) // _MOST_READ) or 1]
    features = []
    for client in some:
      held = train.partition.of_client(client)
      if 0 < drawn < len(held):
        held = np.random.default_rng([0, 0, client]).choice(held, drawn, False)
      named = train.pool.read(held).indices
      if tied:
        named = np.append(named, train.pool.labels[train.partition.of_client(client)])
      features.append(len(np.unique(named)))
    found[classifier.CLASS if tied else bag.FEATURE] = OwnRows(np.array(features), sizes[some])
  return found


def _of_encoder(specs: classifier.ModelWeights) -> list:
  return [*specs.encoder.values(), *specs.encoder_state.values()]
