"""The Dirichlet rule: the skew in the papers, and a literal implementation of the text."""

import collections

import numpy as np
import pytest

from datasets import examples
from datasets.splits import dirichlet, rules
from tff_xc import errors
from tff_xc.measure import skew

# For 100 clients with 500 of 50,000 balanced examples, maps the concentration to the EMD.
BANDS = {
  10: {100: 0.28, 10: 0.73, 1: 1.45, 0.5: 1.60, 0.2: 1.70, 0.05: 1.76, 0: 1.80},
  100: {1000: 0.46, 100: 0.85, 10: 1.57, 5: 1.72, 1: 1.90, 0.5: 1.93, 0: 1.98},
}


def deal(labels, alpha=1.0, num_clients=100, seed=0, **settings):
  found = rules.deal(
    'dirichlet',
    examples.of_labels(labels),
    seed,
    concentration=alpha,
    clients=num_clients,
    **settings,
  )
  return found.train


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize(('classes', 'alpha'), [(n, alpha) for n in BANDS for alpha in BANDS[n]])
def test_the_papers_skew(classes, alpha, seed):
  labels = np.arange(50_000) % classes
  found = deal(labels, alpha, examples_per_client=500, seed=seed)
  assert found.client_ids == [str(k) for k in range(100)]
  assert set(found.sizes) == {500}
  assert len(np.unique(found.numbers)) == 50_000
  counts = skew.class_counts(found.owners(), labels[found.numbers], (len(found), classes))
  assert skew.emd(counts) == pytest.approx(BANDS[classes][alpha], abs=0.05)


def test_the_prior_is_each_class_share_of_the_examples():
  labels = np.repeat([0, 1, 2], [600, 300, 100])
  # With a huge concentration, q is the prior. The first client draws from all examples.
  first = deal(labels, 1e9, 2, examples_per_client=400).of_client(0)
  np.testing.assert_allclose(np.bincount(labels[first]) / 400, [0.6, 0.3, 0.1], atol=0.06)


def test_what_is_left_of_q_is_renormalised():
  random = np.random.default_rng(0)
  log_q = np.array([0.0, -2000.0, -2000.0 - np.log(3), -np.inf])
  left = np.array([5, 3000, 3000, 3000])
  taken = dirichlet.draw_classes(log_q, 2005, left, random)
  assert (taken[0], taken[3]) == (5, 0)
  assert taken[1] / taken[2] == pytest.approx(3, rel=0.1)
  # When no class with positive q has examples left, classes are drawn uniformly.
  log_q, left = np.array([0.0, -np.inf, -np.inf]), np.array([10, 9000, 1500])
  taken = dirichlet.draw_classes(log_q, 2010, left, random)
  assert taken[0] == 10
  assert taken[1] == pytest.approx(1000, rel=0.1)


@pytest.mark.filterwarnings('error')
def test_clients_of_one_class_and_as_many_as_its_share_allows():
  def classes_of(found):
    return [{*labels[found.of_client(k)]} for k in range(len(found))]

  for counts, expected in (([30, 20, 10], [1, 2, 3]), ([20] * 3, [2, 2, 2])):
    labels = np.random.default_rng(0).permutation(np.repeat([4, 0, 7], counts))
    owned = classes_of(deal(labels, alpha=0, num_clients=6, seed=2))
    shared = collections.Counter(label for [label] in owned)
    assert sorted(shared.values()) == expected
    for alpha in (1e-200, 1e-308, 5e-324):
      found = deal(labels, alpha, num_clients=4, examples_per_client=10)
      assert [len(classes) for classes in classes_of(found)] == [1] * 4


def test_clients_share_all_examples_and_keep_their_order():
  labels = np.array([0, 1, -1, 1, 0, 1, 0, 1])
  found = deal(labels, alpha=1, num_clients=2, seed=0)
  assert found.sizes.tolist() == [3, 4]
  assert sorted(found.numbers) == [0, 1, 3, 4, 5, 6, 7]
  for k in range(2):
    assert (np.diff(found.of_client(k)) > 0).all()
  again = deal(labels, alpha=1, num_clients=2, seed=0)
  np.testing.assert_array_equal(found.numbers, again.numbers)


@pytest.mark.parametrize(
  ('clients', 'each', 'message'),
  [
    (2, 3, '--clients=1 or fewer, or a smaller'),
    (6, 0, '1 example; give --clients=5 or fewer$'),
    (1, 7, 'a smaller'),
  ],
)
def test_too_few_examples(clients, each, message):
  with pytest.raises(errors.InputError, match=message):
    deal(np.zeros(5, int), 1, clients, examples_per_client=each)


@pytest.mark.parametrize('deviation', [0.5, 1.0, 10.0])
def test_sizes_are_log_normal_and_add_up(deviation):
  labels = np.arange(30_000) % 10

  def some(seed, **more):
    return deal(labels, 1, 300, seed, size_deviation=deviation, **more)

  found = some(0)
  sizes = np.diff(found.offsets)
  assert sizes.sum() == len(labels)
  assert sizes.min() >= 1
  assert len(np.unique(found.numbers)) == len(labels)
  if deviation < 10:
    logs = np.log(sizes)
    np.testing.assert_allclose(logs.std(), deviation, rtol=0.15)
    # The median of the logarithms is near their mean.
    assert abs(logs.mean() - np.median(logs)) < 0.2 * deviation
  again = some(0)
  np.testing.assert_array_equal(found.numbers, again.numbers)
  other = np.diff(some(1).offsets)
  assert (other != sizes).any()
  fewer = some(0, examples_per_client=50)
  assert len(fewer.numbers) == 300 * 50
