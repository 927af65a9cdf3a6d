"""A round of federated averaging of LEAF's FEMNIST CNN, 6.6 M parameters.

Compares a round to a plain TensorFlow loop with the same results, to TFF's own
process and to other frameworks.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import spec

PARAMETERS = 6_603_710  # with the default embedding_dim
LEARNING_RATE = 0.1
NUM_CLASSES = 62


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a round.

  Attributes:
    clients: clients of a round.
    examples: images of each client.
    batch_size: batch size of local training, one epoch.
    embedding_dim: width of the dense layer; LEAF has 2,048.
  """

  clients: int = 8
  examples: int = 227
  batch_size: int = 64
  embedding_dim: int = 2048


def shapes(embedding_dim: int, num_classes: int) -> dict[str, tuple[int, ...]]:
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


def make_arrays(settings: Settings):
  """Returns (clients, initial weights by name), the same in every process."""
  from launch.benchmarks import arrays

  weights = arrays.torch_uniform(shapes(settings.embedding_dim, NUM_CLASSES))
  if settings.embedding_dim == 2048 and arrays.count(weights) != PARAMETERS:
    raise ValueError(f'{arrays.count(weights)} parameters, not {PARAMETERS}')
  clients = arrays.femnist_like(
    settings.clients, settings.examples, NUM_CLASSES
  )
  return clients, weights


def write_arrays(settings: Settings, path: str) -> None:
  """Writes the clients, as x and y, and the weights, for the peers."""
  import numpy as np

  clients, weights = make_arrays(settings)
  np.savez(
    path,
    x=np.stack([c.x for c in clients]),
    y=np.stack([c.y for c in clients]),
    batch_size=settings.batch_size,
    learning_rate=LEARNING_RATE,
    **weights,
  )


def build_keras(settings: Settings):
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


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender, in its own process."""
  from launch.benchmarks import learning
  from launch.benchmarks import plain
  from tff_xc.encoders import leaf
  from tff_xc.runtime import registry

  clients, weights = make_arrays(settings)
  local = (clients, settings.batch_size, LEARNING_RATE)
  encoder = leaf.build_femnist_encoder(embedding_dim=settings.embedding_dim)
  if contender == 'plain':
    return plain.PlainRounds(plain.femnist_cnn, weights, *local)
  if contender == 'plain_side_by_side':
    return plain.SideBySideRounds(plain.femnist_cnn, weights, *local)
  runtime = 'worker' if 'worker' in contender else 'in_process'
  registry.install('cluster' if contender == 'cluster' else runtime)
  if contender.startswith('tff_fedavg'):
    return learning.tff_fedavg_rounds(
      lambda: build_keras(settings), weights, *local
    )
  return learning.fullsoftmax_rounds(encoder, weights, *local)


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  others = [name for name in names if name not in ('plain', 'in_process')]
  return spec.pairs_of(
    names,
    ('in_process', 'plain'),
    *((name, 'plain') for name in others),
    ('worker', 'in_process'),
    ('cluster', 'in_process'),
    *(
      ('in_process', name)
      for name in others
      if name not in ('worker', 'cluster')
    ),
    ('tff_fedavg_worker', 'tff_fedavg'),
  )


BENCHMARK = spec.Benchmark(
  name='round',
  summary='a round of FEMNIST CNN training, 6.6 M parameters',
  settings=Settings,
  small={'clients': 2, 'examples': 20, 'batch_size': 8, 'embedding_dim': 32},
  contenders=lambda settings: (
    'plain',
    'in_process',
    'worker',
    'tff_fedavg',
    'tff_fedavg_worker',
  ),
  optional=lambda settings: ('plain_side_by_side', 'cluster'),
  pairs=_pairs,
  groups=spec.all_together,
  # Results differ since every contender draws its own order of the examples.
  tolerances={'loss': 0.05, 'update_norm': 0.15},
  build=build,
  peers=lambda settings: ('pfl_tf', 'pfl_torch', 'torch_side_by_side'),
  write_arrays=write_arrays,
)
