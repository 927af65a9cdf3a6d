"""The LSTM layer beside a NumPy loop."""

import numpy as np
import pytest
import tensorflow as tf

from tff_xc.encoders import lstm

RANDOM = np.random.default_rng(0)


def draw(*shape) -> np.ndarray:
  return RANDOM.normal(size=shape).astype(np.float32)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def hidden_states(inputs, recurrent) -> np.ndarray:
  """Returns the hidden states float64 [T, B, H] by PyTorch's formulas.

  `torch.nn.LSTM` keeps the rows of its weights in the order i, f, g, o.
  """
  h = c = np.zeros([inputs.shape[1], recurrent.shape[1]])
  states = []
  for of_step in np.asarray(inputs, np.float64):
    i, f, g, o = np.split(of_step + h @ recurrent.T, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    states.append(h)
  return np.stack(states)


def differences(function, x: np.ndarray, step: float = 1e-5) -> np.ndarray:
  """Returns the gradient of a scalar function by central differences."""
  x = np.array(x, np.float64)
  gradient = np.empty_like(x)
  for place in np.ndindex(x.shape):
    value = x[place]
    x[place] = value + step
    above = function(x)
    x[place] = value - step
    gradient[place] = (above - function(x)) / (2 * step)
    x[place] = value
  return gradient


@pytest.mark.parametrize('steps', [1, 2, 6])
def test_states_and_gradients_equal_numpys(steps):
  inputs, recurrent = draw(steps, 2, 12), draw(12, 3)
  upstream = draw(steps, 2, 3)  # Every state counts, not only the last one.
  given = tf.constant(inputs), tf.constant(recurrent)
  with tf.GradientTape() as tape:
    tape.watch(given)
    states = lstm.lstm(*given)
    loss = tf.reduce_sum(states * upstream)
  np.testing.assert_allclose(
    states, hidden_states(inputs, recurrent), atol=1e-6
  )
  of_inputs, of_recurrent = tape.gradient(loss, given)
  np.testing.assert_allclose(
    of_inputs,
    differences(
      lambda x: np.sum(hidden_states(x, recurrent) * upstream), inputs
    ),
    atol=1e-5,
  )
  np.testing.assert_allclose(
    of_recurrent,
    differences(
      lambda r: np.sum(hidden_states(inputs, r) * upstream), recurrent
    ),
    atol=1e-5,
  )


def test_large_inputs_give_finite_gradients():
  inputs = tf.constant(1e4 * draw(4, 2, 12))
  recurrent = tf.constant(draw(12, 3))
  with tf.GradientTape() as tape:
    tape.watch(recurrent)
    states = lstm.lstm(inputs, recurrent)
  assert np.isfinite(states).all()
  assert np.isfinite(tape.gradient(states, recurrent)).all()


def test_the_batch_size_may_be_unknown_and_change_between_calls():
  recurrent = draw(12, 3)

  @tf.function(input_signature=[tf.TensorSpec([4, None, 12], tf.float32)])
  def gradient(inputs):
    with tf.GradientTape() as tape:
      tape.watch(inputs)
      loss = tf.reduce_sum(lstm.lstm(inputs, recurrent) ** 2)
    return loss, tape.gradient(loss, inputs)

  for batch in (3, 1):
    inputs = draw(4, batch, 12)
    loss, found = gradient(tf.constant(inputs))
    states = hidden_states(inputs, recurrent)
    assert float(loss) == pytest.approx(np.sum(states**2), rel=1e-5)
    assert found.shape == inputs.shape


def test_it_trains_inside_a_loop():
  # Local training is a `tf.while_loop` over batches, of which the last is small.
  inputs, recurrent = draw(4, 5, 12), draw(12, 3)

  @tf.function
  def train(inputs, recurrent):
    def step(start, recurrent):
      with tf.GradientTape() as tape:
        tape.watch(recurrent)
        states = lstm.lstm(inputs[:, start : start + 3], recurrent)
        loss = tf.reduce_sum(states**2)
      return start + 3, recurrent - 0.1 * tape.gradient(loss, recurrent)

    return tf.while_loop(
      lambda start, _: start < tf.shape(inputs)[1], step, [0, recurrent]
    )[1]

  expected = recurrent
  for batch in (inputs[:, :3], inputs[:, 3:]):
    loss = lambda r, batch=batch: np.sum(hidden_states(batch, r) ** 2)
    expected = expected - 0.1 * differences(loss, expected)
  np.testing.assert_allclose(train(inputs, recurrent), expected, atol=1e-5)
