"""A driver in a process of its own: python -m tests.runtime.cluster.drive FOLDER.

Prints one line of JSON: the number of announced workers and what each worker
says of itself. Then it waits for a line on stdin, calls the workers again, and
prints how that went.
"""

import json
import os
import sys

from tff_xc import errors
from tff_xc.runtime.cluster import connection

NAMES = (
  'TFF_XC_WORKER_THREADS',
  'TFF_XC_WORKER_DATA_DIR',
  'CUDA_VISIBLE_DEVICES',
)


def main(folder: str, deadline_s: str = '20') -> None:
  try:
    number = connection.connect(folder, float(deadline_s))
  except errors.InputError as e:
    sys.exit(f'error: {e}')
  import ray

  @ray.remote(resources={connection.RESOURCE: 1})
  class Worker:
    def describe(self):
      return [os.getpid(), *(os.environ.get(n) for n in NAMES)]

  workers = [Worker.remote() for _ in range(number)]
  found = ray.get([w.describe.remote() for w in workers])
  print(json.dumps([number, found]), flush=True)
  sys.stdin.readline()
  answers = []
  for worker in workers:
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


if __name__ == '__main__':
  main(*sys.argv[1:])
