"""Fingerprints of equal data sets are equal, and those of different data sets differ."""

import dataclasses

import numpy as np

from datasets import own as own_data
from tff_xc.data import fingerprint


def write(path, **changes):
  """Writes 40 images of 8 classes and 4 clients, and a test set, as .npz."""
  random = np.random.default_rng(0)
  content = {
    'x': random.integers(0, 256, (40, 16, 16), dtype=np.uint8),
    'y': np.arange(40) % 8,
    'client': np.arange(40) // 10,
    'test_x': random.integers(0, 256, (8, 16, 16), dtype=np.uint8),
    'test_y': np.arange(8),
  }
  np.savez(path, **content | changes)
  return path, content


def of(path):
  return fingerprint.fingerprint(own_data.load_images(path))


def differing(a, b):
  return [name for name in {**a, **b} if a.get(name) != b.get(name)]


def test_what_differs_is_named(tmp_path):
  path, content = write(tmp_path / 'a.npz')
  found = of(path)
  facts = ['classes', 'clients', 'examples', 'test_examples']
  checked = ['labels_checksum', 'train_checksum', 'test_checksum']
  assert list(found) == facts + checked
  assert [found[name] for name in facts] == [8, 4, 40, 8]

  def changed(**changes):
    return differing(found, of(write(tmp_path / 'b.npz', **changes)[0]))

  assert changed() == []  # The fingerprint does not depend on the folder.

  def bumped(name, place):
    array = content[name].copy()
    array[place] += 1
    return {name: array}

  for changes, told in (
    (bumped('x', (17, 3, 3)), ['train_checksum']),
    (bumped('test_x', (7, 0, 0)), ['test_checksum']),
    (bumped('test_y', 0), ['test_checksum']),
    (bumped('y', 0), ['labels_checksum', 'train_checksum']),
    ({'client': content['client'] + 1}, ['labels_checksum']),
    ({'client': np.arange(40) // 8}, ['clients', 'labels_checksum', 'train_checksum']),
    # The tenth image goes to the next client, and all images keep their order.
    ({'client': np.repeat(range(4), [9, 11, 10, 10])}, ['labels_checksum', 'train_checksum']),
    (
      {'retrieval_x': content['x'], 'retrieval_y': content['y']},
      ['retrieval_examples', 'retrieval_checksum'],
    ),
  ):
    assert changed(**changes) == told
  dataset = own_data.load_images(path)
  for part in ('test', 'validation', 'retrieval'):
    with_part = dataclasses.replace(dataset, **{part: dataset.test.subset(np.arange(4))})
    told = differing(found, fingerprint.fingerprint(with_part))
    assert told == [f'{part}_examples', f'{part}_checksum']


def test_of_a_large_set_the_first_and_the_last_client_are_read(tmp_path):
  more = {'y': np.arange(2000) % 8, 'client': np.arange(2000) // 10}
  x, zeros = (np.zeros([k, 8, 8], np.uint8) for k in (2000, 8))

  def made(x):
    return of(write(tmp_path / 'a.npz', x=x, test_x=zeros, **more)[0])

  before = made(x)
  for place in (0, 1999):
    other = x.copy()
    other[place] = 1
    assert differing(before, made(other)) == ['train_checksum']
