"""FedAvg, FedOpt, FedProx and MOON in NumPy, written from the papers.

The encoder is linear, e = x A + b. Logits are scale * cos(e, w) over all n rows. All numbers are
float64. Weights are (kernel, bias, table).
"""

import numpy as np

from tests.algorithms import numpy_fedss


def contrast(weights, received, previous, x, temperature):
  """Returns (MOON's term of each example [B], its gradient with respect to e [B, d])."""
  e, of_received, of_previous = (
    x @ kernel + bias for kernel, bias, _ in (weights, received, previous)
  )
  u, g, p = map(numpy_fedss.normalised, (e, of_received, of_previous))

  def by(other):
    return np.exp((u * other).sum(1) / temperature)

  term = -np.log(by(g) / (by(g) + by(p)))
  share = by(p) / (by(g) + by(p))
  by_u = (share / temperature)[:, None] * (p - g)
  return term, numpy_fedss.back_through_norm(e, by_u)


def train_client(
  received,
  x,
  y,
  *,
  rate=0.1,
  epochs=2,
  scale=4.0,
  proximal_weight=0.0,
  previous=None,
  contrastive_weight=0.0,
  temperature=1.0,
  weight_decay=0.0,
  example_weights=None,
  frozen=(),
):
  """Runs full-batch gradient descent. Returns the weights and the last loss.

  `frozen` has the indices of the weights that keep their values.
  """
  received = [np.array(w, np.float64) for w in received]
  weights, loss = received, 0.0
  n = len(received[2])
  for _ in range(epochs):
    loss, *gradients = numpy_fedss.loss_and_gradients(
      *weights, x, y, np.ones([len(x), n], bool), np.zeros(n), scale, example_weights
    )
    for w, r, g in zip(weights, received, gradients, strict=True):
      loss += proximal_weight * ((w - r) ** 2).sum()
      g += 2 * proximal_weight * (w - r)
    if previous is not None:
      term, by_e = contrast(weights, received, previous, x, temperature)
      loss += contrastive_weight * term.mean()
      by_e = contrastive_weight * by_e / len(x)
      gradients[0] += x.T @ by_e
      gradients[1] += by_e.sum(0)
    weights = [
      w if i in frozen else w - rate * (g + weight_decay * w)
      for i, (w, g) in enumerate(zip(weights, gradients, strict=True))
    ]
  return weights, loss


def mean(models, counts):
  """Returns the mean of the clients' models, weighted by their numbers of examples."""
  total = sum(counts)
  return [
    sum(count / total * w for count, w in zip(counts, each, strict=True))
    for each in zip(*models, strict=True)
  ]


class Server:
  """The server's optimizer; the pseudo-gradient is the global model minus the mean model."""

  def __init__(self, kind, rate, momentum=0.0, epsilon=1e-8):
    self._kind, self._rate = kind, rate
    self._momentum, self._epsilon = momentum, epsilon
    self._first, self._second, self._largest, self._step = 0, 0, 0, 0

  def __call__(self, weights, gradients):
    """Returns the new weights."""

    def arrays(values):
      return np.concatenate([np.ravel(v) for v in values])

    moved = arrays(weights) - self._change(arrays(gradients))
    ends = np.cumsum([w.size for w in weights])[:-1]
    parts = np.split(moved, ends)
    return [p.reshape(w.shape) for p, w in zip(parts, weights, strict=True)]

  def _change(self, g):
    if self._kind == 'sgd':
      self._first = self._momentum * self._first + g
      return self._rate * self._first
    self._step += 1
    self._first = 0.9 * self._first + 0.1 * g
    self._second = 0.999 * self._second + 0.001 * g**2
    self._largest = np.maximum(self._largest, self._second)
    second = self._largest if self._kind == 'amsgrad' else self._second
    root = np.sqrt(second) / np.sqrt(1 - 0.999**self._step)
    first = self._first / (1 - 0.9**self._step)
    return self._rate * first / (root + self._epsilon)
