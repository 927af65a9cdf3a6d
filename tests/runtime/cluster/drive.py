"""A driver in a process of its own, which goes on at each line on its stdin.

python -m tests.runtime.cluster.drive workers FOLDER [DEADLINE_SECONDS]
  prints one line of JSON: the number of announced workers and what each worker says
  of itself; calls the workers again, and prints how that went
python -m tests.runtime.cluster.drive share FOLDER
  shares a value, now and after a line
python -m tests.runtime.cluster.drive rounds CLIENTS [FOLDER]
  trains a round of a tiny FedSS for each line, and prints a line of JSON: its seconds,
  the workers that took part and those lost, and the SHA-256 of the weights. Without a
  folder of `launch.workers` it trains in one process
"""

import hashlib
import itertools
import json
import os
import sys
import time

from tff_xc import errors
from tff_xc.runtime.cluster import connection
from tff_xc.runtime.cluster import state

NAMES = (
  'TFF_XC_WORKER_THREADS',
  'TFF_XC_WORKER_DATA_DIR',
  'CUDA_VISIBLE_DEVICES',
)


def workers(folder: str, deadline_s: str = '20') -> None:
  try:
    number = connection.connect(folder, float(deadline_s))
  except errors.InputError as e:
    sys.exit(f'error: {e}')
  import ray

  @ray.remote(resources={state.RESOURCE: 1})
  class Worker:
    def describe(self):
      return [os.getpid(), *(os.environ.get(n) for n in NAMES)]

  made = [Worker.remote() for _ in range(number)]
  found = ray.get([w.describe.remote() for w in made])
  print(json.dumps([number, found]), flush=True)
  sys.stdin.readline()
  answers = []
  for worker in made:
    try:
      answers.append(ray.get(worker.describe.remote(), timeout=30)[0])
    except ray.exceptions.RayError as e:
      answers.append(type(e).__name__)
  try:
    alive = len(connection.check())
  except errors.InputError as e:
    alive = str(e)
  print(json.dumps([answers, alive]), flush=True)
  connection.disconnect()
  print(json.dumps(sorted(n for n in os.environ if n.startswith('RAY_'))))


def share(folder: str) -> None:
  import numpy as np

  from tff_xc.runtime.cluster import ray_crew

  crew = ray_crew.RayCrew(600.0, folder)
  for wait in (sys.stdin.readline, lambda: None):
    crew.share(np.zeros(10**6))
    print('shared', flush=True)
    wait()


def cohort(round_number: int, clients: int):
  import numpy as np

  from tests import tiny

  labels = np.random.default_rng(round_number).integers(0, 12, [clients, 6])
  return tiny.cohort(labels, seed=round_number)


def trained(clients: int):
  """Yields the weights after each round in the installed runtime, as arrays."""
  import numpy as np
  import tensorflow as tf

  from tests import tiny

  process = tiny.process('fedss', max_positives=6, negatives=3)
  state_ = process.initialize()
  for number in itertools.count():
    state_ = process.next(state_, cohort(number, clients)).state
    weights = process.get_model_weights(state_)
    yield [np.asarray(w) for w in tf.nest.flatten(weights)]


def rounds(clients: str, *folder: str) -> None:
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  import tensorflow_federated as tff

  from tff_xc.runtime.cluster import context
  from tff_xc.runtime.cluster import ray_crew
  from tff_xc.runtime.in_process import context as in_process

  runtime = in_process.create_context(client_threads=2)
  if folder:
    runtime = context.ClusterContext(ray_crew.RayCrew(600.0, *folder))
  with tff.framework.get_context_stack().install(runtime):
    weights = trained(int(clients))
    for _ in sys.stdin:
      started = time.monotonic()
      found = next(weights)
      seconds = time.monotonic() - started
      measured = runtime.metrics() if folder else {}
      digest = hashlib.sha256(b''.join(w.tobytes() for w in found))
      found = [measured.get('workers'), measured.get('workers_lost')]
      print(json.dumps([seconds, *found, digest.hexdigest()]), flush=True)


if __name__ == '__main__':
  if sys.argv[1] == 'workers':
    workers(*sys.argv[2:])  # At once, and without what `launch.app` does.
  else:
    from launch import app

    programs = {'share': share, 'rounds': rounds}
    app.run(lambda given: programs[given[0]](*given[1:]), __doc__)
