"""How many examples of which classes each client of procedural glyphs has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.special

from tff_xc.data import partition

if TYPE_CHECKING:
  from datasets.procedural import glyphs

# Streams of numpy generators: [seed, stream, ...].
_SIZES, _LABELS, _SAMPLE = range(3)


def _class_counts(options: glyphs.Options) -> np.ndarray:
  """Returns int [clients], the number of classes of each client.

  With a range of classes, the client of rank r among K has
  low + (high − low)·((r + ½) / K)^p classes, and p is chosen to reach the mean.
  Few clients hold many classes; most hold few. For the Landmarks set (mean 90,
  largest 399, at least 30 images) the median is 38.
  """
  (low, high), mean = options.bounds, options.classes_per_client
  clients = options.num_clients
  if mean in (low, high):
    return np.full(clients, mean)
  power = (high - low) / (mean - low) - 1
  rank = np.random.default_rng([options.seed, _SIZES]).permutation(clients)
  share = ((rank + 0.5) / clients) ** power
  return np.rint(low + (high - low) * share).astype(np.int64)


def _sizes(options: glyphs.Options, class_counts: np.ndarray) -> np.ndarray:
  """Returns int64 [clients], the number of examples of each client."""
  if options.examples_deviation:
    clients = options.num_clients
    random = np.random.default_rng([options.seed, _SIZES])
    quantiles = scipy.special.ndtri((np.arange(clients) + 0.5) / clients)
    sizes = options.examples_per_client + options.examples_deviation * quantiles
    return random.permutation(np.maximum(np.rint(sizes), 1).astype(np.int64))
  per_class = options.examples_per_client / options.classes_per_client
  sizes = np.floor(class_counts * per_class + 0.5).astype(np.int64)
  return np.maximum(sizes, class_counts)


def _by_shares(
  options: glyphs.Options, random: np.random.Generator, k: int
) -> np.ndarray:
  """Draws classes by `class_shares`, int64 [k]."""
  counts, shares = np.array(options.class_shares).T
  counts = counts.astype(np.int64)
  upto = np.cumsum(np.repeat(shares / counts, counts))
  drawn = np.searchsorted(upto, random.random(k) * upto[-1], 'right')
  return np.minimum(drawn, len(upto) - 1)


def deal(options: glyphs.Options) -> tuple[np.ndarray, partition.Partition]:
  """Returns the labels of the training examples, int32 [N], and the clients."""
  num_classes, clients = options.num_classes, options.num_clients
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
      classes = _sample(random, num_classes, count)
    more = classes[random.integers(count, size=sizes[client] - count)]
    # Shuffled, or the first batches would hold each class exactly once.
    labels[mine] = random.permutation(np.concatenate([classes, more]))
  width = len(str(clients - 1))
  ids = [f'hand{client:0{width}d}' for client in range(clients)]
  return labels, partition.Partition(ids, offsets, np.arange(len(labels)))


def test(options: glyphs.Options) -> tuple[np.ndarray, np.ndarray]:
  """Returns the classes of the test images, and their numbers in a class."""
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
  """Draws k different numbers below n, in O(k) time and memory."""
  # With shuffle=False, numpy permutes all numbers below n only if n is at most
  # 10,000 or 50·k. Otherwise it uses Floyd's algorithm with a hash table.
  return random.choice(n, size=k, replace=False, shuffle=False)
