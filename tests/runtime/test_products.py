"""The forms of matrix products in a training loop."""

import numpy as np
import pytest
import tensorflow as tf

from tff_xc.runtime.in_process import graph_rewrites

RANDOM = np.random.default_rng(0)


def loop(kernel_shape, batch=3):
  """Returns a graph of two steps with all products of a kernel.

  A control edge leaves the product that may be swapped.
  """
  with tf.Graph().as_default() as graph:
    kernel = tf.compat.v1.placeholder(tf.float32, kernel_shape, name='kernel')
    x = tf.compat.v1.placeholder(tf.float32, [batch, kernel_shape[1]], name='x')

    def body(step, kernel, x):
      h = tf.matmul(x, kernel, transpose_b=True)
      with tf.control_dependencies([h]):
        step = step + 1
      gradient = tf.matmul(h, x, transpose_a=True)
      return step, kernel - 1e-3 * gradient, x + tf.matmul(h, kernel)

    after = tf.while_loop(lambda step, *_: step < 2, body, [0, kernel, x])
    for i, value in enumerate(after[1:]):
      tf.identity(value, name=f'after{i}')
  return graph.as_graph_def()


def results(graph_def, kernel, x):
  with tf.Graph().as_default() as graph:
    tf.graph_util.import_graph_def(graph_def, name='')
    with tf.compat.v1.Session(graph=graph) as session:
      return session.run(
        ['after0:0', 'after1:0'], {'kernel:0': kernel, 'x:0': x}
      )


def products(graph_def):
  """Returns the (transpose_a, transpose_b) of the products, and the ops."""
  nodes = [n for f in graph_def.library.function for n in f.node_def]
  flags = [
    (n.attr['transpose_a'].b, n.attr['transpose_b'].b)
    for n in nodes
    if n.op == 'MatMul'
  ]
  return sorted(flags), [n.op for n in nodes].count('Transpose')


@pytest.mark.parametrize(
  'shape, transposes',
  # Colliding rows, other rows, a small kernel, a table of short rows.
  [([512, 2048], 2), ([700, 1500], 1), ([64, 64], 0), ([20_000, 64], 0)],
)
def test_products_that_read_by_columns_are_rewritten(shape, transposes):
  before, after = loop(shape), loop(shape)
  graph_rewrites.prepare(after, '', '')
  flags, found = products(after)
  assert found == transposes
  assert (True, False) in products(before)[0]
  assert ((True, False) in flags) == (not transposes)
  kernel = RANDOM.normal(size=shape).astype(np.float32) / 100
  x = RANDOM.normal(size=[3, shape[1]]).astype(np.float32)
  for a, b in zip(
    results(after, kernel, x), results(before, kernel, x), strict=True
  ):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
