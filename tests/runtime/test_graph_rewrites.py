"""The changes of a graph before the runtime imports it."""

import tensorflow as tf

from tff_xc.runtime.in_process import graph_rewrites


def _graph(loop_body_ops: int) -> tf.compat.v1.GraphDef:
  with tf.Graph().as_default() as graph:
    variable = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name='v')
    tf.raw_ops.AssignVariableOp(resource=variable, value=1.0)

    def body(x):
      for _ in range(loop_body_ops):
        x *= 1.5
      return x

    tf.while_loop(lambda x: x < 9.0, body, [tf.constant(1.0)])
    tf.raw_ops.AnonymousIteratorV3(output_types=[tf.int32], output_shapes=[[]])
  return graph.as_graph_def()


def _prepared(loop_body_ops: int = 1, device: str = ''):
  graph_def = _graph(loop_body_ops)
  graph_rewrites.prepare(graph_def, '_7', device)
  return graph_def, {node.op: node for node in graph_def.node}


def test_variables_and_functions_have_their_own_names_and_ops_a_device():
  graph_def, by_op = _prepared(device='/device:GPU:1')
  assert by_op['VarHandleOp'].attr['shared_name'].s == b'v_7'
  loop = by_op['While'] if 'While' in by_op else by_op['StatelessWhile']
  names = {f.signature.name for f in graph_def.library.function}
  assert names and all(name.endswith('_7') for name in names)
  assert {loop.attr['cond'].func.name, loop.attr['body'].func.name} == names
  assert by_op['VarHandleOp'].device == '/device:GPU:1'
  assert by_op['AnonymousIteratorV3'].device == '/device:CPU:0'  # An op on data sets.
  assert not _prepared()[1]['VarHandleOp'].device


def test_products_that_no_gpu_repeats_stay_on_the_cpu_with_their_gradients():
  def gradient(table):
    matrix = tf.SparseTensor([[0, 1]], [2.0], [3, 4])
    with tf.GradientTape() as tape:
      tape.watch(table)
      product = tf.sparse.sparse_dense_matmul(matrix, table)
    return tape.gradient(product, table)

  spec = tf.TensorSpec([4, 2], tf.float32)
  graph = tf.function(gradient).get_concrete_function(spec).graph
  graph_def = graph.as_graph_def()
  graph_rewrites.prepare(graph_def, '_7', '/device:GPU:0')
  products = [n for n in graph_def.node if n.op == 'SparseTensorDenseMatMul']
  assert any(node.attr['adjoint_a'].b for node in products)  # The gradient has such products.
  assert {node.device for node in products} == {'/device:CPU:0'}


def test_a_long_body_is_called_and_gives_the_same():
  for ops, is_called in ((3, False), (80, True)):
    graph_def, by_op = _prepared(ops)
    loop = by_op['While'] if 'While' in by_op else by_op['StatelessWhile']
    functions = {f.signature.name: f for f in graph_def.library.function}
    body = functions[loop.attr['body'].func.name]
    called = [n for n in body.node_def if n.op == 'StatefulPartitionedCall']
    assert bool(called) == is_called
    run = tf.compat.v1.wrap_function(
      lambda g=graph_def: tf.graph_util.import_graph_def(g, name=''), []
    )
    output = run.graph.as_graph_element(f'{loop.name}:2')
    expected = 1.0
    while expected < 9.0:
      expected *= 1.5**ops
    found = run.prune([], [output])()[0]
    tf.debugging.assert_near(found, tf.constant(expected), rtol=1e-4)


def test_the_part_between_two_tensors_lacks_what_feeds_them():
  with tf.Graph().as_default() as graph:
    given = tf.compat.v1.placeholder(tf.float32, [], 'given')
    unused = tf.compat.v1.placeholder(tf.float32, [], 'unused')
    middle = tf.add(given, 1.0, 'middle')
    with graph.colocate_with(given.op), tf.control_dependencies([given]):
      wanted = tf.multiply(middle, 3.0, 'wanted')
    tf.add(wanted, unused, 'further')
  names = [t.name for t in (given, unused, middle)]
  part, used = graph_rewrites.part(graph.as_graph_def(), names, [wanted.name])
  assert {node.name for node in part.node} == {'wanted', 'wanted/y'}
  assert used == {'middle:0'}
  with tf.Graph().as_default():
    fed = {name: tf.constant(2.0) for name in used}
    tf.graph_util.import_graph_def(part, fed, [wanted.name])


def test_large_constants_of_one_value_are_made_in_every_call_and_the_same():
  @tf.function
  def inner(x):
    return tf.constant(0.0, shape=[512, 1024]) + x

  @tf.function
  def outer(x):
    # A large constant with one value, a small constant, and a large constant with two values.
    large = tf.constant(3, shape=[2, 2**18], dtype=tf.int32)
    other = tf.constant([1.0] + [2.0] * 2**18)
    return inner(x), large, tf.constant(2.0, shape=[4]), other

  graph = outer.get_concrete_function(tf.TensorSpec([], tf.float32)).graph
  graph_def = graph.as_graph_def()
  graph_rewrites.prepare(graph_def, '_7', '/device:CPU:0')
  nodes = graph_rewrites._nodes(graph_def)
  # Two constants are filled at run time, so TensorFlow cannot fill them in advance.
  filled = [node for node in nodes if node.op == 'Fill']
  assert len(filled) == 2
  assert sum(n.op == 'PlaceholderWithDefault' for n in nodes) == len(filled)
  kept = [tf.make_ndarray(n.attr['value'].tensor) for n in nodes if n.op == 'Const']
  assert sum(array.size > 2**17 for array in kept) == 1  # The constant with two values.

  found = tf.compat.v1.wrap_function(
    lambda x: tf.graph_util.import_graph_def(
      graph_def, {'x': x}, [t.name for t in graph.outputs], name=''
    ),
    [tf.TensorSpec([], tf.float32)],
  )
  plain = tf.compat.v1.wrap_function(
    lambda x: tf.graph_util.import_graph_def(
      graph.as_graph_def(), {'x': x}, [t.name for t in graph.outputs], name=''
    ),
    [tf.TensorSpec([], tf.float32)],
  )
  x = tf.constant(1.5)
  for ours, theirs in zip(found(x), plain(x), strict=True):
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    assert tf.reduce_all(ours == theirs)
