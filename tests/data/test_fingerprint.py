"""Fingerprints are equal for equal data sets and differ for others."""

import dataclasses

import numpy as np
import pytest

from datasets import arrays
from datasets.procedural import glyphs
from datasets.procedural import words as sparse_words
from tff_xc.data import client_data
from tff_xc.data import fingerprint
from tff_xc.data import partition


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
  return fingerprint.fingerprint(arrays.load(path))


def differing(a, b):
  return [name for name in {**a, **b} if a.get(name) != b.get(name)]


def test_equal_content_is_equal_wherever_it_lies(tmp_path):
  first, _ = write(tmp_path / 'a.npz')
  second, _ = write(tmp_path / 'b.npz')
  found = of(first)
  assert found == of(second)
  assert list(found) == [
    'classes',
    'clients',
    'examples',
    'test_examples',
    'labels_checksum',
    'train_checksum',
    'test_checksum',
  ]
  assert [found[name] for name in list(found)[:4]] == [8, 4, 40, 8]


def test_integer_dtypes_of_a_partition_do_not_matter(tmp_path):
  dataset = arrays.load(write(tmp_path / 'a.npz')[0])
  train, found = dataset.train, fingerprint.fingerprint(dataset)
  small = partition.Partition(
    train.partition.client_ids,
    train.partition.offsets.astype(np.int32),
    train.partition.numbers.astype(np.int32),
  )
  other = client_data.PartitionedClientData(train.pool, small)
  other = dataclasses.replace(dataset, train=other)
  assert fingerprint.fingerprint(other) == found


def test_what_differs_is_named(tmp_path):
  path, content = write(tmp_path / 'a.npz')

  write_b = lambda **changes: write(tmp_path / 'b.npz', **changes)[0]
  changed = lambda **changes: differing(of(path), of(write_b(**changes)))

  def bumped(name, place):
    array = content[name].copy()
    array[place] += 1
    return {name: array}

  assert changed(**bumped('x', (17, 3, 3))) == ['train_checksum']
  assert changed(**bumped('test_x', (7, 0, 0))) == ['test_checksum']
  assert changed(**bumped('test_y', 0)) == ['test_checksum']
  assert changed(**bumped('y', 0)) == ['labels_checksum', 'train_checksum']
  assert changed(client=content['client'] + 1) == ['labels_checksum']
  assert changed(client=np.arange(40) // 8) == [
    'clients',
    'labels_checksum',
    'train_checksum',
  ]
  assert changed(retrieval_x=content['x'], retrieval_y=content['y']) == [
    'retrieval_examples',
    'retrieval_checksum',
  ]


def test_examples_are_taken_from_clients_all_over_the_set(tmp_path):
  """Of a large set a few whole clients, including the first and the last."""
  x = np.zeros([2000, 8, 8], np.uint8)
  more = {
    'x': x,
    'y': np.arange(2000) % 8,
    'client': np.arange(2000) // 10,
    'test_x': x[:8],
  }
  path, _ = write(tmp_path / 'a.npz', **more)
  for place in (0, 1999):
    other = x.copy()
    other[place] = 1
    found = of(write(tmp_path / 'b.npz', **{**more, 'x': other})[0])
    assert differing(of(path), found) == ['train_checksum']


def test_many_clients():
  load = lambda: sparse_words.load(
    num_classes=12_000, num_features=100, skew=0.0, test_examples=3
  )
  found = fingerprint.fingerprint(load())
  assert 11_000 < found['clients'] < 12_001
  assert found['examples'] == 120_000
  dataset = load()
  dataset.train.pool.y[7] += 1
  other = fingerprint.fingerprint(dataset)
  assert 'labels_checksum' in differing(found, other)


def test_procedural_sets_are_told_apart_by_their_labels():
  """Glyphs' pixels depend on the machine, so the fingerprint ignores them."""
  sets = [
    glyphs.load(num_classes=20, num_clients=5, seed=seed) for seed in (0, 0, 1)
  ]
  unread = dataclasses.replace(sets[0].test, read=None)
  sets[0] = dataclasses.replace(sets[0], test=unread)
  same, again, other = map(fingerprint.fingerprint, sets)
  assert same == again
  assert differing(same, other) == ['labels_checksum']


@pytest.mark.parametrize('seed', [0, 1])
def test_sparse_sets(seed):
  load = lambda seed: sparse_words.load(
    num_classes=30, num_features=100, test_examples=7, seed=seed
  )
  found = differing(
    fingerprint.fingerprint(load(0)), fingerprint.fingerprint(load(seed))
  )
  assert (
    set(found)
    >= {
      'labels_checksum',
      'train_checksum',
      'test_checksum',
      'propensity_checksum',
    }
  ) == bool(seed)
  assert bool(found) == bool(seed)
