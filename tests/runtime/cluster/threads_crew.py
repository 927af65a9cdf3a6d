"""A crew of workers on threads of this process, which can be lost at will."""

import concurrent.futures
import pickle
import threading
import time

from tff_xc.runtime.cluster import crew
from tff_xc.runtime.cluster import worker


class _Shared:
  def __init__(self, value):
    self._pickled = pickle.dumps(value)

  def get(self):
    return pickle.loads(self._pickled)


class ThreadsCrew:
  """Workers of one thread each.

  Attributes:
    calls: (worker, method, first client) of all calls, in order.
    dismissed: the workers that were dismissed.
  """

  def __init__(self, count: int, faults=None):
    """Args: workers at first, and a function called before each method.

    `faults(worker, method, block)` may raise `crew.LostError`, or sleep.
    """
    self._faults = faults or (lambda *_: None)
    self._workers = {}
    self._pools = {}
    self._lost = set()
    self._lock = threading.Lock()
    self.calls, self.dismissed = [], []
    for _ in range(count):
      self.join()

  def join(self) -> str:
    name = f'worker{len(self._pools)}'
    self._workers[name] = worker.Worker(1)
    self._pools[name] = concurrent.futures.ThreadPoolExecutor(4)
    return name

  def workers(self):
    return {
      name: crew.Info(1, 'here')
      for name in list(self._workers)
      if name not in self._lost
    }

  def call(self, name, method, *args):
    sent = pickle.dumps(args, protocol=5) if method != 'load' else None

    def run():
      given = args if sent is None else pickle.loads(sent)
      if method != 'load':
        with self._lock:
          self.calls.append((name, method, given[0].first))
        self._faults(name, method, given[0])
      return pickle.loads(
        pickle.dumps(getattr(self._workers[name], method)(*given))
      )

    return self._pools[name].submit(run)

  def wait(self, tickets, seconds):
    return list(
      concurrent.futures.wait(
        tickets, seconds, concurrent.futures.FIRST_COMPLETED
      ).done
    )

  def result(self, ticket):
    return ticket.result()

  def dismiss(self, name):
    self.dismissed.append(name)
    self._lost.add(name)

  def share(self, value):
    return _Shared(value)

  def close(self):
    for pool in self._pools.values():
      pool.shutdown(wait=False, cancel_futures=True)
    time.sleep(0)
