"""Arguments of computations: valid values, and other values that cause one kind of error."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiny

_PAIR = tff.StructWithPythonType([('y', np.int32), ('x', np.float32)], collections.OrderedDict)
_Pair = collections.namedtuple('_Pair', 'y x')
_Odict = collections.OrderedDict
_slices = tf.data.Dataset.from_tensor_slices
_INTS, _FLOATS = tff.TensorType(np.int32, [None]), tff.TensorType(np.float32, [None])


@pytest.mark.parametrize(
  ('kind', 'given', 'expected'),
  [
    (np.int32, 3, 3),
    (np.int32, np.uint8(3), 3),
    (np.int32, tf.Variable(3), 3),
    (np.int64, tf.constant(3, tf.uint8), 3),
    (np.float32, 3.5, 3.5),
    (np.float64, np.float32(0.5), 0.5),
    (np.float64, tf.constant(0.5), 0.5),
    (np.complex64, 1j, 1j),
    (np.bool_, True, True),
    (np.str_, 'a', b'a'),
    (np.str_, b'a', b'a'),
    (_INTS, [3, 4], [3, 4]),
    (_INTS, [], []),
    (_INTS, [tf.constant(3)], [3]),
    (_FLOATS, np.array([3, 4], np.float16), [3, 4]),
    (np.int32, 2**31, None),
    (np.int32, 2**70, None),
    (np.int32, True, None),
    (np.int32, 3.0, None),
    (np.int32, np.int64(3), None),
    (np.int32, tf.constant(3, tf.int64), None),
    (np.int32, 'a', None),
    (np.int32, None, None),
    (np.uint8, -1, None),
    (np.float32, 3, None),
    (np.float32, np.float64(3), None),
    (np.float32, tf.constant(3.0, tf.float64), None),
    (np.bool_, 1, None),
    (np.str_, 3, None),
    (_INTS, [2**31], None),
    (_INTS, [3.5], None),
    (_INTS, np.array([3.0]), None),
    (_INTS, 3, None),
  ],
)
def test_tensors(in_process, kind, given, expected):
  same = tff.tensorflow.computation(lambda x: x, kind)
  if expected is None:
    with pytest.raises((TypeError, ValueError)):
      same(given)
  else:
    np.testing.assert_array_equal(np.asarray(same(given)), np.asarray(expected))


def _outcome(context, computation, argument):
  """Returns the result of a computation as numbers, or the class of its error."""
  tff.framework.set_default_context(context)
  try:
    found = computation(argument)
  except Exception as e:
    return type(e)
  return [np.asarray(leaf).tolist() for leaf in tf.nest.flatten(found)]


def _assert_same(contexts, computation, arguments):
  for name, argument in arguments.items():
    ours, theirs = (
      _outcome(contexts[runtime], computation, argument) for runtime in ('in_process', 'worker')
    )
    # The worker raises its own subclasses of some errors.
    both = isinstance(ours, type) and isinstance(theirs, type)
    assert issubclass(theirs, ours) if both else ours == theirs, name


def test_structures_are_those_that_the_worker_takes(contexts):
  swap = tff.tensorflow.computation(lambda v: (v['x'], v['y']), _PAIR)
  struct = tff.structure.Struct
  _assert_same(
    contexts,
    swap,
    {
      'ordered': _Odict(y=1, x=2.0),
      'dict': {'y': 1, 'x': 2.0},
      'list': [1, 2.0],
      'named': _Pair(1, 2.0),
      'struct': struct([('y', 1), ('x', 2.0)]),
      'unnamed struct': struct([(None, 1), (None, 2.0)]),
      'struct in another order': struct([('x', 2), ('y', 1.0)]),
      'too many': (1, 2.0, 3.0),
      'number': 3,
    },
  )


def test_data_sets_are_those_that_the_worker_takes(contexts):
  @tff.tensorflow.computation(tff.SequenceType(_PAIR))
  def total(pairs):
    return pairs.reduce(tf.constant(0.0), lambda s, e: s + tf.cast(e['y'], tf.float32) * e['x'])

  _assert_same(
    contexts,
    total,
    {
      'data set': _slices(_Odict(y=[1], x=[2.0])),
      'int64': _slices(_Odict(y=np.array([1]), x=[2.0])),
      'wrong names': _slices(_Odict(y=[1], z=[2.0])),
      'wrong shape': _slices(_Odict(y=[[1]], x=[[2.0]])),
      'number': 5,
    },
  )


@pytest.mark.slow
def test_labels_of_another_type_train_nothing(contexts):
  process = tiny.process('fedss', max_positives=4, negatives=3)
  [client] = tiny.cohort([[1]])
  for context in contexts.values():
    tff.framework.set_default_context(context)
    state = process.initialize()
    for label in (2**32 + 1, 3.7, True):
      with pytest.raises(TypeError, match='int32'):
        process.next(state, [client._replace(labels=np.array([label]))])
