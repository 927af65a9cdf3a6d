"""A cluster under faults: python -m tests.cluster_faults DIR [ROUNDS [SECONDS [CLIENTS]]].

Starts two nodes of one worker on this machine (`launch.workers`) and trains a tiny
FedSS on them, while processes are killed, stopped and started at random, every so many
seconds: a worker, a worker that hangs, a node that leaves and one that joins. It then
trains the same rounds in one process. The weights must be equal to the last digit. No
process may be left of what was killed or left, and none after the cluster's end. It
prints a table of the faults, and writes table.csv, faults.csv, memory.csv and
memory.png.
"""

import contextlib
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import threading
import time

import numpy as np
import psutil

from tests import kept
from tests import tiny
from tff_xc.report import pictures
from tff_xc.report import text_table
from tff_xc.runtime.cluster import processes
from tff_xc.runtime.cluster import state

ROOT = pathlib.Path(__file__).parents[1]
# A worker that hangs is given up after so many seconds, and more for many clients.
TIMEOUT = 15.0
_CLIENTS_A_SECOND = 50
_MEBIBYTE = 2**20


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
    return processes.marked([node.mark for node in self.nodes()])

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
    everything = processes.marked([self._mark], processes.CLUSTER_MARK)
    known = {process.pid for process in self.processes()}
    return [process for process in everything if process.pid not in known]

  def stop(self) -> None:
    workers(self.folder, 'stop')


class Faults(threading.Thread):
  """Does something bad at random times, until it is told to end.

  Attributes:
    log: (what, `time.monotonic` of it) in order.
    error: what ended it before it was told to, or None.
  """

  def __init__(self, cluster: Cluster, seed: int, mean_seconds: float):
    super().__init__(daemon=True)
    self._cluster = cluster
    self._random = random.Random(seed)
    self._mean = mean_seconds
    self._ended = threading.Event()
    self.log: list[tuple[str, float]] = []
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
        self.log.append((what, time.monotonic()))

  def _killed(self) -> None:
    self._signal('worker killed', signal.SIGKILL)

  def _hangs(self) -> None:
    self._signal('worker hangs', signal.SIGSTOP)

  def _node(self) -> None:
    self.log.append(('node leaves', time.monotonic()))
    self._cluster.leave()
    self._ended.wait(2.0)
    self.log.append(('node joins', time.monotonic()))
    self._cluster.join()


def cohort(round_number: int, clients: int):
  labels = np.random.default_rng(round_number).integers(0, 12, [clients, 6])
  return tiny.cohort(labels, seed=round_number)


def train(rounds: int, clients: int, after_round=lambda number, seconds: None):
  """Trains in the installed runtime; returns the weights as arrays."""
  import tensorflow as tf

  process = tiny.process('fedss', max_positives=6, negatives=3)
  state_ = process.initialize()
  for number in range(rounds):
    started = time.monotonic()
    state_ = process.next(state_, cohort(number, clients)).state
    after_round(number, time.monotonic() - started)
  weights = process.get_model_weights(state_)
  return [np.asarray(w) for w in tf.nest.flatten(weights)]


class Memory:
  """Memory of the driver and of the nodes, in MiB, over the rounds."""

  def __init__(self, cluster: Cluster, every: int):
    self._cluster, self._every = cluster, every
    self.rows = []
    self.seconds = []

  def __call__(self, number: int, seconds: float) -> None:
    self.seconds.append((time.monotonic(), seconds))
    if number % self._every == 0:
      own = psutil.Process().memory_info().rss / _MEBIBYTE
      theirs = 0.0
      for process in self._cluster.processes():
        with contextlib.suppress(psutil.Error):
          theirs += process.memory_info().rss / _MEBIBYTE
      self.rows.append((number + 1, own, theirs))

  def write(self, directory: pathlib.Path) -> None:
    """Writes memory.csv and memory.png."""
    from matplotlib import figure

    heading = ('round', 'driver_mib', 'nodes_mib')
    kept.write(directory / 'memory.csv', [heading, *self.rows])
    drawn = figure.Figure(figsize=(7, 4), layout='constrained')
    axes = drawn.subplots()
    numbers, own, theirs = zip(*self.rows, strict=True)
    axes.plot(numbers, own, label='driver')
    axes.plot(numbers, theirs, label='nodes and workers')
    axes.set(xlabel='round', ylabel='resident memory, MiB', ylim=(0, None))
    axes.legend()
    pictures.save(drawn, directory / 'memory.png')


def main(
  directory: str, rounds: int = 1000, mean_seconds: int = 20, clients: int = 40
) -> None:
  """Trains under faults and prints what they cost."""
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
    memory = Memory(cluster, max(rounds // 100, 1))
    faults = Faults(cluster, 0, mean_seconds)
    try:
      with tff.framework.get_context_stack().install(runtime):
        train(1, clients)  # Compiles; the faults come after.
        started = time.monotonic()
        with faults:
          found = train(rounds, clients, memory)
          ended = time.monotonic()
    finally:
      runtime.close()  # Before its node ends, with which Ray ends this process.
    left_by_faults = len(cluster.left())
  left = len(cluster.left())
  runtime = in_process.create_context(client_threads=2)
  with tff.framework.get_context_stack().install(runtime):
    expected = train(rounds, clients)
  same = all(map(np.array_equal, found, expected))
  memory.write(path)
  _write_faults(path, faults.log, started, memory.seconds)
  print(
    f'{rounds} rounds of {clients} clients in {ended - started:.0f} s; equal to one'
    f' process to the last digit: {same}; processes left: {left_by_faults} of the'
    f' faults, {left} at the end'
  )
  table = _table(faults.log, memory.seconds)
  kept.write(path / 'table.csv', table)
  print(text_table.to_text(table))
  sys.exit(not same or bool(left_by_faults) or bool(left))


def _round_of(when, rounds):
  """Returns (number, seconds) of the round in which something happened."""
  for number, (at, seconds) in enumerate(rounds, start=1):
    if at >= when:
      return number, seconds
  return None


def _write_faults(directory, log, started, rounds) -> None:
  """Writes faults.csv: a line for each."""
  lines = [('fault', 'second', 'round', 'its_seconds')]
  for what, when in log:
    number, seconds = _round_of(when, rounds) or ('', 0.0)
    lines.append((what, f'{when - started:.1f}', number, f'{seconds:.2f}'))
  kept.write(directory / 'faults.csv', lines)


def _table(log, rounds):
  """Returns the rows of a table: a heading, and one for each kind of fault."""
  usual = statistics.median(seconds for _, seconds in rounds)
  rows = []
  for kind in dict.fromkeys(what for what, _ in log):
    # The round in which it happened.
    hit = [
      (_round_of(when, rounds) or (0, usual))[1]
      for what, when in log
      if what == kind
    ]
    median, longest = statistics.median(hit), max(hit)
    rows.append(
      (kind, str(len(hit)), f'{median:.2f}', f'{longest:.2f}', 'nothing')
    )
  header = ('fault', 'times', 'its round, median s', 'longest s', 'lost')
  return [header, *rows, ('none', '', f'{usual:.2f}', '', '')]


if __name__ == '__main__':
  _directory, *_numbers = sys.argv[1:]
  main(_directory, *map(int, _numbers))
