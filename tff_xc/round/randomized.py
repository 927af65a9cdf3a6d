"""Requests by randomized response, with permanent and instantaneous bits.

Niu, Wu, Tang, Hua, Jia, Lv, Wu, Chen: "Billion-Scale Federated Learning on Mobile
Clients: A Submodel Design with Tunable Privacy", MobiCom 2020. The two kinds of bits
come from RAPPOR (Erlingsson, Pihur, Korolova, CCS 2014, arXiv:1407.6981).
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import scipy.special
import tensorflow as tf

from tff_xc.round import randomness, request


class Response(NamedTuple):
  """The probabilities of a client's random bits.

  Each class has a permanent bit, and one more bit in each round.
  """

  own: float  # Probability that a class of the client has the permanent bit 1.
  other: float  # Probability that any other class has the permanent bit 1.
  stays: float  # Probability that a class with the permanent bit 1 is in a request.
  appears: float  # Probability that a class with the permanent bit 0 is in a request.

  def in_request(self, permanent: float) -> float:
    """Returns the probability that a class is in a request.

    `permanent` is the probability that the class has the permanent bit 1.
    """
    return permanent * self.stays + (1 - permanent) * self.appears

  def log_likelihoods(self, times: int, requests: int) -> tuple[float, float]:
    """Returns the log probability that the first `times` of `requests` requests have a class.

    The later requests do not have the class. The first returned value is for a class of the client,
    and the second is for any other class. With many requests, the probabilities themselves would
    underflow in float64.
    """
    xlogy = scipy.special.xlogy
    ones, zeros = (
      xlogy(times, q) + xlogy(requests - times, 1 - q) for q in (self.stays, self.appears)
    )

    def either(p):
      return np.logaddexp(xlogy(1, p) + ones, xlogy(1, 1 - p) + zeros)

    return float(either(self.own)), float(either(self.other))

  def epsilon(self, requests: int = 1) -> float:
    """Returns the epsilon of a client's first `requests` requests together.

    Consider the probability of these requests if a class is the client's own, and their probability
    if this class is not the client's own. Epsilon bounds the log of the ratio of the two
    probabilities. For two clients that differ in k classes, the bound is k epsilon.
    """
    found = 0.0
    for times in range(requests + 1):
      own, other = self.log_likelihoods(times, requests)
      if own != other:  # `own` and `other` may both be minus infinity.
        found = max(found, abs(own - other))
    return found


def response(epsilon: float, negatives: int, num_rows: int, renewed: float) -> Response:
  """Returns the probabilities of requests that together have at most `epsilon`.

  On average, a request has m = `negatives` classes that are not the client's own, and as many of
  the client's own classes as `epsilon` allows. Each request replaces a share `renewed` of the
  classes with permanent bit 1 by classes with permanent bit 0. If `renewed` is at least 1 - m / n,
  requests reveal nothing.
  """
  other = negatives / num_rows
  own = min(math.exp(epsilon) * other, 1 - math.exp(-epsilon) * (1 - other))
  renewed = min(renewed, 1 - other)
  return Response(own, other, 1 - renewed, renewed * other / (1 - other))


@dataclasses.dataclass(frozen=True)
class Randomized(request.OwnAndSampled):
  """Requests each class at random, with a higher probability for the client's own classes.

  A client draws a permanent bit for every class once, and keeps it over all rounds. (This
  simulation does not store the bits, but computes them from the run's seed, the client id and the
  client's own classes.) In every round, the client requests a class with a probability that depends
  only on the class's permanent bit.

  All requests of a client together are therefore epsilon-differentially private in the local model:
  they hide whether a given class is the client's own. The guarantee holds as long as the client's
  own classes do not change. `response.epsilon(r)` is the epsilon of r requests. The guarantee
  covers only requests, not updates or numbers of examples.

  The length of a request is random. A request has room for m other classes plus 6 standard
  deviations. A longer request, which has a probability below 1e-8, omits ids at random.

  If one of the client's own classes is missing from a request, the client leaves the examples of
  this class out of the round.

  Attributes:
    epsilon: the epsilon of all requests of a client together, for any number of requests.
    renewed: see `response`.
  """

  _: dataclasses.KW_ONLY
  schedule: str = request.RANDOMIZED
  epsilon: float = 3.0

  omits = True

  def __post_init__(self):
    if self.equal_negatives or not 0 < self.negatives < self.num_rows:
      raise ValueError('randomized requests need 0 < m < n, of all clients alike')

  @property
  def response(self) -> Response:
    return response(self.epsilon, self.negatives, self.num_rows, self.renewed)

  @property
  def _most_negatives(self) -> int:
    return self.negatives + math.ceil(6 * math.sqrt(self.negatives)) + 8

  def mean_rows(self, own):
    bits = self.response
    found = own * bits.in_request(bits.own)
    found = found + (self.num_rows - own) * bits.in_request(bits.other)
    return np.where(own > 0, found, 0.0)

  def _requested(self, own, seed, lasting):
    p, most, size = self.response, self._most_negatives, tf.size(own)
    others = self.num_rows - size
    kept = _uniform(size, lasting.seed, 0) < p.own
    likely = tf.where(kept, *(tf.constant(q, tf.float64) for q in p[2:]))
    asked = _uniform(size, seed, 2) < likely
    permanent, count = _each_with(p.other, lasting.seed, others, most, self.num_rows)
    appear, _ = _each_with(p.appears, seed, others - count, most, self.num_rows)
    stay = tf.boolean_mask(permanent, _uniform(count, seed, 3) < p.stays)
    ranks = tf.concat([stay, request.skip(appear, tf.sort(permanent))], axis=0)
    # A client without examples requests nothing.
    ranks = ranks[: tf.where(size > 0, tf.size(ranks), 0)]
    places = tf.cast(tf.where(asked)[:, 0], tf.int32)
    return places, request.skip(ranks, own)


def _uniform(count, seed, purpose: int) -> tf.Tensor:
  return tf.random.stateless_uniform([count], randomness.step_seed(seed, purpose), dtype=tf.float64)


def _each_with(
  probability: float, seed, population, most: int, max_population: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Selects each number below `population` with this probability. Returns (numbers, count).

  The function selects at most `most` numbers. To avoid a draw for each number below `population`,
  the function first draws how many numbers it selects, and then draws the numbers.
  """
  count = tf.random.stateless_binomial(
    [],
    randomness.step_seed(seed, 4),
    tf.cast(population, tf.float64),
    tf.constant(probability, tf.float64),
  )
  drawn = request.sample_distinct(randomness.step_seed(seed, 5), most, population, max_population)
  count = tf.minimum(count, tf.size(drawn))
  return drawn[:count], count
