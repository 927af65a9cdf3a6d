"""Exchanges the encoder with clients: whole, or its feature table separately.

An encoder of sparse examples has a table with one row per feature. There are
very many features, and a client's examples use few of them. As with the class
table, a client receives either all rows or only those that its examples use,
and the table has its own server optimizer (FedAwS: SGD for this table, Adagrad
for the other weights).
"""

import collections
from typing import NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier
from tff_xc.encoders import encoder as encoder_lib
from tff_xc.round import exchange
from tff_xc.round import local_training as client_work
from tff_xc.round import merge
from tff_xc.round import randomness
from tff_xc.round import request as request_lib
from tff_xc.round import server as server_lib


class WholeEncoder:
  """Sends every client all encoder weights."""

  table_name = None

  def receive(self, state, examples, seed):
    """Returns the encoder as clients receive it, @CLIENTS.

    Call it within a federated computation.

    Args:
      state: the server's `RoundState`.
      examples: `ClientExamples`@CLIENTS.
      seed: the round's seed@CLIENTS.
    """
    del examples, seed
    return tff.federated_broadcast(state.weights.encoder)

  def unpack(self, received, x):
    """Returns (encoder weights, examples whose ids index their rows)."""
    return received, x

  def pack(self, received, update: client_work.ClientUpdate):
    """Returns the update in the form that the client sends."""
    del received
    return update

  def merge(self, received, update) -> tuple:
    """Returns further `RowSums`@SERVER, besides those of the class rows."""
    del received, update
    return ()

  def server_update(self, sums, total_weight):
    """Returns the server's `FeatureUpdate` from `merge`'s sums, or None."""
    del sums, total_weight


class Received(NamedTuple):
  """An encoder at a client, its feature rows apart from the other weights.

  Attributes:
    others: the weights by name, except the feature table.
    rows: rows of the feature table; a sequence if they are selected.
    held: the features whose rows these are.
  """

  others: encoder_lib.Weights
  rows: tf.Tensor
  held: request_lib.HeldClasses


class EncoderByRows(WholeEncoder):
  """Sends the rows of the feature table separately from the other weights."""

  def __init__(
    self,
    model: classifier.EmbeddingClassifier,
    max_features: int,
    optimizer,
    state_type: tff.StructType,
  ):
    """Describes the exchange.

    Args:
      model: its encoder has a feature table.
      max_features: the largest number of distinct features of any client. A
        client then receives the rows of its own features; 0: all rows.
      optimizer: the table's `table_optimizers.TableOptimizer`.
      state_type: the type of the server's `RoundState`.
    """
    self.table_name = model.encoder.feature_table
    self._names = list(model.weight_specs().encoder)
    number = model.encoder.example_spec.num_features
    self._request = (
      request_lib.OwnAndSampled(number, max_features, noun='feature')
      if max_features
      else request_lib.AllClasses(number, noun='feature')
    )
    self._merge = merge.AddRows()
    self._exchange = exchange.RowExchange(
      self._request,
      optimizer,
      self._merge,
      getattr(state_type.weights.encoder, self.table_name),
      state_type.server.features,
    )

  def receive(self, state, examples, seed):
    @tff.tensorflow.computation
    def request_features(x, client_id, seed):
      purpose = randomness.Purpose.FEATURES
      return self._request.held_classes(
        x.ids, randomness.client_seed(seed, client_id, purpose), client_id
      )

    weights = state.weights.encoder
    held = tff.federated_map(
      request_features, (examples.x, examples.client_id, seed)
    )
    rows = self._exchange.receive(
      state.server.features, getattr(weights, self.table_name), held
    )
    others = collections.OrderedDict(
      (n, getattr(weights, n)) for n in self._names if n != self.table_name
    )
    others = tff.federated_broadcast(tff.federated_zip(others))
    return tff.federated_zip(Received(others, rows, held))

  def unpack(self, received, x):
    rows = exchange.as_tensor(received.rows, self._request.slots)
    if self._request.selects:
      # Most clients use far fewer features than there are slots. Padding
      # comes last and is cut off before training.
      used = tf.reduce_sum(tf.cast(received.held.mask, tf.int32))
      rows = rows[: tf.maximum(used, 1)]
    weights = collections.OrderedDict(
      (n, rows if n == self.table_name else received.others[n])
      for n in self._names
    )
    if self._request.selects:
      x = x._replace(ids=request_lib.positions(received.held, x.ids))
    return weights, x

  def pack(self, received, update):
    used = tf.cast(received.held.mask, tf.float32)
    return update._replace(
      encoder_delta=server_lib.without(update.encoder_delta, self.table_name),
      feature_delta=update.encoder_delta[self.table_name],
      measured=collections.OrderedDict(
        **update.measured,
        feature_rows=tf.reduce_sum(used) * update.measured['clients'],
      ),
    )

  def merge(self, received, update):
    sums = self._exchange.merge(received.held, update.feature_delta, update)
    return (sums,)

  def server_update(self, sums, total_weight):
    delta = self._merge.delta(sums, total_weight)
    return server_lib.FeatureUpdate(self.table_name, sums.ids, delta)
