"""Writes small LEAF data sets in the format of LEAF's scripts."""

import json

import numpy as np


def content(data: dict, order=('users', 'num_samples', 'user_data')) -> dict:
  """Returns the JSON object of a file from a mapping of users to (x, y)."""
  parts = {
    'users': list(data),
    'num_samples': [len(y) for _, y in data.values()],
    'user_data': {u: {'x': x, 'y': y} for u, (x, y) in data.items()},
  }
  return {key: parts[key] for key in order}


def write(path, data: dict, **more) -> None:
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(json.dumps(content(data, **more)))


def image(*seed: int) -> list[float]:
  """Returns 784 pixels with values k / 255."""
  k = np.random.default_rng(seed).integers(0, 256, 784)
  return (k / 255).tolist()


def writer(user: int, size: int, num_classes: int = 62):
  """Returns (x, y) of a FEMNIST user."""
  return ([image(user, i) for i in range(size)], [(user + i) % num_classes for i in range(size)])
