"""CCVR: calibrates class rows after training, with virtual features.

Luo, Chen, Hu, Zhang, Liang, Feng: "No Fear of Heterogeneity: Classifier Calibration for
Federated Learning with Non-IID Data", NeurIPS 2021, arXiv:2106.05001. A client embeds its
examples with the final encoder. For each of its classes, the client sends the number of
examples, and the mean and covariance of these examples' embeddings. From the messages, the
server computes the mean and covariance of all examples of each class. The server draws virtual
features from normal distributions with these means and covariances. Then the server trains
only the class rows, on the virtual features.
"""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tff_xc import classifier, errors
from tff_xc.data import client_data
from tff_xc.measure import evaluation
from tff_xc.round import losses

_BATCH = 64  # Batch size of SGD on virtual features.
_MOST_BYTES = 2**32  # Limit for all covariances, and for all virtual features.


@dataclasses.dataclass(frozen=True)
class Calibration:
  """Settings of the calibration.

  Attributes:
    features: M, the number of virtual features of each class.
    epochs: the number of passes of SGD over the virtual features. SGD starts from the class
      rows of the run.
    learning_rate: the learning rate of SGD.
  """

  features: int
  epochs: int = 10
  learning_rate: float = 0.01


class Gaussians(NamedTuple):
  """Statistics of the embeddings of n classes. A class without examples has only zeros."""

  counts: np.ndarray  # int64 [n].
  means: np.ndarray  # float64 [n, d].
  covariances: np.ndarray  # float64 [n, d, d], unbiased; 0 if a class has one example.


def of_client(embeddings: np.ndarray, labels: np.ndarray):
  """Returns a client's message, {class: (count, mean [d], covariance [d, d])}."""
  sent = {}
  for label in np.unique(labels):
    own = embeddings[labels == label].astype(np.float64)
    mean = own.mean(0)
    centred = own - mean
    covariance = centred.T @ centred / max(len(own) - 1, 1)
    sent[int(label)] = len(own), mean, covariance
  return sent


def joined(messages: Iterable[dict], num_classes: int, dim: int) -> Gaussians:
  """Combines the clients' messages into statistics of all their examples."""
  if num_classes * dim * dim * 8 > _MOST_BYTES:
    raise errors.InputError(
      f'--calibrate: covariances of {num_classes:,} classes and {dim} dimensions have'
      f' more than {_MOST_BYTES:,} bytes; take a run with a smaller --embedding_dim'
    )
  counts = np.zeros(num_classes, np.int64)
  sums = np.zeros([num_classes, dim])
  squares = np.zeros([num_classes, dim, dim])
  for message in messages:
    for label, (count, mean, covariance) in message.items():
      counts[label] += count
      sums[label] += count * mean
      squares[label] += (count - 1) * covariance + count * np.outer(mean, mean)
  means = sums / np.maximum(counts, 1)[:, None]
  for label, (count, mean) in enumerate(zip(counts, means, strict=True)):
    squares[label] -= count * np.outer(mean, mean)
    squares[label] /= max(count - 1, 1)
  return Gaussians(counts, means, squares)


def with_rows(gaussians: Gaussians, head, table) -> Gaussians:
  """Returns the statistics with a count of 0 for classes that the head never predicts.

  FedProto never predicts a class without a prototype, and calibration does not create
  prototypes. Virtual features of a class without a prototype would only push the prototypes of
  other classes away.
  """
  scored = head.scoring_rows(table)
  if scored is None or scored[1] is None:
    return gaussians
  found = np.isfinite(scored[1])
  return gaussians._replace(counts=np.where(found, gaussians.counts, 0))


def virtual(gaussians: Gaussians, features: int, seed: int):
  """Returns (virtual features float32 [m, d], labels int32 [m]).

  Each class with examples gets `features` virtual features.
  """
  random, (_, dim) = np.random.default_rng(seed), gaussians.means.shape
  labels = np.flatnonzero(gaussians.counts)
  if len(labels) * features * dim * 4 > _MOST_BYTES:
    raise errors.InputError(
      f'--calibrate={features}: as many virtual features of {len(labels):,} classes'
      f' have more than {_MOST_BYTES:,} bytes; give a smaller number'
    )
  drawn = np.empty([len(labels), features, dim], np.float32)
  for place, label in enumerate(labels):
    # A class with few examples has a singular covariance. A Cholesky factorization would fail.
    values, vectors = np.linalg.eigh(gaussians.covariances[label])
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    normal = random.standard_normal([features, dim])
    drawn[place] = gaussians.means[label] + normal @ root.T
  return drawn.reshape([-1, dim]), np.repeat(labels, features).astype(np.int32)


def trained(head, table, features, labels, how: Calibration, seed: int):
  """Returns the class table [n, row_dim] after SGD on the virtual features."""

  @tf.function(autograph=False)
  def step(table, x, y):
    with tf.GradientTape() as tape:
      tape.watch(table)
      logits = head.logits(x, table, None)
      loss = tf.reduce_mean(losses.softmax_cross_entropy(logits, y))
    return table - how.learning_rate * tape.gradient(loss, table)

  table, random = tf.convert_to_tensor(table), np.random.default_rng(seed)
  for _ in range(how.epochs):
    order = random.permutation(len(labels))
    for start in range(0, len(order), _BATCH):
      batch = order[start : start + _BATCH]
      table = step(table, features[batch], labels[batch])
  return table


def calibrated(
  weights: classifier.ModelWeights,
  model: classifier.EmbeddingClassifier,
  dataset: client_data.FederatedDataset,
  evaluator: evaluation.Evaluator,
  how: Calibration,
  seed: int,
) -> classifier.ModelWeights:
  """Returns the weights with class rows calibrated on the training clients.

  Raises InputError if examples have sets of labels, if classes share rows, if covariances or
  virtual features need too much memory, or if embeddings or class rows are not finite.
  """
  if model.label_sets or model.shares_rows:
    raise errors.InputError(
      '--calibrate needs one class for each example and a row for each class, which'
      ' this run does not have; leave it out'
    )
  train = dataset.train

  def split(values):
    return np.split(values, train.partition.offsets[1:-1])

  numbers = train.partition.numbers
  embeddings = evaluator.embeddings(weights, train.pool, numbers)
  embeddings = embeddings.reshape([len(numbers), -1])
  if not np.isfinite(embeddings).all():
    raise errors.InputError(
      '--calibrate: embeddings of this run are not finite; train one with a smaller'
      ' --client_learning_rate'
    )
  messages = map(of_client, split(embeddings), split(np.asarray(train.pool.labels)[numbers]))
  found = joined(messages, model.num_classes, embeddings.shape[1])
  found = with_rows(found, model.head, weights.class_table)
  features, labels = virtual(found, how.features, seed)
  table = trained(model.head, weights.class_table, features, labels, how, seed)
  if not np.isfinite(table).all():
    raise errors.InputError(
      f'--calibrate: class rows are not finite at the rate {how.learning_rate:g}; give'
      ' a smaller --calibrate_learning_rate'
    )
  tables = classifier.replaced(weights.tables, {classifier.CLASS: table})
  return weights._replace(tables=tables)
