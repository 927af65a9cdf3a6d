"""The steps of a phase as a few graph calls.

The Python overhead of a call exceeds the time of most steps. Therefore all
server steps of a phase are one graph, all steps of one client another, and the
fold of clients' values a third.
"""

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.runtime.in_process import graph_call
from tff_xc.runtime.in_process import imported
from tff_xc.runtime.in_process import program as program_lib
from tff_xc.runtime.in_process import values

# Clients folded in one call, if their results are small.
_GROUP = 4
_SMALL_BYTES = 2**20


class Phase:
  """The graph calls of one phase.

  Attributes:
    server: computes the server's part of this phase: reports of the last
      phase's aggregations, values that later steps read, and initial
      accumulators for this phase's (named as the folds).
    client: computes a client's values to fold (named as the folds), and its
      values that later phases read (`kept`).
    kept: names of client values that later phases read.
    totals: names of the accumulators of the phase's folds.
  """

  def __init__(self, program: program_lib.Program, number: int):
    steps = program.steps.values()
    self._program = program
    self._number = number
    self._folding = [s for s in steps if s.fold and s.phase == number + 1]
    self._reporting = [s for s in steps if s.fold and s.phase == number]
    here = [s for s in steps if not s.fold and s.phase == number]
    self._served = [s for s in here if not s.at_clients]
    self._mapped = [s for s in here if s.at_clients]
    self.totals = [_total(s.name) for s in self._folding]
    self.kept = self._outliving()
    self.server = self._server()
    self.client = self._client()
    self._folds = {size: self._fold(size) for size in (1, _GROUP)}

  def _view(self, reads, of_clients: bool) -> graph_call.Types:
    """Returns the parameter as server or client sees it, if it is read."""
    if self._program.parameter not in reads:
      return {}
    view = seen_by(of_clients, self._program.parameter_type)
    return {self._program.parameter: view}

  def _types(self, names, at_clients: bool) -> graph_call.Types:
    return {
      name: step.type
      for name, step in self._program.steps.items()
      if name in names and step.at_clients == at_clients
    }

  def _reading_phase(self, step) -> int:
    return step.phase - 1 if step.fold else step.phase

  def _outliving(self) -> list[str]:
    later = set(self._program.result_reads)
    for step in self._program.steps.values():
      if self._reading_phase(step) > self._number:
        later |= step.reads
    return [s.name for s in self._mapped if s.name in later]

  def _server(self) -> graph_call.GraphCall:
    made = [*self._reporting, *self._served]
    names = {s.name for s in made}
    reads = set().union(*[s.reads for s in [*self._served, *self._folding]])
    inputs = self._view(reads, of_clients=False)
    inputs |= self._types(reads - names, at_clients=False)
    inputs |= {_total(s.name): s.fold.zero_type for s in self._reporting}
    needed = set(self._program.result_reads)
    for step in self._program.steps.values():
      reads_later = self._reading_phase(step) > self._number
      at_clients = step.at_clients or step.fold
      if reads_later or (
        self._reading_phase(step) == self._number and at_clients
      ):
        needed |= step.reads
    outputs = self._types(names & needed, at_clients=False)
    outputs |= {_total(s.name): s.fold.zero_type for s in self._folding}

    def body(environment, place):
      environment = dict(environment)
      for step in self._reporting:
        total = environment[_total(step.name)]
        environment[step.name] = step.fold.report(total, place)
      for step in self._served:
        environment[step.name] = step.run(environment, place)
      for step in self._folding:
        environment[_total(step.name)] = step.fold.zero(environment, place)
      return environment

    return graph_call.GraphCall(inputs, outputs, body)

  def _client(self) -> graph_call.GraphCall:
    reads = set().union(*[s.reads for s in [*self._mapped, *self._folding]])
    names = {s.name for s in self._mapped}
    inputs = self._view(reads, of_clients=True)
    inputs |= self._types(reads, at_clients=False)
    inputs |= self._types(reads - names, at_clients=True)
    outputs = self._types(self.kept, at_clients=True)
    outputs |= {_value(s.name): s.fold.value_type for s in self._folding}

    def body(environment, place):
      environment = dict(environment)
      for step in self._mapped:
        environment[step.name] = step.run(environment, place)
      for step in self._folding:
        environment[_value(step.name)] = step.fold.value(environment, place)
      return environment

    return graph_call.GraphCall(inputs, outputs, body)

  def fold(
    self, totals: dict, group: list[dict], place: imported.Place
  ) -> dict:
    """Returns the accumulators after the clients of `group`, in their order.

    Args:
      totals: accumulators by name.
      group: each client's result, from `client`.
      place: where the fold runs.
    """
    group = list(group)
    while group:
      size = _GROUP if len(group) >= _GROUP else 1
      environment = dict(totals)
      for i, found in enumerate(group[:size]):
        environment |= {_numbered(name, i): v for name, v in found.items()}
      totals = self._folds[size](environment, place)
      del group[:size]
    return totals

  def trace_folds(self, place: imported.Place) -> None:
    """Traces what `fold` calls."""
    for fold in self._folds.values():
      fold.traced(place)

  def at_once(self, found: dict) -> int:
    """Returns how many clients may form one task, given one's result `found`.

    Only small results can wait for others without filling the memory.
    """
    size = sum(
      leaf.shape.num_elements() * leaf.dtype.size
      for step in self._folding
      for leaf in values.leaves(found[_value(step.name)], step.fold.value_type)
      if isinstance(leaf, tf.Tensor)
    )
    return 2 * _GROUP if size <= _SMALL_BYTES else 1

  def _fold(self, size: int) -> graph_call.GraphCall:
    totals = {_total(s.name): s.fold.zero_type for s in self._folding}
    folded = {
      _numbered(_value(s.name), i): s.fold.value_type
      for i in range(size)
      for s in self._folding
    }

    def body(environment, place):
      found = {name: environment[name] for name in totals}
      for i in range(size):
        for step in self._folding:
          total, value = _total(step.name), _value(step.name)
          found[total] = step.fold.accumulate(
            (found[total], environment[_numbered(value, i)]), place
          )
      return found

    return graph_call.GraphCall(totals | folded, totals, body)


def _numbered(name: str, i: int) -> str:
  return f'{name}/{i}'


def _total(fold: str) -> str:
  return f'{fold}/total'


def _value(fold: str) -> str:
  return f'{fold}/value'


def seen_by(clients: bool, type_spec: tff.Type) -> tff.Type:
  """Returns the parameter's type without values of the other placement.

  An empty structure replaces these values. Values without placement belong to
  the server. A value equal for all clients belongs to both the server and
  clients.
  """
  if isinstance(type_spec, tff.FederatedType):
    if clients:
      seen = type_spec.placement is tff.CLIENTS
    else:
      seen = not values.at_clients(type_spec)
    return type_spec.member if seen else tff.StructType([])
  if values.contains_placement(type_spec):
    return tff.StructType(
      [seen_by(clients, member) for member in values.members(type_spec)]
    )
  return tff.StructType([]) if clients else type_spec
