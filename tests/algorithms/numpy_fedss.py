"""FedSS in NumPy, written from the paper without code of this package.

The encoder is linear, e = x A + b. Logits are scale * cos(e, w). All numbers are float64.
"""

import numpy as np


def normalised(v):
  return v / np.linalg.norm(v, axis=-1, keepdims=True)


def back_through_norm(v, grad):
  """Returns the gradient with respect to v from the gradient with respect to v / |v|."""
  norm = np.linalg.norm(v, axis=-1, keepdims=True)
  unit = v / norm
  return (grad - unit * (grad * unit).sum(-1, keepdims=True)) / norm


def loss_and_gradients(kernel, bias, rows, x, target, terms, shift, scale, weights=None):
  """Computes softmax cross entropy over `terms` [B, S]; `shift` [S] is added to the logits.

  The loss is the mean over the examples, weighted by `weights` [B].
  """
  share = np.ones(len(x)) if weights is None else weights
  share = share / share.sum()
  e = x @ kernel + bias
  u, v = normalised(e), normalised(rows)
  logits = np.where(terms, scale * u @ v.T + shift, -np.inf)
  p = np.exp(logits - logits.max(1, keepdims=True))
  p /= p.sum(1, keepdims=True)
  batch = np.arange(len(x))
  loss = -(share * np.log(p[batch, target])).sum()
  p[batch, target] -= 1
  grad_logits = scale * p * share[:, None]
  grad_e = back_through_norm(e, grad_logits @ v)
  grad_rows = back_through_norm(rows, grad_logits.T @ u)
  return loss, x.T @ grad_e, grad_e.sum(0), grad_rows


def terms_and_shift(method, held, own, labels, num_classes, correct):
  """Returns the set T of each example, [B, S], and the correction of the logits, [S]."""
  positive = np.isin(held, own)
  target = held[None, :] == labels[:, None]
  terms = {
    'fedss': np.ones_like(target),
    'negonly': target | ~positive,
    'posonly': np.broadcast_to(positive, target.shape),
  }[method]
  negatives = (~positive).sum()
  shift = np.zeros(len(held))
  if correct and negatives:
    shift[~positive] = -np.log(negatives / (num_classes - len(own)))
  return terms, shift


def train_client(method, weights, held, x, y, *, correct, rate=0.1, epochs=2, scale=4.0):
  """Runs full-batch SGD on one client. Returns the changes of kernel, bias and rows."""
  kernel, bias, table = (np.array(w, np.float64) for w in weights)
  start = kernel, bias, table[held]
  rows = table[held]
  own = np.unique(y)
  target = np.array([int(np.flatnonzero(held == label)[0]) for label in y])
  terms, shift = terms_and_shift(method, held, own, y, len(table), correct)
  for _ in range(epochs):
    _, grad_kernel, grad_bias, grad_rows = loss_and_gradients(
      kernel, bias, rows, x, target, terms, shift, scale
    )
    kernel = kernel - rate * grad_kernel
    bias = bias - rate * grad_bias
    rows = rows - rate * grad_rows
  return kernel - start[0], bias - start[1], rows - start[2]


def server_round(weights, velocity, clients, *, learning_rate, momentum):
  """Runs the server of Algorithm 1: a momentum step on the mean over all examples.

  Args:
    weights: (kernel, bias, table).
    velocity: arrays of the same shapes.
    clients: (ids of the client's rows, changes, number of examples) of each client.

  Returns:
    (weights, velocity).
  """
  total = sum(count for _, _, count in clients)
  mean = [np.zeros_like(w, dtype=np.float64) for w in weights]
  for held, (kernel, bias, rows), count in clients:
    mean[0] += count / total * kernel
    mean[1] += count / total * bias
    for class_id, row in zip(held, rows, strict=True):
      mean[2][class_id] += count / total * row
  velocity = [momentum * v - m for v, m in zip(velocity, mean, strict=True)]
  weights = [w - learning_rate * v for w, v in zip(weights, velocity, strict=True)]
  return weights, velocity
