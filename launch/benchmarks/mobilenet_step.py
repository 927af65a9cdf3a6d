"""Training steps of MobileNetV3-Large with GroupNorm.

Compares local training to the same network of Keras's layers, with a step of SGD a
graph call, all on one thread. `adapter` is Keras's network as an encoder of ours,
and `keras_batch_norm` has Keras's fused BatchNorm, as the pretrained network. The
floor is a product of matrices with as many multiply-adds.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import spec

_EMBEDDING_DIM = 64
_NUM_CLASSES = 100
_LEARNING_RATE = 0.01
_BATCH_NORM = 'keras_batch_norm'
_FLOOR = 'floor'
# Of an image of 224 pixels: Howard et al., "Searching for MobileNetV3", 2019, Table 3.
_MULTIPLY_ADDS = 219e6
_SIDE = 512  # Of the floor's matrices: a product takes milliseconds.


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


def multiply_adds(settings: Settings) -> float:
  """Returns those of a round; each of two gradients takes those of a forward pass."""
  images = settings.batch_size * settings.steps
  return 3 * images * _MULTIPLY_ADDS * (settings.image_size / 224) ** 2


class Products:
  """Products of matrices that are thrown away."""

  def __init__(self, settings: Settings):
    import tensorflow as tf

    self._x = tf.random.stateless_uniform([_SIDE, _SIDE], [0, 0])
    self._count = math.ceil(multiply_adds(settings) / _SIDE**3)

  def run(self) -> None:
    import tensorflow as tf

    for _ in range(self._count):
      product = tf.matmul(self._x, self._x)
    product.numpy()

  def report(self) -> dict:
    return {}


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
  if contender == _FLOOR:
    return Products(settings)
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
    ('ours', _FLOOR),
    *(('ours', other) for other in others),
  )


def _notes(settings: Settings) -> list[str]:
  count = multiply_adds(settings) / 1e9
  return [
    'ours: local training of a client; keras: the same steps, the same network of'
    " Keras's layers",
    f'{_FLOOR}: products of matrices with as many multiply-adds, {count:.2g} billion'
    " a round; the network's small layers cannot reach it",
  ]


BENCHMARK = spec.Benchmark(
  name='mobilenet',
  summary="3 steps of MobileNetV3, 32 images of 96 pixels, one thread, to Keras's",
  settings=Settings,
  small={'image_size': 32, 'batch_size': 2, 'steps': 1},
  contenders=lambda settings: (_FLOOR, 'keras', 'ours'),
  optional=lambda settings: ('adapter', _BATCH_NORM),
  notes=_notes,
  pairs=_pairs,
  # BatchNorm is another network, and the floor is none.
  groups=lambda names: [[n for n in names if n not in (_BATCH_NORM, _FLOOR)]],
  tolerances={'loss': 1e-4, 'update_norm': 1e-2},
  build=build,
)
