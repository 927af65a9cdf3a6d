"""Loads LEAF's data sets, and TFF's versions of these data sets, as federated data.

LEAF splits the users: `random.Random(0)` samples 90 % of the users for training. The
examples of all other users are the test set.
"""

import functools
import os

import numpy as np

from datasets.leaf import celeba, femnist, shakespeare, tff_sets, users as leaf_users
from datasets.splits import hold_out, partitions
from tff_xc import errors
from tff_xc.data import client_data, partition, pool as pool_lib

_CHARACTERS = {'alphabet': shakespeare.ALPHABET}
# LEAF stretches photographs of any shape to squares.
_PREPROCESSING = {
  'celeba': {'fit': 'stretch'},
  'shakespeare': _CHARACTERS,
  'shakespeare-tff': _CHARACTERS,
}
# The reader and the number of classes of each data set.
_SETS = {
  'femnist': (femnist.read, femnist.NUM_CLASSES),
  'celeba': (celeba.read, celeba.NUM_CLASSES),
  'shakespeare': (shakespeare.read, shakespeare.NUM_CLASSES),
  'emnist-tff': (tff_sets.read_emnist, femnist.NUM_CLASSES),
  'celeba-tff': (tff_sets.read_celeba, celeba.NUM_CLASSES),
  'shakespeare-tff': (tff_sets.read_shakespeare, shakespeare.NUM_CLASSES),
}


def load(
  name: str,
  data_dir: str | os.PathLike,
  *,
  drop_duplicates: bool = False,
  min_examples: int = 1,
  test_examples: int = 0,
) -> client_data.FederatedDataset:
  """Loads a data set of LEAF or TFF, whose files `leaf.files` finds.

  Args:
    name: 'femnist', 'celeba', 'shakespeare', 'emnist-tff', 'celeba-tff' or
      'shakespeare-tff'.
    data_dir: the directory of all data.
    drop_duplicates: only for femnist. Leaves out a writer's second image if the image and
      its label equal the writer's first image and label.
    min_examples: leaves out training and test users with fewer examples, and prints on
      stderr how many.
    test_examples: the size of the test set, a uniform sample of all test users' examples.
      The sample is the same in every run. 0: all examples.

  Returns:
    The data set. `x` depends on the data set. EMNIST: float32 [28, 28], 0.0 for ink and 1.0
    for paper. CelebA: uint8 [84, 84, 3], resized like LEAF's images and decoded when used.
    Shakespeare: uint8 [80], indices into `shakespeare.ALPHABET`.

  Raises:
    errors.InputError: files are missing or malformed, an image is missing, or no
      training user or no test user remains. A damaged image raises this error when used.
  """
  read, num_classes = _SETS[name]
  if drop_duplicates:
    read = functools.partial(read, drop_duplicates=True)
  is_leafs_celeba = name == 'celeba'
  return federated(
    name,
    num_classes,
    *read(data_dir),
    least=celeba.LEAST if is_leafs_celeba else 0,
    min_examples=min_examples,
    test_examples=test_examples,
    exact=not is_leafs_celeba,  # JPEG decoders differ in the last bit.
  )


def federated(
  name: str,
  num_classes: int,
  pool: pool_lib.Pool,
  users: leaf_users.Users,
  *,
  least: int = 0,
  min_examples: int = 1,
  test_examples: int = 0,
  exact: bool = True,
) -> client_data.FederatedDataset:
  """Makes a client of each training user. The test users' examples form the test set.

  If the files do not split the users, this function splits them like LEAF's split_data:
  `random.Random(0)` samples 90 % of the users with at least `least` examples for training.
  `load` explains the other arguments.
  """
  kept = np.ones(len(pool), bool)
  kept[np.array(users.left_out, np.int64)] = False
  if users.is_test is None:
    parts = partitions.leaf_parts(users.sizes, min_examples=least)
  else:
    parts = np.flatnonzero(~users.is_test), np.flatnonzero(users.is_test)
  owned = [_owned(users, part, kept, max(min_examples, 1)) for part in parts]
  if not all(owned):
    raise errors.InputError(
      f'{name}: {len(owned[0]):,} of {len(parts[0]):,} training users and {len(owned[1]):,} of'
      f' {len(parts[1]):,} test users have enough examples, and each part needs one; lower'
      f' --min_examples={min_examples}, or give data of more users'
    )
  train, test = owned
  few = [len(part) - len(own) for part, own in zip(parts, owned, strict=True)]
  if any(few):
    leaf_users.say(
      f'{name}: left out {few[0]:,} of {len(parts[0]):,} training users and '
      f'{few[1]:,} of {len(parts[1]):,} test users, who have too few '
      f'examples (--min_examples={min_examples})'
    )
  held_out = hold_out.sample(np.concatenate(list(test.values())), test_examples)
  own = partition.of_clients({user: test.get(user, held_out[:0]) for user in train})
  return client_data.FederatedDataset(
    name=name,
    num_classes=num_classes,
    train=client_data.PartitionedClientData(pool, partition.of_clients(train)),
    test=pool.subset(held_out),
    exact=exact,
    held_out=own.where(np.isin(own.numbers, held_out)),
    preprocessing=_PREPROCESSING.get(name, {}),
  )


def _owned(
  users: leaf_users.Users, part: np.ndarray, kept: np.ndarray, least: int
) -> dict[str, np.ndarray]:
  """Returns the kept examples of each user in `part` who has at least `least` kept examples."""
  found = {}
  for user in part:
    start = users.starts[user]
    mine = start + np.flatnonzero(kept[start : start + users.sizes[user]])
    if len(mine) >= least:
      found[users.names[user]] = mine
  return found
