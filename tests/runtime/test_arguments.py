"""Both runtimes accept the same arguments and refuse others with one error."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiny


def _listed(*values):
  """Returns the values by what they look like, and their places."""
  return {f'{i}: {value!r}': value for i, value in enumerate(values)}


_VALUES = _listed(
  3,
  -1,
  2**31,
  2**32 + 1,
  2**70,
  3.7,
  1e39,
  float('inf'),
  1j,
  True,
  'a',
  b'a',
  object(),
  {3},
  range(2),
  [],
  [3],
  (3,),
  [2**31],
  [3.7],
  [3, 3.7],
  [True],
  ['a'],
  [[3]],
  [[3], [4, 5]],
  [np.int64(3)],
  [tf.constant(3)],
  [np.float64(3)],
)
_DTYPES = ['bool', 'uint8', 'int8', 'int32', 'int64', 'uint32', 'float16']
_DTYPES += ['float32', 'float64', 'complex64', 'object', 'S1', 'U1']
_ARRAYS = {
  **{f'array {d}': np.array(['1']).astype(d) for d in _DTYPES if d != 'bool'},
  **{f'scalar {d}': np.ones([], d)[()] for d in _DTYPES if d != 'object'},
  **{f'0-d {d}': np.ones([], d) for d in _DTYPES},
  'array bool': np.array([True]),
  'array 2-d': np.ones([1, 1], np.int32),
  'empty float64': np.array([]),
}
_TENSORS = {
  f'tensor {d} {shape}': tf.ones(shape, d)
  for d in ('int32', 'int64', 'uint8', 'float32', 'float64', 'bfloat16')
  for shape in ([], [1])
}
_TENSORS |= {
  'tensor string': tf.constant('a'),
  'tensor bool': tf.constant(True),
  'variable int32': tf.Variable(3),
  'variable float32': tf.Variable(3.0),
  'ragged': tf.ragged.constant([[1], [2, 3]]),
}
_VALUES |= _ARRAYS | _TENSORS
_TYPES = (
  np.int32,
  np.int64,
  np.uint8,
  np.float32,
  np.float64,
  np.complex64,
  np.bool_,
  np.str_,
  tff.TensorType(np.int32, [None]),
  tff.TensorType(np.float32, [1]),
  tff.TensorType(np.str_, [None]),
)


def _outcome(context, computation, argument):
  """Returns the numbers that a computation returns, or its error's class."""
  tff.framework.set_default_context(context)
  try:
    found = computation(argument)
  except Exception as e:
    return type(e)
  return [np.asarray(leaf).tolist() for leaf in tf.nest.flatten(found)]


def _differences(contexts, computation, arguments) -> dict:
  found = {}
  for name, argument in arguments.items():
    ours, theirs = (
      _outcome(contexts[runtime], computation, argument) for runtime in ('in_process', 'worker')
    )
    # The worker raises its own subclasses of some errors.
    both = isinstance(ours, type) and isinstance(theirs, type)
    if not (issubclass(theirs, ours) if both else ours == theirs):
      found[name] = ours, theirs
  return found


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('kind', _TYPES, ids=str)
def test_tensors(contexts, kind):
  same = tff.tensorflow.computation(lambda x: x, kind)
  assert not _differences(contexts, same, _VALUES)


_PAIR = tff.StructWithPythonType([('y', np.int32), ('x', np.float32)], collections.OrderedDict)
_Pair = collections.namedtuple('_Pair', 'y x')
_Odict = collections.OrderedDict
_slices = tf.data.Dataset.from_tensor_slices


def test_structures(contexts):
  swap = tff.tensorflow.computation(lambda v: (v['x'], v['y']), _PAIR)
  struct = tff.structure.Struct
  assert not _differences(
    contexts,
    swap,
    {
      'ordered': _Odict(y=1, x=2.0),
      'dict': {'y': 1, 'x': 2.0},
      'tuple': (1, 2.0),
      'list': [1, 2.0],
      'named': _Pair(1, 2.0),
      'struct': struct([('y', 1), ('x', 2.0)]),
      'unnamed struct': struct([(None, 1), (None, 2.0)]),
      'struct in another order': struct([('x', 2), ('y', 1.0)]),
      'too many': (1, 2.0, 3.0),
      'array': np.array([1, 2]),
      'string': 'ab',
      'number': 3,
    },
  )


def test_sequences(contexts):
  @tff.tensorflow.computation(tff.SequenceType(_PAIR))
  def total(pairs):
    return pairs.reduce(tf.constant(0.0), lambda s, e: s + tf.cast(e['y'], tf.float32) * e['x'])

  assert not _differences(
    contexts,
    total,
    {
      'data set': _slices(_Odict(y=[1], x=[2.0])),
      'another order': _slices(_Odict(x=[2.0], y=[1])),
      'int64': _slices(_Odict(y=np.array([1]), x=[2.0])),
      'list': [_Odict(y=1, x=2.0), (2, 3)],
      'list of tensors': [(tf.constant(1, tf.int64), tf.constant(2))],
      'wrong names': [{'y': 1, 'z': 2.0}],
      'wrong shape': [([1], [2.0])],
      'a float for an int': [(1.5, 2.0)],
      'tuple': ((1, 2.0),),
      'array': np.ones([1, 2]),
      'number': 5,
    },
  )


def test_values_of_clients(contexts):
  run = tff.federated_computation(
    lambda x: tff.federated_map(tff.tensorflow.computation(lambda v: -v), x),
    tff.FederatedType(np.int32, tff.CLIENTS),
  )
  # Only this runtime accepts tuples, and an empty list of clients.
  assert not _differences(
    contexts,
    run,
    {
      'list': [1, np.int32(2), tf.constant(3)],
      'wraps': [1, 2**32 + 1],
      'float': [1, 3.7],
      'int64': [np.int64(1)],
      'None': [None],
      'array': np.array([1, 2], np.int32),
      'number': 1,
      'string': 'ab',
    },
  )


def test_labels_of_another_type_train_nothing(contexts):
  process = tiny.process('fedss', max_positives=4, negatives=3)
  [client] = tiny.cohort([[1]])
  for context in contexts.values():
    tff.framework.set_default_context(context)
    state = process.initialize()
    for label in (2**32 + 1, 3.7, True):
      with pytest.raises(TypeError, match='int32'):
        process.next(state, [client._replace(y=np.array([label]))])
