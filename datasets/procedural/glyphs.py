"""Procedural handwriting: any number of classes, clients and examples.

The embedded data set: nothing is stored or downloaded. A class is a seeded
stroke program and a client is a seeded hand (`glyph_strokes`). An image depends
only on (seed, client, class, number of the example), not on the order in which
clients are loaded. The cost of loading a client depends on its number of
examples, not on the number of classes.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from datasets.procedural import glyph_hands
from datasets.procedural import glyph_strokes
from tff_xc import errors
from tff_xc.data import client_data
from tff_xc.data import partition
from tff_xc.data import pool

# The purpose of a key: the first part after the seed of every hash.
_CLASS, _HAND, _DRAWING, _TEST_HAND, _TEST_DRAWING = range(5)

# Their labels and numbers take 2 GB.
_MOST_EXAMPLES = 10**8

# Sets shaped like those of the papers (FedSS, §4.1; `glyph_hands` describes the
# client sizes of the Landmarks set), and a small set that is learnt in minutes.
PRESETS: Mapping[str, Mapping[str, Any]] = {
  'glyphs': {},
  'glyphs-retrieval': {'retrieval_classes': 200},
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
  # LEAF's numbers of examples; NIST SD 19's shares of digits and letters.
  'glyphs-femnist': {
    'num_classes': 62,
    'num_clients': 3_195,
    'examples_per_client': 226.8,
    'examples_deviation': 88.9,
    'test_examples_per_class': 100,
    'class_shares': ((10, 0.495), (26, 0.271), (26, 0.234)),
    'white_paper': True,
    # Hands that differ twice as much: FedAvg learns the others in 20 rounds.
    'variation': 2.0,
  },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """What a data set of glyphs is like.

  Attributes:
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
    examples_deviation: the standard deviation of the clients' numbers of
      examples, which then follow a normal distribution, cut at 1.
    class_shares: (number of classes, their share of all examples) of groups of
      successive classes. Each example's class is drawn from these shares, and
      `classes_per_client` does not apply. Empty: clients differ in classes.
    test_examples_per_class: test images of each class, each by its own hand
      that is no client.
      With `class_shares`, their mean over the classes.
    max_test_examples: if all classes together have more test images than this,
      the test set is a seeded sample of this size.
    retrieval_classes: the number of further classes, which are not trained on
      and have labels of their own from 0; 0: no retrieval test.
    retrieval_examples_per_class: the mean number of images of these classes; a
      class has this number rounded down or up.
    image_size: pixels of a side.
    white_paper: False: x is uint8, ink 255 on 0. True: x is float32, ink 0.0 on
      1.0, as in FEMNIST.
    variation: how much hands differ: 0 not at all, 1 about as much as people.
    seed: determines everything.

  Raises:
    InputError: an attribute out of its range.
  """

  name: str = 'glyphs'
  num_classes: int = 200
  num_clients: int = 100
  classes_per_client: int = 10
  classes_range: tuple[int, int] | None = None
  consecutive_classes: bool = False
  examples_per_client: float = 60
  examples_deviation: float = 0.0
  class_shares: tuple[tuple[int, float], ...] = ()
  test_examples_per_class: int = 10
  max_test_examples: int = 5_000
  retrieval_classes: int = 0
  retrieval_examples_per_class: float = 5.0
  image_size: int = 28
  white_paper: bool = False
  variation: float = 1.0
  seed: int = 0

  @property
  def bounds(self) -> tuple[int, int]:
    """The smallest and largest number of classes of a client."""
    return self.classes_range or (self.classes_per_client,) * 2

  def __post_init__(self):
    (low, high), mean = self.bounds, self.classes_per_client
    self._check('num_classes', 2, 2**31 - 1)
    if self.class_shares:
      grouped = sum(count for count, _ in self.class_shares)
      _check(
        'the number of classes with shares', grouped, *[self.num_classes] * 2
      )
    self._check('examples_deviation', 0, 10**7)
    self._check('num_clients', 1, 10**8)
    self._check('classes_per_client', 1, self.num_classes)
    _check('the first of classes_range', low, 1, mean)
    _check('the last of classes_range', high, mean, self.num_classes)
    self._check('examples_per_client', mean, 10**7)
    self._check('test_examples_per_class', 0, 10**6)
    self._check('max_test_examples', 1, 10**8)
    self._check('retrieval_classes', 0, 10**8)
    self._check('retrieval_examples_per_class', 1, 10**6)
    self._check('image_size', 8, 512)
    self._check('variation', 0, 3)
    self._check('seed', 0, 2**63 - 1)
    self._check_product('num_clients', 'examples_per_client')
    self._check_product('retrieval_classes', 'retrieval_examples_per_class')

  def _check(self, name: str, low: float, high: float) -> None:
    _check(name, getattr(self, name), low, high)

  def _check_product(self, *names: str) -> None:
    factors = {name: getattr(self, name) for name in names}
    if math.prod(factors.values()) > _MOST_EXAMPLES:
      said = ' and '.join(f'{name} is {n}' for name, n in factors.items())
      raise errors.InputError(
        f'{said}; glyphs takes {_MOST_EXAMPLES:,} such examples at most,'
        ' because their labels are held in memory'
      )


def load_preset(name: str, **changes) -> client_data.FederatedDataset:
  """Loads one of `PRESETS`; `changes` override its options."""
  if name not in PRESETS:
    raise errors.InputError(
      f'no glyphs preset is named {name!r}; there are {", ".join(PRESETS)}'
    )
  return load(**{'name': name, **PRESETS[name], **changes})


def load(**options) -> client_data.FederatedDataset:
  """Makes a data set; images are drawn on demand.

  Args:
    **options: attributes of `Options`.

  Returns:
    The data set; `x` is uint8 [image_size, image_size], ink 255 on 0, or
    float32 on white paper.

  Raises:
    InputError: an argument out of its range.
  """
  options = Options(**options)
  pages = _Pages(options)
  labels, clients = glyph_hands.deal(options)
  return client_data.FederatedDataset(
    name=options.name,
    num_classes=options.num_classes,
    train=client_data.PartitionedClientData(
      pages.by_clients(labels, clients), clients
    ),
    test=_test(options, pages),
    retrieval=_retrieval(options, pages),
    exact=False,  # The machine's BLAS draws the pen, in float32.
  )


def _check(name: str, value: float, low: float, high: float) -> None:
  if not low <= value <= high:
    raise errors.InputError(
      f'{name} is {value}; glyphs takes {low} to {high} here'
    )


class _Pages:
  """Pools of images, given their hands, classes and numbers."""

  def __init__(self, options: Options):
    self._seed = options.seed
    self._image_size = options.image_size
    self._variation = options.variation
    self._white = options.white_paper

  def by_clients(
    self, labels: np.ndarray, clients: partition.Partition
  ) -> pool.Pool:
    """Each client's hand draws its examples 0, 1, …"""

    def keys(numbers):
      client = np.searchsorted(clients.offsets, numbers, side='right') - 1
      number = numbers - clients.offsets[client]
      return (
        glyph_strokes.mix(self._seed, _HAND, client),
        glyph_strokes.mix(self._seed, _DRAWING, client, number),
      )

    return self._pool(labels, labels, keys)

  def by_strangers(
    self, labels: np.ndarray, drawing: np.ndarray, first: int = 0
  ) -> pool.Pool:
    """Test image `drawing` of each class, every one by its own hand.

    Args:
      labels: int [k].
      drawing: int [k].
      first: the class of label 0.
    """
    classes = first + labels.astype(np.int64)

    def keys(numbers):
      parts = classes[numbers], drawing[numbers]
      return (
        glyph_strokes.mix(self._seed, _TEST_HAND, *parts),
        glyph_strokes.mix(self._seed, _TEST_DRAWING, *parts),
      )

    return self._pool(labels.astype(np.int32), classes, keys)

  def _pool(self, labels, classes, keys) -> pool.Pool:
    def read(numbers):
      return glyph_strokes.draw(
        glyph_strokes.mix(self._seed, _CLASS, classes[numbers]),
        *keys(numbers),
        image_size=self._image_size,
        variation=self._variation,
      )

    size = self._image_size
    spec = tf.TensorSpec([size, size], tf.uint8)
    images = pool.cached(pool.Pool(labels, spec, read))
    return _on_white(images) if self._white else images


def _on_white(images: pool.Pool) -> pool.Pool:
  """Returns images with ink 255 on 0 as float32 with ink 0.0 on 1.0."""
  levels = ((255 - np.arange(256)) / 255).astype(np.float32)
  return dataclasses.replace(
    images,
    spec=tf.TensorSpec(images.spec.shape, tf.float32),
    read=lambda numbers: levels[images.read(numbers)],
  )


def _test(options: Options, pages: _Pages) -> pool.Pool | None:
  each = options.test_examples_per_class
  if not each:
    return None
  labels, drawn = glyph_hands.test(options)
  return pages.by_strangers(labels, drawn)


def _retrieval(options: Options, pages: _Pages) -> pool.Pool | None:
  classes = options.retrieval_classes
  if not classes:
    return None
  # As in Bresenham's algorithm, class c's images end at ⌊(c + 1)·mean⌋.
  upto = np.arange(classes + 1) * options.retrieval_examples_per_class
  upto = np.floor(upto + 1e-6).astype(np.int64)
  y = np.repeat(np.arange(classes), np.diff(upto))
  drawn = np.arange(len(y)) - upto[y]
  return pages.by_strangers(y, drawn, first=options.num_classes)
