"""Small data sets in memory, and models for them."""

import numpy as np
import scipy.sparse

from tff_xc import classifier
from tff_xc import heads
from tff_xc.data import client_data
from tff_xc.data import partition
from tff_xc.data import pool
from tff_xc.encoders import bag
from tff_xc.encoders import conv


def images(clients: int = 6, num_classes: int = 8):
  """Returns (data set, model): 10 images a client, of 4 classes."""
  random = np.random.default_rng(0)
  y = np.concatenate([10 * [0, 1, 2, 3][:10] for _ in range(clients)])[
    : 10 * clients
  ]
  owners = np.arange(10 * clients) // 10
  y = (y + owners) % num_classes
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
    conv.build_conv_encoder(image_size=16, filters=8, embedding_dim=4),
    heads.CosineHead(4.0),
    num_classes,
  )
  return dataset, model


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
  encoder = bag.build_bag_encoder(
    num_features=30, feature_dim=16, hidden_dims=(32,), embedding_dim=16
  )
  return dataset, classifier.EmbeddingClassifier(
    encoder, head, num_labels, label_sets=True
  )
