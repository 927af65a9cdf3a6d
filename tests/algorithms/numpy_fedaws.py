"""FedAwS in NumPy, written from the paper without code of this package.

The encoder is linear, e = x A + b. Rows have norm 1. All numbers are float64.
"""

import numpy as np

from tests.algorithms import numpy_fedss

normalised = numpy_fedss.normalised


def hinge_and_gradients(kernel, bias, rows, x, target, margin=0.9):
  """Returns the mean of max(0, margin - cos)^2 (eq. 23) and its gradients."""
  e = x @ kernel + bias
  u, v = normalised(e), normalised(rows[target])
  short = np.maximum(0.0, margin - (u * v).sum(1))
  grad_cosine = -2 * short / len(x)
  grad_e = numpy_fedss.back_through_norm(e, grad_cosine[:, None] * v)
  of_rows = numpy_fedss.back_through_norm(rows[target], grad_cosine[:, None] * u)
  grad_rows = np.zeros_like(rows)
  np.add.at(grad_rows, target, of_rows)
  return (short**2).mean(), x.T @ grad_e, grad_e.sum(0), grad_rows


def contrastive(embeddings, rows, y, alpha, beta, margin, distance):
  """Computes eq. (6) for each example by loops, or eq. (11) and (12) for 'cosine'."""
  found = []
  for e, own in zip(embeddings, y, strict=True):
    total = 0.0
    for c, row in enumerate(rows):
      s = normalised(e) @ normalised(row)
      d = 1 - s if distance == 'cosine' else (2 - 2 * s) ** 0.5
      pushed = beta * max(0.0, margin - d) ** 2
      total += alpha * d**2 if c == own else pushed
    found.append(total)
  return np.array(found)


def train_client(weights, held, x, y, *, rate=0.2, epochs=2, fixed_rows=False):
  """Runs full-batch SGD on one client. Returns the changes of kernel, bias and rows."""
  kernel, bias, table = (np.array(w, np.float64) for w in weights)
  start = kernel, bias, table[held]
  rows = table[held]
  target = np.array([int(np.flatnonzero(held == label)[0]) for label in y])
  for _ in range(epochs):
    _, *grads = hinge_and_gradients(kernel, bias, rows, x, target)
    kernel, bias = kernel - rate * grads[0], bias - rate * grads[1]
    if not fixed_rows:
      rows = rows - rate * grads[2]
  return kernel - start[0], bias - start[1], rows - start[2]


def unit_rows(count, dim=5, seed=0):
  """Draws rows of length 1, float32 [count, dim]."""
  rows = np.random.default_rng(seed).normal(size=[count, dim])
  return normalised(rows).astype(np.float32)


def neighbours(rows, k):
  """Returns the k nearest other rows of each row. For ties, the smaller index comes first."""
  similar = rows @ rows.T
  np.fill_diagonal(similar, -np.inf)
  return np.argsort(-similar, axis=1, kind='stable')[:, :k]


def regulariser(rows, pairs, distance, margin=0.0):
  """Returns eq. (8) on the given pairs (c, y), or eq. (7) if margin > 0."""
  c, y = np.transpose(pairs)
  s = (rows[c] * rows[y]).sum(1)
  squared = 2 - 2 * s if distance == 'sq_euclidean' else (1 - s) ** 2
  each = np.maximum(0.0, margin - squared**0.5) ** 2 if margin else -squared
  return each.sum()


def numeric_gradient(function, rows, step=1e-6):
  """Computes the gradient by central differences."""
  gradient = np.zeros_like(rows)
  for place in np.ndindex(rows.shape):
    moved = [rows.copy(), rows.copy()]
    moved[0][place] += step
    moved[1][place] -= step
    gradient[place] = (function(moved[0]) - function(moved[1])) / (2 * step)
  return gradient


def spread_gradient(rows, k, distance, margin=0.0):
  """Returns the gradient with respect to the rows, for constant neighbours."""
  count = len(rows)
  k = count - 1 if margin or not k else min(k, count - 1)
  near = neighbours(normalised(rows), k)
  pairs = np.array([(c, y) for c in range(count) for y in near[c]])
  return numeric_gradient(lambda r: regulariser(r, pairs, distance, margin), rows)


def server_round(weights, clients, spread=None, normalise=True, average=False):
  """Runs the server of Algorithm 1: a uniform mean, replaced rows, spreadout, and norm 1.

  With `average`, encoder and rows move by the mean of all changes, weighted by numbers of examples.
  In the mean for a row, the change of a client without the class is zero.

  Args:
    weights: (kernel, bias, table).
    clients: (ids of the client's rows, changes, number of examples) of each client.
    spread: maps the rows of the round's classes to these rows after a step; or None.
    normalise: whether to scale these rows to norm 1.
  """
  kernel, bias, table = (np.array(w, np.float64) for w in weights)
  counts = np.array([n for _, _, n in clients], np.float64)
  shares = counts / counts.sum() if average else np.full(len(counts), 1.0)
  shares /= shares.sum()
  kernel = kernel + sum(s * d[0] for s, (_, d, _) in zip(shares, clients, strict=True))
  bias = bias + sum(s * d[1] for s, (_, d, _) in zip(shares, clients, strict=True))
  new = {}
  for held, deltas, count in clients:
    for class_id, delta in zip(held, deltas[2], strict=True):
      new.setdefault(class_id, []).append((count, table[class_id] + delta))
  ids = np.array(sorted(new))

  def total(c):
    return counts.sum() if average else sum(n for n, _ in new[c])

  rows = np.stack(
    [table[c] + sum(n * (row - table[c]) for n, row in new[c]) / total(c) for c in ids]
  )
  rows = spread(rows) if spread else rows
  table[ids] = normalised(rows) if normalise else rows
  return kernel, bias, table
