"""Runs a function of named values as a single call of a TensorFlow graph."""

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.eager import cancellation, context, execute

from tff_xc.runtime.in_process import imported, updates, values

Types = dict[str, tff.Type]
_thread = threading.local()


@contextlib.contextmanager
def cancelled_by(manager: cancellation.CancellationManager):
  """Lets a manager cancel the graph calls that this thread makes within the block.

  TensorFlow's own context manager would set the same manager for all threads.
  """
  _thread.manager = manager
  try:
    yield
  finally:
    _thread.manager = None


def readable(leaf):
  """Returns a leaf as a tensor. The leaf may be a donated tensor or a row update."""
  leaf = leaf.read() if isinstance(leaf, updates.GivenUp) else leaf
  if isinstance(leaf, updates.RowUpdate):
    return leaf._replace(base=readable(leaf.base)).materialise()
  return leaf


class GraphCall:
  """A function of named values, which is traced once for each `imported.Place`."""

  def __init__(self, inputs: Types, outputs: Types, body: Callable):
    self.inputs = inputs
    self.outputs = outputs
    self._body = body
    self._traced = {}
    self._lock = threading.Lock()

  def __call__(self, environment: dict, place: imported.Place) -> dict:
    """Returns the outputs by name, without a copy of large tensors.

    If an output is a leaf of an input, the call returns this leaf. If an output replaces rows
    of an input's leaf, the call returns an `updates.RowUpdate`.
    """
    if not self.outputs:
      return {}
    function, recipe = self.traced(place)
    held = self._flat(self.inputs, environment)
    found = function(*[readable(leaf) for leaf in held])
    leaves = iter(imported.made(held, found, recipe))
    return {name: values.unflatten(leaves, type_spec) for name, type_spec in self.outputs.items()}

  def traced(self, place: imported.Place):
    """Returns the traced function for a place. The first call for a place traces it."""
    with self._lock:
      if self.outputs and place not in self._traced:
        self._traced[place] = self._trace(place)
      return self._traced.get(place)

  def _flat(self, types: Types, environment: dict) -> list:
    return [
      leaf
      for name, type_spec in types.items()
      for leaf in values.flatten(environment[name], type_spec)
    ]

  def _trace(self, place: imported.Place):
    specs = [s for t in self.inputs.values() for s in values.leaf_specs(t)]
    recipe = []

    @tf.function(input_signature=specs, autograph=False)
    def run(*given):
      recipe.clear()
      leaves = iter(given)
      environment = {
        name: values.unflatten(leaves, type_spec) for name, type_spec in self.inputs.items()
      }
      with tf.device(place.device):
        results = self._body(environment, place)
      return _fetched(given, self._flat(self.outputs, results), recipe)

    concrete = run.get_concrete_function()
    if not concrete.outputs:
      return (lambda *_: []), recipe
    name = concrete._inference_function.name.decode()
    return functools.partial(_call, concrete, name), recipe


def _call(concrete, name: str, *flat) -> list[tf.Tensor]:
  """Calls a concrete function that has outputs.

  This executes the function by its name, because a call of the function object would take
  twice as long for a small graph.
  """
  current = context.context()
  options = current.function_call_options.as_attrs()
  arguments = {
    'op_name': name,
    'num_outputs': len(concrete.outputs),
    'inputs': [*flat, *concrete.captured_inputs],
    'attrs': tuple(itertools.chain(*options.items())),
    'ctx': current,
  }
  manager = getattr(_thread, 'manager', None)
  if manager is None:
    return execute.execute(**arguments)
  return execute.execute_with_cancellation(**arguments, cancellation_manager=manager)


def _fetched(given, leaves, recipe: imported.Recipe) -> list[tf.Tensor]:
  """Returns the tensors to fetch, and fills `recipe` with how to make `leaves` from them."""
  places = {id(leaf): i for i, leaf in enumerate(given)}
  fetched = []
  for leaf in leaves:
    count = len(fetched)
    if id(leaf) in places:
      recipe.append((places[id(leaf)], None, None))
    elif isinstance(leaf, updates.RowUpdate) and id(leaf.base) in places:
      recipe.append((places[id(leaf.base)], count, count + 1))
      fetched += [leaf.ids, leaf.rows]
    else:
      recipe.append((None, count, None))
      fetched.append(imported.materialised(leaf))
  return fetched
