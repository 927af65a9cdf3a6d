"""A worker is given up without progress, and not for being slow."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.runtime.cluster import invoking
from tff_xc.experiment import cohort
from tff_xc.runtime import client_error
from tff_xc.runtime.cluster import crew as crew_lib
from tff_xc.runtime.cluster import dispatch
from tff_xc.runtime.cluster import messages
from tff_xc.runtime.cluster import worker


@tff.tensorflow.computation(np.float32)
def _slowly(x):
  end = tf.timestamp() + 0.4
  wait = tf.while_loop(lambda i: tf.timestamp() < end, lambda i: i + 1, [0])
  with tf.control_dependencies(wait):
    return x + 0.0


@tff.federated_computation(invoking.FLOATS)
def _total_slowly(x):
  return tff.federated_sum(tff.federated_map(_slowly, x))


@pytest.mark.parametrize('trains_slowly', [True, False])
def test_a_slow_worker_whose_clients_go_on_is_kept(
  trains_slowly, crew, runtime, monkeypatch
):
  """A block takes longer than a worker may make no progress."""
  computation, value = _total_slowly, lambda place: 1.0
  if not trains_slowly:
    computation, value = invoking.total, lambda place: time.sleep(0.4) or 1.0
  crew.reset(1)
  values = cohort.Values(value, range(6))
  runtime.offer_data(lambda folder: ({}, lambda r: values, lambda: None), {})
  assert invoking.invoke(runtime, computation, [1.0]) == 1.0
  monkeypatch.setattr(dispatch, '_POLL_SECONDS', 0.1)
  # Once it is lost, the round soon ends.
  monkeypatch.setattr(crew_lib, 'start_seconds', lambda timeout: 1.0)
  monkeypatch.setattr(dispatch.sums_lib, 'block_size', lambda clients: 5)
  runtime._roster.timeout = 1.0
  given = messages.Referenced([2.0] * 6, 0)
  assert invoking.invoke(runtime, computation, given) == 6.0
  assert not crew.dismissed


@pytest.mark.parametrize('answers', [True, False])
def test_a_worker_without_progress_is_lost_and_the_flag_is_named(
  answers, crew, runtime, monkeypatch, capsys
):
  end = threading.Event()

  def hangs(worker, method, block):
    end.wait(60)

  def asked(self):
    if not answers:
      end.wait(60)
    return 2.0

  monkeypatch.setattr(worker.Worker, 'idle_seconds', asked)
  monkeypatch.setattr(dispatch, '_ANSWER_SECONDS', 0.2)
  crew.reset(3)
  invoking.invoke(runtime, invoking.total, [])
  crew._faults = hangs
  runtime._roster.timeout = 0.5
  with pytest.raises(client_error.ClientError) as error:
    invoking.invoke(runtime, invoking.total, [1.0])
  end.set()
  assert error.value.reason == (
    '3 workers were lost one after the other with it (the last: no'
    ' progress within --worker_timeout=0.5 seconds), perhaps since a client takes'
    ' longer: give a higher one'
  )
  assert '(no progress within --worker_timeout=0.5' in capsys.readouterr().err
