"""Epsilon compared with closed forms and published values."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize, stats

from tff_xc import errors
from tff_xc.measure import privacy_loss

ALL = privacy_loss.Sampling(privacy_loss.POISSON, 1.0)


def gaussian_epsilon(noise, delta):
  """Computes Theorem 8 of Balle and Wang, "Improving the Gaussian Mechanism", ICML 2018."""

  def excess(epsilon):
    a, b = 0.5 / noise, epsilon * noise
    return stats.norm.cdf(a - b) - math.exp(epsilon) * stats.norm.cdf(-a - b) - delta

  return optimize.brentq(excess, 0.0, 50.0)


def exact_epsilon(p, q, delta):
  """Returns epsilon of two distributions over the same outcomes, by the definition."""

  def excess(epsilon):
    factor = math.exp(epsilon)
    more = [np.maximum(a - factor * b, 0).sum() for a, b in ((p, q), (q, p))]
    return max(more) - delta

  return optimize.brentq(excess, 0.0, 50.0)


@pytest.mark.parametrize('rounds', [1, 4, 25])
def test_without_sampling_it_is_the_gaussian_mechanism(rounds):
  found = privacy_loss.Accountant(3.0, ALL, 1e-5).epsilon(rounds)
  exact = gaussian_epsilon(3.0 / math.sqrt(rounds), 1e-5)
  assert exact <= found <= exact + 0.02


def test_one_in_anothers_place_is_twice_as_far():
  fixed = privacy_loss.Sampling(privacy_loss.FIXED, 1.0)
  found = privacy_loss.Accountant(6.0, fixed, 1e-5).epsilon(3)
  assert found == privacy_loss.Accountant(3.0, ALL, 1e-5).epsilon(3)


def test_sampling_has_the_published_value():
  """The MNIST tutorial of TensorFlow Privacy has epsilon 1.18 by Renyi divergences.

  It uses 60,000 examples, batches of 250, noise 1.3, 15 epochs, and delta 1e-5.
  """
  sampling = privacy_loss.Sampling(privacy_loss.POISSON, 250 / 60_000)
  accountant = privacy_loss.Accountant(1.3, sampling, 1e-5)
  orders, divergences = accountant._divergences
  # Mironov's conversion, which the tutorial's accountant uses.
  of_orders = 3600 * divergences[1:] + math.log(1e5) / (orders[1:] - 1)
  assert of_orders.min() == pytest.approx(1.18, abs=0.005)
  # Loss distributions give smaller values.
  assert 0.8 < accountant.epsilon(3600) < accountant._renyi(3600) < 1.18


def test_a_fixed_sample_is_accounted_as_one():
  """The bound is above that of Poisson sampling with twice the noise."""
  fixed = privacy_loss.Sampling(privacy_loss.FIXED, 0.01)
  poisson = privacy_loss.Sampling(privacy_loss.POISSON, 0.01)
  found = privacy_loss.Accountant(4.0, fixed, 1e-5).epsilon(100)
  assert privacy_loss.Accountant(2.0, poisson, 1e-5).epsilon(100) < found < 1.5
  assert fixed.neighbors != poisson.neighbors


@pytest.mark.parametrize('z', [1.0, 4.0])
def test_two_of_four_clients_by_definition(z):
  """Compares with all six cohorts, in which another client may replace one client."""
  grid = np.linspace(-12 * z - 4, 12 * z + 4, 8001)
  worst = 0.0
  for others in itertools.combinations_with_replacement((-1, 0, 1), 3):
    p, q = (
      np.mean(
        [
          stats.norm.pdf(grid, sum(pair), z) * (grid[1] - grid[0])
          for pair in itertools.combinations((own, *others), 2)
        ],
        axis=0,
      )
      for own in (1, -1)
    )
    worst = max(worst, exact_epsilon(p, q, 1e-5))
  fixed = privacy_loss.Sampling(privacy_loss.FIXED, 0.5)
  found = privacy_loss.Accountant(z, fixed, 1e-5).epsilon(1)
  assert 0.75 * found < worst < found


def test_it_grows_with_rounds_and_without_noise_it_is_infinite():
  accountant = privacy_loss.Accountant(1.0, ALL, 1e-5)
  assert accountant.epsilon(0) == 0
  assert accountant.epsilon(1) < accountant.epsilon(2)
  assert privacy_loss.Accountant(0.0, ALL, 1e-5).epsilon(1) == math.inf


def test_the_smaller_bound_counts():
  sampling = privacy_loss.Sampling(privacy_loss.POISSON, 1e-4)
  accountant = privacy_loss.Accountant(4.0, sampling, 1e-5)
  assert accountant.epsilon(10**6) <= accountant._renyi(10**6) < 0.1


@pytest.mark.slow
def test_noise_for_an_epsilon():
  sampling = privacy_loss.Sampling(privacy_loss.POISSON, 0.05)
  found = privacy_loss.noise_multiplier(2.0, 1e-5, 50, sampling)

  def of(z):
    return privacy_loss.Accountant(z, sampling, 1e-5).epsilon(50)

  assert of(found) <= 2.0 < of(0.99 * found)
  rare = privacy_loss.Sampling(privacy_loss.POISSON, 0.01)
  small = privacy_loss.noise_multiplier(0.1, 1e-5, 100, rare)
  assert privacy_loss.Accountant(small, rare, 1e-5).epsilon(100) <= 0.1
  with pytest.raises(errors.InputError, match='dp_epsilon'):
    privacy_loss.noise_multiplier(1e-9, 1e-5, 10**6, ALL)
