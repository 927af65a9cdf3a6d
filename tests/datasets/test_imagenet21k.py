"""ImageNet-21k: its file formats, and a simple check of its split rule."""

import collections
import math

import numpy as np
import pytest

from datasets import examples, imagenet21k
from datasets.splits import rules
from tests.datasets import imagenet21k_on_disk as on_disk
from tff_xc import errors

# Sizes of classes: many classes; few classes; one class larger than all others together; classes of
# one example.
SIZES = {
  'many': [37, 20, 1, 41, 5, 60, 19, 21, 2, 80, 33, 40] * 5,
  'few': [100, 45],
  'one large': [400, 3, 7, 20],
  'single': [1] * 30,
}


def labels_of(sizes):
  labels = np.repeat(np.arange(len(sizes)), sizes)
  return np.random.default_rng(1).permutation(labels).astype(np.int32)


def check(labels, partition, size, per_client):
  """Checks that the clients' examples of each class form shards of the right sizes."""
  expected = collections.Counter()
  for c, count in collections.Counter(labels[labels >= 0].tolist()).items():
    expected[(c, size)] += count // size
    if count % size:
      expected[(c, count % size)] += 1
  found = collections.Counter()
  for k in range(len(partition)):
    held = collections.Counter(labels[partition.of_client(k)].tolist())
    assert 1 <= len(held) <= per_client
    # A shard contains all examples of a class that a client has, so no client has two shards of a
    # class.
    for pair in held.items():
      found[pair] += 1
  assert found == +expected
  numbers = partition.numbers.tolist()
  assert sorted(numbers) == np.flatnonzero(labels >= 0).tolist()
  return sum(expected.values())


@pytest.mark.parametrize('per_client', [1, 3, 20])
@pytest.mark.parametrize('size', [1, 7, 20])
@pytest.mark.parametrize('sizes', SIZES)
def test_shards_of_a_client_are_of_distinct_classes(sizes, size, per_client):
  labels = labels_of(SIZES[sizes])
  labels[::11] = -1

  def deal(seed):
    return imagenet21k.deal(
      labels, examples_per_shard=size, shards_per_client=per_client, seed=seed
    )

  for seed in range(5):
    partition = deal(seed)
    total = check(labels, partition, size, per_client)
    largest = math.ceil(np.bincount(labels[labels >= 0]).max() / size)
    assert len(partition) == max(math.ceil(total / per_client), largest)
  np.testing.assert_array_equal(deal(4).numbers, partition.numbers)
  if total > 2 and len(partition) > 1:
    assert deal(5).numbers.tolist() != partition.numbers.tolist()


@pytest.mark.parametrize('share', [0.2, 0.5])
def test_the_test_is_a_share_of_each_class(share):
  labels = labels_of(SIZES['many'] * 3)
  data = examples.of_labels(labels)

  def deal(seed):
    return rules.deal(
      'imagenet21k', data, seed, test_share=share, examples_per_shard=5, shards_per_client=4
    )

  split = deal(3)
  in_test = np.bincount(labels[split.test], minlength=180)
  for count, tested in zip(np.bincount(labels), in_test, strict=True):
    low, high = math.floor(share * count), math.ceil(share * count)
    assert low <= tested <= high
    assert count > 1 or not tested
  both = np.concatenate([split.test, split.train.numbers])
  assert sorted(both.tolist()) == list(range(len(labels)))
  assert deal(4).test.tolist() != split.test.tolist()


def test_nothing_to_deal_is_refused():
  with pytest.raises(errors.InputError, match=r'test_share=0\.2 holds out no'):
    rules.deal('imagenet21k', examples.of_labels(np.arange(4)))


@pytest.mark.parametrize(
  'write',
  [on_disk.folders, on_disk.tars, on_disk.tar_of_tars, on_disk.as_text, on_disk.as_windows_gzip],
)
def test_every_form_has_the_same_images(tmp_path, write):
  found = imagenet21k.read(write(tmp_path))
  assert list(found.ids) == sorted(on_disk.NAMES)
  synsets = ['n00000001', 'n00000003', 'n00000020', 'n00000100']
  assert found.class_names == synsets
  assert [synsets[c] for c in found.labels] == [n[:9] for n in sorted(on_disk.NAMES)]
  assert found.facts == {'images': len(on_disk.NAMES), 'classes': 4}


@pytest.mark.parametrize(
  ('change', 'said'),
  [
    (lambda t: t + 'n1.JPEG\n', r'line 21: .n1\.JPEG. is no'),
    (lambda t: t + '\n \nn1.JPEG', r'line 23: .n1\.JPEG. is no'),
    (lambda t: t + '\n' + t.split('\n')[4], 'twice'),
    (lambda t: t + 'n1/2.txt\n', r'line 21: .n1/2\.txt. is no'),
    (lambda t: '', 'has no lines'),
    (lambda t: t + '\udcff', 'UTF-8'),
    (None, r'list\.txt cannot be read'),
  ],
)
def test_a_malformed_list_is_refused_in_a_sentence(tmp_path, change, said):
  path = on_disk.as_text(tmp_path)
  text = path.read_text()
  path.unlink()
  if change:
    path.write_text(change(text), errors='surrogateescape')
  with pytest.raises(errors.InputError, match=said):
    imagenet21k.read(path)
