"""Groups of similar classes, of handwriting and of features."""

import tracemalloc

import numpy as np
import pytest

from datasets.procedural import features, glyph_strokes, glyphs
from tff_xc import errors

# Groups of 7 or 8 classes.
SHAPE = {
  'num_classes': 45,
  'num_clients': 200,
  'classes_per_client': 6,
  'examples_per_client': 8,
  'class_groups': 6,
  'seed': 3,
}
GROUP = np.arange(45) * 6 // 45


def make(source, **changes):
  return source.load_preset(source.__name__.rpartition('.')[2], **changes)


def held(dataset):
  """Returns bool [clients, n], which classes clients have."""
  owners, labels = dataset.train.owned_labels()
  has = np.zeros([len(dataset.train.client_ids), dataset.num_classes], bool)
  has[owners, labels] = True
  return has


@pytest.mark.parametrize('source', [glyphs, features])
def test_classes_of_a_group_are_nearer_to_each_other_than_to_others(source):
  def ratio(**changes):
    shape = SHAPE | {'test_examples_per_class': 1, 'variation': 0} | changes
    quiet = {'feature_noise': 0.0} if source is features else {}
    test = make(source, **shape, **quiet).test
    x = test.read(np.arange(45)).reshape(45, -1).astype(float)
    assert len(np.unique(x, axis=0)) == 45
    distances = np.sqrt(((x[:, None] - x) ** 2).sum(axis=2))
    alike = GROUP[:, None] == GROUP
    within = distances[alike & ~np.eye(45, dtype=bool)].mean()
    return within / distances[~alike].mean()

  assert ratio() < 0.8
  assert 0.9 < ratio(class_groups=0) < 1.1
  # Unseen classes form groups of their own.
  unseen = make(source, **SHAPE, retrieval_classes=45).retrieval
  assert len(np.unique(unseen.y)) == 45


@pytest.mark.parametrize(('share', 'own'), [(1.0, 6), (0.75, 4), (0.3, 2)])
def test_clients_have_the_share_of_their_classes_from_one_group(share, own):
  has = held(make(features, **SHAPE, group_share=share))
  assert (has.sum(axis=1) == 6).all()
  of_group = np.stack([has[:, g == GROUP].sum(axis=1) for g in range(6)], 1)
  most = of_group.max(axis=1)
  assert most.min() >= own
  # The others are of any class, also of the group.
  more = (6 - own) * (7.5 - own) / (45 - own)
  np.testing.assert_allclose(most.mean(), own + more, atol=0.5)
  # Each group and each class is drawn by about as many clients.
  for counts in (of_group.sum(axis=0), has.sum(axis=0)):
    np.testing.assert_allclose(counts, counts.mean(), rtol=0.6)


def test_a_group_smaller_than_the_share_is_held_whole():
  shape = {'classes_per_client': 20, 'examples_per_client': 20}
  has = held(make(features, **{**SHAPE, **shape}, group_share=1.0))
  assert (has.sum(axis=1) == 20).all()
  assert all(any(row[g == GROUP].all() for g in range(6)) for row in has)


@pytest.mark.parametrize('groups', [0, 1])
def test_without_groups_digits_are_those_of_before(groups):
  shape = {**SHAPE, 'num_classes': 60, 'num_clients': 12}
  dataset = make(glyphs, **{**shape, 'class_groups': groups})
  first = [53, 23, 53, 45, 33, 14, 33, 20, 35, 46, 21, 41, 41, 20, 39, 21]
  assert dataset.train.pool.y[:16].tolist() == first
  keys = glyph_strokes.mix(3, 0, np.arange(60))
  _, kind, present = glyph_strokes.program(keys)
  assert kind[3].tolist() == [0, 0, 3, 4]
  assert present[:4].sum(axis=1).tolist() == [3, 2, 2, 2]
  # The images are of these programs.
  number = np.array([5])
  hand, drawing = glyph_strokes.mix(3, 1, 0), glyph_strokes.mix(3, 2, 0, 5)
  drawn = glyph_strokes.draw(keys[14:15], hand, drawing, image_size=28, variation=1)
  np.testing.assert_array_equal(dataset.train.pool.read(number), drawn)


@pytest.mark.parametrize('source', [glyphs, features])
def test_groups_are_determined_by_the_seed(source):
  shape = SHAPE | {'group_share': 0.5}
  a, b, c = (make(source, **{**shape, 'seed': seed}) for seed in (3, 3, 4))
  numbers = np.arange(0, len(a.train.pool), 7)
  np.testing.assert_array_equal(a.train.pool.y, b.train.pool.y)
  # In another order, and together with others.
  np.testing.assert_array_equal(a.train.pool.read(numbers), b.train.pool.read(numbers[::-1])[::-1])
  assert (a.train.pool.y != c.train.pool.y).any()
  assert (a.train.pool.read(numbers) != c.train.pool.read(numbers)).any()


def test_no_memory_grows_with_the_number_of_classes():
  tracemalloc.start()
  shape = {'num_classes': 10**7, 'class_groups': 1000, 'group_share': 0.5}
  dataset = make(features, **shape, max_test_examples=20)
  dataset.train.examples('hand07')
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < 10**7


@pytest.mark.parametrize(
  ('given', 'word'),
  [
    ({'class_groups': 46}, 'class_groups is 46'),
    ({'class_groups': -1}, 'class_groups'),
    ({'group_share': 1.5}, 'group_share is 1.5'),
    ({'group_share': float('nan')}, 'group_share'),
    ({'class_groups': 0, 'group_share': 0.5}, 'needs groups'),
    ({'class_groups': 1, 'group_share': 0.5}, 'needs groups'),
    ({'consecutive_classes': True, 'group_share': 0.5}, 'consecutive_classes'),
    ({'concentration': 0.0, 'group_share': 0.5}, 'concentration'),
    ({'class_shares': ((45, 1.0),), 'group_share': 0.5}, 'class_shares'),
  ],
)
@pytest.mark.parametrize('source', [glyphs, features])
def test_groups_that_cannot_be_are_refused(source, given, word):
  with pytest.raises(errors.InputError, match=word):
    make(source, **SHAPE | given)


@pytest.mark.parametrize('given', [{'num_features': 0}, {'feature_noise': -1}, {'num_classes': 1}])
def test_features_that_cannot_be_are_refused(given):
  with pytest.raises(errors.InputError, match=next(iter(given))):
    make(features, **given)


def test_features_have_the_shape_of_landmarks():
  dataset = features.load_preset('features-landmarks', num_features=8)
  assert (dataset.num_classes, len(dataset.train.client_ids)) == (2028, 1262)
  x, y = dataset.train.examples('hand0003')
  assert (x.dtype, x.shape) == (np.float32, (len(y), 8))
  assert np.isfinite(dataset.train.pool.read(np.arange(20_000))).all()
