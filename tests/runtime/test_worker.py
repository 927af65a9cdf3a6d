"""The worker computes, and its process ends when its owner ends."""

import concurrent.futures
import contextlib
import gc
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import processes
from tests.runtime import computations
from tff_xc import errors
from tff_xc.runtime import registry, worker

_ROOT = pathlib.Path(__file__).parents[2]
# This program forks after its imports, which take seconds. One of the two processes ends. The
# other process writes to a file and keeps running.
_CHILD = """
import os, sys, time
import numpy as np
import tensorflow_federated as tff
from tff_xc.runtime import worker

if stays := not os.fork():
  os.setsid()
  for number in (1, 2):
    os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), number)

@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(x):
  return tff.federated_sum(x)

context = worker.create_context()
with tff.framework.get_context_stack().install(context):
  for i in range(30):  # enough for TFF to release values in batches
    result = total([1, 2, i])
print(context.pid, result, os.getpid(), flush=True)
time.sleep(120 if stays else 0)
"""


@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def _total(x):
  return tff.federated_sum(x)


def _fake_worker(monkeypatch, tmp_path, script):
  path = tmp_path / 'worker'
  path.write_text(f'#!/bin/sh\n{script}\n')
  path.chmod(0o755)
  monkeypatch.setattr(worker, '_find_binary', lambda: str(path))


def test_sums_and_ends_when_closed():
  context, other = worker.create_context(), worker.create_context()
  with contextlib.closing(context), contextlib.closing(other):
    assert computations.invoke(context, _total, [1, 2, 39]) == 42
    assert computations.invoke(context, _total, list(range(100))) == 4950
    assert processes.is_running(context.pid)
    context.close()
    assert not processes.is_running(context.pid)
    assert computations.invoke(other, _total, [1, 2]) == 3
  context.close()
  with pytest.raises(RuntimeError, match='closed'):
    computations.invoke(context, _total, [1, 2, 3, 4])


def test_ends_when_collected():
  context = worker.create_context()
  pid = context.pid
  computations.invoke(context, _total, [1, 2])
  del context
  gc.collect()
  assert processes.ends(pid)


def test_a_killed_worker_is_an_error_and_no_endless_retry():
  with contextlib.closing(worker.create_context()) as context:
    computations.invoke(context, _total, [1, 2])
    os.kill(context.pid, signal.SIGKILL)
    with pytest.raises(errors.InputError, match='signal 9'):
      computations.invoke(context, _total, [1, 2])


@pytest.fixture(scope='module')
def children(tmp_path_factory):
  """Returns the output of a child that ends, and the words of a child that keeps running."""
  file = tmp_path_factory.mktemp('child') / 'stays'
  done = subprocess.run(
    ['bash', '-c', '"$0" -c "$1" "$2" 2>&1 | cat', sys.executable, _CHILD, file],
    cwd=_ROOT,
    env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
    stdout=subprocess.PIPE,
    text=True,
    timeout=120,
  )
  deadline = time.monotonic() + 60
  while not (said := file.read_text()).endswith('\n'):
    assert time.monotonic() < deadline
    time.sleep(0.05)
  yield done.stdout.split(), said.split()
  with contextlib.suppress(ProcessLookupError):
    os.kill(int(said.split()[2]), signal.SIGKILL)


@pytest.mark.slow
def test_a_child_piped_through_cat_returns_quietly(children):
  pid, result, _ = children[0]  # No traceback and no other line.
  assert result == '32'
  assert processes.ends(int(pid), seconds=1)


@pytest.mark.slow
def test_a_killed_child_leaves_no_worker(children):
  pid, child = int(children[1][0]), int(children[1][2])
  assert processes.is_running(pid)
  assert processes.is_running(child)
  os.kill(child, signal.SIGKILL)
  assert processes.ends(pid)


def test_a_worker_that_does_not_start_says_why(monkeypatch, tmp_path):
  _fake_worker(monkeypatch, tmp_path, 'echo no such luck >&2; exit 7')
  with pytest.raises(errors.InputError, match=r'exit status 7[\s\S]*no such'):
    worker.create_context()
  pid_file = tmp_path / 'pid'
  _fake_worker(monkeypatch, tmp_path, f'echo $$ > {pid_file}; exec sleep 60')
  with pytest.raises(errors.InputError, match='within 1 seconds'):
    worker.create_context(start_timeout_seconds=1)
  assert processes.ends(int(pid_file.read_text()))
  monkeypatch.undo()
  monkeypatch.setattr(worker.tff, '__file__', str(tmp_path / '__init__.py'))
  with pytest.raises(errors.InputError, match='make clean venv'):
    worker.create_context()


def test_is_refused_outside_the_main_thread():
  with concurrent.futures.ThreadPoolExecutor() as pool:
    made = pool.submit(worker.create_context)
  with pytest.raises(RuntimeError, match='main thread only'):
    made.result()


def test_a_runtime_is_installed_by_its_name():
  stack = tff.framework.get_context_stack()
  before = stack.current
  try:
    with contextlib.closing(registry.install('worker', device='CPU')) as context:
      assert stack.current is context
      assert _total([20, 22]) == 42
  finally:
    tff.framework.set_default_context(before)
  with pytest.raises(errors.InputError, match=r'wroker.*worker'):
    registry.install('wroker')
  code = (
    'import sys, tff_xc.runtime.registry; '
    'assert not {"tensorflow", "tensorflow_federated"} & set(sys.modules)'
  )
  subprocess.run([sys.executable, '-c', code], cwd=_ROOT, check=True)
