"""What the three sets share: users that become clients and a test."""

import numpy as np

from datasets.leaf import users as leaf_users
from tff_xc.data import pool


def test_a_sample_is_uniform_over_the_test_of_all_users():
  sizes = np.array([10, 200, 800])
  dataset = leaf_users.federated(
    'set',
    1,
    pool.in_memory(np.arange(1010), np.zeros(1010, int)),
    leaf_users.Users(['a', 'b', 'c'], np.cumsum(sizes) - sizes, sizes, None),
    (np.array([0]), np.array([1, 2])),
    test_examples=200,
  )
  drawn = dataset.test.read(np.arange(200)) - 10
  assert len(set(drawn)) == 200
  counts = np.bincount(drawn // 100, minlength=10)
  # Each is hypergeometric, 20 on average with a standard deviation of 3.8.
  assert len(counts) == 10
  assert (abs(counts - 20) < 12).all()
