"""A FedMLH client's local epoch: R networks as one, or one after the other.

All contenders train on one thread with Adam, from the same weights, on the same
batches. 'ours' multiplies the first layer's batch as a dense or a sparse matrix,
by its share of stored features; 'dense' and 'sparse' always do it that way. The
default sizes are those of Wiki10-31K; those of EURLex-4K are

  python -m launch.benchmark hashed_networks --features=300 --stored=160
    --dim=150 --buckets=250 --num_classes=3993 --labels=5
"""

import dataclasses
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from launch.benchmarks import spec

_LEARNING_RATE = 1e-3
_DENSE_SHARES = {'dense': 0.0, 'sparse': 1.0}


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a client and its networks.

  Attributes:
    features: of the hashed features.
    stored: features that an example has.
    dim: length of both hidden layers.
    tables: R, the networks.
    buckets: B, a network's outputs.
    num_classes: n.
    labels: labels of an example.
    examples: of the client, one epoch.
    batch_size: of a step.
  """

  features: int = 5_000
  stored: int = 630
  dim: int = 500
  tables: int = 4
  buckets: int = 1_000
  num_classes: int = 30_938
  labels: int = 19
  examples: int = 500
  batch_size: int = 100


class Sets(NamedTuple):
  """The client: features int32 and float32 [m, stored], labels int32 [m, labels]."""

  ids: Any
  values: Any
  labels: Any


def make_sets(settings: Settings) -> Sets:
  """Returns the client, the same in every process; ids ascend in an example."""
  import numpy as np

  random = np.random.default_rng(0)

  def draw(largest, count):
    rows = [
      np.sort(random.choice(largest, count, replace=False, shuffle=False))
      for _ in range(settings.examples)
    ]
    return np.stack(rows).astype(np.int32)

  ids = draw(settings.features, min(settings.stored, settings.features))
  values = random.random(ids.shape, np.float32) * ids.shape[1] ** -0.5
  labels = draw(
    settings.num_classes, min(settings.labels, settings.num_classes)
  )
  return Sets(ids, values, labels)


def bucket_sets(settings: Settings, labels):
  """Returns R lists of int32 arrays: the buckets of each example, each once."""
  import numpy as np

  from tff_xc.data import hashing

  hashed = [
    np.reshape(
      hashing.buckets(labels.ravel(), r, settings.buckets), labels.shape
    )
    for r in range(settings.tables)
  ]
  return [[np.unique(row) for row in of_table] for of_table in hashed]


def _client(sets: Sets, of_example):
  """Returns a client's value; `of_example` are int32 arrays, its labels."""
  import numpy as np

  from tff_xc.data import sparse
  from tff_xc.round import examples

  ends = lambda sizes: np.cumsum([0, *sizes]).astype(np.int32)
  features = sparse.SparseFeatures(
    ends([sets.ids.shape[1]] * len(sets.ids)),
    sets.ids.ravel(),
    sets.values.ravel(),
  )
  ids = np.concatenate(of_example).astype(np.int32)
  labels = sparse.LabelSets(ends(map(len, of_example)), ids)
  return examples.ClientExamples(features, labels, np.int64(0), ids)


def _local_training(settings: Settings):
  from tff_xc.round import local_training

  return local_training.LocalTraining(
    _LEARNING_RATE,
    settings.batch_size,
    shuffle=False,
    optimizer_name='adam',
  )


def _fedmlh(settings: Settings, **options):
  """Returns FedMLH; options of the encoder."""
  from tff_xc import classifier
  from tff_xc import heads
  from tff_xc.algorithms import fedmlh
  from tff_xc.encoders import mlp

  encoder = mlp.build_mlp_encoder(settings.features, settings.dim, **options)
  return fedmlh.FedMLH.made(
    model=classifier.EmbeddingClassifier(
      encoder, heads.LinearHead(), settings.num_classes, label_sets=True
    ),
    hash_tables=settings.tables,
    hash_buckets=settings.buckets,
    local_training=_local_training(settings),
  )


def _alone(settings: Settings):
  """Returns the process of one network, whose labels are buckets."""
  from tff_xc import classifier
  from tff_xc import heads
  from tff_xc.algorithms import fedavg
  from tff_xc.encoders import mlp

  return fedavg.build_fedavg(
    model=classifier.EmbeddingClassifier(
      mlp.build_mlp_encoder(settings.features, settings.dim),
      heads.LinearHead(),
      settings.buckets,
      label_sets=True,
    ),
    local_training=_local_training(settings),
  )


def network(weights, settings: Settings, r: int):
  """Returns network r of the `ModelWeights` of all, as `ModelWeights`."""
  import collections

  dim, buckets = settings.dim, settings.buckets
  of_hidden, own = slice(dim * r, dim * (r + 1)), slice(r, r + 1)
  cut = {
    'hidden0/kernel': (slice(None), of_hidden),
    'hidden0/bias': of_hidden,
    'hidden1/kernel': own,
    'hidden1/bias': own,
  }
  return weights._replace(
    encoder=collections.OrderedDict(
      (name, weight[cut[name]]) for name, weight in weights.encoder.items()
    ),
    tables=collections.OrderedDict(
      (name, table[buckets * r : buckets * (r + 1)])
      for name, table in weights.tables.items()
    ),
  )


def initial_weights(settings: Settings):
  """Returns the `ModelWeights` of all networks, the same in every process."""
  import tensorflow as tf

  return _fedmlh(settings).model.init(tf.constant([1, 2]))


def _rounds(process, start, client):
  """Returns rounds of a process from these weights with one client."""
  import tensorflow as tf

  from launch.benchmarks import learning
  from launch.benchmarks.peers import inputs

  def check(state, metrics):
    after = tf.nest.flatten(process.get_model_weights(state))
    norm = inputs.distance(after, tf.nest.flatten(start))
    return {'loss': float(metrics['loss']), 'update_norm': norm}

  state = process.set_model_weights(process.initialize(), start)
  return learning.LearningRounds(process, state, [client], check)


class Looped:
  """Rounds of several networks, one network after the other."""

  def __init__(self, networks: Sequence[Any]):
    self._networks = networks

  def run(self) -> None:
    for each in self._networks:
      each.run()

  def report(self) -> dict:
    """Returns the sum of the losses, and the norm of all updates together."""
    checks = [each.report()['check'] for each in self._networks]
    loss = sum(check['loss'] for check in checks)
    norm = sum(check['update_norm'] ** 2 for check in checks) ** 0.5
    return {'check': {'loss': loss, 'update_norm': norm}}


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender, in its own process."""
  import tensorflow as tf

  from tff_xc.round import process
  from tff_xc.runtime import registry

  tf.config.threading.set_intra_op_parallelism_threads(1)
  tf.config.threading.set_inter_op_parallelism_threads(1)
  registry.install('in_process', client_threads=1)
  sets, start = make_sets(settings), initial_weights(settings)
  if contender == 'looped':
    made = _alone(settings)
    return Looped(
      [
        _rounds(made, network(start, settings, r), _client(sets, buckets))
        for r, buckets in enumerate(bucket_sets(settings, sets.labels))
      ]
    )
  options = {}
  if contender in _DENSE_SHARES:
    options['dense_share'] = _DENSE_SHARES[contender]
  made = process.build_process(_fedmlh(settings, **options))
  return _rounds(made, start, _client(sets, list(sets.labels)))


def write_arrays(settings: Settings, path: str) -> None:
  """Writes the examples dense, targets [R, m, B], and each network's weights."""
  import numpy as np

  sets, start = make_sets(settings), initial_weights(settings)
  x = np.zeros([settings.examples, settings.features], np.float32)
  np.put_along_axis(x, sets.ids, sets.values, axis=1)
  y = np.zeros([settings.tables, settings.examples, settings.buckets], bool)
  for of_table, buckets in zip(
    y, bucket_sets(settings, sets.labels), strict=True
  ):
    for targets, own in zip(of_table, buckets, strict=True):
      targets[own] = True
  weights = {}
  for r in range(settings.tables):
    one = network(start, settings, r)
    named = {name: np.asarray(w) for name, w in one.encoder.items()}
    rows = np.asarray(one.class_table)
    weights |= {
      f'{r}/0.weight': named['hidden0/kernel'].T,
      f'{r}/0.bias': named['hidden0/bias'],
      f'{r}/2.weight': named['hidden1/kernel'][0].T,
      f'{r}/2.bias': named['hidden1/bias'][0, 0],
      f'{r}/4.weight': rows[:, :-1],
      f'{r}/4.bias': rows[:, -1],
    }
  np.savez(
    path,
    x=x,
    y=y,
    batch_size=settings.batch_size,
    learning_rate=_LEARNING_RATE,
    **weights,
  )


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  return spec.pairs_of(
    names,
    ('ours', 'looped'),
    ('ours', 'torch_networks'),
    ('dense', 'ours'),
    ('sparse', 'ours'),
  )


BENCHMARK = spec.Benchmark(
  name='hashed_networks',
  summary="a FedMLH client's epoch of 4 networks, on one thread",
  settings=Settings,
  small={
    'features': 20,
    'stored': 6,
    'dim': 4,
    'tables': 3,
    'buckets': 5,
    'num_classes': 30,
    'labels': 3,
    'examples': 7,
    'batch_size': 3,
  },
  contenders=lambda settings: ('looped', 'ours', 'dense', 'sparse'),
  pairs=_pairs,
  groups=spec.all_together,
  tolerances={'loss': 1e-4, 'update_norm': 1e-2},
  build=build,
  peers=lambda settings: ('torch_networks',),
  write_arrays=write_arrays,
)
