"""Workers on threads of this process. Tests can make them fail."""

import concurrent.futures
import itertools
import pickle
import threading

from tff_xc.runtime.cluster import dispatch, worker


class _Shared:
  def __init__(self, value):
    self._pickled = pickle.dumps(value)

  def get(self):
    return pickle.loads(self._pickled)


class ThreadsCrew:
  """A crew whose workers have one thread each."""

  def __init__(self):
    self._made = []  # Workers keep their compiled programs.
    self._pool = concurrent.futures.ThreadPoolExecutor(16)
    self._lock = threading.Lock()
    self._names = itertools.count()
    self.reset(0)

  def reset(self, count: int, faults=None) -> None:
    """Starts again with `count` workers, which have new names."""
    self._faults = faults or (lambda *_: None)
    self._workers = {}
    self._reads_data = False
    self.calls, self.dismissed = [], []
    for _ in range(count):
      self.join()

  def join(self) -> None:
    """Adds a worker."""
    place = len(self._workers) + len(self.dismissed)
    while len(self._made) <= place:
      self._made.append(worker.Worker(1))
    self._workers[f'worker {next(self._names)}'] = place

  def offer_data(self, source, fingerprint) -> None:
    """Lets all workers read clients' values themselves."""
    found, values_of, check = source('')
    assert found == fingerprint
    self._reads_data = True
    for each in self._made:
      each.open_data(values_of, check)

  def workers(self):
    info = dispatch.Info(1, 'here', self._reads_data)
    return dict.fromkeys(self._workers, info)

  def call(self, name, method, *args):
    place = self._workers[name]
    sent = pickle.dumps(args, protocol=5)

    def run():
      given = pickle.loads(sent)
      if method != 'idle_seconds':
        with self._lock:
          self.calls.append((place, method, given[0].first))
        self._faults(place, method, given[0])
      found = getattr(self._made[place], method)(*given)
      return pickle.loads(pickle.dumps(found))

    return self._pool.submit(run)

  def wait(self, tickets, seconds):
    return list(concurrent.futures.wait(tickets, seconds, concurrent.futures.FIRST_COMPLETED).done)

  def result(self, ticket):
    return ticket.result()

  def dismiss(self, name):
    self.dismissed.append(self._workers.pop(name))

  def share(self, value):
    return _Shared(value)

  def close(self):
    self._pool.shutdown(wait=False, cancel_futures=True)
