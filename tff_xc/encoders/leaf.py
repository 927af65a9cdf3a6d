"""The encoders of the LEAF experiments (TurboSVM-FL, Tables 5 to 7).

The networks have these numbers of parameters, with a linear class layer:
  FEMNIST, 62 classes: 6,603,710;
  CelebA, 2 classes: 30,498, and 256 batch statistics;
  Shakespeare, 80 classes: 819,920.
Weights are initialized as in PyTorch.
"""

import collections

import tensorflow as tf

from tff_xc import errors, precision
from tff_xc.encoders import encoder as encoder_lib, layers, plain_cnn

_SIDE = 28


def build_femnist_encoder(*, embedding_dim: int = 2048) -> encoder_lib.Encoder:
  """Returns the FEMNIST CNN without its class layer.

  The network has two 5x5 convolutions with 32 and 64 filters, each followed by ReLU and
  2x2 max pooling, and a dense layer of width `embedding_dim` with ReLU. Examples are
  float32 [28, 28] in [0, 1], where white is 1.0. LEAF's flat vectors of 784 floats also
  work.
  """
  return plain_cnn.build_plain_cnn(
    example_spec=tf.TensorSpec([_SIDE, _SIDE], tf.float32),
    prepare=lambda x, training, seed: tf.reshape(x, [-1, _SIDE, _SIDE, 1]),
    image_shape=(_SIDE, _SIDE, 1),
    filters=(32, 64),
    dense={'dense': embedding_dim},
  )


_CELEBA_BLOCKS, _CELEBA_FILTERS = 4, 32


def build_celeba_encoder(*, side: int = 84) -> encoder_lib.Encoder:
  """Returns the CelebA CNN without its class layer.

  The network has four blocks. A block is a 3x3 convolution with 32 filters, BatchNorm, 2x2
  max pooling that drops odd borders, and ReLU. The embedding is the flat output of the
  last block, 800 numbers if `side` is 84. The batch statistics are weights without
  gradients. As in the published code, the server averages them over clients. Examples are
  uint8 [side, side, 3], and `side` is at least 16.
  """
  left = side // 2**_CELEBA_BLOCKS
  if not left:
    raise errors.InputError(
      f'images of {side} x {side} pixels are too small for the CelebA network;'
      f' give at least {2**_CELEBA_BLOCKS}'
    )

  def init(seed):
    weights = collections.OrderedDict()
    for i in range(_CELEBA_BLOCKS):
      shape = [3, 3, _CELEBA_FILTERS if i else 3, _CELEBA_FILTERS]
      weights |= layers.init_torch(f'conv{i}', seed, i, shape)
      weights[f'norm{i}/scale'] = tf.ones(shape[-1:])
      weights[f'norm{i}/offset'] = tf.zeros(shape[-1:])
    return weights

  def apply(trainable, non_trainable, x, training, seed):
    h, state = tf.cast(x, tf.float32) / 255.0, collections.OrderedDict()
    for i in range(_CELEBA_BLOCKS):
      kernel = trainable[f'conv{i}/kernel']
      h = precision.product(tf.nn.conv2d, h, kernel, 1, 'SAME')
      h = layers.conv_bias(h, trainable[f'conv{i}/bias'])
      mean, variance = f'norm{i}/mean', f'norm{i}/variance'
      h, state[mean], state[variance] = layers.batch_norm(
        h,
        trainable[f'norm{i}/scale'],
        trainable[f'norm{i}/offset'],
        non_trainable[mean],
        non_trainable[variance],
        training,
      )
      h = tf.nn.relu(tf.nn.max_pool2d(h, 2, 2, 'VALID'))
    return tf.reshape(h, [-1, left * left * _CELEBA_FILTERS]), state

  return encoder_lib.Encoder(
    example_spec=tf.TensorSpec([side, side, 3], tf.uint8),
    embedding_dim=left * left * _CELEBA_FILTERS,
    init=init,
    apply=apply,
    init_non_trainable=lambda seed: collections.OrderedDict(
      (f'norm{i}/{name}', value([_CELEBA_FILTERS]))
      for i in range(_CELEBA_BLOCKS)
      for name, value in (('mean', tf.zeros), ('variance', tf.ones))
    ),
  )


def build_shakespeare_encoder(
  *, symbols: int = 80, window: int = 80, character_dim: int = 8, hidden_dim: int = 256
) -> encoder_lib.Encoder:
  """Returns the Shakespeare LSTM without its class layer.

  The network embeds each character and has two LSTM layers. The embedding of an example is
  the last hidden state of the second layer. Each layer has two biases, as in PyTorch.
  Examples are uint8 [window], indices of at most 256 different symbols.
  """
  inputs = (character_dim, hidden_dim)

  def init(seed):
    weights = collections.OrderedDict(
      characters=tf.random.stateless_normal([symbols, character_dim], layers.fold(seed, 0))
    )
    gates = 4 * hidden_dim
    for i, width in enumerate(inputs):
      shapes = ([gates, width], [gates, hidden_dim], [gates], [gates])
      for part, (name, shape) in enumerate(zip(_LSTM, shapes, strict=True)):
        weights[f'lstm{i}/{name}'] = layers.torch_uniform(
          layers.fold(seed, 1 + 4 * i + part), shape, hidden_dim
        )
    return weights

  def apply(trainable, non_trainable, x, training, seed):

    def layer(i, given):
      def of(name):
        return trainable[f'lstm{i}/{name}']

      # Transpose the kernel first. With `transpose_b`, its gradient would take a third longer.
      rows = precision.product(
        tf.matmul, tf.reshape(given, [-1, inputs[i]]), tf.transpose(of('kernel'))
      )
      return rows + (of('bias') + of('recurrent_bias')), of('recurrent')

    # Multiply the kernel by the embedding of each symbol once, not for each character of
    # the batch.
    rows, recurrent = layer(0, trainable['characters'])
    places = tf.transpose(tf.cast(x, tf.int32))
    h = lstm(tf.gather(rows, places), recurrent)
    rows, recurrent = layer(1, h)
    rows = tf.reshape(rows, [window, -1, 4 * hidden_dim])
    return lstm(rows, recurrent)[-1], non_trainable

  return encoder_lib.Encoder(
    example_spec=tf.TensorSpec([window], tf.uint8),
    embedding_dim=hidden_dim,
    init=init,
    apply=apply,
    last_layer=tuple(f'lstm1/{name}' for name in _LSTM),
  )


# PyTorch's names: weight_ih, weight_hh, bias_ih, bias_hh.
_LSTM = ('kernel', 'recurrent', 'bias', 'recurrent_bias')


@tf.custom_gradient
def lstm(inputs: tf.Tensor, recurrent: tf.Tensor):
  """Returns the hidden states float32 [T, B, H] of an LSTM layer that starts from zeros.

  Hochreiter and Schmidhuber: "Long Short-Term Memory", 1997. Gates and biases are as in
  PyTorch. A step t computes

    [i, f, g, o] = inputs[t] + h R'
    c = sigmoid(f) c + sigmoid(i) tanh(g)
    h = sigmoid(o) tanh(c).

  `inputs`, float32 [T, B, 4 H], are the layer's inputs times their kernel plus biases; T
  is static. R is `recurrent`, float32 [4 H, H], and R' its transpose. The gradient of R is
  one product after the loops. The gates are computed step by step, because the processor's
  cache has space for the numbers of one step but not of all steps.
  """
  hidden, cells, gates = _run(inputs, recurrent)
  in_force = precision.in_force()  # The gradient is traced outside this precision context.

  def gradient(upstream):
    def flat(t):
      return tf.reshape(t, [-1, t.shape[-1]])

    with precision.of_products(in_force):
      of_inputs = tf.ensure_shape(
        _run_back(recurrent, cells, gates, upstream, inputs.shape[0]), inputs.shape
      )
      # This product is the gradient of R', which is transposed below. Computing the gradient of R
      # as one product, flat(of_inputs)' flat(hidden), would take a third longer.
      of_transposed = precision.product(
        tf.matmul, flat(hidden[:-1]), flat(of_inputs), transpose_a=True
      )
    return of_inputs, tf.transpose(of_transposed)

  return hidden[1:], gradient


def _run(inputs, recurrent):
  """Computes all states of the layer; the first states are zeros.

  Returns (hidden states [T + 1, B, H], array of T + 1 cell states [B, H], array of T
  gates [4, B, H]).
  """
  steps = inputs.shape[0]
  transposed = precision.factor(tf.transpose(recurrent))
  none = tf.zeros([tf.shape(inputs)[1], recurrent.shape[1]])

  def states():
    return _array(steps + 1).write(0, none)

  def step(t, h, c, hidden, cells, gates):
    z = inputs[t] + precision.product(tf.matmul, h, transposed)
    i, f, g, o = tf.split(z, 4, axis=1)
    i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
    c = f * c + i * g
    h = o * tf.tanh(c)
    written = hidden.write(t + 1, h), cells.write(t + 1, c)
    return t + 1, h, c, *written, gates.write(t, tf.stack([i, f, g, o]))

  *_, hidden, cells, gates = tf.while_loop(
    lambda t, *_: t < steps,
    step,
    [0, none, none, states(), states(), _array(steps)],
    parallel_iterations=1,
  )
  return hidden.stack(), cells, gates


def _run_back(recurrent, cells, gates, upstream, steps: int):
  """Returns the gradient with respect to the inputs, [T, B, 4 H]."""
  none, recurrent = tf.zeros_like(upstream[0]), precision.factor(recurrent)

  def step(t, of_h, of_c, found):
    i, f, g, o = tf.unstack(gates.read(t))
    before, out = cells.read(t), tf.tanh(cells.read(t + 1))
    of_h += upstream[t]
    of_c += of_h * o * (1 - out * out)
    of_z = [
      of_c * (g * i * (1 - i)),
      of_c * (before * f * (1 - f)),
      of_c * (i * (1 - g * g)),
      of_h * (out * o * (1 - o)),
    ]
    of_z = tf.concat(of_z, axis=1)
    of_h = precision.product(tf.matmul, of_z, recurrent)
    return t - 1, of_h, of_c * f, found.write(t, of_z)

  *_, found = tf.while_loop(
    lambda t, *_: t >= 0, step, [steps - 1, none, none, _array(steps)], parallel_iterations=1
  )
  return found.stack()


def _array(size: int) -> tf.TensorArray:
  return tf.TensorArray(tf.float32, size, clear_after_read=False)
