"""Runs federated programs of TFF, such as `tff.learning.programs.train_model`.

A program selects clients from a data source, and runs its computations in a
`tff.program.FederatedContext`. The context runs a computation while the program continues.
TFF's own context splits each client's value if the value is a structure, such as
`ClientExamples`. `ProgramContext` does not change clients' values.
"""

import asyncio
import collections
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import errors


class ProgramContext(tff.program.FederatedContext):
  """Runs a program's computations, each in a thread, on one of this package's runtimes.

  Install this context around the program, or with `tff.framework.set_default_context`:

  with tff.framework.get_context_stack().install(ProgramContext(runtime)):
    asyncio.run(tff.learning.programs.train_model(...))
  """

  def __init__(self, runtime: tff.framework.SyncContext):
    """`runtime` is a runtime that `registry.install` returned."""
    self._runtime = runtime

  def invoke(self, comp: tff.Computation, arg: Any) -> Any:
    """Starts a computation and returns references to its results.

    Call it within a running event loop. Raises ValueError if a result is placed at clients.
    """
    kind = comp.type_signature.result
    if not tff.program.contains_only_server_placed_data(kind):
      raise ValueError(f'a program takes results of the server only, not {kind}')
    task = asyncio.create_task(self._run(comp, arg))
    places = itertools.count()

    def references(kind):
      if isinstance(kind, tff.FederatedType):
        return references(kind.member)
      if isinstance(kind, tff.StructType):
        parts = tff.structure.iter_elements(kind)
        return tff.structure.Struct([(n, references(part)) for n, part in parts])
      return _Reference(task, next(places), kind)

    return tff.types.type_to_py_container(references(kind), kind)

  async def _run(self, comp, arg) -> list:
    """Runs the computation, and returns the leaves of its result."""
    arg = await _known(arg, comp.type_signature.parameter)

    def call():
      with tff.framework.get_context_stack().install(self._runtime):
        return self._runtime.invoke(comp, arg)

    found = await asyncio.to_thread(call)
    kind = comp.type_signature.result
    kind = kind.member if isinstance(kind, tff.FederatedType) else kind
    if not isinstance(kind, tff.StructType):
      return [found]
    found = tff.structure.from_container(found, recursive=True)
    return tff.structure.flatten(found)


class _Reference(tff.program.MaterializableValueReference):
  """A reference to one leaf of a result. The computation may still be running."""

  def __init__(self, task: asyncio.Task, place: int, kind: tff.Type):
    self._task, self._place, self._type = task, place, kind

  @property
  def type_signature(self) -> tff.Type:
    return self._type

  async def get_value(self) -> Any:
    """Returns a NumPy array or scalar, or a `tf.data.Dataset`."""
    value = (await self._task)[self._place]
    return value.numpy() if isinstance(value, tf.Tensor) else value


async def _known(value: Any, kind: tff.Type | None) -> Any:
  """Replaces the references in an argument by values. Clients' values have no references."""
  if isinstance(kind, tff.FederatedType) and kind.placement is tff.CLIENTS:
    return value
  if isinstance(value, tff.structure.Struct):
    pairs = tff.structure.iter_elements(value)
    of = list(kind) if isinstance(kind, tff.StructType) else [None] * len(value)
    parts = zip(pairs, of, strict=True)
    return tff.structure.Struct([(name, await _known(part, k)) for (name, part), k in parts])
  return await tff.program.materialize_value(value)


class Cohorts(tff.program.FederatedDataSource):
  """Provides a program with the cohorts of successive rounds.

  A resumed program gets the same cohorts as an uninterrupted program. A program must not
  discard rounds (`should_discard_round`), because it would then select the same clients again
  and never end.
  """

  def __init__(
    self, cohorts: Callable[[int], Sequence], process: tff.learning.templates.LearningProcess
  ):
    """Prepares the cohorts of a learning process.

    `cohorts` is a result of `sampling.cohorts`, a function from a round (counted from 0) to
    the clients' values. Raises InputError if clients keep a state, because programs do not
    return states to clients.
    """
    self._type = kind = process.next.type_signature.parameter[1]
    if len(getattr(kind.member, 'state', ())):
      raise errors.InputError(
        'the clients of this algorithm keep a state from round to round (as MOON,'
        " FedDyn, SCAFFOLD), which TFF's programs do not give back to them: train it by"
        ' `tff_xc.experiment.training.train`'
      )

    class Iterator(tff.program.FederatedDataSourceIterator):
      """Iterates over rounds. The state of the iterator is only the number of the next round."""

      def __init__(self, round_number: int = 0):
        self._round = round_number

      @classmethod
      def from_bytes(cls, buffer: bytes) -> 'Iterator':
        return cls(int(buffer))

      def to_bytes(self) -> bytes:
        return str(self._round).encode()

      @property
      def federated_type(self) -> tff.FederatedType:
        return kind

      def select(self, k: int | None = None) -> Sequence:
        found = cohorts(self._round)
        drawn = getattr(found, 'drawn', len(found))
        if k not in (None, drawn):
          raise errors.InputError(
            f'the program asks for {k} clients a round, and {drawn} are drawn: set'
            f' train_per_round_clients={drawn}, or clients_per_round={k}'
          )
        self._round += 1
        return found

    self._iterator = Iterator

  @property
  def federated_type(self) -> tff.FederatedType:
    return self._type

  def iterator(self) -> tff.program.FederatedDataSourceIterator:
    return self._iterator()


def with_train_metrics(
  process: tff.learning.templates.LearningProcess,
) -> tff.learning.templates.LearningProcess:
  """Returns the process with its metrics as `metrics['client_work']['train']`.

  `train_model` expects metrics under this name, and releases them as `model_metrics`.
  """

  @tff.tensorflow.computation
  def nested(metrics):
    of_work = collections.OrderedDict(train=metrics)
    return collections.OrderedDict(client_work=of_work)

  @tff.federated_computation(*process.next.type_signature.parameter)
  def next_fn(state, clients):
    output = process.next(state, clients)
    return tff.learning.templates.LearningProcessOutput(
      output.state, tff.federated_map(nested, output.metrics)
    )

  return tff.learning.templates.LearningProcess(
    process.initialize, next_fn, process.get_model_weights, process.set_model_weights
  )
