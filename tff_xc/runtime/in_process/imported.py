"""Imports TFF's TensorFlow computations as functions of this process.

A computation is a serialized graph with the names of its inputs and outputs. Each `Place` that
calls the computation imports it once. Simultaneous calls must not share the computation's
variables and tables, and the ops of an imported graph belong to one device.
"""

import itertools
import threading
from typing import NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.runtime.in_process import graph_rewrites, updates, values

_imports = itertools.count()


class Place(NamedTuple):
  """Where a graph runs: a device, and a slot for the graph's variables and tables."""

  slot: int = 0  # Simultaneous calls of a stateful graph have different slots.
  device: str = ''  # For example '/device:GPU:0'. With '', TensorFlow chooses.
  home: str = ''  # The device of the server and its values.

  def at_home(self) -> 'Place':
    """Returns the place with the same slot on the server's device."""
    return self._replace(device=self.home)


class GraphFunction:
  """A callable for one TensorFlow computation."""

  def __init__(self, proto, type_signature: tff.FunctionType):
    if proto.WhichOneof('computation') != 'tensorflow':
      kind = proto.WhichOneof('computation')
      raise NotImplementedError(f'a computation compiled for {kind}')
    self._proto = proto.tensorflow
    self._parameter = type_signature.parameter
    self._result = type_signature.result
    self._imports: dict[Place, _Import] = {}
    self._lock = threading.RLock()

  def __call__(self, argument, place: Place):
    """Calls the graph, eagerly or within a function that is being traced."""
    held = []
    if self._parameter is not None:
      held = values.leaves(argument, self._parameter)
    with self._lock, tf.init_scope():
      if place not in self._imports:
        self._imports[place] = _Import(self._proto, place)
    return values.unflatten(self._imports[place](held), self._result)


class _Import:
  """A graph imported into this process for one place."""

  def __init__(self, proto, place: Place):
    graph_def = tf.compat.v1.GraphDef()
    proto.graph_def.Unpack(graph_def)
    graph_rewrites.prepare(graph_def, f'_{next(_imports)}', place.device)
    self._graph_def = graph_def
    self._graph = tf.compat.v1.wrap_function(
      lambda: tf.graph_util.import_graph_def(graph_def, name=''), []
    )
    get = self._graph.graph.as_graph_element
    self._feeds = [get(name) for name in _names(proto, 'parameter')]
    fetches = [get(name) for name in _names(proto, 'result')]
    self._fetched, self._recipe = _recipe(self._feeds, fetches)
    self._batches = {
      i: batch for i, feed in enumerate(self._feeds) if (batch := _only_batch(feed)) is not None
    }
    self._initialize = None
    if proto.initialize_op:
      self._initialize = self._graph.prune([], [get(proto.initialize_op)])
    self._pruned = {}

  def __call__(self, held: list) -> list:
    """Calls the graph with the leaves of an argument. Returns the leaves of the result."""
    whole = frozenset(i for i, leaf in enumerate(held) if self._is_batch(i, leaf))
    with tf.init_scope():
      if whole not in self._pruned:
        self._pruned[whole] = self._prune(whole)
    if self._initialize is not None:
      self._initialize()
    fed = []
    for i, leaf in enumerate(held):
      leaf = materialised(leaf)
      fed += leaf.tensors() if i in whole else [values.as_tensor(leaf)]
    fetched = self._pruned[whole](*fed)
    return made(held, fetched, self._recipe, materialised)

  def _is_batch(self, i: int, leaf) -> bool:
    """Whether leaf i is a `Slices` that the graph reads only as one batch."""
    if i not in self._batches or not isinstance(leaf, values.Slices):
      return False
    return self._batches[i].takes(leaf.size)

  def _prune(self, whole: frozenset[int]):
    feeds = []
    for i, feed in enumerate(self._feeds):
      feeds += self._batches[i].tensors if i in whole else [feed]
    names = [feed.name for feed in feeds]
    fetched = [tensor.name for tensor in self._fetched]
    wanted = [name for name in fetched if name not in names]
    part, fed = graph_rewrites.part(self._graph_def, names, wanted)

    def run(*given):
      tensors = dict(zip(names, given, strict=True))
      found = tf.graph_util.import_graph_def(
        part, {name: tensors[name] for name in fed}, wanted, name=''
      )
      tensors.update(zip(wanted, found, strict=True))
      return [tensors[name] for name in fetched]

    # `self._graph.prune` would give the same result, but take three times as long.
    return tf.compat.v1.wrap_function(
      run, [tf.TensorSpec(feed.shape, feed.dtype) for feed in feeds]
    )


class _Batch(NamedTuple):
  """A sequence that a graph reads as one batch, by `get_single_element(batch(N))`."""

  tensors: list[tf.Tensor]  # The batch's components.
  size: int  # N.
  drop_remainder: bool  # Whether a batch of fewer than N elements is dropped.

  def takes(self, elements: int) -> bool:
    """Whether this number of elements forms exactly one batch."""
    if self.drop_remainder:
      return elements == self.size
    return 0 < elements <= self.size


def _only_batch(feed: tf.Tensor) -> _Batch | None:
  """Returns the batch of a sequence that the graph reads only as one batch, else None."""
  consumers = feed.consumers()
  if len(consumers) != 1 or consumers[0].type != 'BatchDatasetV2':
    return None
  size, drop = map(tf.get_static_value, consumers[0].inputs[1:3])
  readers = consumers[0].outputs[0].consumers()
  if len(readers) != 1 or readers[0].type != 'DatasetToSingleElement':
    return None
  if size is None or drop is None:
    return None
  return _Batch(list(readers[0].outputs), int(size), bool(drop))


def is_stateful(proto) -> bool:
  """Whether a graph has variables or tables, which calls must not share."""
  return bool(proto.tensorflow.initialize_op)


def materialised(leaf):
  """Returns a leaf as a tensor. The leaf may be a row update."""
  return leaf.materialise() if isinstance(leaf, updates.RowUpdate) else leaf


# Says how to make each leaf of a result. An entry is (index of an argument's leaf, index of a
# fetched tensor, index of a second fetched tensor), where each index may be None. With only the
# first index, the result has the argument's leaf. With only the second index, the result has
# the fetched tensor. With three indices, the fetched tensors are ids and new rows, and the
# result has a row update of the argument's leaf.
Recipe = list[tuple[int | None, int | None, int | None]]


def made(held: list, fetched: list, recipe: Recipe, base=lambda leaf: leaf):
  """Returns the leaves of a result. The function `base` converts the base of each row update."""
  found = []
  for source, first, rows in recipe:
    if source is None:
      found.append(fetched[first])
    elif first is None:
      found.append(held[source])
    else:
      found.append(updates.RowUpdate(base(held[source]), fetched[first], fetched[rows]))
  return found


def _recipe(feeds: list, fetches: list) -> tuple[list, Recipe]:
  """Returns the tensors to fetch, and the recipe that makes `fetches` from these tensors."""
  places = {feed.ref(): i for i, feed in enumerate(feeds)}
  fetched, recipe = [], []
  for tensor in fetches:
    source = _origin(tensor).ref()
    base, ids, rows = _row_update(source.deref().op)
    count = len(fetched)
    if source in places:
      recipe.append((places[source], None, None))
    elif base is not None and base.ref() in places:
      recipe.append((places[base.ref()], count, count + 1))
      fetched += [ids, rows]
    else:
      recipe.append((None, count, None))
      fetched.append(tensor)
  return fetched, recipe


def _row_update(operation):
  """Returns (base, ids [U, 1], rows) if the operation replaces rows, else (None, None, None)."""
  if operation.type == 'TensorScatterUpdate':
    base, ids, rows = operation.inputs
    if ids.shape.rank == 2 and ids.shape[1] == 1:
      return _origin(base), ids, rows
  return None, None, None


def _origin(tensor: tf.Tensor) -> tf.Tensor:
  """Follows a chain of Identity ops back to its first tensor."""
  while tensor.op.type == 'Identity' and not tensor.op.control_inputs:
    tensor = tensor.op.inputs[0]
  return tensor


def _names(proto, which: str) -> list[str]:
  """Returns the tensor names of a binding, in order."""
  if which == 'parameter' and not proto.HasField('parameter'):
    return []
  found = []

  def collect(binding):
    kind = binding.WhichOneof('binding')
    if kind == 'struct':
      for element in binding.struct.element:
        collect(element)
    elif kind == 'tensor':
      found.append(binding.tensor.tensor_name)
    elif kind == 'sequence':
      found.append(binding.sequence.variant_tensor_name)
    else:
      raise NotImplementedError(f'a TensorFlow binding of kind {kind}')

  collect(getattr(proto, which))
  return found
