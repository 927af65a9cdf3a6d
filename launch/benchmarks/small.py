"""Many clients with few examples: a client's cost beyond its training.

The model is a perceptron, 784 to 128 to 62 classes.
"""

import collections
import dataclasses

from launch.benchmarks import spec

_NUM_CLASSES, _HIDDEN, _PIXELS = 62, 128, 784
SHAPES = {
  'dense/kernel': (_PIXELS, _HIDDEN),
  'dense/bias': (_HIDDEN,),
  'class/kernel': (_HIDDEN, _NUM_CLASSES),
  'class/bias': (_NUM_CLASSES,),
}
_LEARNING_RATE = 0.1


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a round."""

  clients: int = 256  # Clients of a round.
  examples: int = 10  # Images of each client.
  batch_size: int = 10  # Batch size of local training, one epoch.


def _build_encoder():
  """Returns a dense layer with ReLU on images float32 [28, 28]."""
  import tensorflow as tf

  from tff_xc.encoders import encoder
  from tff_xc.encoders import layers

  def apply(trainable, non_trainable, x, training, seed):
    del training, seed
    h = layers.dense(tf.reshape(x, [-1, _PIXELS]), trainable, 'dense')
    return tf.nn.relu(h), non_trainable

  return encoder.Encoder(
    example_spec=tf.TensorSpec([28, 28], tf.float32),
    embedding_dim=_HIDDEN,
    init=lambda seed: collections.OrderedDict(
      layers.init_dense('dense', seed, _PIXELS, _HIDDEN)
    ),
    apply=apply,
  )


def build(contender: str, settings: Settings):
  """Builds a contender, in its own process."""
  from launch.benchmarks import arrays
  from launch.benchmarks import rounds
  from tff_xc.runtime import registry
  from tff_xc.runtime.in_process import phases

  clients = arrays.femnist_like(
    settings.clients, settings.examples, _NUM_CLASSES
  )
  weights = arrays.torch_uniform(SHAPES)
  rest = weights, clients, settings.batch_size, _LEARNING_RATE
  if contender == 'plain':
    return rounds.plain(rounds.perceptron, *rest)
  if contender == 'one_block':
    phases.MOST_BLOCKS, contender = settings.clients, 'in_process'
  registry.install(contender)
  return rounds.ours(_build_encoder(), *rest)


BENCHMARK = spec.Benchmark(
  name='small',
  summary='a round of 256 clients with 10 examples each, 2-layer perceptron',
  settings=Settings,
  small={'clients': 3},
  contenders=lambda settings: ('plain', 'in_process', 'worker'),
  # In one block, clients are summed up one after another, in this process only.
  optional=lambda settings: ('one_block',),
  ratios=(
    ('in_process', 'plain'),
    ('worker', 'plain'),
    ('worker', 'in_process'),
    ('in_process', 'one_block'),
  ),
  tolerances={'loss': 0.02, 'update_norm': 0.05},
  build=build,
)
