"""Compiles a federated computation to phases of server steps and client steps.

TFF transforms a federated computation to a flat list of bindings (call-dominant form). Each
binding is placed at the server or at the clients. An aggregation takes values of the clients
in one phase, and its result is available at the server in the next phase. A phase therefore
runs first all server steps that can run, and then, for each client, all client steps that can
run. When a client has finished, its values are added to the accumulators (folded). Values
that no later phase reads are then dropped.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Callable

import tensorflow as tf
import tensorflow_federated as tff
from absl import logging

from tff_xc import deep_messages
from tff_xc.runtime.in_process import expressions, imported, values

_OUT_OF_RANGE = 'federated_select: a key is outside [0, max_key); keys, max_key:'


def _for_each(function: Callable, keys: tf.Tensor, element: tff.Type):
  """Returns the slices for `keys`, stacked in the order of the keys.

  One vectorized call of `function` computes all slices. For a row lookup, this call is a single
  gather. If TensorFlow cannot vectorize `function`, `function` runs once for each key.
  """
  try:
    return tf.vectorized_map(function, keys, fallback_to_while_loop=False)
  except Exception as e:  # The type of error depends on the first op that fails.
    logging.info('federated_select runs once for each key: %s', e)
  finally:
    _remove_sources()
  flat = tf.map_fn(
    lambda key: values.flatten(function(key), element),
    keys,
    fn_output_signature=values.leaf_specs(element),
  )
  return values.unflatten(flat, element)


def _remove_sources() -> None:
  """Removes the files that AutoGraph writes during vectorization.

  TensorFlow has already imported these files. TensorFlow would remove the files only at the
  exit of the process, so a killed process would leave the files behind.
  """
  for name, module in list(sys.modules.items()):
    if name.startswith('__autograph_generated_file'):
      pathlib.Path(module.__file__).unlink(missing_ok=True)


deep_messages.allow()
_RESULT = '_result'


@dataclasses.dataclass(frozen=True)
class Step:
  """A binding of a computation, or a part of a binding."""

  name: str  # The name of the step's value.
  type: tff.Type  # The type of the value. For a step at clients, the type of one client's value.
  at_clients: bool  # Whether each client has its own value.
  phase: int  # The first phase in which the step can run.
  reads: frozenset[str]  # The names that the step reads.
  # (environment, place) -> value; None for an aggregation.
  run: Callable | None = None
  fold: 'Fold | None' = None  # The functions of an aggregation, or None.
  # The parts of a `federated_select`, or None.
  select: 'Select | None' = None


@dataclasses.dataclass(frozen=True)
class Fold:
  """The functions of an aggregation.

  `zero` computes an initial accumulator, and `accumulate` adds clients' values in order. `merge`
  adds two accumulators, and `report` computes the result. `value` and `zero` run one phase
  before the result is available.
  """

  value: Callable  # (environment, place) -> a client's value to fold.
  value_type: tff.Type  # The type of the value.
  value_reads: frozenset[str]  # The names that `value` reads.
  zero: Callable  # (environment, place) -> the initial accumulator.
  zero_type: tff.Type  # The type of accumulators.
  zero_reads: frozenset[str]  # The names that `zero` reads.
  accumulate: Callable  # ((accumulator, value), place) -> accumulator.
  merge: Callable  # ((accumulator, accumulator), place) -> accumulator.
  report: Callable  # (accumulator, place) -> result.


@dataclasses.dataclass(frozen=True)
class Select:
  """The parts of a `federated_select`, which allow server and clients on different machines."""

  keys: str  # The name of the client's step that computes the keys.
  num_keys: int  # The number of keys of a client.
  offer: str  # The name of the server's step that computes (max_key, server value).
  element: tff.Type  # The type of a slice.
  slices: Callable  # ((max_key, server value), keys, place) -> stacked slices.


class Program:
  """The steps of a computation in an order in which they can run, and its result.

  `block` is the transformed computation. Programs with equal blocks use equal names. `result`
  is a function (environment, place) -> result. In the result, a value at clients is a list.
  """

  def __init__(self, computation):
    """Compiles a `tff.Computation`, or another program's `block`."""
    self.block, kind = computation, computation.type_signature
    if isinstance(computation, tff.Computation):
      self.block = _transformed(computation)
    self.parameter, bindings, result = _bindings(self.block)
    # A block's type lacks the Python containers of a sequence's elements.
    is_function = isinstance(kind, tff.FunctionType)
    self.parameter_type = kind.parameter if is_function else None
    self.stateful = any(_is_stateful(block) for _, block in bindings)
    self.steps: dict[str, Step] = {}
    for name, block in bindings:
      for step in self._compile(name, block):
        self.steps[step.name] = step
    self.result = expressions.compile_expression(result)
    self.result_reads = frozenset(_names_in(result))
    self.phases = 1 + max([s.phase for s in self.steps.values()], default=0)

  def _phase(self, reads) -> int:
    return max([self.steps[name].phase for name in reads if name in self.steps], default=0)

  def _compile(self, name: str, block) -> list[Step]:
    reads = frozenset(_names_in(block))
    type_spec = block.type_signature
    at_clients = values.at_clients(type_spec)
    if isinstance(type_spec, tff.FederatedType):
      type_spec = type_spec.member
    phase = self._phase(reads)
    uri = expressions.intrinsic_of(block)
    if uri == 'federated_aggregate':
      fold = _compile_fold(block.argument)
      return [Step(name, type_spec, False, phase + 1, reads, fold=fold)]
    if uri in _SELECTS:
      return self._compile_select(name, type_spec, block)
    build = _LOCAL.get(uri, expressions.compile_expression)
    return [Step(name, type_spec, at_clients, phase, reads, build(block))]

  def _compile_select(self, name, type_spec, block) -> list[Step]:
    """Returns three steps, for the server's value, a client's keys, and the client's slices."""
    keys, max_key, server_value, function = _parts(block.argument)

    def step(what, block, kind, at_clients):
      reads = frozenset(_names_in(block))
      run = expressions.compile_expression(block)
      phase = self._phase(reads)
      return Step(f'{name}/{what}', kind, at_clients, phase, reads, run)

    offered = [max_key, server_value]
    kind = tff.StructType([block.type_signature.member for block in offered])
    offer = step('offer', tff.framework.Struct(offered), kind, False)
    wanted = step('keys', keys, keys.type_signature.member, True)
    of_key = expressions.compile_function(function)

    def slices(offered, keys, place):
      max_key, server_value = offered
      in_range = tf.logical_and(keys >= 0, keys < max_key)
      check = tf.debugging.Assert(tf.reduce_all(in_range), [_OUT_OF_RANGE, keys, max_key])

      def one(key):
        return of_key((server_value, key), place.at_home())

      with tf.device(place.home), tf.control_dependencies([check]):
        return _for_each(one, tf.identity(keys), type_spec.element)

    found = Select(wanted.name, wanted.type.shape[0], offer.name, type_spec.element, slices)

    def run(environment, place):
      stacked = slices(environment[offer.name], environment[wanted.name], place)
      return values.Slices(stacked, found.element, found.num_keys)

    phase = max(offer.phase, wanted.phase)
    reads = frozenset({offer.name, wanted.name})
    return [offer, wanted, Step(name, type_spec, True, phase, reads, run, select=found)]


def _transformed(computation: tff.Computation):
  """Returns the computation as a list of bindings that contains only basic intrinsics."""
  body = computation.to_building_block()
  if _has_secure(body):  # Skip the slow replacement if there is nothing to replace.
    body = tff.backends.test.replace_secure_intrinsics_with_bodies(computation).to_building_block()
  body, _ = tff.tensorflow.replace_intrinsics_with_bodies(body)
  return tff.framework.to_call_dominant(body)


def _bindings(body):
  """Returns (parameter name, [(name, block)], result block)."""
  parameter = None
  if isinstance(body, tff.framework.Lambda):
    parameter, body = body.parameter_name, body.result
  elif isinstance(body.type_signature, tff.FunctionType):  # `body` is a graph without a lambda.
    given = None
    if body.type_signature.parameter is not None:
      parameter = '_argument'
      given = tff.framework.Reference(parameter, body.type_signature.parameter)
    body = tff.framework.Call(body, given)
  bindings, result = [], body
  if isinstance(body, tff.framework.Block):
    bindings, result = list(body.locals), body.result
  if not isinstance(result, tff.framework.Reference | tff.framework.Struct):
    bindings.append((_RESULT, result))
    result = tff.framework.Reference(_RESULT, result.type_signature)
  return parameter, bindings, result


def _has_secure(block) -> bool:
  if isinstance(block, tff.framework.Intrinsic):
    return block.uri.startswith('federated_secure')
  return any(map(_has_secure, block.children()))


def _names_in(block) -> set[str]:
  """Returns the names that a block refers to, including parameters that the block defines."""
  if isinstance(block, tff.framework.Reference):
    return {block.name}
  return set().union(*[_names_in(child) for child in block.children()])


def _is_stateful(block) -> bool:
  if isinstance(block, tff.framework.CompiledComputation):
    return imported.is_stateful(block.proto)
  return any(_is_stateful(child) for child in block.children())


def _parts(block) -> list:
  """Returns the blocks of an intrinsic's arguments."""
  if isinstance(block, tff.framework.Struct):
    return [part for _, part in tff.structure.iter_elements(block)]
  return [tff.framework.Selection(block, index=i) for i in range(len(block.type_signature))]


def _compile_fold(argument) -> Fold:
  value, zero, accumulate, merge, report = _parts(argument)
  return Fold(
    value=expressions.compile_expression(value),
    value_type=value.type_signature.member,
    value_reads=frozenset(_names_in(value)),
    zero=expressions.compile_expression(zero),
    zero_type=accumulate.type_signature.parameter[0],
    zero_reads=frozenset(_names_in(zero)),
    accumulate=expressions.compile_function(accumulate),
    merge=expressions.compile_function(merge),
    report=expressions.compile_function(report),
  )


def _apply(block) -> expressions.Expression:
  function, argument = _parts(block.argument)
  function = expressions.compile_function(function)
  argument = expressions.compile_expression(argument)
  return lambda environment, place: function(argument(environment, place), place)


def _same(block) -> expressions.Expression:
  return expressions.compile_expression(block.argument)


def _evaluate(block) -> expressions.Expression:
  function = expressions.compile_function(block.argument)
  return lambda environment, place: function(None, place)


_SELECTS = ('federated_select', 'federated_secure_select')
# Values have no placement in this runtime, so placing and zipping do not change a value.
_LOCAL = {
  'federated_apply': _apply,
  'federated_broadcast': _same,
  'federated_eval_at_clients': _evaluate,
  'federated_eval_at_server': _evaluate,
  'federated_map': _apply,
  'federated_map_all_equal': _apply,
  'federated_value_at_clients': _same,
  'federated_value_at_server': _same,
  'federated_zip_at_clients': _same,
  'federated_zip_at_server': _same,
}
