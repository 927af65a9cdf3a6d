"""Sends rows of a large table to clients and merges their row updates.

Every algorithm exchanges the class table in this way (one key per class), and
an encoder of sparse examples its feature table (one key per feature).
"""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.round import merge
from tff_xc.round import request as request_lib
from tff_xc.round import table_optimizers


class RowExchange:
  """Exchanges the rows of one table with the clients.

  Call its methods within a federated computation.
  """

  def __init__(
    self,
    request: request_lib.AllClasses | request_lib.OwnAndSampled,
    optimizer: table_optimizers.TableOptimizer,
    row_merge: merge.AddRows,
    table_type: tff.TensorType,
    state_type: tff.Type,
  ):
    """Args: the round's answers, and types of table and optimizer state."""
    self._request = request
    # The value that rows are read from: the table, or a lazy optimizer's state
    # and the table.
    self._lazy = optimizer.reads_state
    source_type = (
      tff.to_type((state_type, table_type)) if self._lazy else table_type
    )
    parts = lambda source: source if self._lazy else ((), source)

    @tff.tensorflow.computation(source_type, np.int32)
    def select_row(source, row_id):
      return optimizer.read(*parts(source), row_id)

    @tff.tensorflow.computation(source_type)
    def read_all(source):
      return optimizer.read_all(*parts(source))

    self._select_row, self._read_all = select_row, read_all
    self._merge = row_merge.build(table_type.shape[1], request.selects)

  def receive(self, table_state, table, held):
    """Returns the rows@CLIENTS for (state, table)@SERVER and held@CLIENTS.

    If rows are selected they are a sequence, otherwise the whole table.
    """
    source = tff.federated_zip((table_state, table)) if self._lazy else table
    if self._request.selects:
      max_key = tff.federated_value(self._request.num_classes, tff.SERVER)
      return tff.federated_select(held.ids, max_key, source, self._select_row)
    if self._lazy:
      source = tff.federated_map(self._read_all, source)
    return tff.federated_broadcast(source)

  def merge(self, held, row_delta, update) -> Any:
    """Returns `merge.RowSums`@SERVER of the clients' updates."""
    return self._merge(held, row_delta, update)


def as_tensor(rows, slots: int) -> tf.Tensor:
  """Returns received rows as float32 [slots, row_dim]."""
  if isinstance(rows, tf.data.Dataset):
    rows = rows.batch(slots).get_single_element()
  return tf.ensure_shape(rows, [slots, rows.shape[-1]])
