"""Converts a Keras network to an encoder, a pure function of its weights.

A Keras network stores its weights in variables. A client's computation must receive its
weights as arguments, because each client has different weights. Therefore this module
traces the network to two graphs, one for training and one for tests. During tracing, each
variable reads a tensor that is an argument of the graph. If a layer assigns to a variable,
as BatchNorm does for its running statistics, the new value replaces this tensor.
"""

import collections
import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from tff_xc import errors
from tff_xc.encoders import encoder as encoder_lib, layers

# TensorFlow marks ops as stateful if they draw random numbers, keep a state, or read a
# clock. It also marks the following ops, although their results depend only on arguments.
_PURE = re.compile(
  'Assert|Case|CheckNumerics.*|CudnnRNN.*|DeviceIndex|If|Print(V2)?'
  '|StatefulPartitionedCall|StatelessRandomGetAlg|TensorArray.*|While|XlaCallModule'
)
_PYTHON = ('EagerPyFunc', 'PyFunc', 'PyFuncStateless')


def build_keras_encoder(
  model: tf.keras.Model, example: tf.TensorSpec | Sequence[int], name: str = 'the network'
) -> encoder_lib.Encoder:
  """Returns a Keras network as an encoder.

  The network receives examples as they are stored, cast to the dtype of its input. For
  example, uint8 images have pixels from 0 to 255. The encoder names weights by index and
  kind, such as '003/kernel'. The initial weights are the network's current weights. The
  server averages weights without gradients over clients, too. The random layers of Keras
  (dropout, augmentation) use the seed of the step.

  Args:
    model: network from examples [B, ...] of numbers to embeddings float32 [B, d].
    example: shape and dtype of one stored example, such as `dataset.train.pool.spec`. A
      shape without a dtype means uint8 images, [H, W, C] or [H, W], or float32 vectors,
      [D]. The network's input has this shape, or one more axis of length 1. For example,
      gray images [H, W] become [H, W, 1].
    name: name of the network in error messages.

  Raises:
    errors.InputError: the network does not map these examples to embeddings, a layer
      cannot be traced or is not reproducible, or a variable is not among the weights.
  """
  if not isinstance(example, tf.TensorSpec):
    dtype = tf.float32 if len(example) == 1 else tf.uint8
    example = tf.TensorSpec(example, dtype)
  _check(model, example, name)
  # Keras's own names also depend on how many networks this process has created.
  ends = [v.name.rsplit('/', 1)[-1].partition(':')[0] for v in model.weights]
  name_of = {
    id(v): f'{i:03}/{end}' for i, (v, end) in enumerate(zip(model.weights, ends, strict=True))
  }

  def named(variables) -> dict[str, np.ndarray]:
    held = {id(v) for v in variables}
    return {name_of[id(v)]: v.numpy() for v in model.weights if id(v) in held}

  trained, state = named(model.trainable_weights), named(_state(model))
  graphs = {training: _graph(model, example, training, name) for training in (True, False)}

  def apply(trainable, non_trainable, x, training, seed):
    seed = tf.zeros([2], tf.int32) if seed is None else seed
    given = [trainable[n] for n in trained] + [non_trainable[n] for n in state]
    embeddings, *after = graphs[bool(training)](x, seed, *given)
    return embeddings, collections.OrderedDict(zip(state, after, strict=True))

  def constants(of):
    return lambda seed: collections.OrderedDict((n, tf.constant(value)) for n, value in of.items())

  return encoder_lib.Encoder(
    example_spec=example,
    embedding_dim=model.output_shape[-1],
    init=constants(trained),
    apply=apply,
    init_non_trainable=constants(state),
    last_layer=tuple(named(_last_weights(model))),
  )


def _check(model, example: tf.TensorSpec, name: str) -> None:
  """Raises InputError unless `model` is a network from these examples to embeddings."""
  if not isinstance(model, tf.keras.Model):
    raise errors.InputError(f'{name} returned {type(model).__name__}; expected a tf.keras.Model')
  if example.dtype.is_complex:
    raise errors.InputError(
      f'{name} takes real numbers, and the examples are {example.dtype.name}; store'
      ' the real and the imaginary parts as two numbers'
    )
  if not model.built or not isinstance(getattr(model, 'inputs', None), list):
    raise errors.InputError(
      f'{name} returned a network without an input; start it with'
      ' tf.keras.Input(shape), such as (height, width, channels)'
    )
  shapes = ([tuple(t.shape) for t in model.inputs], [tuple(t.shape) for t in model.outputs])
  ([taken, *others], [returned, *more]) = shapes
  shape = [*example.shape, 1][: len(taken) - 1]
  fits = len(shape) >= len(example.shape) and all(
    a in (None, b) for a, b in zip(taken[1:], shape, strict=False)
  )
  if others or not fits or len(shape) < len(taken) - 1:
    raise errors.InputError(
      f'{name} takes {shapes[0]}, and the examples are {[*example.shape]} of'
      f' {example.dtype.name}: give another network, or --image_size to images'
    )
  of_numbers = model.outputs[0].dtype == tf.float32
  if more or len(returned) != 2 or not returned[1] or not of_numbers:
    raise errors.InputError(
      f'{name} returns {shapes[1]} of {model.outputs[0].dtype.name}; expected one'
      ' float32 embedding an example, (None, d)'
    )
  if not model.trainable_weights:
    raise errors.InputError(f'{name} has no trainable weights')
  others = [v for v in model.trainable_weights if v.dtype != tf.float32]
  if others:
    raise errors.InputError(
      f'{name} trains weights of {others[0].dtype.name} in'
      f' {_layer_of(model, others[0])}; give this layer the dtype float32'
    )
  if model.losses:
    raise errors.InputError(
      f'{name} adds its own losses (such as kernel_regularizer), which training would'
      ' ignore; remove them, and give --weight_decay instead'
    )


def _state(model) -> list[tf.Variable]:
  """Returns the non-trainable float32 weights. Only float32 weights can be averaged."""
  return [v for v in model.non_trainable_weights if v.dtype == tf.float32]


def _last_weights(model) -> list[tf.Variable]:
  """Returns the weights of the last layer that has weights.

  Returns [] if several layers, or the input, reach the output without further weights.
  """
  ends, seen, waiting = set(), set(), [model.outputs[0]._keras_history]
  while waiting:
    history = waiting.pop()
    layer, place = history.layer, (id(history.layer), history.node_index)
    inputs = layer._inbound_nodes[history.node_index].keras_inputs
    if layer.weights or not inputs:
      ends.add(place)
      last = layer
    elif place not in seen:
      waiting += [tensor._keras_history for tensor in inputs]
    seen.add(place)
  if len(ends) != 1:
    return []
  return _last_weights(last) if isinstance(last, tf.keras.Model) else last.trainable_weights


def _graph(model, example: tf.TensorSpec, training: bool, name: str):
  """Returns a function (x, seed, *trainable, *state) -> embeddings, *state."""
  variables = [*model.trainable_weights, *_state(model)]
  others = [(v, v.numpy()) for v in model.weights if v.dtype != tf.float32]
  fixed = [*model.trainable_weights, *(v for v, _ in others)]
  taken, assigned = model.inputs[0], []

  def call(x, seed, *given):
    held = {id(v): t for v, t in zip(variables, given, strict=True)}
    held |= {id(v): tf.constant(value) for v, value in others}
    before = dict(held)
    x = x if len(example.shape) == len(taken.shape) - 1 else x[..., None]
    with _tensors_for(model.weights, held), _seeded(model, seed):
      embeddings = model(tf.cast(x, taken.dtype), training=training)
    assigned.extend(v for v in fixed if held[id(v)] is not before[id(v)])
    state = [held[id(v)] for v in variables[len(model.trainable_weights) :]]
    return embeddings, *state

  specs = [tf.TensorSpec(v.shape, v.dtype) for v in variables]
  batch = tf.TensorSpec([None, *example.shape], example.dtype)
  try:
    # Autograph is on, because layers may use Python's `if` and `while` on tensors.
    graph = tf.function(call).get_concrete_function(batch, tf.TensorSpec([2], tf.int32), *specs)
  except Exception as e:  # A layer may raise any exception.
    raise errors.InputError(_why_untraced(e, name)) from e
  if assigned:
    raise errors.InputError(
      f'{name} assigns to a weight of {_layer_of(model, assigned[0])} while it computes;'
      ' only a float32 weight that is not trained may change: leave the layer out'
    )
  _check_graph(graph, name)
  # A TFF computation must not refer to tensors outside of its graph, so turn captured
  # tensors into constants.
  for tensor, inside in graph.graph.captures:
    value = tensor.numpy()
    graph.replace_capture_with_deferred_capture(
      tensor,
      lambda value=value: tf.constant(value),
      tf.TensorSpec(tensor.shape, tensor.dtype),
      inside,
    )
  return graph


def _layer_of(model, variable: tf.Variable) -> str:
  """Returns 'the layer NAME' for the innermost layer that has the variable."""
  of = [
    layer.name for layer in model._flatten_layers() if any(v is variable for v in layer.weights)
  ]
  return f'the layer {of[-1]!r}'


def _why_untraced(e: Exception, name: str) -> str:
  """Returns a sentence with Keras's message about the layer that failed."""
  text = re.split(r'\n\s*Call arguments', str(e))[0].strip()
  why = text.splitlines()[-1].strip().partition('. ')[0]
  layer = re.search(r"calling layer ['\"](.+)['\"] \(type (.+)\)", text)
  where = f'its layer {layer[1]!r} ({layer[2]})' if layer else 'it'
  return (
    f'{name} cannot become a graph of TensorFlow, since {where} fails: {why}; write the'
    ' layer with functions of TensorFlow, or leave it out'
  )


def _check_graph(graph, name: str) -> None:
  """Raises InputError unless the graph is a pure function of its arguments."""
  definition = graph.graph.as_graph_def()
  nodes = [*definition.node, *itertools.chain(*(f.node_def for f in definition.library.function))]
  for node in nodes:
    if node.op in _PYTHON:
      raise errors.InputError(
        f"{name} calls Python ({node.name}), which TFF's runtimes cannot; write it with TensorFlow"
      )
  for read, inside in graph.graph.captures:
    if read.dtype == tf.resource:
      [user, *_] = inside.consumers()
      raise errors.InputError(
        f'{name} reads a variable or a table that is not among its weights, or reads'
        f' one in an unknown way ({user.name}); make it a weight of a layer'
      )
  for node in nodes:
    op = op_def_registry.get(node.op)  # None if the node calls a function of the graph.
    if op and op.is_stateful and not _PURE.fullmatch(node.op):
      raise errors.InputError(
        f'{name} draws random numbers, or keeps a state, by itself ({node.op}:'
        f' {node.name}), which no seed repeats; use the random layers of Keras, such'
        ' as Dropout'
      )


@contextlib.contextmanager
def _tensors_for(variables: Sequence[tf.Variable], held: dict[int, tf.Tensor]) -> Iterator[None]:
  """Makes variables read and assign the tensors in `held`, by `id(variable)`."""
  kinds = [type(v) for v in variables]
  of_kind = {kind: _stand_in(kind, held) for kind in set(kinds)}
  try:
    for v, kind in zip(variables, kinds, strict=True):
      v.__class__ = of_kind[kind]
    yield
  finally:
    for v, kind in zip(variables, kinds, strict=True):
      v.__class__ = kind


def _stand_in(kind: type, held: dict[int, tf.Tensor]) -> type:
  """Returns a subclass of the variable class `kind` that reads and assigns `held`."""

  class StandIn(kind):
    """Reads and assigns tensors."""

    @property
    def handle(self):  # Some ops query the device of the handle.
      return held[id(self)]

    def _read_variable_op(self, no_copy=False):
      return held[id(self)]

    def sparse_read(self, indices, name=None):
      return tf.gather(held[id(self)], indices)

    def gather_nd(self, indices, name=None):
      return tf.gather_nd(held[id(self)], indices)

    def assign(self, value, *args, **kwargs):
      held[id(self)] = tf.convert_to_tensor(value, self.dtype)
      return held[id(self)]

    def assign_add(self, delta, *args, **kwargs):
      return self.assign(held[id(self)] + delta)

    def assign_sub(self, delta, *args, **kwargs):
      return self.assign(held[id(self)] - delta)

  return StandIn


class _SeededGenerator:
  """Replaces the random generator of a Keras layer, and uses the next given seed each time."""

  def __init__(self, seeds: Iterator[tf.Tensor]):
    def drawn(function):
      # The dtype may follow two numbers, such as the mean and the standard deviation.
      return lambda shape, *given, dtype=None, nonce=None, **named: function(
        shape, next(seeds), *given[:2], dtype=next(iter(given[2:]), dtype) or tf.float32, **named
      )

    self.make_seed_for_stateless_op = lambda: next(seeds)
    self.random_normal = drawn(tf.random.stateless_normal)
    self.random_uniform = drawn(tf.random.stateless_uniform)
    self.truncated_normal = drawn(tf.random.stateless_truncated_normal)
    self.dropout = lambda inputs, rate, noise_shape=None: tf.nn.experimental.stateless_dropout(
      inputs, rate, next(seeds), noise_shape=noise_shape
    )


@contextlib.contextmanager
def _seeded(model: tf.keras.Model, seed: tf.Tensor) -> Iterator[None]:
  """Makes the random layers of Keras draw from `seed` within the block."""
  seeds = (layers.fold(seed, i) for i in itertools.count())
  random = [layer for layer in model._flatten_layers() if hasattr(layer, '_random_generator')]
  before = [layer._random_generator for layer in random]
  try:
    for layer in random:  # Avoid `setattr`, because Keras records attributes set by it.
      vars(layer)['_random_generator'] = _SeededGenerator(seeds)
    yield
  finally:
    for layer, generator in zip(random, before, strict=True):
      vars(layer)['_random_generator'] = generator
