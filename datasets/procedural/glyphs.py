"""Procedural handwriting: any number of classes, clients and examples.

The embedded data set: nothing is stored or downloaded. A class is a seeded
stroke program and a client is a seeded hand (`glyph_strokes`). An image depends
only on (seed, client, class, number of the example), not on the order in which
clients are loaded. The cost of loading a client depends on its number of
examples, not on the number of classes.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from datasets.procedural import glyph_strokes
from tff_xc import errors
from tff_xc.data import client_data

# The purpose of a key: the first part after the seed of every hash.
_CLASS, _HAND, _DRAWING, _TEST_HAND, _TEST_DRAWING = range(5)
# Streams of numpy generators: [seed, stream, ...].
_SIZES, _LABELS, _SAMPLE = range(3)

# Sets shaped like those of the papers (FedSS, §4.1; `Hands` describes the
# client sizes of the Landmarks set), and a small set that is learnt in minutes.
PRESETS: Mapping[str, Mapping[str, Any]] = {
  'glyphs': {},
  'glyphs-landmarks': {
    'num_classes': 2_028,
    'num_clients': 1_262,
    'classes_per_client': 90,
    'classes_range': (21, 399),
    'examples_per_client': 130,
    'max_test_examples': 19_526,
  },
  'glyphs-sop': {
    'num_classes': 11_318,
    'num_clients': 596,
    'classes_per_client': 20,
    'consecutive_classes': True,
    'examples_per_client': 100,
    'retrieval_classes': 11_316,
    'retrieval_examples_per_class': 60_502 / 11_316,
  },
  'glyphs-imagenet21k': {
    'num_classes': 21_841,
    'num_clients': 25_691,
    'classes_per_client': 20,
    'examples_per_client': 400,
  },
}


def load_preset(name: str, **changes) -> client_data.FederatedDataset:
  """Loads one of `PRESETS`; `changes` override its arguments of `load`."""
  if name not in PRESETS:
    raise errors.InputError(
      f'no glyphs preset is named {name!r}; there are {", ".join(PRESETS)}'
    )
  return load(**{'name': name, **PRESETS[name], **changes})


def load(
  *,
  name: str = 'glyphs',
  num_classes: int = 200,
  num_clients: int = 100,
  classes_per_client: int = 10,
  classes_range: tuple[int, int] | None = None,
  consecutive_classes: bool = False,
  examples_per_client: int = 60,
  test_examples_per_class: int = 10,
  max_test_examples: int = 5_000,
  retrieval_classes: int = 0,
  retrieval_examples_per_class: float = 5.0,
  image_size: int = 28,
  variation: float = 1.0,
  seed: int = 0,
) -> client_data.FederatedDataset:
  """Makes a data set; images are drawn on demand.

  Args:
    name: the data set's name.
    num_classes: n, 2 to 2³¹ − 1.
    num_clients: the number of hands that train.
    classes_per_client: the number of classes of each client, or its mean.
    classes_range: the smallest and largest number of classes of a client; None:
      all clients have `classes_per_client`.
    consecutive_classes: True: client k has the classes from ⌊k·n / clients⌋ on,
      as if a list sorted by class were cut into clients (SOP). False: each
      client's classes are a random sample of all classes.
    examples_per_client: the number of examples of each client. With
      `classes_range` it is the mean, and a client's number is proportional to
      its number of classes. A client has at least one example of each of its
      classes; the classes of the others are drawn at random.
    test_examples_per_class: test images of each class, each by its own hand
      that is no client.
    max_test_examples: if all classes together have more test images than this,
      the test set is a seeded sample of this size.
    retrieval_classes: the number of further classes, which are not trained on
      and have labels of their own from 0; 0: no retrieval test.
    retrieval_examples_per_class: the mean number of images of these classes; a
      class has this number rounded down or up.
    image_size: pixels of a side.
    variation: how much hands differ: 0 not at all, 1 about as much as people.
    seed: determines everything.

  Returns:
    The data set; `x` is uint8 [image_size, image_size], ink 255 on 0.

  Raises:
    InputError: an argument out of its range.
  """
  low, high = classes_range or (classes_per_client, classes_per_client)
  _check('num_classes', num_classes, 2, 2**31 - 1)
  _check('num_clients', num_clients, 1, 10**8)
  _check('classes_per_client', classes_per_client, 1, num_classes)
  _check('the first of classes_range', low, 1, classes_per_client)
  _check('the last of classes_range', high, classes_per_client, num_classes)
  _check('examples_per_client', examples_per_client, classes_per_client, 10**7)
  _check('test_examples_per_class', test_examples_per_class, 0, 10**6)
  _check('max_test_examples', max_test_examples, 1, 10**8)
  _check('retrieval_classes', retrieval_classes, 0, 10**8)
  _check('retrieval_examples_per_class', retrieval_examples_per_class, 1, 10**6)
  _check('image_size', image_size, 8, 512)
  _check('variation', variation, 0, 3)
  _check('seed', seed, 0, 2**63 - 1)
  pages = _Pages(seed, image_size, variation)

  def test() -> client_data.Examples:
    total, each = num_classes * test_examples_per_class, test_examples_per_class
    numbers = np.arange(min(total, max_test_examples))
    if total > max_test_examples:
      random = np.random.default_rng([seed, _SAMPLE])
      numbers = np.sort(_sample(random, total, max_test_examples))
    y = (numbers // each).astype(np.int32)
    return client_data.Examples(pages.by_strangers(y, numbers % each), y)

  def retrieval() -> client_data.Examples:
    # As in Bresenham's algorithm, class c's images end at ⌊(c + 1)·mean⌋.
    upto = np.arange(retrieval_classes + 1) * retrieval_examples_per_class
    upto = np.floor(upto + 1e-6).astype(np.int64)
    y = np.repeat(np.arange(retrieval_classes, dtype=np.int32), np.diff(upto))
    number = np.arange(len(y)) - upto[y]
    x = pages.by_strangers(num_classes + y.astype(np.int64), number)
    return client_data.Examples(x, y)

  return client_data.FederatedDataset(
    name=name,
    num_classes=num_classes,
    train=Hands(
      pages,
      num_classes=num_classes,
      num_clients=num_clients,
      mean_classes=classes_per_client,
      classes_range=(low, high),
      consecutive=consecutive_classes,
      examples_per_class=examples_per_client / classes_per_client,
    ),
    test=test if test_examples_per_class else None,
    retrieval=retrieval if retrieval_classes else None,
    exact=False,  # The machine's BLAS draws the pen, in float32.
  )


def _check(name: str, value: float, low: float, high: float) -> None:
  if not low <= value <= high:
    raise errors.InputError(
      f'{name} is {value}; glyphs takes {low} to {high} here'
    )


def _sample(random: np.random.Generator, n: int, k: int) -> np.ndarray:
  """Draws k different numbers below n, in O(k) time and memory."""
  # With shuffle=False, numpy permutes all numbers below n only if n is at most
  # 10,000 or 50·k. Otherwise it uses Floyd's algorithm with a hash table.
  return random.choice(n, size=k, replace=False, shuffle=False)


class _Pages:
  """Draws images, given their hands, classes and numbers."""

  def __init__(self, seed: int, image_size: int, variation: float):
    self.seed = seed
    self.image_size = image_size
    self._variation = variation

  def by_client(self, client: int, classes: np.ndarray) -> np.ndarray:
    """Returns a client's examples 0, 1, … of classes, uint8 [k, side, side]."""
    number = np.arange(len(classes))
    hand = glyph_strokes.mix(self.seed, _HAND, client)
    return self._draw(
      classes,
      np.broadcast_to(hand, number.shape),
      glyph_strokes.mix(self.seed, _DRAWING, client, number),
    )

  def by_strangers(self, classes: np.ndarray, number: np.ndarray) -> np.ndarray:
    """Draws test image `number` of each class, every one by its own hand."""
    return self._draw(
      classes,
      glyph_strokes.mix(self.seed, _TEST_HAND, classes, number),
      glyph_strokes.mix(self.seed, _TEST_DRAWING, classes, number),
    )

  def _draw(self, classes, hand, drawing):
    return glyph_strokes.draw(
      glyph_strokes.mix(self.seed, _CLASS, classes),
      hand,
      drawing,
      image_size=self.image_size,
      variation=self._variation,
    )


class Hands(client_data.LabelledClientData):
  """The training clients: one hand each.

  With a range of classes, the client of rank r among K has
  low + (high − low)·((r + ½) / K)^p classes, and p is chosen to reach the
  required mean. Few clients hold many classes; most hold few. For the Landmarks
  set (mean 90, largest 399, at least 30 images) the median is 38.
  """

  def __init__(
    self,
    pages: _Pages,
    *,
    num_classes: int,
    num_clients: int,
    mean_classes: int,
    classes_range: tuple[int, int],
    consecutive: bool,
    examples_per_class: float,
  ):
    self._pages = pages
    self._num_classes = num_classes
    self._consecutive = consecutive
    self._examples_per_class = examples_per_class
    low, high = classes_range
    if mean_classes in (low, high):
      self._sizes = np.full(num_clients, mean_classes)
    else:
      power = (high - low) / (mean_classes - low) - 1
      random = np.random.default_rng([pages.seed, _SIZES])
      rank = random.permutation(num_clients)
      share = ((rank + 0.5) / num_clients) ** power
      self._sizes = np.rint(low + (high - low) * share).astype(np.int64)
    width = len(str(num_clients - 1))
    ids = [f'hand{client:0{width}d}' for client in range(num_clients)]
    self._clients = {client_id: i for i, client_id in enumerate(ids)}
    size = pages.image_size
    super().__init__(ids, tf.TensorSpec([size, size], tf.uint8))

  def labels(self, client_id: str) -> np.ndarray:
    client = self._clients[client_id]
    random = np.random.default_rng([self._pages.seed, _LABELS, client])
    size = self._sizes[client]
    if self._consecutive:
      first = client * self._num_classes // len(self._clients)
      classes = (first + np.arange(size)) % self._num_classes
    else:
      classes = _sample(random, self._num_classes, size)
    count = max(size, math.floor(size * self._examples_per_class + 0.5))
    more = classes[random.integers(size, size=count - size)]
    # Shuffled, or the first batches would hold each class exactly once.
    labels = random.permutation(np.concatenate([classes, more]))
    return labels.astype(np.int32)

  def examples(self, client_id: str) -> client_data.Examples:
    labels = self.labels(client_id)
    x = self._pages.by_client(self._clients[client_id], labels)
    return client_data.Examples(x, labels)
