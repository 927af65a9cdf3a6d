"""Defines a worker, which runs blocks of a cohort's clients with the in-process runtime.

This module does not depend on Ray. Several threads may call a worker at once. The clients of
all calls share the worker's threads.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_xc import errors
from tff_xc.runtime import client_error
from tff_xc.runtime.cluster import cut, messages
from tff_xc.runtime.in_process import context, phases as phases_lib, program as program_lib, values


class Worker:
  """Runs blocks of clients."""

  def __init__(self, threads: int, device: str = ''):
    self._clients = context.new_clients(threads, device)(0)
    self._programs = {}
    self._servers = {}  # The server's values of the current round.
    self._begun = {}  # Blocks that wait for rows, by round and first client.
    self._values_of: Callable[[int], Any] | None = None
    self._check_data: Callable[[], None] | None = None
    self._lock = threading.Lock()
    self._folding = threading.Lock()
    self._compiling = threading.Lock()
    self._progress = time.monotonic()  # The time of the last progress.

  def idle_seconds(self) -> float:
    """Returns the seconds since the worker last read a client's values or ran a client."""
    return time.monotonic() - self._progress

  def open_data(self, values_of: Callable[[int], Any], check: Callable[[], None]) -> None:
    """Sets functions that read this machine's copy of the data; see `registry.offer_data`."""
    self._values_of, self._check_data = values_of, check

  def keys(self, block: messages.Block):
    """Returns the distinct keys of a block's clients.

    The result has keys int32 [U] for each `federated_select`, by name. The block then waits
    until the driver calls `train` with the rows for these keys. Returns `messages.Failed` if a
    client fails.
    """
    program, phase = self._phase(block)
    arguments = self._arguments(block, program)
    server, kept = self._values(block, phase)
    found = []

    def work(index, argument, place):
      own = {program.parameter: argument}
      return phase.keys({**server, **kept[index], **own}, place)

    failed = self._run(block, program, arguments.__getitem__, work, found.extend)
    if failed:
      return failed
    distinct, places = {}, [{} for _ in found]
    for name in phase.selects:
      every = np.stack([each[name] for each in found])
      distinct[name], inverse = np.unique(every, return_inverse=True)
      for own, place in zip(places, inverse.reshape(every.shape), strict=True):
        own[cut.places_of(name)] = tf.constant(place, tf.int32)
    self._begun[block.round, block.first] = arguments, places
    return distinct

  def train(self, block: messages.Block, rows: messages.Arrays):
    """Trains a block's clients. Returns `messages.Trained`, or `messages.Failed`."""
    program, phase = self._phase(block)
    if phase.selects:
      begun = self._begun.pop((block.round, block.first), None)
      if begun is None:  # The driver gave up the round and does not wait for the result.
        return messages.Failed(block.first, 'its round was given up')
      arguments, places = begun
    else:
      arguments = self._arguments(block, program)
      places = [{} for _ in arguments]
    server, kept = self._values(block, phase)
    server = {**server, **messages.unpack(rows, phase.client.inputs)}
    home = self._clients.home(program.stateful)
    sums = phases_lib.Sums(phase, server, home, len(arguments))
    found, new = [], []
    to_keep, to_fold = {}, {}
    for name, kind in phase.client.outputs.items():
      (to_keep if name in phase.kept else to_fold)[name] = kind

    def work(index, argument, place):
      own = {**kept[index], program.parameter: argument}
      return phase.client({**server, **places[index], **own}, place)

    def fold(group):
      new.extend(messages.pack(each, to_keep) for each in group)
      if not block.folds:
        found.extend(messages.pack(each, to_fold) for each in group)
      elif phase.totals:
        with self._folding:
          sums.add(group)

    failed = self._run(block, program, arguments.__getitem__, work, fold, phase.at_once)
    if failed:
      return failed
    if block.folds:
      found = messages.pack(sums.totals(), phase.zero.outputs)
    return messages.Trained(found, new)

  def _run(self, block, program, read, work, fold, at_once=None):
    """Runs the block's clients. Returns `messages.Failed` if a client fails, else None."""

    def noted(*args):
      found = work(*args)
      self._progress = time.monotonic()
      return found

    try:
      self._clients.run(
        len(block.kept),
        program.stateful,
        read,
        noted,
        fold,
        at_once or (lambda found: phases_lib.GROUP),
      )
    except client_error.ClientError as e:
      return messages.Failed(block.first + e.client_index, e.reason)
    return None

  def _phase(self, block: messages.Block):
    """Returns the block's program and the phase to run.

    Compiles the program if this worker has not seen it before.
    """
    with self._compiling:
      if block.program not in self._programs:
        building_block = tff.framework.ComputationBuildingBlock.from_proto(block.proto.get())
        program = program_lib.Program(building_block)
        phases = [cut.CutPhase(program, i) for i in range(program.phases)]
        self._programs[block.program] = program, phases
    program, phases = self._programs[block.program]
    return program, phases[block.phase]

  def _arguments(self, block: messages.Block, program) -> list:
    """Returns each client's view of the parameter."""
    if not block.clients:  # The clients do not read the parameter.
      return [()] * len(block.kept)
    try:
      return [self._argument(each, program) for each in block.clients]
    finally:  # If the data changed, report the change, even if reading failed.
      if any(isinstance(each, messages.Reference) for each in block.clients):
        try:
          self._check_data()
        except errors.InputError as e:
          raise client_error.ChangedError(str(e)) from e

  def _argument(self, client, program):
    kind = program.parameter_type
    if isinstance(client, messages.Reference):
      value = self._values_of(client.round_number)[client.place]
      self._progress = time.monotonic()
      return of_client(value, kind)
    return values.unflatten(messages.tensors(client), phases_lib.seen_by(True, kind))

  def _values(self, block: messages.Block, phase) -> tuple[dict, list[dict]]:
    """Returns the server's values, and each client's values from earlier phases."""
    kept = [messages.unpack(each, phase.kept_inputs) for each in block.kept]
    return self._server(block, phase), kept

  def _server(self, block: messages.Block, phase) -> dict:
    """Returns the server's values for a block, and drops the values of an older round."""
    with self._lock:
      if block.round not in self._servers:
        found = messages.unpack(block.server.get(), phase.server_inputs, borrowed=True)
        if block.round < max(self._servers, default=0):
          return found  # The driver gave up this round and has begun a newer round.
        self._servers = {block.round: found}
        old = [key for key in self._begun if key[0] != block.round]
        for key in old:  # The driver gave up the rounds of these blocks.
          del self._begun[key]
      return self._servers[block.round]


def of_client(value, parameter_type: tff.Type):
  """Returns a client's view of the parameter. `value` is the only part that differs by client."""
  if values.at_clients(parameter_type):
    return values.from_python(value, parameter_type.member)
  if values.contains_placement(parameter_type) and isinstance(parameter_type, tff.StructType):
    return tuple([of_client(value, part) for part in values.members(parameter_type)])
  return ()
