"""Evaluates a global model on the held-out examples of a data set."""

import functools
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np
import scipy.sparse
import tensorflow as tf

from tff_xc import classifier
from tff_xc.data import client_data as client_data_lib
from tff_xc.data import pool as pool_lib
from tff_xc.data import sparse
from tff_xc.measure import best_labels
from tff_xc.measure import catalog
from tff_xc.measure import collapse
from tff_xc.measure import multilabel
from tff_xc.measure import ranking
from tff_xc.measure import single_label
from tff_xc.measure import top_classes

# Most training examples for 'train_top1'.
_TRAIN_EXAMPLES = 5_000
# Embeddings that are ranked at once: each search reads the whole class table.
_RANKED_AT_ONCE = 2048
# Parts of a data set that a metric may need and the set may lack.
_OF_DATA = ('test', 'validation', 'retrieval', 'propensity')
_RETRIEVAL = ('map@10', 'map@r')
# `multilabel.scores` has these.
_RANKED = ('p@', 'pc@', 'ndcg@', 'psp@')
_MEAN, _MEAN_VALIDATION = 'pc_mean', 'pc_mean_validation'
_OF_ONE_LABEL = ('top1', 'macro_f1', 'mcc')


class Evaluator:
  """Measures a model by the metrics of `catalog.SCORES`.

  It measures top1, macro_f1 and mcc (`single_label.scores`), and p@k, ndcg@k and
  psp@k (`multilabel.scores`; a single label is a set of one) on test examples,
  among all classes;
  map@10 and map@r on retrieval examples; train_top1 on some training examples;
  and class_distance_min and _mean of the classes that training clients hold
  (`collapse.class_distances`).

  Examples are read block by block, and never held together.
  """

  def __init__(
    self,
    model: classifier.EmbeddingClassifier,
    dataset: client_data_lib.FederatedDataset,
    metrics: Sequence[str],
  ):
    """Args: the model, the data, and the names of the metrics to measure.

    Raises:
      ValueError: for an unknown metric, or one that the data do not allow.
    """
    unknown = set(metrics) - set(catalog.SCORES)
    if unknown:
      raise ValueError(f'there is no metric {", ".join(sorted(unknown))}.')
    for name in metrics:
      for part in catalog.SCORES[name].needs:
        if part in _OF_DATA and not getattr(dataset, part):
          raise ValueError(f'{name} needs {part}, which the data set lacks.')
    self.metrics = tuple(metrics)
    self._model = model
    self._dataset = dataset
    function = functools.partial(tf.function, autograph=False)
    self._embed = function(model.embed, reduce_retracing=True)
    self._embed_sparse = None
    self._best_labels = best_labels.Search(model.head, model.num_classes)

  def __call__(self, weights: classifier.ModelWeights) -> dict[str, float]:
    """Returns every metric by name: fractions, and Euclidean distances.

    Raises:
      ValueError: for 'top1', 'macro_f1' or 'mcc' if test examples have sets of
        labels.
    """
    wanted = set(self.metrics)
    measured = {}
    if wanted & set(_RETRIEVAL):
      pool = self._dataset.retrieval
      # Of several networks side by side, all of an example's numbers.
      embeddings = self.embeddings(weights, pool).reshape([len(pool), -1])
      found = ranking.retrieval_scores(embeddings, pool.y)
      measured |= dict(zip(_RETRIEVAL, found, strict=True))
    if wanted - set(_RETRIEVAL):
      rank = self._ranker(weights)
      measured |= self._ranked(weights, rank, wanted)
      if _MEAN_VALIDATION in wanted:
        measured[_MEAN_VALIDATION] = self._of_validation(weights, rank)
      train = self._dataset.train
      if 'train_top1' in wanted:
        some = self._some_training_examples
        y = train.pool.y[some]
        if scipy.sparse.issparse(y):
          raise ValueError('train_top1 is not defined for sets of labels.')
        top = self._top(weights, rank, train.pool, some, 1)
        measured['train_top1'] = ranking.accuracy(top[:, 0], y)
      if wanted & set(catalog.DISTANCES):
        scoring = self._model.head.scoring_rows(weights.class_table)
        if scoring is None:
          raise ValueError(
            'distances of classes are those of their rows, and this head has no'
            ' row for each class'
          )
        rows = np.asarray(scoring[0])
        found = collapse.class_distances(rows, train.classes)
        measured |= dict(zip(catalog.DISTANCES, found, strict=True))
    return {name: measured[name] for name in self.metrics}

  def embeddings(
    self, weights, pool: pool_lib.Pool, numbers: np.ndarray | None = None
  ) -> np.ndarray:
    """Returns float32 [k, d] of all k examples, or of those of `numbers`."""
    return np.concatenate(list(self._embedded(weights, pool, numbers)))

  def predict(
    self, weights, pool: pool_lib.Pool, numbers: np.ndarray | None = None
  ) -> np.ndarray:
    """Returns int32 [k], the best class among all n for each of k examples."""
    rank = self._ranker(weights)
    return self._top(weights, rank, pool, numbers, 1)[:, 0]

  def _embedded(self, weights, pool, numbers) -> Iterator[np.ndarray]:
    """Yields the embeddings of blocks of examples."""
    # The encoder does not use the class table, which may be large.
    tables = {
      **weights.tables,
      classifier.CLASS: tf.zeros([0, self._model.row_dim]),
    }
    weights = weights._replace(tables=type(weights.tables)(tables))
    weights = tf.nest.map_structure(tf.convert_to_tensor, weights)
    embed = self._embed
    if pool.entries is not None:
      embed = self._embedding_of_sparse(weights)
    for x, _ in pool.blocks(numbers):
      yield embed(weights, sparse.as_tensors(x)).numpy()

  def _ranked(self, weights, rank, wanted) -> dict[str, float]:
    """Returns the test examples' metrics that need a ranking of classes."""
    ranked = {name for name in catalog.SCORES if name.startswith(_RANKED)}
    ranked.add(_MEAN)
    of_one = [name for name in _OF_ONE_LABEL if name in wanted]
    if not of_one and not wanted & ranked:
      return {}
    pool = self._dataset.test
    sets = scipy.sparse.issparse(pool.y)
    if sets and of_one:
      raise ValueError(
        f'{of_one[0]} is not defined for sets of labels; see p@1.'
      )
    k = max(catalog.AT) if wanted & ranked else 1
    top = self._top(weights, rank, pool, None, k)
    measured = {}
    if 'top1' in wanted:
      measured['top1'] = ranking.accuracy(top[:, 0], pool.y)
    if set(of_one) - {'top1'}:
      measured |= single_label.scores(top[:, 0], pool.y)
    if wanted & ranked:
      labels = pool.y if sets else multilabel.single_labels(pool.y)
      measured |= multilabel.scores(
        top, labels, self._dataset.propensity, catalog.AT
      )
      measured[_MEAN] = _mean_capped(measured)
    return measured

  def _of_validation(self, weights, rank) -> float:
    """Returns `_MEAN` of the validation examples."""
    pool = self._dataset.validation
    top = self._top(weights, rank, pool, None, max(catalog.AT))
    y = pool.y
    labels = y if scipy.sparse.issparse(y) else multilabel.single_labels(y)
    return _mean_capped(multilabel.scores(top, labels, ks=catalog.AT))

  def _top(self, weights, rank, pool, numbers, k: int) -> np.ndarray:
    """Returns int32 [examples, k], the best classes of each example."""
    top, held = [], []
    for embedded in self._embedded(weights, pool, numbers):
      held.append(embedded)
      if sum(map(len, held)) >= _RANKED_AT_ONCE:
        top.append(rank(np.concatenate(held), k))
        held = []
    if sum(map(len, held)):
      top.append(rank(np.concatenate(held), k))
    return np.concatenate(top) if top else np.zeros([0, k], np.int32)

  def _ranker(self, weights):
    """Returns a function: embeddings [e, ...], k -> int32 [e, k], best first."""
    table = weights.class_table
    scoring = self._model.head.scoring_rows(table)
    if scoring is None:
      return lambda embeddings, k: self._best_labels(embeddings, table, k)
    rows, bias = (None if t is None else np.asarray(t) for t in scoring)
    return lambda embeddings, k: top_classes.top_k(embeddings, rows, k, bias)

  def _embedding_of_sparse(self, weights):
    """Returns the function for sparse examples, traced once for any sizes."""
    if self._embed_sparse is None:
      specs = tf.nest.map_structure(
        lambda t: tf.TensorSpec(t.shape, t.dtype), weights
      )
      self._embed_sparse = tf.function(
        self._model.embed,
        input_signature=(specs, self._model.encoder.batch_spec()),
        autograph=False,
      )
    return self._embed_sparse

  @functools.cached_property
  def _some_training_examples(self) -> np.ndarray:
    """Numbers of whole clients' examples in a fixed random order, until enough."""
    partition, some = self._dataset.train.partition, [np.zeros(0, np.int64)]
    for index in np.random.default_rng(0).permutation(len(partition)):
      if sum(map(len, some)) >= _TRAIN_EXAMPLES:
        break
      some.append(partition.of_client(index))
    return np.concatenate(some)[:_TRAIN_EXAMPLES]


def _mean_capped(scores) -> float:
  """Returns the mean of capped P@k over `catalog.AT`."""
  return float(np.mean([scores[f'pc@{k}'] for k in catalog.AT]))
