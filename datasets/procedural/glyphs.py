"""Synthetic handwriting with any number of classes, clients and examples.

Nothing is stored or downloaded. The seed determines the strokes of each class, and the
handwriting ("hand") of each client (`glyph_strokes`). An image depends only on the seed, the
client, the class and the index of the example. It does not depend on the order in which the
program loads clients. The cost of loading a client depends on its number of examples, not
on the number of classes.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.special
import tensorflow as tf

from datasets import examples
from datasets.procedural import glyph_strokes
from datasets.splits import rules
from tff_xc import errors
from tff_xc.data import client_data, partition, pool

# A key is a hash of the seed, one of these numbers, and indices, such as the client's.
_CLASS, _HAND, _DRAWING, _TEST_HAND, _TEST_DRAWING, _GROUP = range(6)
# Each random stream has the seed [seed, stream, ...].
_SIZES, _LABELS, _SAMPLE = range(3)
# The labels and indices of this many examples need 2 GB.
_MOST_EXAMPLES = 10**8

# Some data sets have the sizes of data sets in papers (FedSS, §4.1). Models learn the small
# data sets in minutes. `_class_counts` describes the classes per client of the Landmarks data
# set.
PRESETS: Mapping[str, Mapping[str, Any]] = {
  'glyphs': {},
  'glyphs-retrieval': {'retrieval_classes': 200},
  # Models learn these 2,000 classes in minutes. On average, a class has images at ten clients.
  'glyphs-demo': {
    'num_classes': 2_000,
    'num_clients': 400,
    'classes_per_client': 50,
    'examples_per_client': 50,
    'test_examples_per_class': 1,
  },
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
  # The numbers of examples are those of LEAF. The shares of digits and letters are those of
  # NIST Special Database 19.
  'glyphs-femnist': {
    'num_classes': 62,
    'num_clients': 3_195,
    'examples_per_client': 226.8,
    'examples_deviation': 88.9,
    'test_examples_per_class': 100,
    'class_shares': ((10, 0.495), (26, 0.271), (26, 0.234)),
    'white_paper': True,
    # Handwritings differ twice as much as by default. With the default, FedAvg reaches an
    # accuracy of 80 % within 20 rounds, much faster than on FEMNIST.
    'variation': 2.0,
  },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """The options of a data set of glyphs; raises InputError if a number is out of range."""

  name: str = 'glyphs'
  num_classes: int = 200  # The number of classes n, 2 to 2³¹ − 1.
  num_clients: int = 100  # The number of training clients.
  # The number of classes per client. If `classes_range` is given, this is the mean.
  classes_per_client: int = 10
  # The smallest and largest number of classes of a client. None: all clients have
  # `classes_per_client` classes.
  classes_range: tuple[int, int] | None = None
  # True: a client has consecutive classes, and the first class of client k is
  # ⌊k·n / clients⌋. This is like a list sorted by class and cut into clients (SOP). False: a
  # client has a random sample of all classes.
  consecutive_classes: bool = False
  # The number of groups of similar classes. Class c is in group ⌊c·groups / n⌋. The classes
  # of the retrieval set form additional groups of the same size. 0 or 1: there are no groups.
  class_groups: int = 0
  # The share of a client's classes that come from one group, which is random for each
  # client. If the group has too few classes, the client gets all classes of the group. The
  # client's other classes come from any group.
  group_share: float = 0.0
  # The number of examples of each client. If `classes_range` is given, this is the mean, and
  # a client's number of examples is proportional to its number of classes. A client has at
  # least one example of each of its classes. The classes of its other examples are random.
  examples_per_client: float = 60
  # The standard deviation of the number of examples per client. If it is not 0, the numbers
  # have a normal distribution, but are at least the client's number of classes (with
  # `class_shares`: 1).
  examples_deviation: float = 0.0
  # Pairs (number of classes, their share of all examples) for successive groups of classes.
  # If given, they determine the distribution of each example's class, and
  # `classes_per_client` has no effect.
  class_shares: tuple[tuple[int, float], ...] = ()
  # If not None, each client's class shares have a Dirichlet distribution with this total
  # concentration (`datasets.splits.dirichlet`). All classes have equally many examples. A
  # client's number of examples does not depend on its class shares, and `classes_per_client`
  # has no effect.
  concentration: float | None = None
  # The standard deviation of the logarithm of clients' numbers of examples. It has an effect
  # only with `concentration`.
  size_deviation: float = 0.0
  # The number of test examples per class, or their mean with `class_shares`. Each test
  # example has a different handwriting, which belongs to no client.
  test_examples_per_class: int = 10
  max_test_examples: int = 5_000  # If there are more, the test set is a random sample.
  # The number of classes in the retrieval set. No client has these classes.
  retrieval_classes: int = 0
  retrieval_examples_per_class: float = 5.0  # The mean. Numbers are rounded down or up.
  image_size: int = 28  # The width and height of images in pixels.
  # False: x is uint8, 255 for ink and 0 for paper. True: x is float32, 0.0 for ink and 1.0
  # for paper, as in FEMNIST.
  white_paper: bool = False
  # How much handwritings differ. 0: not at all. 1: about as much as people's handwritings.
  variation: float = 1.0
  seed: int = 0  # Determines everything.

  @property
  def bounds(self) -> tuple[int, int]:
    """The smallest and largest numbers of classes of a client."""
    return self.classes_range or (self.classes_per_client,) * 2

  @property
  def spec(self) -> tf.TensorSpec:
    """The shape and dtype of one example that `draw` returns."""
    return tf.TensorSpec([self.image_size] * 2, tf.uint8)

  def draw(self, class_key, group_key, hand_key, drawing_key) -> np.ndarray:
    """Draws B examples from these keys, uint64 [B]; `group_key` is None if there are no groups."""
    return glyph_strokes.draw(
      class_key,
      hand_key,
      drawing_key,
      group_key=group_key,
      image_size=self.image_size,
      variation=self.variation,
    )

  def __post_init__(self):
    for name in ('consecutive_classes', 'class_shares'):
      if self.group_share and getattr(self, name):
        raise errors.InputError(
          f'{name} and group_share both say which classes a client has; leave one of them out'
        )
    if self.group_share and self.class_groups < 2:
      raise errors.InputError(
        'group_share needs groups of classes; give at least 2 class_groups, or group_share 0'
      )
    (low, high), mean = self.bounds, self.classes_per_client
    if self.concentration is not None:
      low, high, mean = 1, 1, 1
    n = self.num_classes
    grouped = sum(count for count, _ in self.class_shares) or n
    for name, least, most, value in (
      ('num_classes', 2, 2**31 - 1, n),
      ('the number of classes with shares', n, n, grouped),
      ('examples_deviation', 0, 10**7, self.examples_deviation),
      ('concentration', 0, 1e9, self.concentration or 0),
      ('size_deviation', 0, 10, self.size_deviation),
      ('num_clients', 1, 10**8, self.num_clients),
      ('classes_per_client', 1, n, mean),
      ('the first of classes_range', 1, mean, low),
      ('the last of classes_range', mean, n, high),
      ('examples_per_client', mean, 10**7, self.examples_per_client),
      ('test_examples_per_class', 0, 10**6, self.test_examples_per_class),
      ('max_test_examples', 1, 10**8, self.max_test_examples),
      ('class_groups', 0, n, self.class_groups),
      ('group_share', 0, 1, self.group_share),
      ('retrieval_classes', 0, 10**8, self.retrieval_classes),
      ('retrieval_examples_per_class', 1, 10**6, self.retrieval_examples_per_class),
      ('image_size', 8, 512, self.image_size),
      ('variation', 0, 3, self.variation),
      ('seed', 0, 2**63 - 1, self.seed),
    ):
      if not least <= value <= most:
        raise errors.InputError(f'{name} is {value}; {self.name} takes {least} to {most} here')
    for names in (
      ('num_clients', 'examples_per_client'),
      ('retrieval_classes', 'retrieval_examples_per_class'),
    ):
      factors = {name: getattr(self, name) for name in names}
      if math.prod(factors.values()) > _MOST_EXAMPLES:
        said = ' and '.join(f'{name} is {n}' for name, n in factors.items())
        raise errors.InputError(
          f'{said}; {self.name} takes {_MOST_EXAMPLES:,} such examples at most,'
          ' because their labels are held in memory'
        )


def load_preset(name: str, **changes) -> client_data.FederatedDataset:
  """Loads one of `PRESETS`; `changes` override its options."""
  return load(**{'name': name, **PRESETS[name], **changes})


def load(**options) -> client_data.FederatedDataset:
  """Makes a data set from fields of `Options`; images are drawn when they are used.

  `x` is [image_size, image_size]. `Options.white_paper` explains its dtype and values.
  """
  return drawn(Options(**options))


def drawn(options: Options) -> client_data.FederatedDataset:
  """Makes a data set; `options.draw` draws examples when they are used."""
  labels, clients = _deal(options)
  test = retrieval = None
  if options.test_examples_per_class:
    test = _by_strangers(options, *_test(options))
  if options.retrieval_classes:
    # As in Bresenham's algorithm, the images of class c end at ⌊(c + 1)·mean⌋.
    upto = np.arange(options.retrieval_classes + 1)
    upto = upto * options.retrieval_examples_per_class
    upto = np.floor(upto + 1e-6).astype(np.int64)
    unseen = np.repeat(np.arange(options.retrieval_classes), np.diff(upto))
    drawn = np.arange(len(unseen)) - upto[unseen]
    retrieval = _by_strangers(options, unseen, drawn, first=options.num_classes)
  return client_data.FederatedDataset(
    name=options.name,
    num_classes=options.num_classes,
    train=client_data.PartitionedClientData(_by_clients(options, labels, clients), clients),
    test=test,
    retrieval=retrieval,
    exact=False,  # The rounding of float32 matrix products depends on the machine.
  )


def _by_clients(options: Options, labels: np.ndarray, clients: partition.Partition) -> pool.Pool:
  """Returns the pool of training examples. A client's examples have the same handwriting."""

  def keys(numbers):
    client = np.searchsorted(clients.offsets, numbers, side='right') - 1
    number = numbers - clients.offsets[client]
    return (
      glyph_strokes.mix(options.seed, _HAND, client),
      glyph_strokes.mix(options.seed, _DRAWING, client, number),
    )

  return _pool(options, labels, labels, keys)


def _by_strangers(
  options: Options, labels: np.ndarray, drawing: np.ndarray, first: int = 0
) -> pool.Pool:
  """Returns a pool of test or retrieval examples, each with a different handwriting.

  Example i is image `drawing[i]` of class `first + labels[i]`.
  """
  classes = first + labels.astype(np.int64)

  def keys(numbers):
    parts = classes[numbers], drawing[numbers]
    return (
      glyph_strokes.mix(options.seed, _TEST_HAND, *parts),
      glyph_strokes.mix(options.seed, _TEST_DRAWING, *parts),
    )

  return _pool(options, labels.astype(np.int32), classes, keys)


def _pool(options: Options, labels: np.ndarray, classes: np.ndarray, keys: Callable) -> pool.Pool:
  """Returns a pool of images of these classes.

  `keys` takes indices of images and returns the keys of their handwritings and drawings.
  """

  def read(numbers):
    class_key = glyph_strokes.mix(options.seed, _CLASS, classes[numbers])
    group_key = None
    if options.class_groups > 1:
      group = classes[numbers].astype(np.int64) * options.class_groups  # May exceed int32.
      group //= options.num_classes
      group_key = glyph_strokes.mix(options.seed, _GROUP, group)
    return options.draw(class_key, group_key, *keys(numbers))

  images = pool.cached(pool.Pool(labels, options.spec, read))
  if not options.white_paper or options.spec.dtype != tf.uint8:
    return images
  levels = ((255 - np.arange(256)) / 255).astype(np.float32)
  return dataclasses.replace(
    images,
    spec=tf.TensorSpec(images.spec.shape, tf.float32),
    read=lambda numbers: levels[images.read(numbers)],
  )


def _class_counts(options: Options) -> np.ndarray:
  """Returns the number of classes of each client, int [clients].

  With `classes_range` (low, high), the client with rank r among K clients has
  low + (high − low)·((r + ½) / K)^p classes. The exponent p is chosen so that the mean is
  `classes_per_client`. Few clients have many classes, and most clients have few classes. For
  the Landmarks data set (range 21 to 399, mean 90), the median is 38.
  """
  (low, high), mean = options.bounds, options.classes_per_client
  clients = options.num_clients
  if mean in (low, high):
    return np.full(clients, mean)
  power = (high - low) / (mean - low) - 1
  rank = np.random.default_rng([options.seed, _SIZES]).permutation(clients)
  share = ((rank + 0.5) / clients) ** power
  return np.rint(low + (high - low) * share).astype(np.int64)


def _sizes(options: Options, class_counts: np.ndarray) -> np.ndarray:
  """Returns the number of examples of each client, int64 [clients]."""
  if options.examples_deviation:
    clients = options.num_clients
    random = np.random.default_rng([options.seed, _SIZES])
    quantiles = scipy.special.ndtri((np.arange(clients) + 0.5) / clients)
    sizes = options.examples_per_client + options.examples_deviation * quantiles
    sizes = random.permutation(np.maximum(np.rint(sizes), 1).astype(np.int64))
    return sizes if options.class_shares else np.maximum(sizes, class_counts)
  per_class = options.examples_per_client / options.classes_per_client
  sizes = np.floor(class_counts * per_class + 0.5).astype(np.int64)
  return np.maximum(sizes, class_counts)


def _by_shares(options: Options, random: np.random.Generator, k: int) -> np.ndarray:
  """Samples k classes with the distribution `class_shares`, int64 [k]."""
  counts, shares = np.array(options.class_shares).T
  counts = counts.astype(np.int64)
  upto = np.cumsum(np.repeat(shares / counts, counts))
  drawn = np.searchsorted(upto, random.random(k) * upto[-1], 'right')
  return np.minimum(drawn, len(upto) - 1)


def _by_dirichlet(options: Options) -> tuple[np.ndarray, np.ndarray]:
  """Returns the labels of all clients, client by client, int32 [N], and the clients' offsets.

  Uses the split rule of `launch.make_splits dirichlet --size_deviation` on classes of equal
  sizes. The rule fills one client after another (Hsu, Qi and Brown, ECCV 2020, appendix
  B.1). The log-normal sizes of clients are our addition.
  """
  total = round(options.num_clients * options.examples_per_client)
  random = np.random.default_rng([options.seed, _LABELS])
  # Shuffle the labels, because a client's examples keep their order.
  labels = random.permutation(np.arange(total) % options.num_classes)
  dealt = rules.deal(
    'dirichlet',
    examples.of_labels(labels, options.num_classes),
    options.seed,
    concentration=options.concentration,
    clients=options.num_clients,
    size_deviation=options.size_deviation,
  ).train
  return labels[dealt.numbers].astype(np.int32), dealt.offsets


def _deal(options: Options) -> tuple[np.ndarray, partition.Partition]:
  """Returns the labels of the training examples, int32 [N], and the clients."""
  num_classes, clients = options.num_classes, options.num_clients
  width = len(str(clients - 1))
  ids = [f'hand{client:0{width}d}' for client in range(clients)]
  if options.concentration is not None:
    labels, offsets = _by_dirichlet(options)
    return labels, partition.Partition(ids, offsets, np.arange(len(labels)))
  class_counts = _class_counts(options)
  sizes = _sizes(options, class_counts)
  offsets = np.cumsum(np.append(0, sizes))
  labels = np.empty(offsets[-1], np.int32)
  for client, count in enumerate(class_counts.tolist()):
    random = np.random.default_rng([options.seed, _LABELS, client])
    mine = slice(offsets[client], offsets[client + 1])
    if options.class_shares:
      labels[mine] = _by_shares(options, random, sizes[client])
      continue
    if options.consecutive_classes:
      first = client * num_classes // clients
      classes = (first + np.arange(count)) % num_classes
    else:
      classes = _of_group(options, random, count)
    more = classes[random.integers(count, size=sizes[client] - count)]
    # Without shuffling, the first batches would have each class exactly once.
    labels[mine] = random.permutation(np.concatenate([classes, more]))
  return labels, partition.Partition(ids, offsets, np.arange(len(labels)))


def _of_group(options: Options, random: np.random.Generator, count: int) -> np.ndarray:
  """Samples a client's classes according to `group_share`, int64 [count]."""
  n, groups = options.num_classes, options.class_groups
  if not options.group_share:
    return _sample(random, n, count)
  group = random.integers(groups)
  first, end = -(-group * n // groups), -(-(group + 1) * n // groups)
  size = min(round(options.group_share * count), end - first)
  own = first + np.sort(_sample(random, end - first, size))
  # The i-th class outside `own` is i plus the number of smaller classes in `own`.
  others = _sample(random, n - size, count - size)
  before = np.searchsorted(own - np.arange(size), others, 'right')
  return np.concatenate([own, others + before])


def _test(options: Options) -> tuple[np.ndarray, np.ndarray]:
  """Returns the class of each test image, and a different number for each image of a class."""
  each, most = options.test_examples_per_class, options.max_test_examples
  total = options.num_classes * each
  drawn = np.arange(min(total, most))
  random = np.random.default_rng([options.seed, _SAMPLE])
  if options.class_shares:
    return _by_shares(options, random, len(drawn)), drawn
  if total > most:
    drawn = np.sort(_sample(random, total, most))
  return drawn // each, drawn % each


def _sample(random: np.random.Generator, n: int, k: int) -> np.ndarray:
  """Samples k different numbers below n, in O(k) time and memory."""
  # With shuffle=False, NumPy permutes all n numbers only if n > 10,000 and k > n // 20.
  # Otherwise NumPy uses Floyd's algorithm with a hash table.
  return random.choice(n, size=k, replace=False, shuffle=False)
