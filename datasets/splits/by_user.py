"""Clients that are the users of the data."""

import random
from collections.abc import Sequence

import numpy as np

from datasets.splits import names as names_lib
from tff_xc import errors
from tff_xc.data import partition as partition_lib


def partition(
  users: np.ndarray,
  user_names: Sequence[str],
  *,
  min_examples: int = 1,
  kept: np.ndarray | None = None,
) -> partition_lib.Partition:
  """A client is a user with all of their examples, in their order.

  Args:
    users: int [N], each example's user, a place in `user_names`; below 0: nobody.
    user_names: their names, which are the clients' ids.
    min_examples: users with fewer are left out.
    kept: places of the users that may be clients; None: all.

  Raises:
    errors.InputError: there is no user, or none remains.
  """
  check_some(user_names)
  counts = np.bincount(users[users >= 0], minlength=len(user_names))
  remain = counts >= max(min_examples, 1)
  if kept is not None:
    remain &= np.isin(np.arange(len(remain)), kept)
  remaining = np.flatnonzero(remain).tolist()
  if not remaining:
    raise errors.InputError(
      f'no user of {len(user_names):,} remains; give data of more users, or'
      ' lower --min_examples'
    )
  return of_users(users, user_names, remaining)


def check_some(user_names: Sequence[str]) -> None:
  """Raises `errors.InputError` if all examples are nobody's."""
  if not user_names:
    raise errors.InputError(
      'all examples are of user NA, who is nobody; give data that name users, or'
      ' take another rule'
    )


def of_users(
  users: np.ndarray, user_names: Sequence[str], some: Sequence[int]
) -> partition_lib.Partition:
  """Returns a client for each user of `some`, in the order of their names.

  Args:
    users: as in `partition`.
    user_names: as in `partition`.
    some: places in `user_names`.
  """
  place_of = {user_names[user]: user for user in some}
  names = names_lib.in_order(place_of)
  rank = np.full(len(user_names) + 1, -1, np.int64)  # The last is nobody's.
  rank[[place_of[name] for name in names]] = np.arange(len(names))
  return partition_lib.of_places(rank[users], names)


def leaf_parts(
  sizes: np.ndarray,
  *,
  min_examples: int = 0,
  train_share: float = 0.9,
  seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the places of training users and of test users, as LEAF draws them.

  Of the users with `min_examples`, in their order, `random.Random(seed)` samples
  90 % to train: LEAF's split_data with `--spltseed`.

  Args:
    sizes: int [U], the users' numbers of examples.
    min_examples: users with fewer are in neither part.
    train_share: the share of the users that train.
    seed: 0 in the papers.
  """
  everyone = np.flatnonzero(sizes >= min_examples)
  drawn = random.Random(seed).sample(
    range(len(everyone)), int(train_share * len(everyone))
  )
  trains = np.zeros(len(everyone), bool)
  trains[drawn] = True
  return everyone[trains], everyone[~trains]
