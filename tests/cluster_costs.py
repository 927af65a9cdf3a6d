"""What a round costs the driver of a cluster: python -m tests.cluster_costs [FOLDER].

Trains FedSS with a linear encoder on the cluster that `launch.workers` started here,
with several numbers of classes, clients and rows, and fits the driver's processor
time to its parts, none of which is negative. docs/scale.md shows what it prints, and
writes to cluster_costs.csv and driver_costs.csv in the folder.
"""

import os
import pathlib
import statistics
import sys
import time

import numpy as np
from scipy import optimize

from tests import kept
from tests import tiny
from tff_xc import wording
from tff_xc.report import text_table

DIM = 64
_ROUNDS = 5
# Classes, clients of a round, rows that a client requests.
SIZES = (
  (10_000, 32, 100),
  (100_000, 32, 100),
  (1_000_000, 32, 100),
  (100_000, 8, 100),
  (100_000, 128, 100),
  (100_000, 512, 100),
  (100_000, 32, 1000),
  (100_000, 128, 1000),
)


def _process(classes: int, rows: int):
  import collections

  import tensorflow as tf

  from tff_xc import classifier
  from tff_xc import heads
  from tff_xc.algorithms import fedss
  from tff_xc.encoders import encoder

  def init(seed):
    kernel = tf.random.stateless_normal([tiny.FEATURES, DIM], seed)
    return collections.OrderedDict(kernel=kernel, bias=tf.zeros([DIM]))

  def apply(trainable, non_trainable, x, training, seed):
    del training, seed
    return x @ trainable['kernel'] + trainable['bias'], non_trainable

  linear = encoder.Encoder(
    example_spec=tf.TensorSpec([tiny.FEATURES], tf.float32),
    embedding_dim=DIM,
    init=init,
    apply=apply,
    last_layer=('bias',),
  )
  model = classifier.EmbeddingClassifier(linear, heads.CosineHead(4.0), classes)
  return fedss.build_fedss(
    model=model, max_positives=10, negatives=rows - 10, **tiny.settings()
  )


def _measure(runtime, classes: int, clients: int, rows: int):
  """Returns (seconds, driver's processor seconds, what crossed) of a round."""
  process = _process(classes, rows)
  random = np.random.default_rng(0)
  cohort = tiny.cohort(random.integers(0, classes, [clients, 10]))
  state, wall, own = process.initialize(), [], []
  for _ in range(_ROUNDS):
    started, used = time.perf_counter(), time.process_time()
    state = runtime.donate(state)  # Nobody else holds it: no copy of the table.
    state = process.next(state, cohort).state
    wall.append(time.perf_counter() - started)
    own.append(time.process_time() - used)
  # The first rounds compile on the driver and on the workers.
  return (
    statistics.median(wall[2:]),
    statistics.median(own[2:]),
    runtime.measured,
  )


def _shares(clients: int) -> int:
  """Returns in how many shares two threads get the clients of a cohort."""
  from tff_xc.runtime.cluster import shares
  from tff_xc.runtime.in_process import phases

  waiting, count = shares.Shares(clients), 0
  while waiting:
    waiting.take(waiting.next(threads=2, most=2 * phases.GROUP))
    count += 1
  return count


def main(folder: str = '') -> None:
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  from tff_xc.runtime import registry

  runtime = registry.install('cluster')
  heading = (
    'classes',
    'clients',
    'rows each',
    's',
    'driver CPU s',
    'down',
    'up',
  )
  table, parts, times = [heading], [], []
  for classes, clients, rows in SIZES:
    wall, own, crossed = _measure(runtime, classes, clients, rows)
    parts.append((1.0, _shares(clients), clients, clients * rows))
    times.append(own)
    table.append(
      (
        f'{classes:,}',
        str(clients),
        f'{rows:,}',
        f'{wall:.2f}',
        f'{own:.3f}',
        wording.human_bytes(crossed.bytes_down),
        wording.human_bytes(crossed.bytes_up),
      )
    )
    print(text_table.to_text([heading, table[-1]]), flush=True)
  print(text_table.to_text(table))
  fitted, _ = optimize.nnls(np.array(parts), np.array(times))
  names = ('round', 'share', 'client', 'row')
  costs = [('', 'microseconds of the driver')]
  for name, seconds in zip(names, fitted, strict=True):
    costs.append((f'a {name}', f'{float(f"{1e6 * seconds:.3g}"):,g}'))
  print(text_table.to_text(costs))
  if folder:
    kept.write(pathlib.Path(folder, 'cluster_costs.csv'), table)
    kept.write(pathlib.Path(folder, 'driver_costs.csv'), costs)
  runtime.close()


if __name__ == '__main__':
  main(*sys.argv[1:])
