"""Frozen weights, which keep their initial values.

Frozen encoder weights are constants in the clients' computations, so a round neither sends nor
averages them. The server's state also has them, so a checkpoint is a complete model.

Frozen tables are different, because a client may have no room for a whole table. Clients request
rows of a frozen table like rows of any other table, and send no rows back. There is one exception:
if clients use all rows of a frozen class table, the table is a constant in their computations.
"""

import collections
import dataclasses

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import classifier, errors
from tff_xc.round import algorithm as algorithm_lib, merge, tables as tables_lib

# The largest size of frozen weights. A computation is a protocol buffer of at most 2 GiB.
_MOST_BYTES = 2**31 - 2**24


def trained_part(
  algorithm: algorithm_lib.Algorithm, weights: classifier.ModelWeights
) -> classifier.ModelWeights:
  """Returns the weights that are not frozen, in the same order as in `weights`."""
  return classifier.ModelWeights(
    *(
      collections.OrderedDict(
        (name, value) for name, value in part.items() if name not in algorithm.frozen
      )
      for part in weights
    )
  )


class Fixed:
  """The frozen weights that are constants in the clients' computations.

  Attributes:
    values: the encoder's frozen weights by name, except tables.
    tables: the frozen tables that clients use as a whole, by name.
  """

  def __init__(self, algorithm: algorithm_lib.Algorithm, seed: list[int]):
    """Draws the weights that `algorithm.frozen` names. `seed` seeds all weights of the model."""
    for table in algorithm.tables:
      if table.name != classifier.CLASS and is_held(algorithm, table):
        raise errors.InputError(
          f'clients receive the whole table {table.name!r}, which is frozen, in'
          ' every round; let them request only the rows of their examples'
          ' (--select_features), or train it'
        )
    self._algorithm = algorithm
    self._specs = algorithm.model.weight_specs()
    self.values, self.tables = _drawn(algorithm, seed)
    if not self.values:
      return

    @tff.tensorflow.computation
    def trained(encoder, encoder_state):
      weights = classifier.ModelWeights(encoder, encoder_state, {})
      return trained_part(self._algorithm, weights)[:2]

    # The constants are in a separate computation, because constants make a graph large and graphs
    # are copied often.
    @tff.tensorflow.computation
    def own():
      return {name: tf.constant(value) for name, value in self.values.items()}

    @tff.tensorflow.computation
    def joined(encoder, encoder_state, own):
      return tuple(
        classifier.replaced(specs, {**received, **own})
        for specs, received in (
          (self._specs.encoder, encoder),
          (self._specs.encoder_state, encoder_state),
        )
      )

    self._trained, self._own, self._joined = trained, own, joined

  def trained_specs(self) -> classifier.ModelWeights:
    """Returns the `tf.TensorSpec`s of the weights that are trained."""
    return trained_part(self._algorithm, self._specs)

  def receive(self, weights):
    """Returns (encoder, encoder state)@CLIENTS, given `ModelWeights`@SERVER.

    Only trained weights are sent. Call it within a federated computation.
    """
    parts = weights.encoder, weights.encoder_state
    if self.values:
      parts = tff.federated_map(self._trained, parts)
    parts = tuple(tff.federated_broadcast(part) for part in parts)
    if self.values:
      own = tff.federated_eval(self._own, tff.CLIENTS)
      parts = tff.federated_map(self._joined, (*parts, own))
    return tuple(parts)

  def checked(
    self, weights: classifier.ModelWeights, present: classifier.ModelWeights
  ) -> classifier.ModelWeights:
    """Returns `weights`. Fails if a frozen weight differs from its value in `present`."""
    new, old = (
      {**classifier.union(w.encoder, w.encoder_state), **w.tables} for w in (weights, present)
    )
    checks = [
      tf.raw_ops.Assert(
        condition=tf.reduce_all(tf.equal(new[name], old[name])),
        data=[
          f'the frozen weight {name!r} differs from the one that clients have; set'
          ' the weights of a process that trains it'
        ],
      )
      for name in (*self.values, *self.tables)
    ]
    with tf.control_dependencies(checks):
      return tf.nest.map_structure(tf.identity, weights)


def is_held(algorithm: algorithm_lib.Algorithm, table: tables_lib.Table) -> bool:
  """Returns whether a table is frozen and a constant in the clients' computations."""
  sent = algorithm.has_clients and not table.request.selects
  return sent and table.name in algorithm.frozen


def _drawn(algorithm, seed: list[int]) -> tuple[dict, dict]:
  """Draws (frozen encoder weights except tables, tables for which `is_held` is true), by name."""
  specs = algorithm.model.weight_specs()
  of_encoder = classifier.union(specs.encoder, specs.encoder_state)
  names = [name for name in of_encoder if name in algorithm.frozen]
  held = [t.name for t in algorithm.tables if is_held(algorithm, t)]
  kept = [of_encoder[name] for name in names] + [specs.tables[name] for name in held]
  size = sum(spec.shape.num_elements() * spec.dtype.size for spec in kept)
  if size > _MOST_BYTES:
    raise errors.InputError(
      f'the frozen weights have {size:,} bytes; expected at most {_MOST_BYTES:,},'
      ' which a computation can hold: take a smaller network, or --trainable=all'
    )

  @tf.function(autograph=False)
  def draw():  # The graph computes only the returned weights.
    made = algorithm.model.init(tf.constant(seed))
    drawn = classifier.union(made.encoder, made.encoder_state)
    return [drawn[n] for n in names], [made.tables[n] for n in held]

  of_names, of_tables = draw() if names or held else ([], [])
  return tuple(
    {n: t.numpy() for n, t in zip(found, values, strict=True)}
    for found, values in ((names, of_names), (held, of_tables))
  )


def train_only(algorithm: algorithm_lib.Algorithm, part: str) -> algorithm_lib.Algorithm:
  """Returns the algorithm with clients that train only a part of the model.

  `part` is 'head', the class table; 'bottleneck', the class table and the encoder's last layer
  (`Encoder.last_layer`); 'body', everything except the class table; or 'all'. If batch statistics
  are frozen, clients run the encoder in inference mode.
  """
  model = algorithm.model
  specs, encoder, names = model.weight_specs(), model.encoder, set()
  if part == 'bottleneck' and not encoder.last_layer:
    raise errors.InputError(
      '--trainable=bottleneck: this encoder names no last layer of its own'
      ' (Encoder.last_layer); give --trainable=head or all'
    )
  if part == 'body':
    names = {classifier.CLASS}
    if algorithm.tables[0].steps:
      raise errors.InputError(
        "--trainable=body keeps the initial class rows, but this algorithm's server"
        ' changes them; choose another --algorithm, such as fedbabu'
      )
  elif part != 'all':
    kept = encoder.last_layer if part == 'bottleneck' else ()
    names = {*specs.encoder, *specs.encoder_state, *encoder.tables} - {*kept}
  frozen = algorithm.frozen | names
  if part != 'all' and frozen >= {*specs.encoder, *specs.tables}:
    raise errors.InputError(
      f'--trainable={part}: this algorithm does not train the class table, so nothing'
      ' would be trained; give --trainable=bottleneck or all'
    )
  tables = tuple(
    tables_lib.Table(t.name, t.request, merge.KeepRows()) if t.name in names else t
    for t in algorithm.tables
  )
  return dataclasses.replace(algorithm, frozen=frozen, tables=tables)


def head_only(algorithm) -> algorithm_lib.Algorithm:
  """Returns the algorithm with clients that train only class rows, even if these are frozen."""
  trained = algorithm.frozen - {classifier.CLASS}
  unfrozen = dataclasses.replace(algorithm, frozen=trained, head_epochs=0)
  return train_only(unfrozen, 'head')
