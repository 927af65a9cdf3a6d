"""Evaluates a global model on the held-out examples of a data set."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from datasets import client_data as client_data_lib
from tff_xc import classifier
from tff_xc.measure import ranking

# Training examples that 'train_top1' looks at, at most.
_TRAIN_EXAMPLES = 5_000
_BATCH = 512


class Evaluator:
  """Measures top-1, MAP@10, MAP@R and top-1 on training examples.

  Test examples are decoded once, at the first call.
  """

  def __init__(
    self,
    model: classifier.EmbeddingClassifier,
    dataset: client_data_lib.FederatedDataset,
    metrics: Sequence[str],
  ):
    """Args: the model, the data, and the metrics wanted, by name."""
    self.metrics = tuple(metrics)
    self._model = model
    self._dataset = dataset
    self._loaded = {}
    self._embed = tf.function(model.embed, reduce_retracing=True)

  def __call__(self, weights: classifier.ModelWeights) -> dict[str, float]:
    """Returns every metric by name, fractions between 0 and 1."""
    measured = {}
    if 'top1' in self.metrics:
      measured['top1'] = self._top1(weights, 'test')
    if 'map@10' in self.metrics or 'map@r' in self.metrics:
      x, y = self._examples('retrieval')
      scores = ranking.retrieval_scores(self.embeddings(weights, x), y)
      measured['map@10'] = scores.map_at_10
      measured['map@r'] = scores.map_at_r
    if 'train_top1' in self.metrics:
      measured['train_top1'] = self._top1(weights, 'train')
    return {name: measured[name] for name in self.metrics}

  def embeddings(self, weights, x: np.ndarray) -> np.ndarray:
    """Returns float32 [len(x), d]."""
    blocks = np.array_split(x, max(1, -(-len(x) // _BATCH)))
    return np.concatenate([self._embed(weights, b).numpy() for b in blocks])

  def predict(self, weights, x: np.ndarray) -> np.ndarray:
    """Returns int32 [len(x)], the best class among all n."""
    rows, bias = self._model.head.scoring_rows(weights.class_table)
    bias = None if bias is None else np.asarray(bias)
    return ranking.predict_top1(
      self.embeddings(weights, x), np.asarray(rows), bias
    )

  def _top1(self, weights, split: str) -> float:
    x, y = self._examples(split)
    return ranking.accuracy(self.predict(weights, x), y)

  def _examples(self, split: str) -> client_data_lib.Examples:
    if split not in self._loaded:
      load = {
        'test': self._dataset.test,
        'retrieval': self._dataset.retrieval,
        'train': self._some_training_examples,
      }[split]
      self._loaded[split] = load()
    return self._loaded[split]

  def _some_training_examples(self) -> client_data_lib.Examples:
    """Whole clients in a fixed random order, until there are enough examples."""
    clients = self._dataset.train
    xs, ys, left = [], [], _TRAIN_EXAMPLES
    for index in np.random.default_rng(0).permutation(len(clients.client_ids)):
      if left <= 0:
        break
      x, y = clients.examples(clients.client_ids[index])
      xs.append(x[:left])
      ys.append(y[:left])
      left -= len(y)
    return client_data_lib.Examples(np.concatenate(xs), np.concatenate(ys))
