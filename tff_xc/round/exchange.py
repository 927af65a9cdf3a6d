"""Exchanges the rows of a table between server and clients."""

from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.round import request as request_lib
from tff_xc.round import tables as tables_lib


class Exchange:
  """Exchanges the rows of one table; call it within a federated computation.

  Attributes:
    merge: joins the clients' rows, see `merge.Merge.build`.
  """

  def __init__(
    self,
    table: tables_lib.Table,
    value_type: tff.TensorType,
    state_type: tff.Type,
    beside: np.ndarray | None = None,
  ):
    """Describes the exchange.

    Args:
      table: the table.
      value_type: of its value.
      state_type: of its `TableState`.
      beside: [n], a number that clients receive with each row, or None.
    """
    optimizer = table.optimizer
    self._request = table.request
    # The value that rows are read from: the table, or a lazy optimizer's state
    # and the table.
    self._lazy = optimizer.reads_state
    source_type = value_type
    if self._lazy:
      source_type = tff.to_type((state_type.optimizer, value_type))
    parts = lambda source: source if self._lazy else ((), source)

    @tff.tensorflow.computation(source_type, np.int32)
    def select_row(source, row_id):
      row = optimizer.read(*parts(source), row_id)
      return row if beside is None else (row, tf.gather(beside, row_id))

    @tff.tensorflow.computation(source_type)
    def read_all(source):
      return optimizer.read_all(*parts(source))

    self._beside = None
    if beside is not None:
      self._beside = tff.tensorflow.computation(lambda: tf.constant(beside))
    self._select_row, self._read_all = select_row, read_all
    self.merge = table.merge.build(
      *value_type.shape, selects=table.request.selects
    )

  def receive(self, state, value, held):
    """Returns the rows@CLIENTS for (state, table)@SERVER and held@CLIENTS.

    If rows are selected they are a sequence, otherwise the whole table; with
    numbers beside them, pairs of rows and numbers.
    """
    source = value
    if self._lazy:
      source = tff.federated_zip((state.optimizer, value))
    if self._request.selects:
      max_key = tff.federated_value(int(self._request.num_rows), tff.SERVER)
      return tff.federated_select(held.ids, max_key, source, self._select_row)
    if self._lazy:
      source = tff.federated_map(self._read_all, source)
    rows = tff.federated_broadcast(source)
    if not self._beside:
      return rows
    beside = tff.federated_eval(self._beside, tff.SERVER)
    return tff.federated_zip((rows, tff.federated_broadcast(beside)))


def as_tensors(
  table: tables_lib.Table, rows: Any, held: request_lib.SelectedRows
) -> tuple[tf.Tensor, tf.Tensor | None]:
  """Returns received rows float32 [N, row_dim], and the numbers beside them [N].

  Rows of an encoder's table lack the padding, if rows are selected: most
  clients use far fewer rows than there are slots, and padding comes last.
  """
  slots = table.request.slots
  if isinstance(rows, tf.data.Dataset):
    rows = rows.batch(slots).get_single_element()
  rows, beside = rows if isinstance(rows, tuple) else (rows, None)
  rows = tf.ensure_shape(rows, [slots, rows.shape[-1]])
  if table.request.selects and table.name != classifier.CLASS:
    used = tf.reduce_sum(tf.cast(held.mask, tf.int32))
    rows = rows[: tf.maximum(used, 1)]
  return rows, beside
