"""Compiles TFF's building blocks to Python functions.

Building blocks are TensorFlow graphs, and lambdas that select, pack and call values. Each
building block is compiled to a function of an environment (a mapping from names to values) and
an `imported.Place`. These functions run while the graph of a phase is traced.
"""

from collections.abc import Callable
from typing import Any

import tensorflow_federated as tff

from tff_xc.runtime.in_process import imported, values

# (environment, place) -> value
Expression = Callable[[dict, imported.Place], Any]


class UnsupportedError(NotImplementedError):
  """This runtime cannot run a part of a computation; the message names the part."""


def compile_function(block) -> Callable[[Any, imported.Place], Any]:
  """Returns (argument, place) -> result for a functional building block."""
  expression = compile_expression(block)
  return lambda argument, place: expression({}, place)(argument, place)


def compile_expression(block) -> Expression:
  """Compiles an unplaced building block."""
  for kind, build in _BUILDERS:
    if isinstance(block, kind):
      return build(block)
  raise UnsupportedError(
    f'the in-process runtime cannot run {type(block).__name__} {block!r:.200}; use --runtime=worker'
  )


def intrinsic_of(block) -> str | None:
  """Returns the name of the intrinsic that a block calls, or None."""
  is_call = isinstance(block, tff.framework.Call)
  if is_call and isinstance(block.function, tff.framework.Intrinsic):
    return block.function.uri
  return None


def _compiled_computation(block) -> Expression:
  try:
    call = imported.GraphFunction(block.proto, block.type_signature)
  except NotImplementedError as e:
    raise UnsupportedError(f'the in-process runtime cannot run {e}') from e
  return lambda environment, place: call


def _lambda(block) -> Expression:
  body, name = compile_expression(block.result), block.parameter_name

  def make(environment, place):
    return lambda argument, place: body({**environment, name: argument}, place)

  return make


def _reference(block) -> Expression:
  name = block.name
  return lambda environment, place: environment[name]


def _selection(block) -> Expression:
  source = compile_expression(block.source)
  index = block.index
  if index is None:
    index = values.names(_unplaced(block.source.type_signature)).index(block.name)
  return lambda environment, place: source(environment, place)[index]


def _unplaced(type_spec: tff.Type) -> tff.Type:
  is_placed = isinstance(type_spec, tff.FederatedType)
  return type_spec.member if is_placed else type_spec


def _struct(block) -> Expression:
  parts = [compile_expression(p) for _, p in tff.structure.iter_elements(block)]
  return lambda environment, place: tuple([p(environment, place) for p in parts])


def _block(block) -> Expression:
  bindings = [(name, compile_expression(value)) for name, value in block.locals]
  result = compile_expression(block.result)

  def run(environment, place):
    environment = dict(environment)
    for name, value in bindings:
      environment[name] = value(environment, place)
    return result(environment, place)

  return run


def _call(block) -> Expression:
  argument = block.argument and compile_expression(block.argument)
  function = compile_expression(block.function)  # This raises an error for intrinsics.

  def call(environment, place):
    given = argument(environment, place) if argument else None
    return function(environment, place)(given, place)

  return call


def _literal(block) -> Expression:
  value, type_spec = block.value, block.type_signature
  return lambda environment, place: values.from_python(value, type_spec)


_BUILDERS = (
  (tff.framework.CompiledComputation, _compiled_computation),
  (tff.framework.Lambda, _lambda),
  (tff.framework.Reference, _reference),
  (tff.framework.Selection, _selection),
  (tff.framework.Struct, _struct),
  (tff.framework.Block, _block),
  (tff.framework.Call, _call),
  (tff.framework.Literal, _literal),
)
