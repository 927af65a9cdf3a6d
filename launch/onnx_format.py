"""Writes ONNX files with the optional package tf2onnx, and converts two more operations."""

import logging.handlers
import os

from tff_xc import errors

_OPSET = 17
_INSTALL = "pip install --no-deps 'tf2onnx==1.17.0' 'onnx==1.17.0'"


def write(function, path: str | os.PathLike) -> None:
  """Writes a `tf.function` that has an input signature.

  Raises InputError if tf2onnx is not installed or cannot convert the function.
  """
  try:
    import tf2onnx
  except ModuleNotFoundError as e:
    raise errors.InputError(
      f'--format=onnx needs {e.name}, which is not installed: {_INSTALL}'
    ) from e
  # If tf2onnx cannot convert an operation, it only logs an error, and writes a file that cannot
  # run.
  logged = logging.handlers.BufferingHandler(capacity=1000)
  logged.setLevel(logging.ERROR)
  tf2onnx.logging.set_level(logging.ERROR)
  log = logging.getLogger('tf2onnx')
  log.addHandler(logged)
  propagates, log.propagate = log.propagate, False
  try:
    tf2onnx.convert.from_function(
      function,
      input_signature=list(function.input_signature),
      opset=_OPSET,
      output_path=os.fspath(path),
      custom_op_handlers={
        'SparseTensorDenseMatMul': (_sparse_product, []),
        'ScatterNd': (_scatter, []),
      },
    )
    why = logged.buffer[-1].getMessage() if logged.buffer else ''
  except Exception as e:  # tf2onnx may raise any exception.
    why = str(e) or repr(e)
  finally:
    log.removeHandler(logged)
    log.propagate = propagates
  if why:
    raise errors.InputError(
      f'--format=onnx: tf2onnx cannot convert this network ({why.splitlines()[0][:200]});'
      ' give another --format'
    )


def _sparse_product(graph, node, name, args):
  """Builds the product of a sparse and a dense matrix from ONNX operations."""
  del name, args
  places, values, shape, dense = node.input
  make, outputs = graph.make_node, node.output

  def of(column):
    return make('Gather', [places, _constant(graph, column)], attr={'axis': 1}).output[0]

  rows = make('Gather', [dense, of(1)]).output[0]
  axis = _constant(graph, [1])
  weights = make('Unsqueeze', [values, axis]).output[0]
  products = make('Mul', [rows, weights]).output[0]
  size = make('Slice', [shape, _constant(graph, [0]), axis]).output[0]
  width = make('Shape', [dense]).output[0]
  width = make('Slice', [width, axis, _constant(graph, [2])]).output[0]
  whole = make('Concat', [size, width], attr={'axis': 0}).output[0]
  owners = make('Unsqueeze', [of(0), axis]).output[0]
  _replace(graph, node, outputs, whole, owners, products)


def _scatter(graph, node, name, args):
  """Builds ScatterNd, in which updates with equal indices are added, as in TensorFlow.

  The ScatterNd of tf2onnx does not add them.
  """
  del name, args
  places, updates, shape = node.input

  def as_long(t):
    return graph.make_node('Cast', [t], attr={'to': 7}).output[0]

  _replace(graph, node, node.output, as_long(shape), as_long(places), updates)


def _replace(graph, node, outputs, shape, places, updates):
  from onnx import helper

  zero = helper.make_tensor('value', 1, [1], [0.0])
  zeros = graph.make_node('ConstantOfShape', [shape], attr={'value': zero})
  shapes, dtypes = node.output_shapes, node.output_dtypes
  graph.remove_node(node.name)
  graph.make_node(
    'ScatterND',
    [zeros.output[0], places, updates],
    attr={'reduction': 'add'},
    outputs=outputs,
    shapes=shapes,
    dtypes=dtypes,
  )


def _constant(graph, value):
  import numpy as np
  from tf2onnx import utils

  array = np.array(value, np.int64)
  return graph.make_const(utils.make_name('number'), array).output[0]
