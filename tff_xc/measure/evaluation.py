"""Evaluates a global model on the held-out examples of a data set."""

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse
import tensorflow as tf

from tff_xc import classifier, errors, heads
from tff_xc.data import (
  client_data as client_data_lib,
  partition as partition_lib,
  pool as pool_lib,
  sparse,
)
from tff_xc.measure import catalog, client_scores, ranking, search

# 'train_top1' uses at most this many training examples.
_TRAIN_EXAMPLES = 5_000
# Rank at least this many embeddings at once, because each search reads the whole class table.
_RANKED_AT_ONCE = 2048
# The most ranks in memory at once. To leave out the `seen` classes of an example (maybe
# thousands), the search ranks as many additional classes.
_RANKS = 2**22
# Parts of a data set that some metrics need. A data set may lack any of them.
_OF_DATA = ('test', 'validation', 'retrieval', 'propensity')
_RETRIEVAL = {n for n, m in catalog.SCORES.items() if 'retrieval' in m.needs}
_MEAN = 'pc_mean'
# The metrics of `ranking.label_set_scores`, and the mean of capped P@k.
_RANKED = {
  *(
    name
    for name in catalog.SCORES
    if name.startswith(('p@', 'pc@', 'hit@', 'recall@', 'ndcg@', 'psp@'))
  ),
  _MEAN,
}
# The most scores in memory at once. Each example has a score for each of the n labels.
_SCORES = 2**25
_EXAMPLES = 256
# `top_labels` first compares groups. A group consists of this many consecutive labels.
_GROUP = 64


class Evaluator:
  """Measures a model by the metrics of `catalog.SCORES`.

  For each test or validation example, and for some training examples, the evaluator ranks all
  classes. A single label counts as a set of one label. For each retrieval example, the evaluator
  ranks the other retrieval examples.
  Metrics of class distances use the classes of training clients. Examples are read in blocks.
  Raises ValueError for a metric that does not exist or that the data do not allow, and
  InputError if no example has a label.
  """

  def __init__(
    self,
    model: classifier.EmbeddingClassifier,
    dataset: client_data_lib.FederatedDataset,
    metrics: Sequence[str],
    clients: partition_lib.Partition | None = None,
  ):
    """Checks `metrics`. `clients` are the held-out examples for `catalog.OF_CLIENTS`."""
    if unknown := set(metrics) - set(catalog.SCORES):
      raise ValueError(f'there is no metric {", ".join(sorted(unknown))}.')
    for name in metrics:
      for part in catalog.SCORES[name].needs:
        found = getattr(dataset, part) if part in _OF_DATA else True
        if not found:
          raise ValueError(f'{name} needs {part}, which the data set lacks.')
        labels = getattr(found, 'labels', None)
        if scipy.sparse.issparse(labels) and not labels.nnz:
          raise errors.InputError(f'no {part} example has a label; give examples with labels')
        if part == 'clients' and clients is None:
          raise ValueError(f'{name} needs clients with held-out examples.')
    self.metrics, self._clients = tuple(metrics), clients
    self._model = model
    self._dataset = dataset
    self._embed = tf.function(model.embed, autograph=False, reduce_retracing=True)
    self._embed_sparse = None
    self._best_labels = LabelSearch(model.head, model.num_classes)

  def __call__(self, weights: classifier.ModelWeights) -> dict[str, float]:
    """Returns every metric by name, in the unit of `catalog.SCORES`."""
    wanted, measured, data = set(self.metrics), {}, self._dataset
    if wanted & _RETRIEVAL:
      pool = data.retrieval
      # If there are several parallel networks, concatenate their embeddings.
      embeddings = self.embeddings(weights, pool).reshape([len(pool), -1])
      measured |= ranking.retrieval_scores(embeddings, pool.labels)
    if wanted & set(catalog.OF_CLIENTS):
      scores = self.of_clients(weights, self._clients)
      found = client_scores.statistics(scores)
      measured |= {n: found[n.rpartition('_')[2]] for n in catalog.OF_CLIENTS}
    if wanted - _RETRIEVAL:
      rank = self._ranker(weights)
      suffix = catalog.VALIDATION
      of_test = {name for name in wanted if not name.endswith(suffix)}
      measured |= self._ranked(weights, rank, of_test)
      if of_validation := {n.removesuffix(suffix) for n in wanted - of_test}:
        found = self._ranked(weights, rank, of_validation, data.validation)
        measured |= {name + suffix: value for name, value in found.items()}
      if 'train_top1' in wanted:
        pool, some = data.train.pool, self._some_training_examples
        if scipy.sparse.issparse(pool.labels):
          raise ValueError('train_top1 is not defined for sets of labels.')
        top = self._top(weights, rank, pool, some, 1)
        measured['train_top1'] = ranking.accuracy(top[:, 0], pool.labels[some])
      if wanted & set(catalog.DISTANCES):
        scoring = self._model.head.scoring_rows(weights.class_table)
        if scoring is None:
          raise ValueError(
            'distances of classes are those of their rows, and this head has no row for each class'
          )
        rows, bias = scoring
        ids = data.train.classes
        if bias is not None:  # FedProto's classes without a prototype have the bias -inf.
          ids = ids[np.asarray(bias)[ids] > -np.inf]
        found = ranking.class_distances(np.asarray(rows), ids)
        measured |= dict(zip(catalog.DISTANCES, found, strict=True))
    return {name: measured[name] for name in self.metrics}

  def embeddings(
    self, weights, pool: pool_lib.Pool, numbers: np.ndarray | None = None
  ) -> np.ndarray:
    """Returns embeddings float32 [k, d] of all examples, or of the examples `numbers`, int [k]."""
    return np.concatenate(list(self._embedded(weights, pool, numbers)))

  def predict(self, weights, pool: pool_lib.Pool, numbers: np.ndarray | None = None) -> np.ndarray:
    """Returns int32 [k], the first-ranked class of each example in `numbers` (None: of all)."""
    rank = self._ranker(weights)
    return self._top(weights, rank, pool, numbers, 1)[:, 0]

  def of_clients(self, weights, held_out: partition_lib.Partition) -> np.ndarray:
    """Returns float64 [K], `client_scores.top1` of each client's `held_out` examples."""
    pool = self._dataset.train.pool
    return client_scores.top1(pool, held_out, functools.partial(self.predict, weights, pool))

  def _embedded(self, weights, pool, numbers) -> Iterator[np.ndarray]:
    """Yields the embeddings of blocks of examples."""
    if not self._model.encoder.tied:
      # The encoder does not use the class table, which may be large.
      tables = {**weights.tables, classifier.CLASS: tf.zeros([0, self._model.row_dim])}
      weights = weights._replace(tables=type(weights.tables)(tables))
    weights = tf.nest.map_structure(tf.convert_to_tensor, weights)
    embed = self._embed
    if pool.entries is not None:
      embed = self._embedding_of_sparse(weights)
    for x, _ in pool.blocks(numbers):
      yield embed(weights, sparse.as_tensors(x)).numpy()

  def _ranked(self, weights, rank, wanted, pool=None) -> dict[str, float]:
    """Returns the metrics of ranked classes for the examples of `pool` (None: test examples)."""
    of_one = [
      name
      for name in catalog.OF_ONE_LABEL
      if name in wanted and 'test' in catalog.SCORES[name].needs
    ]
    if not of_one and not wanted & _RANKED:
      return {}
    pool = self._dataset.test if pool is None else pool
    if of_one and scipy.sparse.issparse(pool.labels):
      raise ValueError(f'{of_one[0]} is not defined for sets of labels; see p@1.')
    is_ranked = wanted & {*_RANKED, 'top5'}
    ks = catalog.ranks(wanted)
    measured, k = {}, max(ks) if is_ranked else 1
    losses = []
    if 'test_loss' in wanted:
      rank = self._with_losses(rank, weights.class_table, pool.labels, losses)
    top = self._top(weights, rank, pool, None, k)
    if wanted & _RANKED:
      sets = pool.labels
      if not scipy.sparse.issparse(sets):
        sets = ranking.single_labels(sets)
      measured = ranking.label_set_scores(top, sets, self._dataset.propensity, ks)
      measured[_MEAN] = float(np.mean([measured[f'pc@{k}'] for k in catalog.AT]))
    for n in (1, 5):
      if f'top{n}' in wanted:
        measured[f'top{n}'] = ranking.top_accuracy(top, pool.labels, n)
    if set(of_one) & {'macro_f1', 'mcc'}:
      measured |= ranking.single_label_scores(top[:, 0], pool.labels)
    if losses:
      measured['test_loss'] = float(np.mean(np.concatenate(losses)))
    return measured

  def _with_losses(self, rank, table, labels, losses: list):
    """Wraps `rank` so that it appends each example's cross-entropy to `losses`.

    For logits z and label y, the cross-entropy is log sum_c exp(z_c) - z_y, like the training
    loss over all classes. `labels`, int [e], have the same order as the ranked examples.
    """
    if self._model.head.scoring_rows(table) is None:
      raise ValueError('test_loss needs a logit of each class.')
    at_once = max(1, _SCORES // self._model.num_classes)

    def ranked(embeddings, k):
      for start in range(0, len(embeddings), at_once):
        some = embeddings[start : start + at_once]
        done = sum(map(len, losses))
        logits = self._model.logits(tf.constant(some), table, None)
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(
          labels[done : done + len(some)], logits
        )
        losses.append(each.numpy())
      return rank(embeddings, k)

    return ranked

  def _top(self, weights, rank, pool, numbers, k: int) -> np.ndarray:
    """Returns int32 [number of examples, k], the k best classes of each example."""
    top, first, seen = [np.zeros([0, k], np.int32)], 0, pool.seen
    if seen is not None and numbers is not None:
      seen = seen.some(numbers)
    for embeddings in _many(self._embedded(weights, pool, numbers)):
      if seen is None:
        top.append(rank(embeddings, k))
        continue
      known = seen.some(slice(first, first + len(embeddings)))
      first += len(embeddings)
      at_once = max(1, _RANKS // (k + int(known.lengths.max())))
      for start in range(0, len(embeddings), at_once):
        part = slice(start, start + at_once)
        own = known.some(part)
        best = rank(embeddings[part], k + int(own.lengths.max()))
        top.append(ranking.without(best, own.matrix(), k))
    return np.concatenate(top)

  def _ranker(self, weights):
    """Returns a function (embeddings [e, ...], k) -> classes int32 [e, k], the best first."""
    table = weights.class_table
    scoring = self._model.head.scoring_rows(table)
    if scoring is None:
      return lambda embeddings, k: self._best_labels(embeddings, table, k)
    rows, bias = (None if t is None else np.asarray(t) for t in scoring)
    return lambda embeddings, k: search.top_k(embeddings, rows, k, bias)

  def _embedding_of_sparse(self, weights):
    """Returns a function that embeds sparse examples, traced once for all batch sizes."""
    if self._embed_sparse is None:
      specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), weights)
      self._embed_sparse = tf.function(
        self._model.embed,
        input_signature=(specs, self._model.encoder.batch_spec()),
        autograph=False,
      )
    return self._embed_sparse

  @functools.cached_property
  def _some_training_examples(self) -> np.ndarray:
    """The indices of up to 5,000 training examples, from clients in a fixed random order."""
    partition, some = self._dataset.train.partition, [np.zeros(0, np.int64)]
    for index in np.random.default_rng(0).permutation(len(partition)):
      if sum(map(len, some)) >= _TRAIN_EXAMPLES:
        break
      some.append(partition.of_client(index))
    return np.concatenate(some)[:_TRAIN_EXAMPLES]


def _many(blocks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
  """Joins blocks to blocks of `_RANKED_AT_ONCE` or more embeddings. The last may have fewer."""
  held = []
  for embedded in blocks:
    held.append(embedded)
    if sum(map(len, held)) >= _RANKED_AT_ONCE:
      yield np.concatenate(held)
      held = []
  if sum(map(len, held)):
    yield np.concatenate(held)


class LabelSearch:
  """Finds the best labels for heads with scores that are not inner products.

  See `heads.Head.scoring_rows`. The search is traced once. To limit memory, it computes the
  scores of one block of examples at a time.
  """

  def __init__(self, head: heads.Head, num_labels: int):
    self._head, self._num_labels = head, num_labels
    self._of_block = tf.function(self._best, autograph=False, reduce_retracing=True)

  def __call__(self, embeddings: np.ndarray, table: tf.Tensor, k: int) -> np.ndarray:
    """Returns the best labels int32 [e, k] for embeddings [e, ...] and table [rows, d]."""
    table = tf.convert_to_tensor(table)
    at_once = max(1, min(_SCORES // self._num_labels, _EXAMPLES))
    best = np.empty([len(embeddings), k], np.int32)
    for start in range(0, len(embeddings), at_once):
      block = slice(start, start + at_once)
      best[block] = self._of_block(embeddings[block], table, k)
    return best

  def _best(self, embeddings, table, k: int) -> tf.Tensor:
    scores = self._head.label_scores(embeddings, table)
    return top_labels(tf.ensure_shape(scores, [self._num_labels, None]), k)


def top_labels(scores: tf.Tensor, k: int) -> tf.Tensor:
  """Returns int32 [b, k], the labels with the k largest scores of [n, b].

  If scores are equal, the lower label comes first. A label with a score that is not finite is
  never returned. A row with fewer than k labels ends in -1. Labels are divided into groups of
  consecutive labels. The k best labels are in the k groups with the largest maxima (if maxima
  are equal, in the first of these groups). Only the labels of these groups are sorted.
  """
  n, size = scores.shape[0], tf.shape(scores)[1]
  maxima = _group_maxima(scores)
  groups = tf.math.top_k(tf.transpose(maxima), min(k, maxima.shape[0])).indices
  # Sort the groups, because `tf.math.top_k` prefers the first of equal scores.
  starts = _GROUP * tf.sort(groups, axis=1)
  labels = tf.reshape(starts[:, :, None] + tf.range(_GROUP), [size, -1])
  examples = tf.broadcast_to(tf.range(size)[:, None], tf.shape(labels))
  places = tf.stack([tf.minimum(labels, n - 1), examples], axis=2)
  of_labels = _finite_or_least(tf.gather_nd(scores, places))
  of_labels = tf.where(labels < n, of_labels, -float('inf'))
  best = tf.math.top_k(of_labels, min(k, n))
  found = tf.gather(labels, best.indices, batch_dims=1)
  found = tf.where(tf.math.is_finite(best.values), found, -1)
  return tf.pad(found, [[0, 0], [0, k - min(k, n)]], constant_values=-1)


def _group_maxima(scores):
  """Returns float32 [number of groups, b], the largest score of each group."""
  n, size = scores.shape[0], tf.shape(scores)[1]
  whole = n - n % _GROUP
  groups = tf.reshape(scores[:whole], [whole // _GROUP, _GROUP, size])
  maxima = tf.reduce_max(_finite_or_least(groups), axis=1)
  if whole < n:
    rest = tf.reduce_max(_finite_or_least(scores[whole:]), axis=0, keepdims=True)
    maxima = tf.concat([maxima, rest], axis=0)
  return maxima


def _finite_or_least(scores):
  return tf.where(tf.math.is_finite(scores), scores, -float('inf'))
