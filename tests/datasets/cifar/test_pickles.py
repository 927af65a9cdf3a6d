"""Pickles of CIFAR's Python version: old and new, broken and hostile."""

import os
import pickle

import numpy as np
import pytest

from datasets.cifar import pickles as cifar_pickles
from tests.datasets.cifar import on_disk as cifar_on_disk
from tff_xc import errors


@pytest.mark.parametrize('protocol', [2, 4])
def test_pickles_of_python_3_are_read_too(tmp_path, protocol):
  content = {
    path: pickle.dumps(pickle.loads(raw, encoding='bytes'), protocol)
    for path, raw in cifar_on_disk.files('cifar10', 'python').items()
  }
  cifar_on_disk.check_equal(
    cifar_on_disk.load(cifar_on_disk.write(tmp_path, content))
  )


class Call:
  """An object whose pickle calls `function`."""

  def __init__(self, function, *arguments):
    self.call = function, arguments

  def __reduce__(self):
    return self.call


def with_pickle(root, raw):
  content = cifar_on_disk.files('cifar10', 'python')
  content['cifar-10-batches-py/data_batch_4'] = raw
  return cifar_on_disk.write(root, content)


def with_batch(root, **changes):
  batch = {
    'data': np.zeros([10, 3072], np.uint8),
    'labels': [0] * 10,
    **changes,
  }
  batch = {key: value for key, value in batch.items() if value is not None}
  return with_pickle(root, cifar_on_disk.pickled(batch))


@pytest.mark.parametrize('call', ['os.system', 'builtins.eval', 'nested'])
@pytest.mark.parametrize('protocol', [0, 2, 4])
def test_a_pickle_that_calls_functions_is_refused(tmp_path, call, protocol):
  mark = tmp_path / 'was_here'
  batch = {
    'os.system': Call(os.system, f'touch {mark}'),
    'builtins.eval': Call(eval, f'open({str(mark)!r}, "w")'),
    'nested': {b'data': [np.array([Call(os.mkdir, str(mark))], object)]},
  }[call]
  root = with_pickle(tmp_path, pickle.dumps(batch, protocol))
  cifar_on_disk.assert_refused(
    r'data_batch_4 is no pickle of plain arrays \(it calls', root
  )
  assert not mark.exists()


def test_pickled_bytes_name_no_codec_but_latin1(tmp_path):
  raw = b'c_codecs\nencode\n(Vabc\nVrot13\ntR.'
  cifar_on_disk.assert_refused('bytes encoded as', with_pickle(tmp_path, raw))
  with pytest.raises(errors.InputError, match=r'_codecs\.decode'):
    cifar_pickles.parse(b'c_codecs\ndecode\n.', 'x', None, 1)


def test_a_truncated_pickle_is_refused(tmp_path):
  raw = cifar_on_disk.files('cifar10', 'python')[
    'cifar-10-batches-py/data_batch_1'
  ]
  cifar_on_disk.assert_refused(
    'data_batch_4 is no pickle', with_pickle(tmp_path, raw[:-99])
  )


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'data': None}, "has no entry 'data'"),
    ({'labels': None}, "has no entry 'labels'"),
    ({'data': np.zeros([9, 3072], np.uint8)}, r'\[9, 3072\]; expected uint8'),
    ({'data': np.zeros([10, 3072])}, r'float64 \[10, 3072\]; expected uint8'),
    ({'data': [1]}, "'data' is list; expected uint8"),
    ({'labels': [0] * 9}, 'has 9 labels; expected 10'),
    ({'labels': [0.5] * 10}, 'no list of integers'),
    ({'labels': 7}, 'no list of integers'),
  ],
)
def test_other_arrays_in_a_pickle_are_refused(tmp_path, changes, message):
  cifar_on_disk.assert_refused(
    f'data_batch_4.*{message}', with_batch(tmp_path, **changes)
  )


def test_a_pickle_of_something_else_is_refused(tmp_path):
  root = with_pickle(tmp_path, cifar_on_disk.pickled([1, 2]))
  cifar_on_disk.assert_refused("data_batch_4 has no entry 'data'", root)
