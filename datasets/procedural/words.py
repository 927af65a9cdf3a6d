"""Synthetic bags of words with sets of labels; nothing is stored or downloaded.

The data set is similar to the data sets of `datasets.xc`, and may have any number of
classes. A class is a small set of words. An example mixes words of its labels with common
words. The frequencies of labels and of common words follow Zipf's law. An example depends
only on the seed and the index of the example. So the time to load a client is proportional
to its number of examples.
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse

from datasets import examples as examples_lib
from datasets.procedural import glyph_strokes
from datasets.splits import rules
from tff_xc import errors
from tff_xc.data import client_data, pool, sparse

# A key is a hash of the seed, one of these numbers, and indices, such as the example's.
_CLASS, TRAIN, TEST = range(3)
# Each random stream has the seed [seed, stream].
_RANKS, _GROUPS = range(2)
# Each random number of an example is a hash of the example's key and one of these numbers.
_SIZE, _NUM_LABELS, _LABEL, _WORD = range(4)

# The number of examples that are generated at a time, which limits memory to 50 MB.
_CHUNK = 8192
# The features of at most this many examples stay in memory: 130 MB with 61 words each.
_KEPT = 2**18


class Options(NamedTuple):
  """The options of a data set."""

  num_classes: int = 1_000  # The number of classes n.
  num_features: int = 50_000  # D, the size of the vocabulary.
  examples_per_class: float = 10.0  # The mean number of training examples per class.
  test_examples: int = 2_000
  labels_per_example: int = 3  # The approximate mean k. An example has 1 to 2 k - 1 labels.
  words_per_example: int = 40  # The mean w. An example has w / 2 to 3 w / 2 words.
  words_per_class: int = 12  # The number of words of each class.
  own_words: float = 0.5  # The share of an example's words that come from its labels.
  skew: float = 1.0  # The frequency of the label with rank r is proportional to r^-skew.
  # All labels of an example come from one group. Label c is in group c // label_group_size.
  # 0: there are no groups.
  label_group_size: int = 0
  seed: int = 0  # Determines everything.


# The smallest and the largest value of each option.
_RANGES = {
  'num_classes': (2, 10**7),
  'num_features': (16, 2**31 - 1),
  'examples_per_class': (0.001, 10**6),
  'test_examples': (0, 10**8),
  'labels_per_example': (1, 20),
  'words_per_example': (1, 10_000),
  'words_per_class': (1, 10_000),
  'own_words': (0, 1),
  'skew': (0, 3),
  'label_group_size': (0, 10**7),
  'seed': (0, 2**63 - 1),
}


def load(
  *, name: str = 'sparse-words', classes_per_client: int = 1, clients_per_class: int = 1, **options
) -> client_data.FederatedDataset:
  """Makes a data set from fields of `Options`; examples are generated when they are used.

  As in `xc.federated.load`, a training example keeps one of its labels, and a test example
  keeps all its labels. A class without a training example has no client. The features of an
  example are its word counts, divided by their Euclidean norm.
  """
  words = Words(Options(**options))
  n = words.options.num_classes
  clients = rules.deal(
    'classes_per_client',
    examples_lib.of_labels(words.train_labels, n),
    [words.options.seed, _GROUPS],
    classes_per_client=classes_per_client,
    clients_per_class=clients_per_class,
  ).train
  test = None
  if words.options.test_examples:
    numbers = np.arange(words.options.test_examples)
    test = words.as_pool(TEST, words.label_sets(TEST, numbers))
  train = words.as_pool(TRAIN, words.train_labels)
  return client_data.FederatedDataset(
    name=name,
    num_classes=n,
    train=client_data.PartitionedClientData(train, clients),
    test=test,
    propensity=sparse.Propensity(words.label_counts(), len(train)),
  )


class Words:
  """Generates training and test examples by index; `part` is `TRAIN` or `TEST`.

  `train_labels`, int32 [N], are the labels that training examples keep.
  """

  def __init__(self, options: Options):
    n = options.num_classes
    for name, (low, high) in _RANGES.items():
      if not low <= (value := getattr(options, name)) <= high:
        raise errors.InputError(f'{name} is {value}; sparse-words takes {low} to {high} here')
    if n * options.examples_per_class > 10**9:
      raise errors.InputError(
        f'num_classes is {n} and examples_per_class {options.examples_per_class};'
        ' sparse-words takes 10^9 examples at most'
      )
    self.options = options
    share = np.arange(1, n + 1, dtype=np.float64) ** -options.skew
    share = np.cumsum(share) / share.sum()
    total = max(round(n * options.examples_per_class), 1)
    # The examples of the class with rank r end at the index ⌊total · share[r]⌋.
    upto = np.floor(share * total + 1e-6).astype(np.int64)
    random = np.random.default_rng([options.seed, _RANKS])
    classes = random.permutation(n).astype(np.int32)
    self.train_labels = np.repeat(classes, np.diff(upto, prepend=0))
    self._by_group = self._group_ends = None
    if size := options.label_group_size:
      groups = self.train_labels // size
      self._by_group = self.train_labels[np.argsort(groups, kind='stable')]
      self._group_ends = np.cumsum(np.bincount(groups))

  def as_pool(self, part: int, labels: np.ndarray | scipy.sparse.csr_matrix) -> pool.Pool:
    """Returns a pool of the first training or test examples, with these labels."""
    read = functools.partial(self.features, part)
    if labels.shape[0] <= _KEPT:
      numbers = np.arange(labels.shape[0])
      everything = functools.cache(functools.partial(read, numbers))

      def read(numbers):
        return everything()[numbers]

    words = self.options.words_per_example
    most = np.int64(words + words // 2 + 1)
    return pool.Pool(
      labels,
      pool.SPARSE,
      read,
      entries=np.broadcast_to(most, labels.shape[:1]),
      num_features=self.options.num_features,
    )

  def features(self, part: int, numbers: np.ndarray) -> scipy.sparse.csr_matrix:
    """Returns the features, float32 [k, D], of the examples with these indices, int [k]."""
    return scipy.sparse.vstack(
      [
        self._bags(part, chunk, self._labels(part, chunk))
        for chunk in _chunks(np.asarray(numbers, np.int64))
      ],
      'csr',
    )

  def label_sets(self, part: int, numbers: np.ndarray) -> scipy.sparse.csr_matrix:
    """Returns the sets of labels, bool [k, n], of the examples with these indices, int [k]."""
    rows = []
    for chunk in _chunks(np.asarray(numbers, np.int64)):
      ids = np.sort(self._labels(part, chunk), axis=1)
      has = ids >= 0
      splits = np.cumsum(np.append(0, has.sum(1)))
      row = np.ones(splits[-1], bool), ids[has], splits
      shape = len(chunk), self.options.num_classes
      rows.append(scipy.sparse.csr_matrix(row, shape))
    return scipy.sparse.vstack(rows, 'csr')

  def everything(self, part: int) -> tuple:
    """Returns the features and the sets of labels of all training or all test examples."""
    total = self.options.test_examples
    if part == TRAIN:
      total = len(self.train_labels)
    numbers = np.arange(total)
    return self.features(part, numbers), self.label_sets(part, numbers)

  def label_counts(self) -> np.ndarray:
    """Returns the number of training examples with each label, int64 [n]."""
    n = self.options.num_classes
    counts = np.zeros(n, np.int64)
    for numbers in _chunks(np.arange(len(self.train_labels))):
      labels = self._labels(TRAIN, numbers)
      counts += np.bincount(labels[labels >= 0], minlength=n)
    return counts

  def _labels(self, part: int, numbers: np.ndarray) -> np.ndarray:
    """Returns each example's distinct labels, padded with -1, int32 [k, most]."""
    key = self._keys(part, numbers)
    most = 2 * self.options.labels_per_example - 1
    draws = glyph_strokes.mix(key[:, None], _LABEL, np.arange(most))
    # Take the labels of random training examples, so that labels have the right frequencies.
    labels = self.train_labels[_below(draws, len(self.train_labels))]
    if part == TRAIN:
      labels[:, 0] = self.train_labels[numbers]
    if size := self.options.label_group_size:
      group = labels[:, :1] // size
      ends = self._group_ends
      start = np.where(group > 0, ends[group - 1], 0)
      # Take the other labels from random training examples of the same group.
      places = start + _below(draws, ends[group] - start)
      labels[:, 1:] = self._by_group[places][:, 1:]
    count = 1 + _below(glyph_strokes.mix(key, _NUM_LABELS), most)
    labels[np.arange(most) >= count[:, None]] = -1
    for i in range(1, most):
      seen = (labels[:, :i] == labels[:, i : i + 1]).any(1)
      labels[seen, i] = -1
    first = np.argsort(labels < 0, axis=1, kind='stable')
    return np.take_along_axis(labels, first, 1)

  def _bags(self, part, numbers, labels) -> scipy.sparse.csr_matrix:
    """Returns the bags of words of examples with these labels, float32 [k, D]."""
    key = self._keys(part, numbers)
    mean, d = self.options.words_per_example, self.options.num_features
    size = mean // 2 + _below(glyph_strokes.mix(key, _SIZE), mean + mean % 2)
    size = np.maximum(size, 1)
    draw = glyph_strokes.mix(key[:, None], _WORD, np.arange(size.max(initial=0)))
    words = np.where(
      _uniform(draw) < self.options.own_words,
      self._own_words(glyph_strokes.mix(draw), labels),
      np.minimum(d ** _uniform(glyph_strokes.mix(draw)) - 1, d - 1).astype(np.int64),
    )
    row, place = np.nonzero(np.arange(size.max(initial=0)) < size[:, None])
    pairs, count = np.unique(row * d + words[row, place], return_counts=True)
    row = pairs // d
    norm = np.sqrt(np.bincount(row, count.astype(np.float64) ** 2, len(key)))
    splits = np.append(0, np.cumsum(np.bincount(row, minlength=len(key))))
    values = (count / norm[row]).astype(np.float32)
    return scipy.sparse.csr_matrix((values, pairs % d, splits), (len(key), d))

  def _own_words(self, draw: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Samples for each key a word of one of the example's labels; uint64 [k, w] -> int64."""
    which = _below(draw, (labels >= 0).sum(1)[:, None])
    label = np.take_along_axis(labels, which, 1)
    word = _below(glyph_strokes.mix(draw), self.options.words_per_class)
    key = glyph_strokes.mix(self.options.seed, _CLASS, label, word)
    return _below(key, self.options.num_features)

  def _keys(self, part: int, numbers: np.ndarray) -> np.ndarray:
    return glyph_strokes.mix(self.options.seed, part, numbers)


def _uniform(key: np.ndarray) -> np.ndarray:
  """Maps keys, uint64, to float64 in [0, 1)."""
  return (key >> np.uint64(11)) * 2.0**-53


def _below(key: np.ndarray, limit) -> np.ndarray:
  """Maps keys, uint64, to int64 in [0, limit); limit is at most 2^31."""
  high = (key >> np.uint64(32)) * np.asarray(limit).astype(np.uint64)
  return (high >> np.uint64(32)).astype(np.int64)


def _chunks(numbers: np.ndarray) -> Iterator[np.ndarray]:
  """Yields the numbers in chunks. If there are no numbers, yields one empty chunk."""
  for start in range(0, max(len(numbers), 1), _CHUNK):
    yield numbers[start : start + _CHUNK]
