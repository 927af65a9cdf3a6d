"""The split rule of Stanford Online Products. Importing this imports no NumPy."""

from collections.abc import Mapping

from datasets.splits import rule


def _read(path, columns):
  del columns  # The lists have those that they have.
  from datasets.sop import files

  return files.read(path)


def _split(listing, seed, *, examples_per_client) -> rule.Split:
  del seed  # Nothing is drawn.
  from datasets.splits import sorted_cuts

  return rule.Split(
    sorted_cuts.chunks(listing.labels, examples_per_client=examples_per_client)
  )


# Song et al.: Deep Metric Learning via Lifted Structured Feature Embedding, CVPR
# 2016, made the lists. Waghmare et al. (FedSS) made the clients: 596 with 100
# images of about 20 classes, which are the chunks of a list sorted by class.
_PUBLISHED = rule.Published(
  input={
    'images in Ebay_train.txt': 59_551,
    'classes in Ebay_train.txt': 11_318,
    'images in Ebay_test.txt': 60_502,
    'classes in Ebay_test.txt': 11_316,
  },
  counts={
    'examples': 59_551,
    'classes': 11_318,
    'clients': 596,
    'retrieval_examples': 60_502,
    'retrieval_classes': 11_316,
  },
)

RULES: Mapping[str, rule.Rule] = {
  'sop': rule.Rule(
    'Stanford Online Products sorted by class and cut into clients; the test list'
    ' becomes retrieval.csv (FedSS); --input: the folder or zip of Ebay_train.txt'
    ' and Ebay_test.txt',
    _split,
    {'examples_per_client': rule.Flag(100, 'images of each client')},
    read=_read,
    has_lists=True,
    published=_PUBLISHED,
  )
}
