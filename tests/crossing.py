"""Records the values that server and clients exchange, in a compiled round and in a real round.

The values are read from the computation that the runtimes execute: its broadcasts, selects and
aggregations, and the inputs and outputs of clients.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.round import examples
from tff_xc.runtime.in_process import (
  arguments,
  execution,
  expressions,
  imported,
  phases,
  program as program_lib,
  values,
)

_BROADCASTS = ('federated_broadcast', 'federated_value_at_clients')


@dataclasses.dataclass(frozen=True)
class Crossings:
  """The bindings of a computation that send values between server and clients.

  Attributes:
    broadcasts: by name, the type of a value that every client receives.
    selects: by name, (name of the request that contains the keys, type of the keys, type of a
      slice).
    aggregates: by name, (value type, accumulator type).
  """

  broadcasts: dict
  selects: dict
  aggregates: dict


def of(computation: tff.Computation) -> Crossings:
  """Finds the bindings in a computation that send values, in the form that runtimes execute."""
  return _of(_bindings(computation)[1])


@functools.lru_cache(maxsize=32)
def _bindings(computation):
  return program_lib._bindings(program_lib._transformed(computation))


def _of(bindings) -> Crossings:
  found = Crossings({}, {}, {})
  for name, block in bindings:
    uri = expressions.intrinsic_of(block)
    if uri in _BROADCASTS:
      found.broadcasts[name] = block.type_signature.member
    elif uri == 'federated_select':
      keys = program_lib._parts(block.argument)[0]
      [request] = program_lib._names_in(keys)
      element = block.type_signature.member.element
      found.selects[name] = request, keys.type_signature.member, element
    elif uri == 'federated_aggregate':
      value, _, accumulate, *_ = program_lib._parts(block.argument)
      found.aggregates[name] = (value.type_signature.member, accumulate.type_signature.parameter[0])
  return found


def tensors(type_spec: tff.Type) -> list[tff.TensorType]:
  """Returns the types of all tensors in a type, also in the elements of sequences."""
  if isinstance(type_spec, tff.SequenceType):
    return tensors(type_spec.element)
  if isinstance(type_spec, tff.StructType):
    return [t for m in values.members(type_spec) for t in tensors(m)]
  return [type_spec]


def run(computation: tff.Computation, state, cohort, monkeypatch) -> dict:
  """Runs a round in this process and records the values that server and clients exchange.

  Args:
    computation: `next` of a process, called with `state` and `cohort`.
    state: the server's state.
    cohort: the clients' values.
    monkeypatch: pytest's fixture.

  Returns:
    NumPy arrays: `broadcast`, all tensors that every client received; `ids` and
    `selected` [select][client], the requested ids and received rows, without
    padding; `folded` [client], the tensors that entered aggregations.
  """
  bindings = _bindings(computation)
  monkeypatch.setattr(program_lib, '_bindings', lambda _: bindings)
  # Keep every client value until the end of the round, so that this function can read it.
  monkeypatch.setattr(phases.Phase, '_outliving', lambda self: [s.name for s in self._mapped])
  program = program_lib.Program(computation)
  made, folded = [phases.Phase(program, i) for i in range(program.phases)], []
  for phase in made:
    phase.client = _recording(phase, phase.client, folded)
  argument = arguments.Argument(
    tff.structure.Struct([(None, state), (None, cohort)]), program.parameter_type
  )
  clients = execution.Clients([''], 1)
  found = execution.run(
    program,
    made,
    argument.of_server(),
    len(cohort),
    clients.home(program.stateful),
    functools.partial(execution.on_threads, program, argument.of_client, clients, False),
  )
  crossings = _of(bindings[1])
  received = [found[name] for name in crossings.broadcasts if name in found]
  each = range(len(cohort))
  asked = [
    [_arrays(found[request][i])[0] for i in each] for request, *_ in crossings.selects.values()
  ]
  # Padding repeats an id, so keep only the first place of each id.
  first = [[np.unique(k, return_index=True)[1] for k in a] for a in asked]
  selected = [
    [_elements(found[name][i])[first[s][i]] for i in each]
    for s, name in enumerate(crossings.selects)
  ]
  return {
    'broadcast': _arrays(received),
    'ids': [[k[at] for k, at in zip(a, f, strict=True)] for a, f in zip(asked, first, strict=True)],
    'selected': selected,
    'folded': folded,
    'metrics': _metrics(program, found, computation),
  }


def _metrics(program, found, computation) -> dict[str, float]:
  """Returns the round's metrics by name."""
  _, metrics = program.result(found, imported.Place())
  [_, (_, spec)] = tff.structure.iter_elements(computation.type_signature.result)
  names = values.names(spec.member)
  each = zip(names, metrics, strict=True)
  return {n: float(m) for n, m in each if n != examples.NAME}


def _recording(phase, call, folded: list):
  """Wraps `call`, so that it also appends the tensors of a client's output to `folded`."""
  names = [phases._value(step.name) for step in phase._folding]

  def record(environment, place):
    given = call(environment, place)
    if names:
      folded.append(_arrays([given[name] for name in names]))
    return given

  record.inputs, record.traced = call.inputs, call.traced
  return record


def _elements(dataset) -> np.ndarray:
  """Returns a row for each element, with all numbers of the element side by side."""

  def flat(element):
    return np.hstack([np.ravel(t) for t in _arrays(element)])

  return np.stack([flat(element) for element in values.as_dataset(dataset)])


def _arrays(leaves) -> list[np.ndarray]:
  return [np.asarray(t) for t in tf.nest.flatten(leaves)]
