"""Fixtures with both runtimes, and with threads that use one runtime at the same time."""

import threading

import pytest
import tensorflow_federated as tff


@pytest.fixture(scope='module')
def contexts(in_process_context, tff_worker):
  """Yields both runtimes by name. Afterwards, the worker is the default again."""
  yield {'in_process': in_process_context, 'worker': tff_worker}
  tff.framework.set_default_context(tff_worker)


@pytest.fixture
def in_threads():
  """Returns a function that calls `work` with 0, 1, 2 and 3, each in its own thread."""

  def run_all(context, work) -> list:
    found, start = [None] * 4, threading.Barrier(4)

    def run(index):
      with tff.framework.get_context_stack().install(context):
        start.wait()
        try:
          found[index] = work(index)
        except Exception as e:
          found[index] = e

    threads = [threading.Thread(target=run, args=[i], daemon=True) for i in range(4)]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads), 'they hang'
    return found

  return run_all
