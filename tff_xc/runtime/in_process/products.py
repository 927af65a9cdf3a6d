"""Matrix products in the form that is fast on every processor.

On an AMD Zen 3 (AVX2, no AVX-512), oneDNN takes two to six times as long for a
product that reads a large factor by columns. On processors with AVX-512, both
forms take the same time. The choice depends on shapes only, so that a run and
its resume, or two runs, compute the same digits.
"""

import math

import numpy as np
import tensorflow as tf

# A kernel is a large matrix of long rows; a class table has short ones.
_LEAST_SIZE, _LEAST_COLUMNS = 2**20, 512
# In numbers: rows this far apart lie in the same few lines of a cache.
_COLLIDING_STRIDE = 1024
_FLOAT = tf.float32.as_datatype_enum


def rewrite(function) -> None:
  """Rewrites the products of a function whose arguments have a kernel W.

  MatMul(a, b, transpose_a) becomes MatMul(Transpose(a), b). MatMul(g, W,
  transpose_b) becomes Transpose(MatMul(W, g, transpose_b)), if W's rows collide
  in caches.

  Args:
    function: a `FunctionDef`, changed in place.
  """
  columns = _columns_of_kernels(function)
  if not columns:
    return
  colliding = {k for k, n in columns.items() if n % _COLLIDING_STRIDE == 0}
  for node in list(function.node_def):
    if node.op != 'MatMul' or node.attr['T'].type != _FLOAT:
      continue
    of_a, of_b = node.attr['transpose_a'], node.attr['transpose_b']
    if of_a.b and not of_b.b:
      node.input[0] = _transposed(function, node.input[0], f'{node.name}/a')
      of_a.b = False
    elif of_b.b and not of_a.b and node.input[1] in colliding:
      _swap_factors(function, node)


def _columns_of_kernels(function) -> dict[str, int]:
  """Returns the columns of each kernel among a function's arguments."""
  found = {}
  for i, argument in enumerate(function.signature.input_arg):
    shapes = function.arg_attr[i].attr['_output_shapes'].list.shape
    sizes = [dim.size for dim in shapes[0].dim] if shapes else []
    is_long = len(sizes) == 2 and sizes[1] >= _LEAST_COLUMNS
    if is_long and math.prod(sizes) >= _LEAST_SIZE:
      found[argument.name] = sizes[1]
  return found


def _swap_factors(function, node) -> None:
  """Makes g Wᵀ the transpose of W gᵀ."""
  g, kernel, *control = node.input
  name, node.name = node.name, f'{node.name}/swapped'
  node.input[:] = [kernel, g, *control]
  result = _transposed(function, f'{node.name}:product:0', name)
  replaced = {f'{name}:product:0': result, f'^{name}': f'^{node.name}'}
  for reader in function.node_def:
    reader.input[:] = [replaced.get(x, x) for x in reader.input]
  for output, tensor in function.ret.items():
    function.ret[output] = replaced.get(tensor, tensor)


def _transposed(function, tensor: str, name: str) -> str:
  """Adds the transpose of a matrix to a function; returns its tensor's name.

  It has a third axis meanwhile: TensorFlow's optimizer would put the transpose
  of a matrix back into the product.
  """

  def add(op, suffix, inputs, output='output'):
    node = function.node_def.add(name=f'{name}/{suffix}', op=op, input=inputs)
    return node, f'{node.name}:{output}:0'

  def constant(value, suffix):
    node, result = add('Const', suffix, [])
    node.attr['dtype'].type = tf.int32.as_datatype_enum
    value = tf.make_tensor_proto(np.array(value, np.int32))
    node.attr['value'].tensor.CopyFrom(value)
    return result

  axis, order = constant(0, 'axis'), constant([0, 2, 1], 'order')
  expand, expanded = add('ExpandDims', 'expanded', [tensor, axis])
  expand.attr['Tdim'].type = tf.int32.as_datatype_enum
  turn, turned = add('Transpose', 'turned', [expanded, order], 'y')
  turn.attr['Tperm'].type = tf.int32.as_datatype_enum
  squeeze, result = add('Squeeze', 'transposed', [turned])
  squeeze.attr['squeeze_dims'].list.i.append(0)
  for node in (expand, turn, squeeze):
    node.attr['T'].type = _FLOAT
  return result
