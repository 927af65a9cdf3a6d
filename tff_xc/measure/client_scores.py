"""Scores a model on each client's held-out examples."""

from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse

from tff_xc import errors
from tff_xc.data import client_data, partition as partition_lib, pool as pool_lib
from tff_xc.lazy import pd
from tff_xc.measure import skew

# The values of the column `part` in the result of `clients`.
TRAINED, UNSEEN = 'trained', 'unseen'
# `groups` makes at most `_GROUPS` groups, and needs at least `_LEAST` clients.
_GROUPS, _LEAST = 4, 8
# NumPy's generator in `drawn` is seeded with [seed, this number].
_DRAWN = 4


def top1(
  pool: pool_lib.Pool,
  held_out: partition_lib.Partition,
  predict: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
  """Returns float64 [K], the share of each client's examples with a right prediction.

  `predict` maps indices of examples, int [k], to their first-ranked classes, int [k]. A
  prediction is right if it is the example's class or one of its labels. Examples without
  labels do not count. The result is nan for a client without examples that count.
  """
  numbers, owners = held_out.numbers, held_out.owners()
  labels = pool.labels[numbers]
  if scipy.sparse.issparse(labels):
    counted = np.diff(labels.indptr) > 0
    numbers, owners, labels = numbers[counted], owners[counted], labels[counted]
  if not len(numbers):
    return np.full(len(held_out), np.nan)
  best = predict(numbers)
  if scipy.sparse.issparse(labels):
    found = labels[np.arange(len(best)), np.maximum(best, 0)]
    hits = np.asarray(found).ravel() & (best >= 0)
  else:
    hits = best == labels
  counts = np.bincount(owners, minlength=len(held_out))
  right = np.bincount(owners, hits, minlength=len(held_out))
  return np.where(counts > 0, right / np.maximum(counts, 1), np.nan)


def statistics(scores: np.ndarray) -> dict[str, float]:
  """Returns mean, median, p10, worst and std of scores float [K], ignoring nan.

  `p10` is the 10th percentile. `worst` is the mean of the lowest tenth of scores (at least one
  score). `std` is the population standard deviation. Without scores, all results are nan.
  """
  ranked = np.sort(scores[~np.isnan(scores)])
  if not len(ranked):
    return dict.fromkeys(('mean', 'median', 'p10', 'worst', 'std'), np.nan)
  return {
    'mean': float(ranked.mean()),
    'median': float(np.median(ranked)),
    'p10': float(np.quantile(ranked, 0.1)),
    'worst': float(ranked[: -(-len(ranked) // 10)].mean()),
    'std': float(ranked.std()),
  }


def parts(
  dataset: client_data.FederatedDataset,
) -> Iterator[tuple[str, partition_lib.Partition, partition_lib.Partition]]:
  """Yields (part, training examples, held-out examples) of training clients and unseen clients.

  Raises InputError if no client of the data set has held-out examples.
  """
  found = []
  if dataset.held_out is not None:
    found.append((TRAINED, dataset.train.partition, dataset.held_out))
  if dataset.unseen is not None:
    found.append((UNSEEN, dataset.unseen.train, dataset.unseen.held_out))
  if not any(len(held_out.numbers) for _, _, held_out in found):
    raise errors.InputError(
      f'no client of {dataset.name} has held-out examples of its own; train with'
      ' --client_test_fraction=0.2, say'
    )
  yield from found


def clients(dataset: client_data.FederatedDataset) -> 'pd.DataFrame':
  """Returns a table with one row for each client of `parts`, in the order of the parts.

  The columns `client` and `part` have the client's id and part. `training_examples` and
  `test_examples` are numbers of examples. `classes` is the number of distinct classes of all
  these examples.
  """
  tables = []
  for part, train, held_out in parts(dataset):
    numbers = np.concatenate([train.numbers, held_out.numbers])
    owners = np.concatenate([train.owners(), held_out.owners()])
    labels = dataset.train.pool.labels[numbers]
    if scipy.sparse.issparse(labels):
      owners = np.repeat(owners, np.diff(labels.indptr))
      labels = labels.indices
    shape = len(train), dataset.num_classes
    columns = {
      'client': train.client_ids,
      'part': part,
      'training_examples': train.sizes,
      'test_examples': held_out.sizes,
      'classes': np.diff(skew.class_counts(owners, labels, shape).indptr),
    }
    tables.append(pd.DataFrame(columns))
  return pd.concat(tables, ignore_index=True)


def groups(values: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
  """Yields (least value, largest value, members bool [K]) for groups of similar clients.

  The quartiles of `values`, int [K], separate the groups. There are at most four groups, with
  about equal numbers of clients. Yields nothing if all clients would be in one group, or if
  there are fewer than eight clients.
  """
  if len(values) < _LEAST:
    return
  share = np.arange(1, _GROUPS) / _GROUPS
  starts = np.unique(np.quantile(values, share, method='higher'))
  place = np.searchsorted(starts, values, side='right')
  if len(np.unique(place)) < 2:
    return
  for group in np.unique(place):
    inside = place == group
    yield int(values[inside].min()), int(values[inside].max()), inside


def drawn(dataset: client_data.FederatedDataset, count: int, seed: int) -> partition_lib.Partition:
  """Draws `count` training clients with held-out examples, and returns these examples.

  Raises InputError if fewer clients have held-out examples.
  """
  sizes = np.zeros(0, int)
  if dataset.held_out is not None:
    sizes = dataset.held_out.sizes
  some = np.flatnonzero(sizes)
  if count > len(some):
    fewer = f'give --evaluate_clients={len(some)} or fewer'
    if not len(some):
      fewer = 'give --client_test_fraction=0.2, say, too'
    raise errors.InputError(
      f'--evaluate_clients={count}: more than the training clients with held-out'
      f' examples of their own, {len(some):,}; {fewer}'
    )
  random = np.random.default_rng([seed, _DRAWN])
  return dataset.held_out.some(np.sort(random.choice(some, count, replace=False)))
