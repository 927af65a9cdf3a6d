"""Optimizers of weights, and of requested rows."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import graphs
from tff_xc.options import schedules
from tff_xc.round import local_training, optimizers

GRADIENTS = [np.array([1e-4, -0.5]), np.array([2.0, 0.3]), np.array([0.0, 1e-3])]


def trajectory(optimizer, scale=1.0):
  weights = tf.constant([1.0, -1.0])
  state = optimizer.initialize(tf.TensorSpec([2]))
  for gradient in GRADIENTS:
    state, weights = optimizer.next(state, weights, tf.constant(scale * gradient, tf.float32))
  return weights.numpy()


def moved_by(name, rate=0.1, decay=0.0, momentum=0.0, epsilon=1e-8):
  """Returns the weights after `GRADIENTS`, computed like torch.optim."""
  w, m, v, largest = np.array([1.0, -1.0]), 0.0, 0.0, 0.0
  for t, g in enumerate(GRADIENTS, 1):
    g = g + decay * w
    if name == 'sgd':
      m = momentum * m + g
      w = w - rate * m
      continue
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    largest = np.maximum(largest, v)
    second = (largest if name == 'amsgrad' else v) / (1 - 0.999**t)
    w = w - rate * m / (1 - 0.9**t) / (np.sqrt(second) + epsilon)
  return w


@pytest.mark.parametrize(
  ('optimizer', 'expected', 'tolerances'),
  [
    *(
      (
        optimizers.build_sgd(0.5, momentum),
        moved_by('sgd', 0.5, momentum=momentum),
        {'rtol': 1e-6, 'atol': 1e-7},
      )
      for momentum in (0.0, 0.9)
    ),
    *(
      (
        optimizers.TorchAdam(0.01, epsilon=1e-5, amsgrad=name == 'amsgrad'),
        moved_by(name, 0.01, epsilon=1e-5),
        {'rtol': 1e-5},
      )
      for name in ('adam', 'amsgrad')
    ),
  ],
)
def test_optimizers_are_pytorchs(optimizer, expected, tolerances):
  np.testing.assert_allclose(trajectory(optimizer), expected, **tolerances)


@pytest.mark.parametrize('name', ['sgd', 'adam'])
@pytest.mark.parametrize('decay', [0.0, 0.3])
def test_weight_decay_is_pytorchs(name, decay):
  training = local_training.LocalTraining(0.1, optimizer_name=name, weight_decay=decay)
  rate = training.rate(None)
  scaled = trajectory(training.optimizer(rate), training.loss_scale(rate))
  expected = moved_by(name, decay=decay)
  np.testing.assert_allclose(scaled, expected, rtol=1e-5)


N, DIM, STEPS = 9, 2, 14
TABLE = np.random.default_rng(0).normal(size=(N, DIM)).astype(np.float32)


def steps(every_row=False):
  """Yields (ids [U], gradients [U, DIM], counts) of random steps."""
  random = np.random.default_rng(1)
  for index in range(STEPS):
    size = 0 if index in (4, 9) else random.integers(1, 5)
    # No step requests the last row.
    ids = random.choice(N - 1, size, replace=False).astype(np.int32)
    if every_row:
      ids = np.arange(N, dtype=np.int32)
    gradients = random.normal(size=(len(ids), DIM)).astype(np.float32)
    yield ids, gradients, index not in (3, 9)


def initial(optimizer):
  state = optimizer.initialize(tf.TensorSpec(TABLE.shape))
  as_tensors = tf.nest.map_structure(tf.convert_to_tensor, state)
  return as_tensors, tf.constant(TABLE)


@functools.cache
def graph(optimizer):
  """Returns the step as a graph for any number of rows, which is traced once."""
  return tf.function(optimizer.next, autograph=False, reduce_retracing=True)


def step(optimizer, state, table, ids, gradients, counts):
  """Runs one step in a graph, as a TFF computation does."""
  return graph(optimizer)(
    state, table, tf.constant(ids), tf.constant(gradients), tf.constant(counts)
  )[:2]


class NumpyMomentum:
  """Momentum on all rows, in float64."""

  def __init__(self, rate, momentum):
    self.rate, self.momentum = rate, momentum
    self.table = TABLE.astype(np.float64)
    self.velocity = np.zeros_like(self.table)

  def next(self, ids, gradients, counts):
    if counts:
      dense = np.zeros_like(self.table)
      dense[ids] = gradients
      self.velocity = self.momentum * self.velocity + dense
      self.table = self.table - self.rate * self.velocity


def assert_reads(optimizer, state, table, expected):
  def close(a, b):
    return np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)

  some = tf.constant([7, 0, 8, 3])
  close(optimizer.read_all(state, table), expected)
  close(optimizer.read(state, table, some), expected[some])
  close(optimizer.read(state, table, tf.constant(5)), expected[5])
  caught_up_state, caught_up = optimizer.catch_up(state, table)
  close(caught_up, expected)
  close(optimizer.read_all(caught_up_state, caught_up), expected)
  return caught_up_state, caught_up


@pytest.mark.parametrize('momentum', [0.0, 0.5, 0.9, 0.999])
@pytest.mark.parametrize('catch_up_at', [None, 6])
def test_row_momentum_is_momentum_on_all_rows(momentum, catch_up_at):
  optimizer = optimizers.RowMomentum(0.5, momentum)
  reference = NumpyMomentum(0.5, momentum)
  state, table = initial(optimizer)
  for index, (ids, gradients, counts) in enumerate(steps()):
    state, table = step(optimizer, state, table, ids, gradients, counts)
    reference.next(ids, gradients, counts)
    caught_up = assert_reads(optimizer, state, table, reference.table)
    if momentum:
      np.testing.assert_allclose(caught_up[0]['velocity'], reference.velocity, rtol=2e-5, atol=2e-5)
    if index == catch_up_at:
      state, table = caught_up
  assert np.any(reference.table[-2] != TABLE[-2])


OPTIMIZERS = (
  optimizers.Dense(optimizers.build_sgd(0.5, 0.9)),
  optimizers.RowMomentum(0.5, 0.9),
  optimizers.RowMomentum(0.5, 0.9, schedules.Schedule('cosine', 5)),
  optimizers.RowMomentum(0.5),
  optimizers.LazyRows(optimizers.TorchAdam(0.5)),
)


@pytest.mark.parametrize('optimizer', OPTIMIZERS)
def test_a_step_that_does_not_count_changes_nothing(optimizer):
  state, table = initial(optimizer)
  for counts in (False, True, False):
    gradients = np.ones([2, DIM], np.float32)
    new = step(optimizer, state, table, np.int32([1, 4]), gradients, counts)
    pairs = zip(tf.nest.flatten(new), tf.nest.flatten((state, table)), strict=True)
    assert any(np.any(np.asarray(a) != np.asarray(b)) for a, b in pairs) == counts
    state, table = new


def adam_on_requested_rows(rate, epsilon, amsgrad):
  """Returns the table after `steps`, computed row by row in float64."""
  table = TABLE.astype(np.float64)
  mean, square, largest = np.zeros([3, *TABLE.shape])
  t = 0
  for ids, gradients, counts in steps():
    t += counts
    for row, g in zip(ids, gradients, strict=True) if counts else ():
      mean[row] = 0.9 * mean[row] + 0.1 * g
      square[row] = 0.999 * square[row] + 0.001 * g.astype(np.float64) ** 2
      largest[row] = np.maximum(largest[row], square[row])
      second = (largest if amsgrad else square)[row] / (1 - 0.999**t)
      first = mean[row] / (1 - 0.9**t)
      table[row] -= rate * first / (np.sqrt(second) + epsilon)
  return table


@pytest.mark.parametrize('amsgrad', [False, True])
def test_row_adam_moves_the_requested_rows_alone(amsgrad):
  adam = optimizers.TorchAdam(0.1, epsilon=1e-3, amsgrad=amsgrad)
  optimizer = optimizers.LazyRows(adam)
  state, table = initial(optimizer)
  for ids, gradients, counts in steps():
    state, table = step(optimizer, state, table, ids, gradients, counts)
  expected = adam_on_requested_rows(0.1, 1e-3, amsgrad)
  assert_reads(optimizer, state, table, expected)
  np.testing.assert_array_equal(table[-1], TABLE[-1])


@pytest.mark.parametrize(
  ('optimizer', 'every_row'),
  [
    (optimizers.TorchAdam(0.1), True),
    (optimizers.TorchAdam(0.1, amsgrad=True), True),
    (tff.learning.optimizers.build_adagrad(0.1, 0.01), False),
  ],
)
def test_lazy_rows_are_the_optimizer_on_the_table(optimizer, every_row):
  """For Adam, this holds if every row is requested. For Adagrad, it always holds."""
  of_rows, dense = optimizers.LazyRows(optimizer), optimizers.Dense(optimizer)
  a, b = initial(of_rows), initial(dense)
  for arguments in steps(every_row):
    a, b = step(of_rows, *a, *arguments), step(dense, *b, *arguments)
  for left, right in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True):
    np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize('optimizer', OPTIMIZERS)
def test_what_comes_after_a_step_is_done_to_its_rows(optimizer):
  state, table = initial(optimizer)
  ids, gradients = np.int32([4, 1]), np.ones([2, DIM], np.float32)
  arguments = (state, table, ids, gradients)

  def thrice(ids, rows):
    return (3 * rows, tf.size(ids))

  _, plain, _ = optimizer.next(*arguments, tf.constant(True))
  _, after, count = optimizer.next(*arguments, tf.constant(True), thrice)
  assert count == 2
  expected = plain.numpy()
  expected[ids] *= 3
  np.testing.assert_allclose(after, expected, rtol=1e-6)
  _, same, count = optimizer.next(*arguments, tf.constant(False), thrice)
  assert count == 0
  np.testing.assert_array_equal(same, table)


MANY = 100_000
ON_ROWS = (
  optimizers.RowMomentum(1.0, 0.9),
  optimizers.RowMomentum(1.0, 0.0),
  optimizers.LazyRows(optimizers.TorchAdam(0.1, amsgrad=True)),
  optimizers.LazyRows(tff.learning.optimizers.build_adagrad(0.1)),
)
STEP = (tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, DIM]), tf.TensorSpec([], tf.bool))


def graph_of(function, optimizer, *others):
  table = tf.TensorSpec([MANY, DIM])
  state = tf.nest.map_structure(
    lambda t: tf.TensorSpec.from_tensor(tf.convert_to_tensor(t)), optimizer.initialize(table)
  )
  return tf.function(function).get_concrete_function(state, table, *others)


@pytest.mark.parametrize('optimizer', ON_ROWS)
def test_a_step_costs_the_requested_rows_alone(optimizer):
  concrete = graph_of(optimizer.next, optimizer, *STEP)
  assert not graphs.work_on_all_rows(concrete, MANY)
  scatters = [op for op in concrete.graph.get_operations() if graphs.is_scatter(op)]
  large = [t for t in concrete.inputs if MANY in t.shape]
  # There is one scatter for each large tensor, and it writes into the input.
  assert {s.inputs[0].ref() for s in scatters} == {t.ref() for t in large}
  assert len(scatters) == len(large)


@pytest.mark.parametrize('optimizer', ON_ROWS)
@pytest.mark.parametrize('shape', [[], [None]])
def test_reading_costs_the_rows_read_alone(optimizer, shape):
  concrete = graph_of(optimizer.read, optimizer, tf.TensorSpec(shape, tf.int32))
  assert not graphs.work_on_all_rows(concrete, MANY)


def test_the_check_of_cost_finds_a_dense_step():
  dense = optimizers.Dense(optimizers.build_sgd(1.0, 0.9))
  concrete = graph_of(dense.next, dense, *STEP)
  assert graphs.work_on_all_rows(concrete, MANY)
  whole = optimizers.RowMomentum(1.0, 0.9)
  assert graphs.work_on_all_rows(graph_of(whole.read_all, whole), MANY)
