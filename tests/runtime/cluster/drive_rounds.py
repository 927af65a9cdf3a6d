"""A driver that trains a round of a tiny FedSS for each line on its stdin.

python -m tests.runtime.cluster.drive_rounds CLIENTS [FOLDER]

After each round it prints a line of JSON: its seconds, the workers that took part
and those lost, and the SHA-256 of the weights. Without a folder of
`launch.workers` it trains in one process.
"""

import hashlib
import json
import os
import sys
import time

import numpy as np

from launch import app
from tests import cluster_faults
from tests import tiny


def main(arguments) -> None:
  clients, *folder = arguments
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  import tensorflow as tf
  import tensorflow_federated as tff

  from tff_xc.runtime.cluster import context
  from tff_xc.runtime.cluster import ray_crew
  from tff_xc.runtime.in_process import context as in_process

  runtime = in_process.create_context(client_threads=2)
  if folder:
    crew = ray_crew.RayCrew(600.0, *folder)
    runtime = context.ClusterContext(crew)
  with tff.framework.get_context_stack().install(runtime):
    process = tiny.process('fedss', max_positives=6, negatives=3)
    state = process.initialize()
    for number, _ in enumerate(sys.stdin):
      cohort = cluster_faults.cohort(number, int(clients))
      started = time.monotonic()
      state = process.next(state, cohort).state
      seconds = time.monotonic() - started
      measured = runtime.metrics() if folder else {}
      digest = hashlib.sha256()
      for weight in tf.nest.flatten(process.get_model_weights(state)):
        digest.update(np.asarray(weight).tobytes())
      found = [measured.get('workers'), measured.get('workers_lost')]
      print(json.dumps([seconds, *found, digest.hexdigest()]), flush=True)


if __name__ == '__main__':
  app.run(main, __doc__)
