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

  Both loops contain little more than the recurrent product. All else is done
  for all steps at once: the inputs' products by the caller, the gradient of
  `recurrent` as one product, and the factors of the gates' gradients.

  Args:
    inputs: float32 [T, B, 4 H], the inputs times their kernel, with biases; T
      is known.
    recurrent: R, float32 [4 H, H].
  """
  hidden, cells, gates = _forward(inputs, recurrent)

  def gradient(upstream):
    of_inputs = _backward(upstream, cells, gates, recurrent, inputs.shape[0])
    flat = lambda t: tf.reshape(t, [-1, t.shape[-1]])
    of_recurrent = tf.matmul(
      flat(of_inputs), flat(_before(hidden)), transpose_a=True
    )
    return tf.ensure_shape(of_inputs, inputs.shape), of_recurrent

  return hidden, gradient


def _forward(inputs, recurrent):
  """Returns the states h and c, [T, B, H], and the gates [T, 4, B, H]."""
  steps, transposed = inputs.shape[0], tf.transpose(recurrent)
  none = tf.zeros([tf.shape(inputs)[1], recurrent.shape[1]])
  given = _array(steps).unstack(inputs)

  def body(t, h, c, hidden, cells, gates):
    z = given.read(t) + tf.matmul(h, transposed)
    i, f, g, o = tf.split(z, 4, axis=1)
    i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
    c = f * c + i * g
    h = o * tf.tanh(c)
    written = hidden.write(t, h), cells.write(t, c)
    return t + 1, h, c, *written, gates.write(t, tf.stack([i, f, g, o]))

  *_, hidden, cells, gates = tf.while_loop(
    lambda t, *_: t < steps,
    body,
    [0, none, none, *(_array(steps) for _ in range(3))],
    parallel_iterations=1,
  )
  return hidden.stack(), cells.stack(), gates.stack()


def _backward(upstream, cells, gates, recurrent, steps):
  """Returns the gradient of the inputs, float32 [T, B, 4 H]."""
  i, f, g, o = tf.unstack(gates, axis=1)
  out = tf.tanh(cells)
  # The gradients of i, f and g by that of c, and of o and c by that of h.
  of_cell = tf.stack(
    [g * i * (1 - i), _before(cells) * f * (1 - f), i * (1 - g * g)], axis=1
  )
  factors = of_cell, out * o * (1 - o), o * (1 - out * out), f, upstream
  each = [_array(steps).unstack(t) for t in factors]
  none = tf.zeros_like(cells[0])

  def body(t, of_h, of_c, found):
    of_cell, of_out, of_state, kept, above = (a.read(t) for a in each)
    of_h += above
    of_c += of_h * of_state
    of_z = tf.concat([*tf.unstack(of_c * of_cell), of_h * of_out], axis=1)
    of_h = tf.matmul(of_z, recurrent)
    return t - 1, of_h, of_c * kept, found.write(t, of_z)

  *_, found = tf.while_loop(
    lambda t, *_: t >= 0,
    body,
    [steps - 1, none, none, _array(steps)],
    parallel_iterations=1,
  )
  return found.stack()


def _before(states):
  """Returns the states one step earlier, the first one zero."""
  return tf.concat([tf.zeros_like(states[:1]), states[:-1]], axis=0)


def _array(size: int) -> tf.TensorArray:
  return tf.TensorArray(tf.float32, size, clear_after_read=False)
