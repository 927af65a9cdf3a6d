"""Combines the steps of a phase into a few graph calls.

The Python overhead of a call takes longer than most steps. Therefore all server steps of a
phase form one graph, all steps of a client form a second graph, and the fold of clients'
values forms a third graph.
"""

import math

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc.runtime.in_process import graph_call, imported, program as program_lib, values

# The number of clients to fold in one call if their results are small.
GROUP = 4
_SMALL_BYTES = 2**20


class Phase:
  """The graph calls of one phase.

  Attributes:
    server: computes the results of the previous phase's aggregations, and those server values
      that later steps read.
    zero: computes the initial accumulators of this phase's aggregations.
    totals: the types of the accumulators, by name.
    client: computes a client's values for the aggregations, and its values for later phases.
    kept: the names of a client's values for later phases.
    folds: for each number of clients, the call that adds their values to the accumulators.
    merge: merges the accumulators of two blocks of clients. The function `other` returns the
      names of the second block's accumulators.
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
    self._constant = _constant(program)
    self.totals = {_total(s.name): s.fold.zero_type for s in self._folding}
    self.kept = self._outliving()
    self.zero = self._zero()
    self.server = self._server()
    self.client = self._client()
    self.merge = self._merge()
    self.folds = {size: self._fold(size) for size in (1, GROUP)}

  def _inputs(self, reads, of_clients: bool) -> graph_call.Types:
    """Returns the types of the parameter and of steps' values, for the names in `reads`."""
    inputs, parameter = {}, self._program.parameter
    if parameter in reads:
      inputs[parameter] = seen_by(of_clients, self._program.parameter_type)
    inputs |= self._types(reads, at_clients=False)
    return inputs | (self._types(reads, at_clients=True) if of_clients else {})

  def _types(self, names, at_clients: bool) -> graph_call.Types:
    return {
      name: step.type
      for name, step in self._program.steps.items()
      if name in names and step.at_clients == at_clients
    }

  def _reading_phase(self, step) -> int:
    return step.phase - 1 if step.fold else step.phase

  def _reads(self, step) -> frozenset[str]:
    """Returns the names that a step reads.

    For an aggregation, these names include the names that its initial accumulator reads.
    """
    if not step.fold:
      return step.reads
    return step.fold.value_reads | (self._of_zero([step])[0])

  def _outliving(self) -> list[str]:
    later = set(self._program.result_reads)
    for step in self._program.steps.values():
      if self._reading_phase(step) > self._number:
        later |= step.reads
    return [s.name for s in self._mapped if s.name in later]

  def _of_zero(self, folding) -> tuple[frozenset[str], list]:
    """Returns the names that initial accumulators read, and the constant steps to run first."""
    needed = set().union(*[s.fold.zero_reads for s in folding])
    made = before(needed, self._constant)
    needed |= set().union(*[s.reads for s in made])
    return frozenset(needed - {s.name for s in made}), made

  def _zero(self) -> graph_call.GraphCall:
    """Returns the call that computes the initial accumulators.

    The call also runs the constant steps. Therefore an initial accumulator as large as a table
    is computed on the machine that uses it, and is never sent.
    """
    reads, made = self._of_zero(self._folding)
    inputs = self._inputs(reads, of_clients=False)

    def body(environment, place):
      environment = run_steps(made, environment, place)
      return {_total(s.name): s.fold.zero(environment, place) for s in self._folding}

    return graph_call.GraphCall(inputs, self.totals, body)

  def _server(self) -> graph_call.GraphCall:
    made = [*self._reporting, *self._served]
    names = {s.name for s in made}
    reads = set().union(*[s.reads for s in self._served])
    inputs = self._inputs(reads - names, of_clients=False)
    inputs |= {_total(s.name): s.fold.zero_type for s in self._reporting}
    needed = set(self._program.result_reads)
    for step in self._program.steps.values():
      phase = self._reading_phase(step)
      is_here = phase == self._number and (step.at_clients or step.fold)
      if phase > self._number or is_here:
        needed |= self._reads(step)
    outputs = self._types(names & needed, at_clients=False)

    def body(environment, place):
      environment = dict(environment)
      for step in self._reporting:
        total = environment[_total(step.name)]
        environment[step.name] = step.fold.report(total, place)
      return run_steps(self._served, environment, place)

    return graph_call.GraphCall(inputs, outputs, body)

  def _client(self) -> graph_call.GraphCall:
    return self._of_client(self._mapped, {}, lambda environment: environment)

  def _of_client(self, mapped, more: graph_call.Types, prepare):
    """Returns the call that runs a client's steps `mapped`.

    The call also has the inputs `more`. Before the steps run, `prepare` adds values that it
    computes from these inputs.
    """
    folded = [s.fold.value_reads for s in self._folding]
    reads = set().union(*[s.reads for s in mapped], *folded)
    inputs = self._inputs(reads - {s.name for s in self._mapped}, True) | more
    outputs = self._types(self.kept, at_clients=True)
    outputs |= {_value(s.name): s.fold.value_type for s in self._folding}

    def body(environment, place):
      environment = run_steps(mapped, prepare(environment), place)
      for step in self._folding:
        environment[_value(step.name)] = step.fold.value(environment, place)
      return environment

    return graph_call.GraphCall(inputs, outputs, body)

  def fold(self, totals: dict, group: list[dict], place: imported.Place) -> dict:
    """Adds the results of the clients in `group` to `totals`, in order; returns the sums."""
    group = list(group)
    while group:
      size = GROUP if len(group) >= GROUP else 1
      environment = dict(totals)
      for i, found in enumerate(group[:size]):
        environment |= {_numbered(name, i): v for name, v in found.items()}
      totals = self.folds[size](environment, place)
      del group[:size]
    return totals

  def at_once(self, found: dict) -> int:
    """Returns how many clients may form one task. `found` is the result of one client.

    A task keeps the results of all its clients in memory, so it has several clients only if
    the results are small.
    """
    types = {_value(s.name): s.fold.value_type for s in self._folding}
    return 2 * GROUP if _are_small(found, types) else 1

  def _fold(self, size: int) -> graph_call.GraphCall:
    folded = {
      _numbered(_value(s.name), i): s.fold.value_type for i in range(size) for s in self._folding
    }

    def body(environment, place):
      found = {name: environment[name] for name in self.totals}
      for i in range(size):
        # Make this call only between clients. After the last client, it would needlessly copy
        # unchanged accumulators.
        if i:
          found = _kept_apart(found, self.totals)
        for step in self._folding:
          total, value = _total(step.name), _value(step.name)
          found[total] = step.fold.accumulate(
            (found[total], environment[_numbered(value, i)]), place
          )
      return found

    return graph_call.GraphCall(self.totals | folded, self.totals, body)

  def _merge(self) -> graph_call.GraphCall:
    others = {other(name): type_spec for name, type_spec in self.totals.items()}

    def body(environment, place):
      return {
        total: step.fold.merge((environment[total], environment[other(total)]), place)
        for total, step in zip(self.totals, self._folding, strict=True)
      }

    return graph_call.GraphCall(self.totals | others, self.totals, body)


def _kept_apart(found: dict, types: graph_call.Types) -> dict:
  """Hides from TensorFlow's graph optimizer how values were computed.

  The optimizer would otherwise add the terms of several clients in any order. The last digits
  would then depend on the number of clients in a call.
  """
  return {
    name: values.map_leaves(lambda leaf, _: tf.raw_ops.Snapshot(input=leaf), found[name], kind)
    for name, kind in types.items()
  }


def _are_small(found: dict, types: graph_call.Types) -> bool:
  size = sum(
    leaf.shape.num_elements() * leaf.dtype.size
    for name, type_spec in types.items()
    for leaf in values.leaves(found[name], type_spec)
    if isinstance(leaf, tf.Tensor)
  )
  return size <= _SMALL_BYTES


def run_steps(steps, environment: dict, place: imported.Place) -> dict:
  """Runs steps in order, and returns the environment with the values of these steps."""
  environment = dict(environment)
  for step in steps:
    environment[step.name] = step.run(environment, place)
  return environment


def _constant(program: program_lib.Program) -> dict[str, program_lib.Step]:
  """Returns by name the constant steps: server steps that read only other constant steps."""
  found = {}
  for name, step in program.steps.items():
    depends = {program.parameter, *program.steps} - {*found}
    if step.run and not step.at_clients and not step.reads & depends:
      found[name] = step
  return found


def before(names, steps: dict[str, program_lib.Step]) -> list:
  """Returns the steps with these names, and all steps that they depend on, in order."""
  needed = set(names)
  for name in reversed(steps):
    if name in needed:
      needed |= steps[name].reads
  return [step for name, step in steps.items() if name in needed]


def other(total: str) -> str:
  """Returns the name of the second accumulator in `Phase.merge`."""
  return f'{total}/other'


def _numbered(name: str, i: int) -> str:
  return f'{name}/{i}'


def _total(fold: str) -> str:
  return f'{fold}/total'


def _value(fold: str) -> str:
  return f'{fold}/value'


def seen_by(clients: bool, type_spec: tff.Type) -> tff.Type:
  """Returns the parameter's type as one client sees it, or as the server sees it.

  An empty structure replaces values of the other side. Values without placement belong to the
  server. A value that is equal for all clients belongs to both sides.
  """
  if isinstance(type_spec, tff.FederatedType):
    seen = type_spec.placement is tff.CLIENTS if clients else not values.at_clients(type_spec)
    return type_spec.member if seen else tff.StructType([])
  if values.contains_placement(type_spec):
    return tff.StructType([seen_by(clients, member) for member in values.members(type_spec)])
  return tff.StructType([]) if clients else type_spec


# A cohort of at most this many clients is one block. A larger cohort is divided into at most
# this many blocks. Each of these blocks, except the last, has a multiple of `GROUP` clients.
MOST_BLOCKS = 32


def block_size(num_clients: int) -> int:
  """Returns the number of clients in a block. Blocks are folded separately and then merged."""
  if num_clients <= MOST_BLOCKS:
    return max(num_clients, 1)
  group = GROUP
  return group * math.ceil(num_clients / (group * MOST_BLOCKS))


class Sums:
  """Computes the accumulators of a phase."""

  def __init__(self, phase: Phase, server: dict, home: imported.Place, block_size: int):
    self._phase, self._server, self._home = phase, server, home
    self._size = block_size
    self._whole = self._block = self._zeros = None
    self._clients = 0  # The number of clients in the current block.

  def add(self, results: list[dict]) -> None:
    """Folds the results of the next clients. `Phase.client` computed these results."""
    results = list(results)
    while results:
      some = results[: self._size - self._clients]
      del results[: len(some)]
      if self._block is None:
        self._block = self._zero()
      self._block = self._phase.fold(self._block, some, self._home)
      self._clients += len(some)
      if self._clients == self._size:
        self._close()

  def merge(self, block: dict) -> None:
    """Merges the accumulators of the next block."""
    if self._whole is None:
      self._whole = block
      return
    others = {other(name): block[name] for name in block}
    self._whole = self._phase.merge({**self._whole, **others}, self._home)

  def trace(self, num_clients: int) -> None:
    """Traces the graphs that `add` needs for `num_clients` clients."""
    self._phase.zero.traced(self._home)
    for fold in self._phase.folds.values():
      fold.traced(self._home)
    if num_clients > self._size:
      self._phase.merge.traced(self._home)

  def totals(self) -> dict:
    """Returns the accumulators after all clients, by name."""
    if self._block is not None:
      self._close()
    if self._whole is None:
      self._whole = self._zero()
    return self._whole

  def _zero(self) -> dict:
    """Returns initial accumulators. Small accumulators are computed once for all blocks."""
    if self._zeros is not None:
      return self._zeros
    found = self._phase.zero(self._server, self._home)
    if _are_small(found, self._phase.totals):
      self._zeros = found
    return found

  def _close(self) -> None:
    self.merge(self._block)
    self._block, self._clients = None, 0
