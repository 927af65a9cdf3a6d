"""Exact ranking metrics: top-1 over all classes, MAP@10 and MAP@R.

No examples x classes (or gallery) matrix is ever held: scores are formed block
by block. They are formed **exactly**: vectors are rounded once to fixed point,
so that every product and every partial sum of a float64 matrix product is an
integer below 2^53. Equal vectors therefore tie exactly, and no result depends
on the block size, the BLAS or its threads. A plain float32 product gives two
equal columns scores that differ in the last bit, which silently reorders ties.
"""

from typing import NamedTuple

import numpy as np

# 2^25 per unit and unit norms: a squared distance is at most 2^52, exact in a
# float64; a rounding moves a component by 1.5e-8, under float32's own.
_RETRIEVAL_BITS = 25
# Products of an example (norm up to 1) and a class row (norm up to 1 of the
# largest's): 2^24 * 2^28 = 2^52.
_EXAMPLE_BITS = 24
_CLASS_BITS = 28


class RetrievalScores(NamedTuple):
  """Mean average precisions, fractions in [0, 1]; nan where undefined."""

  map_at_10: float
  map_at_r: float


def normalise(rows: np.ndarray) -> np.ndarray:
  """Returns `rows` [k, d] with unit Euclidean norm, float64; zero stays zero.

  1e-12 is added to the norms, as the cosine head does.
  """
  rows = np.asarray(rows, np.float64)
  return rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-12)


def predict_top1(
  embeddings: np.ndarray,
  class_table: np.ndarray,
  bias: np.ndarray | None = None,
  block: int = 2**22,
) -> np.ndarray:
  """Returns int32 [e]: each example's best class among all n, ties the lowest.

  The score is <embedding, row> + bias. For a cosine head pass the table through
  `normalise` (an example's own norm does not change its argmax).

  Scores resolve 2^-28 of the largest row's norm. A class whose score is not
  finite is never predicted; an example without any finite score gets -1, which
  no label equals.

  Args:
    embeddings: float [e, d].
    class_table: float [n, d].
    bias: float [n], or None.
    block: the most scores to hold at once, 8 bytes each.

  Raises:
    ValueError: for shapes that do not fit each other.
  """
  embeddings, class_table = np.asarray(embeddings), np.asarray(class_table)
  _check_table(embeddings, class_table, bias)
  table_scale = _power_of_two(_finite_norms(class_table).max(initial=0.0))
  predictions = np.full(len(embeddings), -1, np.int32)
  rows_at_once = max(1, min(len(embeddings), 1024, block))
  classes_at_once = max(1, block // rows_at_once)
  for first in range(0, len(embeddings), rows_at_once):
    examples = np.asarray(embeddings[first : first + rows_at_once], np.float64)
    scale = _power_of_two(_finite_norms(examples))[:, None]
    examples = np.rint(examples / scale * 2.0**_EXAMPLE_BITS)
    unit = scale * table_scale * 2.0 ** -(_EXAMPLE_BITS + _CLASS_BITS)
    best = np.full(len(examples), -np.inf)
    into = predictions[first : first + rows_at_once]
    for start in range(0, len(class_table), classes_at_once):
      rows = np.asarray(
        class_table[start : start + classes_at_once], np.float64
      )
      rows = np.rint(rows / table_scale * 2.0**_CLASS_BITS)
      with np.errstate(invalid='ignore', over='ignore'):
        scores = (examples @ rows.T) * unit
        if bias is not None:
          scores += np.asarray(
            bias[start : start + classes_at_once], np.float64
          )
      scores[~np.isfinite(scores)] = -np.inf
      index = scores.argmax(axis=1)
      value = scores[np.arange(len(scores)), index]
      better = value > best  # An equal score in a later block loses: > not >=.
      best[better] = value[better]
      into[better] = (start + index[better]).astype(np.int32)
  return predictions


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> float:
  """Returns the share of `predictions` int [e] equal to `labels` int [e].

  Raises:
    ValueError: without examples, or for lengths that differ.
  """
  predictions, labels = np.asarray(predictions), np.asarray(labels)
  if predictions.shape != labels.shape or not len(labels):
    raise ValueError(
      f'Expected as many predictions as labels and at least one; got '
      f'{predictions.shape} and {labels.shape}.'
    )
  return float(np.mean(predictions == labels))


def confusion(
  predictions: np.ndarray, labels: np.ndarray, class_ids: np.ndarray
) -> np.ndarray:
  """Returns one client's confusion matrix (FedSS, fig. 7), int64 [c, c + 1].

  Row i counts the examples of class `class_ids[i]`; column j < c those of them
  predicted as `class_ids[j]`, column c those predicted as a class that the
  client does not hold.

  Args:
    predictions: int [e], over all n classes.
    labels: int [e], each in `class_ids`.
    class_ids: int [c], distinct.

  Raises:
    ValueError: for ids that repeat, or a label that is not among them.
  """
  class_ids = np.asarray(class_ids)
  order = np.argsort(class_ids, kind='stable')
  ids = class_ids[order]
  if not len(ids) or (ids[1:] == ids[:-1]).any():
    raise ValueError('class_ids must be distinct and at least one.')

  def place(values):  # Returns positions in class_ids, c where absent.
    at = np.minimum(np.searchsorted(ids, values), len(ids) - 1)
    return np.where(ids[at] == values, order[at], len(ids))

  rows, columns = place(np.asarray(labels)), place(np.asarray(predictions))
  if (rows == len(ids)).any():
    raise ValueError('a label is not among class_ids.')
  matrix = np.zeros((len(ids), len(ids) + 1), np.int64)
  np.add.at(matrix, (rows, columns), 1)
  return matrix


def map_at_10(embeddings: np.ndarray, labels: np.ndarray) -> float:
  """Returns FedSS's MAP@10 (eq. 9), a fraction; see `retrieval_scores`."""
  return retrieval_scores(embeddings, labels).map_at_10


def map_at_r(embeddings: np.ndarray, labels: np.ndarray) -> float:
  """Returns Musgrave's MAP@R, a fraction; see `retrieval_scores`."""
  return retrieval_scores(embeddings, labels).map_at_r


def retrieval_scores(
  embeddings: np.ndarray, labels: np.ndarray, block: int = 2**22
) -> RetrievalScores:
  """Returns MAP@10 and MAP@R from one nearest-neighbour search.

  Every example is a query against all others (`nearest_neighbours`). With P(i)
  the precision among the i nearest and rel(i) whether the i-th is of the
  query's class, of which R_q other examples exist:
    MAP@10: mean over all queries of 1/10 sum_{i<=10} P(i) rel(i): R and the
      denominator are 10 for every query (FedSS, eq. 9); a query without a
      relevant example scores 0 and is kept. Perfect retrieval of a class of c
      examples reaches min(c - 1, 10) / 10 only.
    MAP@R: mean over the queries with R_q > 0 of 1/R_q sum_{i<=R_q} P(i) rel(i)
      (Musgrave et al., 2020); nan where no query is left.

  Args:
    embeddings: float [e, d], of any norm.
    labels: int [e].
    block: the most distances to hold at once, 8 bytes each.

  Raises:
    ValueError: without examples, or for lengths that differ.
  """
  labels = np.asarray(labels)
  if len(labels) != len(embeddings) or not len(labels):
    raise ValueError(
      f'Expected as many embeddings as labels and at least one; got '
      f'{len(embeddings)} and {len(labels)}.'
    )
  _, inverse, counts = np.unique(
    labels, return_inverse=True, return_counts=True
  )
  relevant = counts[inverse] - 1
  k = max(10, int(relevant.max()))
  at_10 = np.zeros(len(labels))
  at_r = np.zeros(len(labels))
  for first, neighbours in _neighbour_blocks(embeddings, k, block):
    queries = slice(first, first + len(neighbours))
    hits = (labels[neighbours] == labels[queries, None]) & (neighbours >= 0)
    ranks = np.arange(1, hits.shape[1] + 1)
    gains = np.where(hits, hits.cumsum(axis=1) / ranks, 0.0)
    at_10[queries] = gains[:, :10].sum(axis=1) / 10
    within = np.where(ranks <= relevant[queries, None], gains, 0.0)
    at_r[queries] = within.sum(axis=1) / np.maximum(relevant[queries], 1)
  has_relevant = relevant > 0
  return RetrievalScores(
    float(at_10.mean()),
    float(at_r[has_relevant].mean()) if has_relevant.any() else float('nan'),
  )


def nearest_neighbours(
  embeddings: np.ndarray, k: int, block: int = 2**22
) -> np.ndarray:
  """Returns int64 [e, k]: each example's k nearest others, nearest first.

  Euclidean distance between l2-normalised embeddings; the query itself is
  removed by its index; ties go to the lower index. Where fewer than k others
  exist, or are finite, the row ends in -1; a query that is not finite has none.

  Args:
    embeddings: float [e, d].
    k: how many, at least 1.
    block: the most distances to hold at once, 8 bytes each.
  """
  blocks = [found for _, found in _neighbour_blocks(embeddings, k, block)]
  return np.concatenate(blocks or [np.zeros((0, k), np.int64)])


def _neighbour_blocks(embeddings, k, block):
  """Yields (index of the first query, int64 [queries, k]) in order."""
  vectors = np.rint(normalise(embeddings) * 2.0**_RETRIEVAL_BITS)
  finite = np.isfinite(vectors).all(axis=1)
  vectors[~finite] = 0.0
  squared_norms = np.einsum('ed,ed->e', vectors, vectors)
  squared_norms[~finite] = np.inf
  queries_at_once = max(1, block // len(vectors))
  for first in range(0, len(vectors), queries_at_once):
    queries = vectors[first : first + queries_at_once]
    # The squared distance but for the query's own norm, which orders nothing.
    distances = queries @ vectors.T
    distances *= -2.0
    distances += squared_norms
    at = np.arange(len(queries))
    distances[at, first + at] = np.inf
    distances[~finite[first : first + len(queries)]] = np.inf
    found = np.full((len(queries), k), -1, np.int64)
    kept = min(k, len(vectors))
    found[:, :kept] = _smallest(distances, kept)
    yield first, found


def _smallest(values: np.ndarray, k: int) -> np.ndarray:
  """Returns int64 [q, k]: columns of each row's k smallest, in stable order.

  Columns of infinite values come out as -1.
  """
  kth = np.partition(values, k - 1, axis=1)[:, k - 1 : k]
  chosen = values <= kth
  surplus = np.flatnonzero(chosen.sum(axis=1) > k)
  if len(surplus):  # Several columns tie for the last places: the lowest win.
    tied = values[surplus] == kth[surplus]
    places = k - (values[surplus] < kth[surplus]).sum(axis=1, keepdims=True)
    tied_rank = tied.cumsum(axis=1, dtype=np.int32)
    chosen[surplus] &= ~tied | (tied_rank <= places)
  columns = np.nonzero(chosen)[1].reshape(len(values), k)
  picked = np.take_along_axis(values, columns, axis=1)
  order = np.argsort(picked, axis=1, kind='stable')
  columns = np.take_along_axis(columns, order, axis=1)
  columns[np.isinf(np.take_along_axis(picked, order, axis=1))] = -1
  return columns


def _check_table(embeddings, class_table, bias):
  if embeddings.ndim != 2 or class_table.ndim != 2:
    raise ValueError('embeddings and class_table must be matrices.')
  if embeddings.shape[1] != class_table.shape[1]:
    raise ValueError(
      f'embeddings have {embeddings.shape[1]} dimensions, the class table '
      f'{class_table.shape[1]}.'
    )
  if bias is not None and len(bias) != len(class_table):
    raise ValueError(f'{len(bias)} biases for {len(class_table)} classes.')


def _finite_norms(rows: np.ndarray) -> np.ndarray:
  """Returns float64 [k]: Euclidean norms, 0 where a row is not finite."""
  norms = np.sqrt(np.einsum('kd,kd->k', rows, rows, dtype=np.float64))
  return np.where(np.isfinite(norms), norms, 0.0)


def _power_of_two(norm):
  """Returns the least power of two above `norm`; 1 for a norm of 0."""
  return np.where(norm > 0, np.exp2(np.frexp(norm)[1]), 1.0)
