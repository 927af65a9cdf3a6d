"""The split rules of iNaturalist 2017. Importing this imports no NumPy.

Of the classes with at least 100 training images 100 are drawn. Their clients are
the users that took them, or cells of the earth (Hsu, Qi and Brown: Federated
Visual Classification with Real-World Data Distribution, ECCV 2020).
"""

import functools
from collections.abc import Mapping

from datasets.splits import rule

# The clients of the published splits. TFF's documentation has one more each, since
# it counts the images of nobody ('NA') as a client.
_GEO = {
  '30k': (30_000, 11),
  '10k': (10_000, 38),
  '3k': (3_000, 135),
  '1k': (1_000, 368),
  '300': (300, 1_208),
  '100': (100, 3_606),
}
_FOLDER = (
  '--input: the folder of train_val2017.zip and inat2017_locations.zip, or of the'
  ' files in them'
)


def _read(path, columns, positions=False):
  from datasets.inaturalist import files

  return files.read(path, columns, positions=positions)


def _users(listing, seed, *, images_per_class) -> rule.Split:
  import numpy as np

  from datasets.splits import by_user

  numbers, classes = _balanced(listing, seed, images_per_class)
  users = np.full(len(listing), -1, np.int32)
  users[numbers] = listing.users[numbers]
  return rule.Split(
    by_user.partition(users, listing.user_names), classes=classes
  )


def _geo(listing, seed, *, images_per_class, least_share, most) -> rule.Split:
  from datasets.inaturalist import cells

  numbers, classes = _balanced(listing, seed, images_per_class)
  clients = cells.partition(
    listing.positions, numbers, most, least_share * most
  )
  return rule.Split(clients, classes=classes)


def _balanced(listing, seed, images_per_class):
  """Returns the images drawn of the classes that have enough, and the classes."""
  import numpy as np

  from datasets.splits import hold_out
  from tff_xc import errors

  order, rank, sizes = hold_out.ranked_by_class(
    listing.labels, np.random.default_rng(seed)
  )
  drawn = order[(rank < images_per_class) & (sizes >= images_per_class)]
  if not len(drawn):
    raise errors.InputError(
      f'no class has {images_per_class:,} images; lower --images_per_class'
    )
  return np.sort(drawn), np.unique(listing.labels[drawn])


def _published(clients: int, **counts: int) -> rule.Published:
  return rule.Published(
    input={
      'images in train2017.json': 579_184,
      'images in val2017.json': 95_986,
      'categories in train2017.json': 5_089,
      'md5 of inat2017_locations.zip': 'afc1956f9a100b165b89f3923d040912',
    },
    counts={
      'classes': 1_203,
      'test_examples': 35_641,
      'clients': clients,
      **counts,
    },
    drawn=('clients',),
  )


_IMAGES_PER_CLASS = rule.Flag(
  100, 'images drawn of each class; classes with fewer are left out'
)
_LEAST_SHARE = rule.Flag(
  0.01,
  'cells with fewer images than this share of the most are left out; the paper'
  ' has such a bound and does not name it',
  0.0,
  1.0,
)

RULES: Mapping[str, rule.Rule] = {
  'inaturalist-user-120k': rule.Rule(
    f'images of iNaturalist 2017 by user (FedVC); {_FOLDER}',
    _users,
    {'images_per_class': _IMAGES_PER_CLASS},
    users=True,
    read=_read,
    has_lists=True,
    published=_published(9_275, examples=120_300),
  ),
  **{
    f'inaturalist-geo-{size}': rule.Rule(
      f'the same images by S2 cell, divided until none has over {most:,} (FedVC)',
      functools.partial(_geo, most=most),
      {'images_per_class': _IMAGES_PER_CLASS, 'least_share': _LEAST_SHARE},
      read=functools.partial(_read, positions=True),
      has_lists=True,
      published=_published(clients),
    )
    for size, (most, clients) in _GEO.items()
  },
}
