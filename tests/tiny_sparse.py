"""A tiny classifier of sparse examples, and clients, for tests of rounds."""

import numpy as np

from tff_xc import classifier, heads
from tff_xc.data import sparse
from tff_xc.encoders import bag
from tff_xc.round import examples as examples_lib

NUM_FEATURES, DIM = 9, 4


def model(num_classes: int = 12) -> classifier.EmbeddingClassifier:
  encoder = bag.build_bag_encoder(
    num_features=NUM_FEATURES, feature_dim=6, hidden_dims=(5, 5), embedding_dim=DIM
  )
  return classifier.EmbeddingClassifier(encoder, heads.CosineHead(4.0), num_classes)


def features(feature_lists, seed: int = 0) -> sparse.SparseFeatures:
  """Makes one example for each list of feature ids, with random values > 0."""
  ids = np.concatenate([np.zeros(0), *feature_lists]).astype(np.int32)
  splits = np.cumsum([0, *map(len, feature_lists)]).astype(np.int32)
  values = np.random.default_rng(seed).uniform(0.5, 2.0, len(ids))
  return sparse.SparseFeatures(splits, ids, values.astype(np.float32))


def cohort(clients, seed: int = 0) -> list[examples_lib.ClientExamples]:
  """Makes one client for each dictionary from a label to lists of feature ids."""
  values = []
  for index, examples in enumerate(clients):
    labels = [y for y, lists in examples for _ in lists]
    x = features([f for _, lists in examples for f in lists], seed + index)
    y = np.asarray(labels, np.int32)
    values.append(examples_lib.ClientExamples(x, y, np.int64(index), y))
  return values
