"""Small data sets in memory, and models for them."""

import collections

import numpy as np
import scipy.sparse
import tensorflow as tf

from tff_xc import classifier
from tff_xc import heads
from tff_xc.data import client_data
from tff_xc.data import partition
from tff_xc.data import pool
from tff_xc.encoders import bag
from tff_xc.encoders import encoder


def images(clients: int = 6, num_classes: int = 8):
  """Returns (data set, model): 10 images a client, of 4 classes."""
  random = np.random.default_rng(0)
  owners = np.arange(10 * clients) // 10
  y = (np.arange(10 * clients) % 4 + owners) % num_classes
  examples = pool.in_memory(
    random.integers(0, 256, (len(y), 16, 16), np.uint8), y
  )
  dataset = client_data.FederatedDataset(
    name='small-images',
    num_classes=num_classes,
    train=client_data.PartitionedClientData(
      examples, partition.of_owners(owners)
    ),
    test=examples.subset(np.arange(12)),
  )
  model = classifier.EmbeddingClassifier(
    _linear_encoder(), heads.CosineHead(4.0), num_classes
  )
  return dataset, model


def _linear_encoder() -> encoder.Encoder:
  def init(seed):
    kernel = tf.random.stateless_normal([256, 4], seed, stddev=0.1)
    return collections.OrderedDict(kernel=kernel)

  def apply(weights, state, x, training, seed):
    pixels = tf.reshape(tf.cast(x, tf.float32) / 255.0, [-1, 256])
    return tf.matmul(pixels, weights['kernel']), state

  spec = tf.TensorSpec([16, 16], tf.uint8)
  return encoder.Encoder(spec, 4, init, apply)


def text(num_labels: int, head, clients: int = 5):
  """Returns (data set, model): 8 texts a client, each with a set of labels."""
  random = np.random.default_rng(0)
  x = scipy.sparse.random(8 * clients, 30, 0.2, 'csr', np.float32, random)
  x.sort_indices()
  y = scipy.sparse.csr_matrix(random.random((8 * clients, num_labels)) < 0.03)
  examples = pool.in_memory(x, y)
  dataset = client_data.FederatedDataset(
    name='small-text',
    num_classes=num_labels,
    train=client_data.PartitionedClientData(
      examples, partition.of_owners(np.arange(8 * clients) // 8)
    ),
    test=examples,
  )
  bags = bag.build_bag_encoder(
    num_features=30, feature_dim=16, hidden_dims=(32,), embedding_dim=16
  )
  return dataset, classifier.EmbeddingClassifier(
    bags, head, num_labels, label_sets=True
  )
