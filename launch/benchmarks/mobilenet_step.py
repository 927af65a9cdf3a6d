"""Training steps of MobileNetV3-Large with GroupNorm.

Compares local training to the same network of Keras's layers, with a step of SGD a
graph call, all on one thread. `adapter` is Keras's network as an encoder of ours,
and `keras_batch_norm` has Keras's fused BatchNorm, as the pretrained network.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import spec

_EMBEDDING_DIM = 64
_NUM_CLASSES = 100
_LEARNING_RATE = 0.01
_BATCH_NORM = 'keras_batch_norm'


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a round.

  Attributes:
    image_size: pixels a side.
    batch_size: images of a step.
    steps: steps of a round.
  """

  image_size: int = 96
  batch_size: int = 32
  steps: int = 3


def _encoder(settings: Settings):
  from tff_xc.encoders import mobilenet

  return mobilenet.build_mobilenet_v3(
    image_size=settings.image_size, embedding_dim=_EMBEDDING_DIM
  )


def make_arrays(settings: Settings):
  """Returns (client, initial weights by name), the same in every process.

  The client has uint8 images and int32 labels. The weights are the encoder's,
  then 'class/kernel' [64, 100] and 'class/bias' [100].
  """
  import numpy as np

  from launch.benchmarks import arrays

  random = np.random.default_rng(0)
  examples, side = settings.batch_size * settings.steps, settings.image_size
  x = random.integers(0, 256, [examples, side, side, 3], np.uint8)
  y = random.integers(0, _NUM_CLASSES, examples, np.int32)
  of_encoder = _encoder(settings).init(np.int32([0, 0]))
  weights = {name: w.numpy() for name, w in of_encoder.items()}
  shapes = {
    'class/kernel': (_EMBEDDING_DIM, _NUM_CLASSES),
    'class/bias': (_NUM_CLASSES,),
  }
  return arrays.Client(x, y), weights | arrays.torch_uniform(shapes)


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender, in its own process."""
  import tensorflow as tf

  tf.config.threading.set_intra_op_parallelism_threads(1)
  tf.config.threading.set_inter_op_parallelism_threads(1)
  client, weights = make_arrays(settings)
  rest = client, settings.batch_size, _LEARNING_RATE
  from launch.benchmarks import keras_mobilenet

  if contender.startswith('keras'):
    return keras_mobilenet.steps(
      weights, *rest, batch_norm=contender == _BATCH_NORM
    )
  from launch.benchmarks import learning
  from tff_xc.runtime import registry

  registry.install('in_process', client_threads=1)
  if contender == 'adapter':
    encoder, weights = keras_mobilenet.adapted(weights, settings.image_size)
  else:
    encoder = _encoder(settings)
  client, *rest = rest
  # Every contender takes the batches in this order, so the results are equal.
  return learning.fullsoftmax_rounds(
    encoder, weights, [client], *rest, shuffle=False
  )


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  others = (_BATCH_NORM, 'adapter')
  return spec.pairs_of(
    names,
    ('ours', 'keras'),
    ('adapter', 'keras'),
    *(('ours', other) for other in others),
  )


BENCHMARK = spec.Benchmark(
  name='mobilenet',
  summary='3 training steps of MobileNetV3, 32 images of 96 pixels, on one thread',
  settings=Settings,
  small={'image_size': 32, 'batch_size': 2, 'steps': 1},
  contenders=lambda settings: ('keras', 'ours'),
  optional=lambda settings: ('adapter', _BATCH_NORM),
  pairs=_pairs,
  # BatchNorm is another network.
  groups=lambda names: [[n for n in names if n != _BATCH_NORM]],
  tolerances={'loss': 1e-4, 'update_norm': 1e-2},
  build=build,
)
