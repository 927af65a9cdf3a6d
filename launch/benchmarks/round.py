"""Rounds of LEAF's FEMNIST CNN: `round`, and `bottleneck` with n classes.

`round` compares federated averaging of 6.6 M parameters to a plain TensorFlow
loop with the same results, to TFF's own process and to other frameworks.
`bottleneck` has a dense layer of 64 and a class layer of n rows, and also FedSS,
which trains a client's own and 1,000 sampled rows.
"""

import dataclasses

from launch.benchmarks import spec

NUM_CLASSES = 62
_LEARNING_RATE = 0.1
_TFF = ('tff_fedavg', 'tff_fedavg_worker')
_PEERS = ('pfl_torch', 'torch_side_by_side', 'torch_gpu')
# Ours in this process, and PyTorch side by side under its autocast.
_BFLOAT16, _TORCH_BFLOAT16 = 'bfloat16', 'torch_bfloat16'


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a round."""

  clients: int = 8  # Clients of a round.
  examples: int = 227  # Images of each client.
  batch_size: int = 64  # Batch size of local training, one epoch.
  embedding_dim: int = 2048  # Width of the dense layer; LEAF has 2,048.


@dataclasses.dataclass(frozen=True)
class BottleneckSettings(Settings):
  """Sizes of a round; a client has images of at most 62 classes."""

  embedding_dim: int = 64
  negatives: int = 1000
  num_classes: tuple[int, ...] = (62, 2028, 11_318, 100_000)


def _shapes(embedding_dim: int, num_classes: int) -> dict[str, tuple[int, ...]]:
  """Returns the weights' shapes by name, in the order of the layers."""
  return {
    'conv0/kernel': (5, 5, 1, 32),
    'conv0/bias': (32,),
    'conv1/kernel': (5, 5, 32, 64),
    'conv1/bias': (64,),
    'dense/kernel': (3136, embedding_dim),
    'dense/bias': (embedding_dim,),
    'class/kernel': (embedding_dim, num_classes),
    'class/bias': (num_classes,),
  }


def make_arrays(settings: Settings, num_classes: int = NUM_CLASSES):
  """Returns (initial weights by name, clients), the same in every process.

  Clients have classes of their own among n; the images and the encoder's
  weights are the same for any n.
  """
  import numpy as np

  from launch.benchmarks import arrays

  own = min(NUM_CLASSES, num_classes)
  weights = arrays.torch_uniform(_shapes(settings.embedding_dim, num_classes))
  clients = arrays.femnist_like(settings.clients, settings.examples, own)
  if isinstance(settings, BottleneckSettings):
    random = np.random.default_rng(0)
    for k, (x, y) in enumerate(clients):
      classes = random.choice(num_classes, own, replace=False, shuffle=False)
      clients[k] = arrays.Client(x, np.sort(classes)[y].astype(np.int32))
  return weights, clients


def write_arrays(settings: Settings, path: str) -> None:
  """Writes the clients, as x and y, and the weights, for the peers.

  What depends on n, if there are several, is called 'NAME@N'.
  """
  import numpy as np

  written = {
    'batch_size': settings.batch_size,
    'learning_rate': _LEARNING_RATE,
  }
  sizes = getattr(settings, 'num_classes', None)
  for n in sizes or [NUM_CLASSES]:
    weights, clients = make_arrays(settings, n)
    of_n = {'y': np.stack([c.y for c in clients])}
    if sizes:
      of_n['negatives'] = _negatives(settings, n)
    written['x'] = np.stack([c.x for c in clients])
    for name, value in weights.items():
      (of_n if name.startswith('class/') else written)[name] = value
    for name, value in of_n.items():
      written[spec.at(name, n if sizes else '')] = value
  np.savez(path, **written)


def _negatives(settings: BottleneckSettings, num_classes: int) -> int:
  return min(settings.negatives, num_classes - 1)


def _build_keras(settings: Settings):
  """Returns the network as a functional Keras model, logits last."""
  import tensorflow as tf

  layers = tf.keras.layers
  x = inputs = tf.keras.Input([28, 28])
  x = layers.Reshape([28, 28, 1])(x)
  for filters in (32, 64):
    x = layers.Conv2D(filters, 5, padding='same', activation='relu')(x)
    x = layers.MaxPool2D()(x)
  x = layers.Dense(settings.embedding_dim, 'relu')(layers.Flatten()(x))
  return tf.keras.Model(inputs, layers.Dense(NUM_CLASSES)(x))


def build(contender: str, settings: Settings):
  """Builds a contender NAME or NAME@N, in its own process."""
  from launch.benchmarks import rounds
  from tff_xc import precision
  from tff_xc.encoders import leaf
  from tff_xc.runtime import registry
  from tff_xc.runtime.in_process import context

  name, size = spec.name_and_size(contender)
  n = int(size or NUM_CLASSES)
  rest = (*make_arrays(settings, n), settings.batch_size, _LEARNING_RATE)
  if name == 'plain':
    return rounds.plain(rounds.femnist_cnn, *rest)
  of_name = {'worker': 'worker', 'tff_fedavg_worker': 'worker'}
  runtime = 'cluster' if name == 'cluster' else of_name.get(name, 'in_process')
  # A cluster has a worker of one thread for each core.
  registry.install(runtime, client_threads=int(runtime == 'cluster'))
  if name.startswith('tff_fedavg'):
    return rounds.tff_fedavg(lambda: _build_keras(settings), *rest)
  encoder = leaf.build_femnist_encoder(embedding_dim=settings.embedding_dim)
  more = {}
  if name == _BFLOAT16:
    precision.check(context.visible_devices())
    more['precision'] = precision.BFLOAT16
  if name == 'fedss':
    more['max_positives'] = min(NUM_CLASSES, n)
    more['negatives'] = _negatives(settings, n)
  return rounds.ours(encoder, *rest, **more)


ROUND = spec.Benchmark(
  name='round',
  summary='a round of FEMNIST CNN training, 6.6 M parameters',
  settings=Settings,
  small={'clients': 2, 'examples': 20, 'batch_size': 8, 'embedding_dim': 32},
  contenders=lambda settings: ('plain', 'in_process', 'worker', *_TFF),
  optional=lambda settings: ('cluster', _BFLOAT16),
  peers=lambda settings: (*_PEERS, _TORCH_BFLOAT16),
  ratios=(
    *(
      (name, 'plain')
      for name in ('in_process', 'worker', 'cluster', *_TFF, *_PEERS)
    ),
    ('worker', 'in_process'),
    ('cluster', 'in_process'),
    *(('in_process', name) for name in (*_TFF, *_PEERS)),
    ('tff_fedavg_worker', 'tff_fedavg'),
    *((_BFLOAT16, name) for name in ('plain', 'in_process', *_PEERS)),
    (_BFLOAT16, _TORCH_BFLOAT16),
    (_TORCH_BFLOAT16, 'torch_side_by_side'),
  ),
  # Results differ since every contender draws its own order of the examples.
  tolerances={'loss': 0.05, 'update_norm': 0.15},
  build=build,
  write_arrays=write_arrays,
)


def _at_each_size(*names: str):
  return lambda settings: [
    spec.at(name, n) for n in settings.num_classes for name in names
  ]


BOTTLENECK = spec.Benchmark(
  name='bottleneck',
  summary='the CNN with 64-d embeddings, class layers of 62 to 100,000 rows',
  settings=BottleneckSettings,
  small={
    'clients': 2,
    'examples': 20,
    'batch_size': 20,  # One step, so the order of the examples is no matter.
    'embedding_dim': 32,
    'negatives': 100,
    'num_classes': (62, 400),
  },
  contenders=_at_each_size('plain', 'fullsoftmax', 'fedss'),
  peers=_at_each_size('pfl_torch', 'torch_side_by_side', 'torch_submodel'),
  ratios=(
    ('fullsoftmax', 'plain'),
    ('fullsoftmax', 'pfl_torch'),
    ('fullsoftmax', 'torch_side_by_side'),
    ('fedss', 'pfl_torch'),
    ('fedss', 'torch_submodel'),
    ('fedss', 'fullsoftmax'),
  ),
  groups=(
    ('plain', 'fullsoftmax', 'pfl_torch', 'torch_side_by_side'),
    ('fedss', 'torch_submodel'),
  ),
  # Every contender draws its own order of the examples and its own negatives.
  # The loss hardly falls in one round; the short way differs by a tenth.
  tolerances={'loss': 0.01, 'update_norm': 0.25},
  build=build,
  write_arrays=write_arrays,
)
