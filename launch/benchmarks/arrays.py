"""Synthetic clients and initial weights, the same for every contender."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Client(NamedTuple):
  """A client's images, float32 [n_k, 28, 28] in [0, 1], and labels int32."""

  x: np.ndarray
  y: np.ndarray


def femnist_like(
  clients: int, examples: int, num_classes: int, seed: int = 0
) -> list[Client]:
  """Returns clients with 28x28 images: half class pattern, half noise."""
  random = np.random.default_rng(seed)
  patterns = random.random([num_classes, 28, 28], np.float32)
  made = []
  for _ in range(clients):
    y = random.integers(0, num_classes, examples, dtype=np.int32)
    noise = random.random([examples, 28, 28], np.float32)
    made.append(Client((patterns[y] + noise) / 2, y))
  return made


def torch_uniform(
  shapes: Mapping[str, Sequence[int]], seed: int = 0
) -> dict[str, np.ndarray]:
  """Draws initial weights as PyTorch: U(-1, 1) / sqrt(fan_in), biases too."""
  random = np.random.default_rng(seed)
  weights, fan_in = {}, 1
  for name, shape in shapes.items():
    if name.endswith('/kernel'):
      fan_in = int(np.prod(shape[:-1]))
    values = random.uniform(-1.0, 1.0, shape) * fan_in**-0.5
    weights[name] = values.astype(np.float32)
  return weights
