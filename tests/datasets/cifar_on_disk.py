"""Writes a tiny CIFAR-10 and CIFAR-100 in the official file formats."""

import io
import pickle
import struct
import tarfile
import typing

import numpy as np
import pytest

from datasets import cifar
from tff_xc import errors

# Numbers of training and test images. Each class of CIFAR-10 has 5 and 2 images, and each class of
# CIFAR-100 has 2 and 1.
COUNTS = {'cifar10': cifar.Counts(50, 20), 'cifar100': cifar.Counts(200, 100)}
FORMS = ['binary', 'python']


class Python2Pickler(pickle._Pickler):
  """Writes strings like Python 2, which wrote the official files."""

  dispatch: typing.ClassVar = dict(pickle._Pickler.dispatch)

  def save_string(self, text):
    raw = text if isinstance(text, bytes) else text.encode()
    if len(raw) < 256:
      self.write(b'U' + bytes([len(raw)]) + raw)
    else:
      self.write(b'T' + struct.pack('<i', len(raw)) + raw)
    self.memoize(text)

  dispatch[bytes] = dispatch[str] = save_string


def pickled(content):
  stream = io.BytesIO()
  Python2Pickler(stream, protocol=2).dump(content)
  return stream.getvalue()


def tiny(name):
  """Returns x uint8 [k, 32, 32, 3] and y of training and test data, with classes in mixed order."""
  random = np.random.default_rng(len(name))
  n = cifar.LAYOUTS[name].num_classes
  splits = []
  for count in COUNTS[name]:
    y = random.permutation(np.repeat(np.arange(n), count // n))
    x = random.integers(0, 256, size=(count, 32, 32, 3), dtype=np.uint8)
    splits.append((x, y))
  return splits


def files(name, form):
  """Returns the official files of a data set and file format, as {path: content}."""
  layout = cifar.LAYOUTS[name]
  (x, y), test = tiny(name)
  parts = [*zip(np.split(x, len(layout.train)), np.split(y, len(layout.train)), strict=True), test]
  folder, _ = layout.places[form]
  content = {}
  for file, (x, y) in zip((*layout.train, layout.test), parts, strict=True):
    planes = x.transpose(0, 3, 1, 2).reshape(len(x), 3072)
    if form == 'binary':
      coarse = [y % 20] if name == 'cifar100' else []
      labels = np.stack([*coarse, y], axis=1).astype(np.uint8)
      records = np.concatenate([labels, planes], axis=1)
      content[f'{folder}/{file}.bin'] = records.tobytes()
    else:
      labels = 'fine_labels' if name == 'cifar100' else 'labels'
      batch = {'batch_label': 'part', labels: y.tolist(), 'data': planes}
      if name == 'cifar100':
        batch['coarse_labels'] = (y % 20).tolist()
      content[f'{folder}/{file}'] = pickled(batch)
  return content


def write(root, content):
  for path, raw in content.items():
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(raw)
  return root


def archive(path, content):
  with tarfile.open(path, 'w:gz') as file:
    for name, raw in content.items():
      member = tarfile.TarInfo(name)
      member.size = len(raw)
      file.addfile(member, io.BytesIO(raw))


def load(root, name='cifar10', **arguments):
  return cifar.load(root, name, expected=COUNTS[name], **arguments)


def check_equal(dataset, name='cifar10'):
  """Checks the training images of each class in order, and the test images."""
  (x, y), (test_x, test_y) = tiny(name)
  n = cifar.LAYOUTS[name].num_classes
  assert dataset.num_classes == n == len(dataset.train.client_ids)
  for label, client in enumerate(dataset.train.client_ids):
    examples = dataset.train.examples(client)
    np.testing.assert_array_equal(examples.x, x[y == label])
    assert set(examples.labels.tolist()) == {label}
  np.testing.assert_array_equal(dataset.test.read(np.arange(len(test_x))), test_x)
  np.testing.assert_array_equal(dataset.test.labels, test_y)
  assert dataset.test.labels.dtype == np.int32
  assert dataset.train.element_type_structure['x'].shape == [32, 32, 3]


def assert_refused(message, root, name='cifar10', **arguments):
  with pytest.raises(errors.InputError, match=message) as e:
    load(root, name, **arguments)
  assert '\n' not in str(e.value)
