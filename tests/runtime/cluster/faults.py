"""A cluster under faults.

  python -m tests.runtime.cluster.faults DIR [ROUNDS [SECONDS [CLIENTS]]]

Starts two nodes of one worker on this machine (`launch.workers`) and trains a tiny
FedSS on them, while processes are killed, stopped and started at random, every so many
seconds: a worker, a worker that hangs, a node that leaves and one that joins. It then
trains the same rounds in one process. The weights must be equal to the last digit. No
process may be left of what was killed or left, and none after the cluster's end.
"""

import collections
import contextlib
import itertools
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil

from tests.runtime.cluster import drive
from tff_xc.runtime.cluster import state

ROOT = pathlib.Path(__file__).parents[3]
# A worker that hangs is given up after so many seconds, and more for many clients.
TIMEOUT = 15.0
_CLIENTS_A_SECOND = 50


def workers(folder: pathlib.Path, *arguments: str) -> None:
  """Runs `launch.workers`."""
  subprocess.run(
    [
      *(sys.executable, '-m', 'launch.workers', *arguments),
      f'--folder={folder}',
    ],
    cwd=ROOT,
    check=True,
    stdout=subprocess.DEVNULL,
  )


class Cluster:
  """Two nodes of this machine, each with one worker of one thread, for a block."""

  def __init__(self, folder: pathlib.Path):
    self.folder = folder
    self._one = ('start', '--workers=1', '--threads=1')

  def __enter__(self) -> 'Cluster':
    try:
      workers(self.folder, *self._one)
      self.join()
      # All that the nodes ever start has this, also when they have left.
      self._mark = state.find_cluster(self.folder).ray_folder
    except BaseException:
      self.stop()
      raise
    return self

  def __exit__(self, *unused) -> None:
    self.stop()

  def join(self) -> None:
    """Adds a node."""
    workers(self.folder, *self._one, f'--join={self.folder / state.JOIN}')

  def nodes(self) -> list[state.Node]:
    return state.read_nodes(self.folder)

  def processes(self) -> list[psutil.Process]:
    """Returns all living processes of the nodes."""
    return state.marked([node.mark for node in self.nodes()])

  def actors(self) -> list[psutil.Process]:
    """Returns the workers' processes."""
    found = []
    for process in self.processes():
      with contextlib.suppress(psutil.Error):
        if process.cmdline()[0].startswith('ray::_Actor'):
          found.append(process)
    return found

  def leave(self) -> None:
    """Ends the last node that joined."""
    last = [node for node in self.nodes() if not node.is_head][-1]
    workers(self.folder, 'stop', f'--node={last.name}')

  def left(self) -> list[psutil.Process]:
    """Returns the living processes that are of no node that is known now."""
    everything = state.marked([self._mark], state.CLUSTER_MARK)
    known = {process.pid for process in self.processes()}
    return [process for process in everything if process.pid not in known]

  def stop(self) -> None:
    workers(self.folder, 'stop')


class Faults(threading.Thread):
  """Does something bad at random times, until it is told to end."""

  def __init__(self, cluster: Cluster, seed: int, mean_seconds: float):
    super().__init__(daemon=True)
    self._cluster = cluster
    self._random = random.Random(seed)
    self._mean = mean_seconds
    self._ended = threading.Event()
    self.log: list[str] = []
    self.error: Exception | None = None

  def run(self) -> None:
    kinds = ('killed', 'hangs', 'node')
    try:
      while not self._ended.wait(self._random.expovariate(1 / self._mean)):
        getattr(self, f'_{self._random.choice(kinds)}')()
    except Exception as e:  # Else the rounds would go on without faults.
      self.error = e

  def __enter__(self) -> 'Faults':
    self.start()
    return self

  def __exit__(self, *unused) -> None:
    self._ended.set()
    self.join()
    if self.error:
      raise self.error

  def _signal(self, what: str, number: int) -> None:
    found = self._cluster.actors()
    if found:
      with contextlib.suppress(psutil.Error):
        self._random.choice(found).send_signal(number)
        self.log.append(what)

  def _killed(self) -> None:
    self._signal('worker killed', signal.SIGKILL)

  def _hangs(self) -> None:
    self._signal('worker hangs', signal.SIGSTOP)

  def _node(self) -> None:
    self.log.append('node leaves')
    self._cluster.leave()
    self._ended.wait(2.0)
    self.log.append('node joins')
    self._cluster.join()


def train(rounds: int, clients: int):
  """Trains in the installed runtime; returns the weights as arrays."""
  return next(itertools.islice(drive.trained(clients), rounds - 1, None))


def main(
  directory: str, rounds: int = 1000, mean_seconds: int = 20, clients: int = 40
) -> None:
  """Trains under faults, and says how it went."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  import tensorflow_federated as tff

  from tff_xc.runtime.cluster import context
  from tff_xc.runtime.cluster import ray_crew
  from tff_xc.runtime.in_process import context as in_process

  path = pathlib.Path(directory)
  path.mkdir(parents=True, exist_ok=True)
  timeout = max(TIMEOUT, clients / _CLIENTS_A_SECOND)
  with Cluster(path / 'cluster') as cluster:
    runtime = context.ClusterContext(
      ray_crew.RayCrew(timeout, str(cluster.folder)), timeout
    )
    faults = Faults(cluster, 0, mean_seconds)
    try:
      with tff.framework.get_context_stack().install(runtime):
        train(1, clients)  # Compiles; the faults come after.
        started = time.monotonic()
        with faults:
          found = train(rounds, clients)
        seconds = time.monotonic() - started
    finally:
      runtime.close()  # Before its node ends, with which Ray ends this process.
    left_by_faults = len(cluster.left())
  left = len(cluster.left())
  runtime = in_process.create_context(client_threads=2)
  with tff.framework.get_context_stack().install(runtime):
    expected = train(rounds, clients)
  same = all(map(np.array_equal, found, expected))
  print(
    f'{rounds} rounds of {clients} clients in {seconds:.0f} s; equal to one'
    f' process to the last digit: {same}; processes left: {left_by_faults} of the'
    f' faults, {left} at the end'
  )
  for what, count in collections.Counter(faults.log).items():
    print(f'{what}: {count} times')
  sys.exit(not same or bool(left_by_faults) or bool(left))


if __name__ == '__main__':
  main(sys.argv[1], *map(int, sys.argv[2:]))
