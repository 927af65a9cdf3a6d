"""Evaluates a global model on the held-out examples of a data set."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tff_xc import classifier
from tff_xc.data import client_data as client_data_lib
from tff_xc.data import example_blocks
from tff_xc.data import sparse
from tff_xc.measure import catalog
from tff_xc.measure import collapse
from tff_xc.measure import multilabel
from tff_xc.measure import ranking
from tff_xc.measure import top_classes

# Most training examples for 'train_top1'.
_TRAIN_EXAMPLES = 5_000
_RETRIEVAL = ('map@10', 'map@r')


class Evaluator:
  """Measures a model by the metrics of `catalog.SCORES`.

  It measures top1, p@k, ndcg@k and psp@k on test examples, among all classes (a
  single label is a set of one for the latter three, `multilabel.scores`);
  map@10 and map@r on retrieval examples; train_top1 on some training examples;
  and class_distance_min and _mean of the classes that training clients hold
  (`collapse.class_distances`).

  Test examples are decoded once, at the first call.
  """

  def __init__(
    self,
    model: classifier.EmbeddingClassifier,
    dataset: client_data_lib.FederatedDataset,
    metrics: Sequence[str],
  ):
    """Args: the model, the data, and the names of the metrics to measure.

    Raises:
      ValueError: for an unknown metric.
    """
    unknown = set(metrics) - set(catalog.SCORES)
    if unknown:
      raise ValueError(f'there is no metric {", ".join(sorted(unknown))}.')
    self.metrics = tuple(metrics)
    self._model = model
    self._dataset = dataset
    self._loaded = {}
    self._embed = tf.function(model.embed, reduce_retracing=True)
    self._embed_sparse = None

  def __call__(self, weights: classifier.ModelWeights) -> dict[str, float]:
    """Returns every metric by name: fractions, and Euclidean distances.

    Raises:
      ValueError: for 'top1' if test examples have sets of labels.
    """
    wanted = set(self.metrics)
    measured = {}
    if wanted & set(_RETRIEVAL):
      x, y = self._examples('retrieval')
      found = ranking.retrieval_scores(self.embeddings(weights, x), y)
      measured |= dict(zip(_RETRIEVAL, found, strict=True))
    if wanted - set(_RETRIEVAL):
      scoring = self._scoring_rows(weights)
      measured |= self._ranked(weights, scoring, wanted)
      if 'train_top1' in wanted:
        x, y = self._examples('train')
        top = self._top(weights, scoring, x, 1)
        measured['train_top1'] = ranking.accuracy(top[:, 0], y)
      if wanted & set(catalog.DISTANCES):
        found = collapse.class_distances(scoring[0], self._training_classes())
        measured |= dict(zip(catalog.DISTANCES, found, strict=True))
    return {name: measured[name] for name in self.metrics}

  def embeddings(
    self, weights, x: np.ndarray | sparse.SparseFeatures
  ) -> np.ndarray:
    """Returns float32 [k, d] of the k examples `x`."""
    # The encoder does not use the class table, which may be large.
    tables = {
      **weights.tables,
      classifier.CLASS: tf.zeros([0, self._model.row_dim]),
    }
    weights = weights._replace(tables=type(weights.tables)(tables))
    weights = tf.nest.map_structure(tf.convert_to_tensor, weights)
    embed = self._embed
    if isinstance(x, sparse.SparseFeatures):
      embed = self._embedding_of_sparse(weights)
    return np.concatenate(
      [embed(weights, block).numpy() for block in example_blocks.blocks(x)]
    )

  def predict(
    self, weights, x: np.ndarray | sparse.SparseFeatures
  ) -> np.ndarray:
    """Returns int32 [k], the best class among all n for the k examples `x`."""
    return self._top(weights, self._scoring_rows(weights), x, 1)[:, 0]

  def _ranked(self, weights, scoring, wanted) -> dict[str, float]:
    """Returns the test examples' metrics that need a ranking of classes."""
    ranked = {
      f'{name}@{k}' for name in ('p', 'ndcg', 'psp') for k in catalog.AT
    }
    if not wanted & (ranked | {'top1'}):
      return {}
    x, y = self._examples('test')
    sets = isinstance(y, sparse.LabelSets)
    if sets and 'top1' in wanted:
      raise ValueError('top1 is not defined for sets of labels; see p@1.')
    k = max(catalog.AT) if wanted & ranked else 1
    top = self._top(weights, scoring, x, k)
    measured = {} if sets else {'top1': ranking.accuracy(top[:, 0], y)}
    if wanted & ranked:
      labels = y if sets else multilabel.single_labels(y)
      measured |= multilabel.scores(
        top, labels, self._dataset.propensity, catalog.AT
      )
    return measured

  def _top(self, weights, scoring, x, k: int) -> np.ndarray:
    rows, bias = scoring
    return top_classes.top_k(self.embeddings(weights, x), rows, k, bias)

  def _scoring_rows(self, weights):
    rows, bias = self._model.head.scoring_rows(weights.class_table)
    return np.asarray(rows), None if bias is None else np.asarray(bias)

  def _embedding_of_sparse(self, weights):
    """Returns the function for sparse examples, traced once for any sizes."""
    if self._embed_sparse is None:
      specs = tf.nest.map_structure(
        lambda t: tf.TensorSpec(t.shape, t.dtype), weights
      )
      self._embed_sparse = tf.function(
        self._model.embed,
        input_signature=(specs, self._model.encoder.batch_spec()),
      )
    return self._embed_sparse

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
    """Returns whole clients' examples in a fixed random order, until enough."""
    clients = self._dataset.train
    xs, ys, left = [], [], _TRAIN_EXAMPLES
    for index in np.random.default_rng(0).permutation(len(clients.client_ids)):
      if left <= 0:
        break
      x, y = clients.examples(clients.client_ids[index])
      xs.append(example_blocks.cut(x, 0, min(left, len(y))))
      ys.append(y[:left])
      left -= len(y)
    return client_data_lib.Examples(example_blocks.join(xs), np.concatenate(ys))

  def _training_classes(self) -> np.ndarray:
    """Returns int32 [c], the classes that training clients hold, ascending."""
    if 'classes' not in self._loaded:
      clients = self._dataset.train
      self._loaded['classes'] = np.unique(
        np.concatenate([clients.labels(c) for c in clients.client_ids])
      )
    return self._loaded['classes']
