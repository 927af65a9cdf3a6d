"""Synthetic item histories of users, similar to a small data set of film ratings.

Items belong to groups. Within a group, the popularity of items follows Zipf's law, and every
item has a fixed successor. A user likes a few groups. A user's next item is the successor of
the user's last item, or a random item of a group that the user likes, or a random item of any
group. Random items are drawn by popularity. So the popularity of items predicts the next item
a little, and a user's last items predict the next item better.
"""

from typing import NamedTuple

import numpy as np

from datasets import items as items_lib
from tff_xc import errors

# The share of items from liked groups among the items that are not successors.
_LIKED = 0.5 / 0.65
_GROUPS_OF_USER = 3


class Options(NamedTuple):
  """The options of the data set."""

  num_users: int = 943
  num_items: int = 1682  # The number of classes n.
  # The median of the users' numbers of items. These numbers have a log-normal distribution, and
  # their logarithm has the standard deviation 0.7.
  items_per_user: float = 40.0
  skew: float = 0.8  # The popularity of the item with rank r in its group is r^-skew.
  seed: int = 0
  follows: float = 0.35  # The share of items that are the successor of the user's last item.


def draw(options: Options) -> items_lib.Histories:
  """Generates the histories. A user takes no item twice."""
  users, n = options.num_users, options.num_items
  if n < 4 or users < 2 or users * options.items_per_user > 10**8:
    raise errors.InputError(
      f'users: {users}, items of each: {options.items_per_user:g} of {n}; expected at least 2'
      ' users, 4 items, and at most 10^8 rows'
    )
  random = np.random.default_rng(options.seed)
  groups = max(2, int(n**0.5) // 2)
  group = random.permutation(np.arange(n) % groups)
  members = [np.flatnonzero(group == g) for g in range(groups)]
  following, shares = np.empty(n, np.int64), []
  for of in members:
    following[of] = np.roll(of, -1)
    share = np.cumsum(np.arange(1, len(of) + 1) ** -options.skew)
    shares.append(share / share[-1])
  liked = random.integers(groups, size=[users, _GROUPS_OF_USER])
  sizes = np.exp(np.log(options.items_per_user) + 0.7 * random.normal(size=users))
  sizes = np.clip(sizes.astype(int), 3, n // 2)
  taken = [
    _of_user(random, size, own, members, shares, following, options.follows)
    for size, own in zip(sizes, liked, strict=True)
  ]
  lengths = np.array([len(t) for t in taken])
  owners = np.repeat(np.arange(users, dtype=np.int32), lengths)
  return items_lib.Histories(
    owners,
    np.concatenate(taken).astype(np.int32),
    np.concatenate([np.arange(len(t), dtype=float) for t in taken]),
    [str(u) for u in range(users)],
    [str(i) for i in range(n)],
  )


def _of_user(random, size, liked, members, shares, following, follows) -> np.ndarray:
  """Returns distinct items, in the order in which the user takes them."""
  steps = 2 * size  # Some steps choose an item that the user already has.
  kinds, draws = random.random([2, steps])
  own = liked[random.integers(len(liked), size=steps)]
  anything = random.integers(len(members), size=steps)
  last, found = -1, {}
  for kind, draw, mine, other in zip(kinds, draws, own, anything, strict=True):
    if last >= 0 and kind < follows:
      last = following[last]
    else:
      g = mine if kind < follows + (1 - follows) * _LIKED else other
      last = members[g][np.searchsorted(shares[g], draw, 'right')]
    found.setdefault(int(last))
    if len(found) == size:
      break
  return np.fromiter(found, np.int64)
