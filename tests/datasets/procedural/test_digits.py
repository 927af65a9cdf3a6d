"""Procedural data do not change: the labels of the clients, and some examples.

The last digits of pixels and features may differ between machines. The labels may not.
"""

import pytest

from datasets import items
from datasets.procedural import faces, features, glyphs, purchases, words
from tff_xc.data import fingerprint

SMALL = {'num_classes': 30, 'num_clients': 12, 'examples_per_client': 15, 'seed': 4}
FEW = {**SMALL, 'classes_per_client': 6}
SHARES = {'class_shares': ((5, 0.7), (25, 0.3))}


def of_items(**options):
  drawn = purchases.draw(purchases.Options(40, 60, 9, **options))
  return items.federated('items', drawn, items.Options(validation=False))


# Two checksums per data set: of training labels and clients, and of test labels.
SETS = {
  'glyphs': (lambda: glyphs.load(**FEW), '669f37824abe31cd'),
  'a range of classes': (lambda: glyphs.load(**FEW, classes_range=(2, 9)), 'afe69c499f486a26'),
  'consecutive classes': (lambda: glyphs.load(**FEW, consecutive_classes=True), '4c2e2c75c6bc12f5'),
  'groups': (lambda: glyphs.load(**FEW, class_groups=4, group_share=0.5), '79da8976ce169bfc'),
  'small groups': (lambda: glyphs.load(**FEW, class_groups=9, group_share=1.0), '045e9ad93f20f074'),
  'shares': (lambda: glyphs.load(**FEW, **SHARES), 'd4e175bbc2362693'),
  'deviation': (lambda: glyphs.load(**FEW, **SHARES, examples_deviation=6.0), 'f7c6722d1a5263a6'),
  'dirichlet': (
    lambda: glyphs.load(**SMALL, concentration=3.0, size_deviation=1.2),
    '59f237342e68207c',
  ),
  'few tests': (lambda: glyphs.load(**FEW, max_test_examples=40), 'b694f82ea1518ebd'),
  'landmarks': (lambda: glyphs.load_preset('glyphs-landmarks'), '8df72bfcef46b0b1'),
  'sop': (lambda: glyphs.load_preset('glyphs-sop', retrieval_classes=200), 'd8c6583065a3752b'),
  'femnist': (lambda: glyphs.load_preset('glyphs-femnist'), '36682f5ef858d2b4'),
  'features': (lambda: features.load_preset('features', **FEW, class_groups=4), '669f37824abe31cd'),
  'faces': (lambda: faces.load(celebrities=120, seed=4), '7f1b33a6dca99450'),
  'words': (lambda: words.load(num_classes=50, seed=4, classes_per_client=3), 'd55da16d257bc8f4'),
  'groups of words': (
    lambda: words.load(num_classes=50, seed=4, label_group_size=7),
    'a544df5a7b340309',
  ),
  'items': (of_items, '44bc2aca9f6308b0'),
  'series of items': (lambda: of_items(follows=0.9, seed=2), 'db330188d831b824'),
}


@pytest.mark.parametrize('name', SETS)
def test_labels_and_clients_are_those_of_before(name):
  make, expected = SETS[name]
  found = make()
  clients = found.train.partition
  tests = [part.labels for part in (found.test, found.retrieval) if part is not None]
  content = [
    '\0'.join(clients.client_ids),
    clients.offsets,
    found.train.pool.labels[clients.numbers],
    *tests,
  ]
  assert fingerprint.checksum(content) == expected
