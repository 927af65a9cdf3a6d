"""Hashes of labels and features, compared with published numbers and scikit-learn."""

import numpy as np
import pytest
import tensorflow as tf

from tff_xc.data import hashing

IDS = [0, 1, 2, 3, 4, 3992]
# Hashes of `IDS` in FedMLH's published code, by (number of buckets, seed).
VECTORS = {
  (250, 0): [54, 22, 213, 5, 225, 29],
  (250, 1): [195, 156, 198, 173, 129, 213],
  (250, 2): [114, 204, 46, 141, 57, 139],
  (250, 3): [143, 203, 173, 242, 3, 56],
  (1000, 0): [54, 522, 463, 505, 975, 29],
  (4000, 0): [1054, 522, 2463, 3505, 3975, 29],
  (5000, 0): [4054, 4522, 2463, 4505, 4975, 4029],
}


@pytest.mark.parametrize(('size', 'seed'), VECTORS)
def test_the_published_vectors(size, seed):
  np.testing.assert_array_equal(hashing.buckets(IDS, seed, size), VECTORS[size, seed])


def test_tensorflows_hashes_are_scikit_learns():
  ids = np.concatenate([np.arange(5000), [2**31 - 1]]).astype(np.int32)
  for size in (7, 250, 1000, 4000, 5000):
    found = hashing.buckets_in_tables(tf.constant(ids), 8, size).numpy()
    for seed in range(8):
      wanted = hashing.buckets(ids, seed, size)
      np.testing.assert_array_equal(found[:, seed], wanted)


def test_other_ids_are_refused_and_features_have_a_seed_of_their_own():
  for ids in ([2**31], [-(2**31) - 1], [1.5], ['a']):
    with pytest.raises(ValueError, match='only numbers of int32'):
      hashing.buckets(ids, 0, 7)
  found = hashing.buckets([0, 1, 2, 3, 4, 4999], hashing.FEATURE_SEED, 300)
  np.testing.assert_array_equal(found, [21, 24, 28, 278, 64, 244])
