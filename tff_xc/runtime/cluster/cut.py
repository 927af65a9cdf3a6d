"""Splits phases at each `federated_select`, so that clients can run on other machines.

Clients first compute their keys and send them to the server. The server computes the slices
for these keys. The clients then continue with the slices.
"""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.runtime.in_process import (
  expressions,
  graph_call,
  phases,
  program as program_lib,
  values,
)


class CutPhase(phases.Phase):
  """The graph calls of a phase that splits each client's steps in two halves.

  Attributes:
    keys: the first half, which computes a client's keys for each `federated_select`, by name.
    rows: computes on the server the rows (slices) for any number of keys.
    client: the second half, which gets the rows for several clients' keys (`rows_of`), and the
      indices of the client's own keys among these keys (`places_of`).
    server_inputs: the types of the server's values that the calls read.
    kept_inputs: the types of a client's values from earlier phases that the calls read.
  """

  def __init__(self, program: program_lib.Program, number: int):
    self.number = number
    parameter_type = program.parameter_type or tff.StructType([])
    self.own_type = phases.seen_by(True, parameter_type)
    self.selects = {
      step.name: step.select
      for step in program.steps.values()
      if step.select and step.phase == number
    }
    super().__init__(program, number)
    self.keys, self.rows = self._keys(), self._rows()
    reads = {*self.keys.inputs, *self.client.inputs, *self.zero.inputs}
    self.server_inputs = self._types(reads, at_clients=False)
    self.kept_inputs = self._types(reads, at_clients=True)
    if program.parameter in self.zero.inputs:
      raise expressions.UnsupportedError(
        'the cluster cannot run an aggregation that begins with an argument; use'
        ' --runtime=in_process'
      )

  def _client(self) -> graph_call.GraphCall:
    more = {}
    for name, found in self.selects.items():
      more[rows_of(name)] = _stacked(found.element)
      more[places_of(name)] = _integers(found.num_keys)

    def prepare(environment):
      slices = {name: _own_slices(environment, name, found) for name, found in self.selects.items()}
      return {**environment, **slices}

    mapped = [s for s in self._mapped if s.name not in self.selects]
    return self._of_client(mapped, more, prepare)

  def _keys(self) -> graph_call.GraphCall:
    wanted = {found.keys for found in self.selects.values()}
    made = phases.before(wanted, {s.name: s for s in self._mapped})
    if any(step.select for step in made):
      raise expressions.UnsupportedError(
        'the cluster cannot run a federated_select whose keys depend on the'
        ' slices of another; use --runtime=in_process'
      )
    reads = wanted.union(*[s.reads for s in made])
    outputs = {name: _integers(found.num_keys) for name, found in self.selects.items()}

    def body(environment, place):
      environment = phases.run_steps(made, environment, place)
      return {name: environment[found.keys] for name, found in self.selects.items()}

    inputs = self._inputs(reads - {s.name for s in made}, of_clients=True)
    return graph_call.GraphCall(inputs, outputs, body)

  def _rows(self) -> graph_call.GraphCall:
    offers = {found.offer for found in self.selects.values()}
    inputs = self._types(offers, at_clients=False)
    inputs |= {name: _integers(None) for name in self.selects}
    outputs = {rows_of(name): _stacked(found.element) for name, found in self.selects.items()}

    def body(environment, place):
      return {
        rows_of(name): found.slices(environment[found.offer], environment[name], place)
        for name, found in self.selects.items()
      }

    return graph_call.GraphCall(inputs, outputs, body)


def _own_slices(environment: dict, name: str, found: program_lib.Select):
  """Returns a client's slices from the rows for several clients' keys."""
  rows, places = environment[rows_of(name)], environment[places_of(name)]
  own = values.map_leaves(lambda leaf, _: tf.gather(leaf, places), rows, found.element)
  return values.Slices(own, found.element, found.num_keys)


def _stacked(element: tff.Type) -> tff.Type:
  """Returns the type of any number of stacked slices."""
  if isinstance(element, tff.TensorType):
    return tff.TensorType(element.dtype, [None, *element.shape])
  return tff.StructType([_stacked(part) for part in values.members(element)])


def _integers(size: int | None) -> tff.TensorType:
  return tff.TensorType(np.int32, [size])


def rows_of(select: str) -> str:
  """Returns the name of the rows of a `federated_select`."""
  return f'{select}/rows'


def places_of(select: str) -> str:
  """Returns the name of the indices of a client's keys among the rows."""
  return f'{select}/places'
