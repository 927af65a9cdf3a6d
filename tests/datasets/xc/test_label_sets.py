"""Data sets with label sets: hashed features, clients, and the published format."""

import numpy as np
import scipy.sparse

from datasets.xc import federated as xc
from tff_xc.data import hashing


def part(examples, features=9, labels=4, seed=0):
  random = np.random.default_rng(seed)
  x = random.random([examples, features]) * (random.random([examples, features]) < 0.4)
  y = random.random([examples, labels]) < [0.6, 0.4, 0.1, 0.05]
  y[0] = False
  return xc.Part(scipy.sparse.csr_matrix(np.float32(x)), scipy.sparse.csr_matrix(y))


def test_values_of_one_bucket_are_added():
  features, _ = part(20)
  hashed = xc.hashed_features(features, 4)
  bucket = hashing.buckets(np.arange(9), 101, 4)
  dense, wanted = features.toarray(), np.zeros([20, 4])
  for feature in range(9):
    wanted[:, bucket[feature]] += dense[:, feature]
  np.testing.assert_allclose(hashed.toarray(), wanted, rtol=1e-6)
  assert hashed.has_sorted_indices
  assert xc.hashed_features(features, 0) is features
  np.testing.assert_array_equal(features.toarray(), dense)


def test_the_published_reading():
  train, test = part(41), part(230, seed=1)
  options = xc.Options(num_clients=2, published_reading=True)
  made = xc.of_sets('some', train, test, options)
  assert made.test.labels.shape[0] == 200
  for found, before in ((made.train.pool, train), (made.test, test)):
    size = found.labels.shape[0]
    empty = np.flatnonzero(before.labels[:size].toarray().sum(1) == 0)
    assert len(empty)
    after = found.labels.toarray()
    assert after[empty, 0].all()
    assert after.sum(1).min() == 1
    x = found.read(np.arange(size)).toarray()
    old = before.features[:size].toarray()
    for i in range(size):
      if i in empty and old[i].any():
        old[i, np.flatnonzero(old[i])[0]] = 0
    np.testing.assert_array_equal(x, old)


def test_the_frequencies_of_delicious_are_those_of_the_published_code(data_dir):
  options = xc.Options(published_reading=True)
  made = xc.load_sets('delicious', data_dir, options)
  counts = np.zeros(made.num_classes, int)
  lines = (data_dir / 'xc' / 'delicious_train.txt').read_text().splitlines()
  for line in lines[1:]:
    if not line.startswith(' '):
      counts[[int(label) for label in line.split()[0].split(',')]] += 1
  np.testing.assert_array_equal(made.propensity.label_counts, counts)
  assert made.train.pool.labels[:, [0]].sum() == counts[0] + 10


def test_validation_examples_are_with_no_client():
  train, test = part(80), part(7, seed=1)
  # The feature of an example is its number.
  x = scipy.sparse.csr_matrix(np.arange(1, 81, dtype=np.float32)[:, None])
  train, test = train._replace(features=x), test._replace(features=x[:7])

  def made(**options):
    options = xc.Options(num_clients=2, **options)
    return xc.of_sets('some', train, test, options)

  everything = made(validation=0)
  assert everything.validation is None
  assert len(everything.train.pool) == 80

  def numbers(pool):
    return pool.read(np.arange(len(pool))).toarray()[:, 0] - 1

  some = made(validation=0.25, seed=3)
  pools = some.validation, some.train.pool
  held_out, kept = map(numbers, pools)
  assert (len(held_out), len(kept)) == (20, 60)
  assert sorted([*held_out, *kept]) == list(range(80))
  for pool, places in zip(pools, (held_out, kept), strict=True):
    expected = train.labels[places.astype(int)].toarray()
    np.testing.assert_array_equal(pool.labels.toarray(), expected)
  for seed, same in ((3, True), (4, False)):
    again = numbers(made(validation=0.25, seed=seed).validation)
    assert (held_out == again).all() == same
