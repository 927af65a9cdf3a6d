"""The split rule of Landmarks. Importing this imports no NumPy."""

from collections.abc import Mapping

from datasets.splits import rule


def _read(path, columns):
  from datasets.landmarks import files

  return files.read(path, columns)


def _split(listing, seed, **settings) -> rule.Split:
  from datasets.landmarks import by_author

  return by_author.split(listing, seed, **settings)


# Hsu, Qi and Brown: Federated Visual Classification with Real-World Data
# Distribution, ECCV 2020. The input's counts are those of its owners.
_PUBLISHED = rule.Published(
  input={
    'images in train.csv': 4_132_914,
    'images in train_clean.csv': 1_580_470,
    'landmarks in train_clean.csv': 81_313,
  },
  counts={
    'examples': 164_172,
    'classes': 2_028,
    'clients': 1_262,
    'test_examples': 19_526,
  },
)

RULES: Mapping[str, rule.Rule] = {
  'landmarks-user-160k': rule.Rule(
    'clean images of Google Landmarks v2 by author (FedVC, FedSS); --input: the'
    ' folder of train.csv, train_attribution.csv and train_clean.csv',
    _split,
    {
      'min_landmark_images': rule.Flag(
        30, 'landmarks with fewer images are left out'
      ),
      'min_landmark_authors': rule.Flag(
        10, 'landmarks of fewer authors are left out'
      ),
      'min_author_images': rule.Flag(
        30, 'authors with fewer images are no clients'
      ),
      'min_author_landmarks': rule.Flag(
        5, 'authors with images of fewer landmarks are no clients'
      ),
      'max_test': rule.Flag(
        10, 'test images of a landmark, of authors that are no clients, at most'
      ),
    },
    users=True,
    makes_test=True,
    read=_read,
    has_lists=True,
    published=_PUBLISHED,
  )
}
