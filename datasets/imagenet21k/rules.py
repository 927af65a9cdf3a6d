"""The split rule of ImageNet-21k. Importing this imports no NumPy."""

from collections.abc import Mapping

from datasets.splits import rule


def _read(path, columns):
  del columns  # Nothing here is a table.
  from datasets.imagenet21k import files

  return files.read(path)


def _split(listing, seed, **settings) -> rule.Split:
  from datasets.imagenet21k import shards

  return shards.split(listing.labels, seed, **settings)


# Waghmare et al. (FedSS), section 4.1; the input is the release of fall 2011.
_PUBLISHED = rule.Published(
  input={'images': 14_197_122, 'classes': 21_841},
  counts={'clients': 25_691},
  why='25,691 clients of 400 images are 10.3 million, and 80 % of the images are'
  ' 11.4: the published counts do not agree with each other',
)

RULES: Mapping[str, rule.Rule] = {
  'imagenet21k': rule.Rule(
    'ImageNet-21k, a fifth of each class for the test, the rest in shards, some of'
    ' distinct classes a client (FedSS); --input: a folder for each synset, or a'
    ' tar for each (in a folder or a tar), or a text file, SYNSET/NAME.JPEG a line',
    _split,
    {
      'test_share': rule.Flag(
        0.2, 'share of each class for the test', 0.001, 0.5
      ),
      'examples_per_shard': rule.Flag(20, 'images of a class in a shard'),
      'shards_per_client': rule.Flag(20, 'shards of each client'),
    },
    makes_test=True,
    read=_read,
    published=_PUBLISHED,
  )
}
