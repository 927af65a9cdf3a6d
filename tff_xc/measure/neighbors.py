"""Finds the nearest embeddings of a gallery, either exactly or fast with an approximate index.

All distances are Euclidean distances between embeddings of length 1, and are in [0, 2].
"""

import numpy as np

from tff_xc import errors
from tff_xc.measure import ranking, search

EXACT, HNSW = 'exact', 'hnsw'
KINDS = EXACT, HNSW
# Parameters of the HNSW graph: the number of links of a point (M), and the numbers of candidates
# during construction (efConstruction) and search (efSearch). See Malkov and Yashunin,
# arXiv:1603.09320.
_LINKS, _BUILT_WITH, _SEARCHED_WITH = 32, 80, 128


def unit(embeddings: np.ndarray) -> np.ndarray:
  """Flattens embeddings [k, ...] and scales them to length 1. Returns float32 [k, d]."""
  flat = np.asarray(embeddings).reshape([len(embeddings), -1])
  return ranking.normalise(flat).astype(np.float32)


def build(kind: str, points: np.ndarray) -> 'Exact | Hnsw':
  """Builds an index of a kind in `KINDS`. `unit` converts embeddings to `points`."""
  return {EXACT: Exact, HNSW: Hnsw}[kind](points)


def check(kind: str) -> None:
  """Raises InputError if the package for this kind of index is not installed."""
  if kind == HNSW:
    _faiss()


class Exact:
  """Compares a query with every point.

  `points` are float32 [n, d] of length 1. If distances are equal, the earlier point comes first.
  """

  def __init__(self, points: np.ndarray):
    self.points = points
    # Subtract the mean, because float32 then distinguishes points that are close to each other.
    self._centre = points.mean(axis=0, dtype=np.float64)
    self._centred = (points - self._centre).astype(np.float32)
    squares = np.einsum('nd,nd->n', *(self._centred,) * 2, dtype=np.float64)
    self._bias = -squares / 2

  def find(self, queries: np.ndarray, k: int) -> np.ndarray:
    """Returns int64 [q, k], the indices of the k nearest points, the nearest first.

    Queries are float32 [q, d] of length 1. If there are fewer than k points, rows end in -1.
    """
    # |q - p|^2 = |q|^2 - 2 (q . p - |p|^2 / 2)
    centred = (queries - self._centre).astype(np.float32)
    found = search.top_k(centred, self._centred, k, self._bias)
    return _in_order(queries, self.points, found.astype(np.int64))


class Hnsw:
  """An HNSW graph of FAISS, which may miss neighbors. `recall` measures how many it finds."""

  def __init__(self, points: np.ndarray):
    self.points = points
    faiss = _faiss()
    self._graph = faiss.IndexHNSWFlat(points.shape[1], _LINKS)
    self._graph.hnsw.efConstruction = _BUILT_WITH
    # With several threads, every build would give a different graph.
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
      self._graph.add(points)
    finally:
      faiss.omp_set_num_threads(threads)

  def find(self, queries: np.ndarray, k: int) -> np.ndarray:
    """Returns approximate neighbors in the same form as `Exact.find`."""
    self._graph.hnsw.efSearch = max(_SEARCHED_WITH, 2 * k)
    found = self._graph.search(queries, k)[1]
    return _in_order(queries, self.points, found)


def _in_order(queries, points, found: np.ndarray) -> np.ndarray:
  """Sorts the found points of each query by distance, because rounding may have swapped them."""
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
  """Returns distances float64 [q, k] to the points that `find` found; nan for the index -1."""
  apart = queries[:, None].astype(np.float64) - points[found]
  apart = np.sqrt((apart**2).sum(axis=2))
  return np.where(found >= 0, apart, np.nan)


def recall(found: np.ndarray, exact: np.ndarray) -> float:
  """Returns the share of the `exact` neighbors, int [q, k], that are in `found`, int [q, k]."""
  same = (found[:, :, None] == exact[:, None, :]) & (exact >= 0)[:, None, :]
  return float(same.any(axis=1).sum() / max((exact >= 0).sum(), 1))
