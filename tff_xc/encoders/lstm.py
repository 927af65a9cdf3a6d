"""An LSTM layer that is fast on a CPU.

Hochreiter and Schmidhuber: "Long Short-Term Memory", 1997; gates and biases as in
PyTorch.
"""

import tensorflow as tf


@tf.custom_gradient
def lstm(inputs: tf.Tensor, recurrent: tf.Tensor):
  """Returns the hidden states float32 [T, B, H] of a layer, from zero states.

  i, f, g, o = the parts of inputs[t] + h R';  c = sigmoid(f) c + sigmoid(i)
  tanh(g);  h = sigmoid(o) tanh(c).

  The gradient of `recurrent` is one product after the loops, and the caller
  computes the inputs' products before. What the loops compute of a step stays
  in the processor's cache; for all steps at once it would not.

  Args:
    inputs: float32 [T, B, 4 H], the inputs times their kernel, with biases; T
      is known.
    recurrent: R, float32 [4 H, H].
  """
  hidden, cells, gates = _run(inputs, recurrent)

  def gradient(upstream):
    of_inputs = tf.ensure_shape(
      _run_back(recurrent, cells, gates, upstream, inputs.shape[0]),
      inputs.shape,
    )
    flat = lambda t: tf.reshape(t, [-1, t.shape[-1]])
    # Its transpose, computed directly, takes a third longer.
    of_transposed = tf.matmul(
      flat(hidden[:-1]), flat(of_inputs), transpose_a=True
    )
    return of_inputs, tf.transpose(of_transposed)

  return hidden[1:], gradient


def _run(inputs, recurrent):
  """Returns the hidden states and arrays of the cells' states and the gates.

  The states [T + 1, B, H] start with zeros; the gates are [T, 4, B, H].
  """
  steps = inputs.shape[0]
  transposed = tf.transpose(recurrent)
  none = tf.zeros([tf.shape(inputs)[1], recurrent.shape[1]])
  states = lambda: _array(steps + 1).write(0, none)

  def step(t, h, c, hidden, cells, gates):
    z = inputs[t] + tf.matmul(h, transposed)
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
  """Returns the gradient of the inputs, [T, B, 4 H]."""
  none = tf.zeros_like(upstream[0])

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
    of_h = tf.matmul(of_z, recurrent)
    return t - 1, of_h, of_c * f, found.write(t, of_z)

  *_, found = tf.while_loop(
    lambda t, *_: t >= 0,
    step,
    [steps - 1, none, none, _array(steps)],
    parallel_iterations=1,
  )
  return found.stack()


def _array(size: int) -> tf.TensorArray:
  return tf.TensorArray(tf.float32, size, clear_after_read=False)
