"""Training steps of LEAF's Shakespeare network: an embedding and two LSTM layers.

Compares local training to Keras's LSTM layers and to PyTorch's, all on one
thread. A round is a few steps of SGD on one client.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from launch.benchmarks import spec

_SYMBOLS = 80
_CHARACTER_DIM = 8
_LEARNING_RATE = 1.0
# Of the default sizes, with two biases a layer.
_PARAMETERS = 819_920


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a round.

  Attributes:
    batch_size: windows of a step.
    window: characters of a window.
    hidden_dim: length of a layer's state.
    steps: steps of a round.
  """

  batch_size: int = 64
  window: int = 80
  hidden_dim: int = 256
  steps: int = 8


def _encoder(settings: Settings):
  from tff_xc.encoders import leaf

  return leaf.build_shakespeare_encoder(
    symbols=_SYMBOLS,
    window=settings.window,
    character_dim=_CHARACTER_DIM,
    hidden_dim=settings.hidden_dim,
  )


def make_arrays(settings: Settings):
  """Returns (client, initial weights by name), the same in every process.

  The client has uint8 windows and int32 labels. The weights are the encoder's,
  then 'class/kernel' [hidden_dim, 80] and 'class/bias' [80].
  """
  import numpy as np

  from launch.benchmarks import arrays

  random = np.random.default_rng(0)
  examples = settings.batch_size * settings.steps
  x = random.integers(0, _SYMBOLS, [examples, settings.window], np.uint8)
  y = random.integers(0, _SYMBOLS, examples, np.int32)
  of_encoder = _encoder(settings).init(np.int32([0, 0]))
  weights = {name: w.numpy() for name, w in of_encoder.items()}
  class_layer = {
    'class/kernel': (settings.hidden_dim, _SYMBOLS),
    'class/bias': (_SYMBOLS,),
  }
  weights |= arrays.torch_uniform(class_layer)
  count = arrays.count(weights)
  if settings.hidden_dim == 256 and count != _PARAMETERS:
    raise ValueError(f'{count} parameters, not {_PARAMETERS}')
  return arrays.Client(x, y), weights


def write_arrays(settings: Settings, path: str) -> None:
  """Writes the client, as x [1, ...] and y [1, ...], and the weights."""
  import numpy as np

  client, weights = make_arrays(settings)
  np.savez(
    path,
    x=client.x[None],
    y=client.y[None],
    batch_size=settings.batch_size,
    learning_rate=_LEARNING_RATE,
    **weights,
  )


def build(contender: str, settings: Settings) -> Any:
  """Builds a contender, in its own process."""
  import tensorflow as tf

  tf.config.threading.set_intra_op_parallelism_threads(1)
  tf.config.threading.set_inter_op_parallelism_threads(1)
  client, weights = make_arrays(settings)
  rest = weights, client, settings.batch_size, _LEARNING_RATE
  if contender == 'keras':
    from launch.benchmarks import keras_lstm

    return keras_lstm.steps(*rest)
  from launch.benchmarks import learning
  from tff_xc.runtime import registry

  registry.install('in_process', client_threads=1)
  weights, client, *rest = rest
  # Every contender takes the batches in this order, so the results are equal.
  return learning.fullsoftmax_rounds(
    _encoder(settings), weights, [client], *rest, shuffle=False
  )


def _pairs(names: Sequence[str]) -> list[spec.Pair]:
  return spec.pairs_of(names, ('ours', 'keras'), ('ours', 'torch_lstm'))


BENCHMARK = spec.Benchmark(
  name='lstm',
  summary='8 training steps of the Shakespeare LSTM, on one thread',
  settings=Settings,
  small={'batch_size': 3, 'window': 5, 'hidden_dim': 4, 'steps': 2},
  contenders=lambda settings: ('keras', 'ours'),
  pairs=_pairs,
  groups=spec.all_together,
  tolerances={'loss': 1e-4, 'update_norm': 1e-3},
  build=build,
  peers=lambda settings: ('torch_lstm',),
  write_arrays=write_arrays,
)
