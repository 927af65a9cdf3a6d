"""Groups of similar classes in the data sets glyphs and words."""

import numpy as np
import pytest

from datasets.procedural import features, glyphs
from tff_xc import errors

# The groups have 7 or 8 classes.
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
  # Unseen classes form their own groups.
  unseen = make(source, **SHAPE, retrieval_classes=45).retrieval
  assert len(np.unique(unseen.labels)) == 45


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


def test_the_groups_of_many_classes_are_the_same_in_training_and_test():
  n = 10**6
  many = {'classes_per_client': n // 2, 'examples_per_client': n // 2, 'max_test_examples': 100}
  quiet = {'variation': 0, 'feature_noise': 0.0, 'num_classes': n, 'num_clients': 1}
  dataset = make(features, class_groups=10**4, test_examples_per_class=1, **many, **quiet)
  train, test = dataset.train.pool, dataset.test
  found, places, of_test = np.intersect1d(train.labels, test.labels, return_indices=True)
  assert found.max() > 2**31 // 10**4
  np.testing.assert_array_equal(train.read(places), test.read(of_test))
