"""Test examples, held out from an input that has no test part."""

import numpy as np
import scipy.sparse

from tff_xc import errors

# A stream of numpy generators: [0, stream].
_SAMPLE = 0


def by_fraction(
  labels: np.ndarray | scipy.sparse.csr_matrix, fraction: float, seed, flag: str = 'test_fraction'
) -> np.ndarray:
  """Draws the same share of every class, up to rounding.

  Of a class with c examples it draws fraction · c, rounded up or down at random.
  It draws no example without a label and none of a class with one example.
  Examples with sets of labels, [N, n], are drawn without regard to them. Returns
  numbers of examples, int64 [k], ascending; errors name the `flag`.
  """
  random = np.random.default_rng(seed)
  if scipy.sparse.issparse(labels):
    order = random.permutation(labels.shape[0])
  else:
    order, _, sizes = ranked_by_class(labels, random)
    order = order[sizes > 1]
  return _some(_spaced(order, fraction, random), f'--{flag}={fraction}')


def _spaced(order: np.ndarray, fraction: float, random) -> np.ndarray:
  """Returns a share of `order`, evenly spaced from a random start."""
  upto = np.floor(np.arange(len(order) + 1) * fraction + random.random())
  return order[np.diff(upto) > 0]


def by_client(owners: np.ndarray, fraction: float, seed, flag: str) -> np.ndarray:
  """Draws the same share of every client, as `by_fraction` of every class.

  `owners` int [N] are the examples' clients. Returns bool [N]: it is drawn.
  """
  random = np.random.default_rng(seed)
  order, _, sizes = ranked_by_class(owners, random)
  drawn = _spaced(order[sizes > 1], fraction, random)
  if not len(drawn):
    raise errors.InputError(
      f'--{flag}={fraction} holds out no example: no client has one to spare; give'
      ' clients with more examples, hold out more, or leave the flag out'
    )
  return np.isin(np.arange(len(owners)), drawn)


def owners_of(test_labels: np.ndarray, labels: np.ndarray, owners: np.ndarray, seed) -> np.ndarray:
  """Gives each test example to the owner of a random training example of its class.

  `labels` (or users) and `owners`, int [N], are those of the training examples;
  `test_labels` int [k]. Returns int64 [k], owners, or -1 for an example without a label
  or of a class that nobody has.
  """
  order = np.argsort(labels, kind='stable')
  first, last = (np.searchsorted(labels[order], test_labels, side) for side in ('left', 'right'))
  share = np.random.default_rng(seed).random(len(test_labels))
  places = first + (share * (last - first)).astype(np.int64)
  # The last of the owners is nobody.
  is_known = (first < last) & (test_labels >= 0)
  return np.append(owners[order], -1)[np.where(is_known, places, -1)]


def by_class(labels: np.ndarray, each: int, seed) -> np.ndarray:
  """Draws `each` examples of every class, and half of a class that has fewer."""
  if scipy.sparse.issparse(labels):
    raise errors.InputError(
      'examples with sets of labels have no test examples per class; take --test_fraction'
    )
  order, rank, sizes = ranked_by_class(labels, np.random.default_rng(seed))
  drawn = order[rank < np.minimum(each, sizes // 2)]
  return _some(drawn, f'--test_per_class={each}')


def sample(test: np.ndarray, size: int) -> np.ndarray:
  """Draws `size` of some numbers uniformly, the same in every run; 0: all."""
  if not 0 < size < len(test):
    return test
  random = np.random.default_rng([0, _SAMPLE])
  return test[np.sort(random.choice(len(test), size, replace=False))]


def _some(drawn: np.ndarray, flag: str) -> np.ndarray:
  if not len(drawn):
    raise errors.InputError(
      f'{flag} holds out no example, and classes of one example have none to'
      ' spare; hold out more, or leave the flag out'
    )
  return np.sort(drawn)


def ranked_by_class(labels: np.ndarray, random: np.random.Generator):
  """Returns labelled examples by class in random order, int64 [k] each.

  They are numbers, ranks within the class, and the class's size.
  """
  order = random.permutation(np.flatnonzero(labels >= 0))
  order = order[np.argsort(labels[order], kind='stable')]
  counts = np.bincount(labels[order], minlength=1)
  sizes = np.repeat(counts, counts)
  rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
  return order, rank, sizes
