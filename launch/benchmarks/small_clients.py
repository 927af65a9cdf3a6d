"""Many clients with few examples: a client's cost beyond its training.

The model is a perceptron, 784 to 128 to 62 classes.
"""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import spec

_NUM_CLASSES = 62
_HIDDEN = 128
_PIXELS = 784
_SHAPES = {
  'dense/kernel': (_PIXELS, _HIDDEN),
  'dense/bias': (_HIDDEN,),
  'class/kernel': (_HIDDEN, _NUM_CLASSES),
  'class/bias': (_NUM_CLASSES,),
}
_LEARNING_RATE = 0.1


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a round.

  Attributes:
    clients: clients of a round.
    examples: images of each client.
    batch_size: batch size of local training, one epoch.
  """

  clients: int = 256
  examples: int = 10
  batch_size: int = 10


def build_encoder():
  """Returns a dense layer with ReLU on images float32 [28, 28]."""
  import tensorflow as tf

  from tff_xc.encoders import encoder
  from tff_xc.encoders import layers

  def init(seed):
    return collections.OrderedDict(
      layers.init_dense('dense', seed, _PIXELS, _HIDDEN)
    )

  def apply(trainable, non_trainable, x, training, seed):
    del training, seed
    h = layers.dense(tf.reshape(x, [-1, _PIXELS]), trainable, 'dense')
    return tf.nn.relu(h), non_trainable

  return encoder.Encoder(
    example_spec=tf.TensorSpec([28, 28], tf.float32),
    embedding_dim=_HIDDEN,
    init=init,
    apply=apply,
  )


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender, in its own process."""
  from launch.benchmarks import arrays
  from launch.benchmarks import learning
  from launch.benchmarks import plain
  from tff_xc.runtime import registry
  from tff_xc.runtime.in_process import sums

  encoder = build_encoder()
  clients = arrays.femnist_like(
    settings.clients, settings.examples, _NUM_CLASSES
  )
  rest = (
    arrays.torch_uniform(_SHAPES),
    clients,
    settings.batch_size,
    _LEARNING_RATE,
  )
  if contender == 'plain':
    return plain.PlainRounds(plain.perceptron, *rest)
  if contender == 'one_block':
    sums.MOST_BLOCKS, contender = settings.clients, 'in_process'
  registry.install(contender)
  return learning.fullsoftmax_rounds(encoder, *rest)


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  return spec.pairs_of(
    names,
    ('in_process', 'plain'),
    ('worker', 'plain'),
    ('worker', 'in_process'),
    ('in_process', 'one_block'),
  )


BENCHMARK = spec.Benchmark(
  name='small',
  summary='a round of 256 clients with 10 examples each, 2-layer perceptron',
  settings=Settings,
  small={'clients': 3},
  contenders=lambda settings: ('plain', 'in_process', 'worker'),
  pairs=_pairs,
  # In one block, clients are summed up one after another, in this process only.
  optional=lambda settings: ('one_block',),
  groups=spec.all_together,
  tolerances={'loss': 0.02, 'update_norm': 0.05},
  build=build,
)
