"""Makes clients whose classes come from a Dirichlet distribution.

Hsu, Qi and Brown: Federated visual classification with real-world data
distribution, ECCV 2020, https://arxiv.org/abs/2003.08082, appendix B.1.

Client k's distribution of classes is q_k ~ Dir(alpha p). Here p has the share of each class
in the data, and alpha is the total concentration of all classes. The rule fills one client
after the other. It samples a class from q_k, gives the client an unused example of this
class, and repeats both steps until the client is full. When all examples of a class are
used, the rule removes the class from q_k and renormalises q_k (eq. 5). If no class of q_k is
left, the rule samples classes uniformly from all classes that still have unused examples.
With alpha = 0, each client has one class, and the number of clients with a class is in
proportion to p.
"""

import numpy as np

from datasets import examples as examples_lib
from tff_xc import errors, wording
from tff_xc.data import partition as partition_lib

# The smallest concentration of a class. Division by a smaller number may overflow.
_LEAST = 1e-300


def partition(
  examples: examples_lib.Examples,
  seed,
  *,
  concentration: float,
  clients: int,
  examples_per_client: int,
  size_deviation: float,
) -> partition_lib.Partition:
  """Assigns examples to clients '0' to 'K - 1'.

  Takes O(K · n + N log N) time. A client's examples keep their order, and examples with a
  label below 0 go to no client. If `examples_per_client` is 0, all labelled examples go to
  clients, and the sizes of clients differ by at most one. If `size_deviation` is not 0, the
  sizes of clients are log-normal, and `size_deviation` is the standard deviation of their
  logarithm. (The log-normal sizes are our addition. In the paper, synthetic clients have
  equal sizes and real clients do not.) Raises `errors.InputError` if there are too few
  examples.
  """
  labels, random = examples.labels, np.random.default_rng(seed)
  counts = np.bincount(labels[labels >= 0])
  present = np.flatnonzero(counts)
  left = counts[present]
  sizes = _sizes(int(left.sum()), clients, examples_per_client)
  if size_deviation:
    # A separate generator samples the sizes, so that they do not change other random numbers.
    apart = np.random.default_rng([seed, 1])
    sizes = _unequal(sum(sizes), clients, size_deviation, apart)
  # Sort the examples by class, in random order within each class.
  order = random.permutation(np.flatnonzero(labels >= 0))
  order = order[np.argsort(labels[order], kind='stable')]
  next_of = np.cumsum(left) - left
  weights = concentration * left / left.sum()
  only = _balanced(left, clients, random) if concentration == 0 else None
  owners = np.full(len(labels), -1, np.int32)
  for client in examples_lib.watched(range(clients), 'dealing', total=clients):
    if only is None:
      log_q = _log_dirichlet(weights, random)
    else:
      log_q = np.where(np.arange(len(left)) == only[client], 0.0, -np.inf)
    taken = draw_classes(log_q, sizes[client], left, random)
    before = np.cumsum(taken) - taken
    owners[order[np.repeat(next_of - before, taken) + np.arange(sizes[client])]] = client
    left -= taken
    next_of += taken
  return partition_lib.of_places(owners, list(map(str, range(clients))))


def draw_classes(
  log_q: np.ndarray, size: int, left: np.ndarray, random: np.random.Generator
) -> np.ndarray:
  """Samples the classes of a client; returns the number of examples of each class, int64 [n].

  `log_q` float64 [n] is the logarithm of q up to a constant, and `left` int [n] counts the
  unused examples of each class. The function samples `size` classes from q and drops the
  samples for which no example is left. The remaining samples have the distribution of the
  renormalised q (eq. 5). The function repeats the sampling for the dropped samples until it
  drops none.
  """
  taken = np.zeros(len(left), np.int64)
  while size:
    open_classes = np.flatnonzero(left - taken)
    # Use logarithms, because the probabilities of the remaining classes may underflow.
    log_of_open = log_q[open_classes]
    if (largest := log_of_open.max()) == -np.inf:
      log_of_open, largest = np.zeros(len(open_classes)), 0.0
    upto = np.cumsum(np.exp(log_of_open - largest))
    drawn = np.searchsorted(upto, random.random(size) * upto[-1], 'right')
    drawn = np.minimum(drawn, len(upto) - 1)  # Rounding may make an index too large by 1.
    count = np.bincount(drawn, minlength=len(open_classes))
    count = np.minimum(count, (left - taken)[open_classes])
    taken[open_classes] += count
    size -= int(count.sum())
  return taken


def _log_dirichlet(weights, random) -> np.ndarray:
  """Samples q ~ Dir(weights); returns log q up to a constant, float64 [n].

  Gamma(a) is distributed like Gamma(a + 1) · U^(1 / a) with U uniform in [0, 1]. The
  logarithm of this product does not underflow.
  """
  weights = np.maximum(weights, _LEAST)
  log_u = -random.standard_exponential(len(weights))
  return np.log(random.standard_gamma(weights + 1)) + log_u / weights


def _balanced(counts, num_clients: int, random) -> np.ndarray:
  """Assigns one class to each client, in proportion to `counts`; returns int [K]."""
  upto = np.cumsum(counts)
  middles = (2 * np.arange(num_clients) + 1) * int(upto[-1])
  classes = np.searchsorted(2 * num_clients * upto, middles, 'right')
  return random.permutation(classes)


def _unequal(total: int, num_clients: int, deviation: float, random):
  """Returns log-normal sizes of at least 1 that add up to `total`."""
  logs = deviation * random.standard_normal(num_clients)
  shares = np.exp(logs - logs.max())
  exact = shares / shares.sum() * (total - num_clients)
  sizes = np.floor(exact).astype(np.int64)
  # Give one more example to each of the clients with the largest remainders.
  order = np.argsort(sizes - exact, kind='stable')
  sizes[order[: total - num_clients - int(sizes.sum())]] += 1
  return (sizes + 1).tolist()


def _sizes(total: int, num_clients: int, each: int) -> list[int]:
  least = max(each, 1)
  if num_clients * least > total:
    most = total // least
    cure = f'--clients={most} or fewer' if most else 'labelled examples'
    if each > 1:
      cure += ', or a smaller --examples_per_client'
    raise errors.InputError(
      f'{wording.count(total, "training example")} cannot make'
      f' {wording.count(num_clients, "client")} of'
      f' {wording.count(least, "example")}; give {cure}'
    )
  if each:
    return [each] * num_clients
  bounds = np.arange(num_clients + 1) * total // num_clients
  return np.diff(bounds).tolist()
