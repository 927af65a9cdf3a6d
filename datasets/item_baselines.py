"""Scores three baselines on item histories. The baselines need no training.

A row is one item of a user's history. Each baseline ranks all items by what it counts in the
training rows:

  popularity    ranks items by their numbers of rows.
  markov        ranks item b by how often b came directly after the user's last item. Ties
                go to the more popular item.
  cooccurrence  ranks item b by the sum of count(a, b) / ((sqrt(popularity(b)) + 5) r) over
                the user's last ten items a. r is 1 for the newest item, 2 for the item
                before, and so on. count(a, b) is the sum of 1 / k over all times that b
                came k <= 5 items after a. Ties go to the item with the lower index.
"""

from collections.abc import Iterator

import numpy as np
import scipy.sparse

from tff_xc.data import pool as pool_lib

_WINDOW, _RECENT, _SHRINKAGE = 5, 10, 5.0
_AT_ONCE = 2**20  # The number of scores in a block of examples is at most about this.
RANK = 10  # The cutoff k of hit@k and nDCG@k.


def scores(
  users: np.ndarray,
  items: np.ndarray,
  is_train: np.ndarray,
  before: pool_lib.Ranges,
  labels: np.ndarray,
  leave_out_seen: bool,
) -> dict[str, dict[str, float]]:
  """Returns hit@k and nDCG@k of each baseline, by name.

  `users` and `items` int [N] are the rows, sorted by user and then by time. `is_train`
  bool [N] marks the training rows. `before` has the earlier items of each test example, and
  `labels` int [e] is the item to predict. `leave_out_seen` removes an example's earlier
  items from its ranking.
  """
  n = before.size
  popularity = np.bincount(items[is_train], minlength=n)
  by_number = np.arange(n)
  by_popularity = np.empty(n, np.int64)
  by_popularity[np.argsort(-popularity, kind='stable')] = by_number
  counts = [_pairs(users, items, is_train, age, n) for age in range(1, _WINDOW + 1)]
  weights = 1 / (np.sqrt(popularity) + _SHRINKAGE)
  near = sum(each / age for age, each in enumerate(counts, 1))
  near = near @ scipy.sparse.diags(weights)
  nothing = scipy.sparse.csr_matrix((n, n))
  return {
    name: _of_ranks(_ranks(before, labels, leave_out_seen, *how))
    for name, how in (
      ('popularity', (nothing, 1, by_popularity)),
      ('markov', (counts[0], 1, by_popularity)),
      ('cooccurrence', (near.tocsr(), _RECENT, by_number)),
    )
  }


def _pairs(users, items, is_train, age: int, n: int) -> scipy.sparse.csr_matrix:
  """Counts how often item b came `age` items after item a; returns [n, n], indexed by (a, b)."""
  first, second = slice(None, -age), slice(age, None)
  kept = (users[first] == users[second]) & is_train[first] & is_train[second]
  places = items[first][kept], items[second][kept]
  ones = np.ones(len(places[0]))
  return scipy.sparse.coo_matrix((ones, places), (n, n)).tocsr()


def _ranks(before, labels, leave_out_seen, counts, recent, order) -> np.ndarray:
  """Returns the rank of each label among all items, from 0, int [e].

  The score of an item is the sum of its `counts` after the example's `recent` newest items,
  with the weights 1, 1/2, 1/3 and so on. Ties go to the item with the lower `order` int [n].
  """
  newest = before._replace(starts=np.maximum(before.starts, before.stops - recent))
  ranks = [np.zeros(0, np.int64)]
  for part in _blocks(newest, before.lengths, np.diff(counts.indptr)):
    sums = newest.some(part).matrix(by_age=True).astype(np.float64) @ counts
    of_labels, rows = labels[part], np.arange(sums.shape[0])
    wanted = np.asarray(sums[rows, of_labels]).ravel()
    places = order[of_labels]
    seen = before.some(part).matrix()
    if not leave_out_seen:
      seen = scipy.sparse.csr_matrix(seen.shape, dtype=bool)
    # Items with a positive sum come first. All other items follow in `order`.
    sums.data[sums.data == 0] = -1.0
    scored = (sums - sums.multiply(seen)).tocoo()
    value, owner = scored.data, scored.row
    is_before = order[scored.col] < places[owner]
    ahead = (value > wanted[owner]) | ((value == wanted[owner]) & is_before)
    rank = np.bincount(owner, ahead & (value > 0), minlength=len(rows))
    others = (sums.astype(bool) + seen).tocoo()
    skipped = np.bincount(others.row, order[others.col] < places[others.row], minlength=len(rows))
    ranks.append(rank + (wanted <= 0) * (places - skipped))
  return np.concatenate(ranks).astype(np.int64)


def _blocks(newest: pool_lib.Ranges, more, sizes) -> Iterator[slice]:
  """Returns slices of examples with at most about `_AT_ONCE` scores.

  The number of scores of an example is its entry in `more` int [e], plus the entry in `sizes`
  int [n] of each of its recent items.
  """
  each = np.append(0, np.cumsum(sizes[newest.ids]))
  upto = np.cumsum(each[newest.stops] - each[newest.starts] + more)
  starts = np.flatnonzero(np.diff(upto // _AT_ONCE, prepend=-1)).tolist()
  return map(slice, starts, [*starts[1:], len(upto)])


def _of_ranks(ranks: np.ndarray) -> dict[str, float]:
  hits = ranks < RANK
  gains = np.where(hits, 1 / np.log2(ranks + 2.0), 0.0)
  return {f'hit@{RANK}': float(hits.mean()), f'ndcg@{RANK}': float(gains.mean())}
