"""The nearest of a gallery's embeddings: exactly, or by an index for millions.

Distances are Euclidean, between embeddings of length 1; they are in [0, 2].
"""

import numpy as np

from tff_xc import errors
from tff_xc.measure import ranking, search

EXACT, HNSW = 'exact', 'hnsw'
KINDS = EXACT, HNSW
# Of the graph: links of a point, and candidates as it is built and searched (Malkov
# and Yashunin, arXiv:1603.09320, whose M and ef these are).
_LINKS, _BUILT_WITH, _SEARCHED_WITH = 32, 80, 128


def unit(embeddings: np.ndarray) -> np.ndarray:
  """Returns float32 [k, d] of length 1, of embeddings [k, ...]."""
  flat = np.asarray(embeddings).reshape([len(embeddings), -1])
  return ranking.normalise(flat).astype(np.float32)


def build(kind: str, points: np.ndarray) -> 'Exact | Hnsw':
  """Builds an index of `KINDS` of points as of `unit`."""
  return {EXACT: Exact, HNSW: Hnsw}[kind](points)


def check(kind: str) -> None:
  """Refuses an index whose package is not installed."""
  if kind == HNSW:
    _faiss()


class Exact:
  """Compares a query with every point; of equal distances the first point comes first.

  `points` are float32 [n, d] of length 1.
  """

  def __init__(self, points: np.ndarray):
    self.points = points
    # Less their mean, so that points that all lie together can be told apart.
    self._centre = points.mean(axis=0, dtype=np.float64)
    self._centred = (points - self._centre).astype(np.float32)
    squares = np.einsum('nd,nd->n', *(self._centred,) * 2, dtype=np.float64)
    self._bias = -squares / 2

  def find(self, queries: np.ndarray, k: int) -> np.ndarray:
    """Returns int64 [q, k], nearest first; -1 where there are no more points.

    Queries are float32 [q, d] of length 1.
    """
    # |q - p|^2 = |q|^2 - 2 (q . p - |p|^2 / 2)
    centred = (queries - self._centre).astype(np.float32)
    found = search.top_k(centred, self._centred, k, self._bias)
    return _in_order(queries, self.points, found.astype(np.int64))


class Hnsw:
  """A graph of near points, by FAISS. It may miss some; see `recall`."""

  def __init__(self, points: np.ndarray):
    self.points = points
    faiss = _faiss()
    self._graph = faiss.IndexHNSWFlat(points.shape[1], _LINKS)
    self._graph.hnsw.efConstruction = _BUILT_WITH
    # Several threads would make another graph each time.
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
      self._graph.add(points)
    finally:
      faiss.omp_set_num_threads(threads)

  def find(self, queries: np.ndarray, k: int) -> np.ndarray:
    """As `Exact.find`."""
    self._graph.hnsw.efSearch = max(_SEARCHED_WITH, 2 * k)
    found = self._graph.search(queries, k)[1]
    return _in_order(queries, self.points, found)


def _in_order(queries, points, found: np.ndarray) -> np.ndarray:
  """Returns points found, each query's by its distances, which rounding may swap."""
  order = np.argsort(distances(queries, points, found), axis=1, kind='stable')
  return np.take_along_axis(found, order, axis=1)


def _faiss():
  try:
    import faiss
  except ModuleNotFoundError as e:
    raise errors.InputError(
      f'--index={HNSW} needs faiss, which is not installed for this NumPy; run `pip'
      f" install 'faiss-cpu<1.12'`, or leave --index out"
    ) from e
  return faiss


def distances(queries: np.ndarray, points: np.ndarray, found: np.ndarray) -> np.ndarray:
  """Returns float64 [q, k] of what `find` returned; nan where that is -1."""
  apart = queries[:, None].astype(np.float64) - points[found]
  apart = np.sqrt((apart**2).sum(axis=2))
  return np.where(found >= 0, apart, np.nan)


def recall(found: np.ndarray, exact: np.ndarray) -> float:
  """Returns the share of the exact neighbours int [q, k] that were found."""
  same = (found[:, :, None] == exact[:, None, :]) & (exact >= 0)[:, None, :]
  return float(same.any(axis=1).sum() / max((exact >= 0).sum(), 1))
