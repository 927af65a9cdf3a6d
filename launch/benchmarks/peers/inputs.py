"""The arrays that all contenders start from, as the peers read them.

Imports NumPy only, and runs on any Python 3.8 or later.
"""

import numpy as np


def load(path, size=''):
  """Returns the arrays by name that a contender starts from.

  They are x [K, m, 28, 28] and y [K, m] of K clients, batch_size,
  learning_rate, the weights, and what else the benchmark writes.
  """
  with np.load(path) as file:
    names = {}
    for stored in file.files:
      name, _, of_size = stored.partition('@')
      if of_size in ('', size):
        names[name] = stored
    return {name: file[stored] for name, stored in names.items()}


def distance(after, before):
  """Returns the l2 norm of the difference of two lists of arrays.

  It works in pieces, because a contender's peak memory is measured.
  """
  if [np.shape(a) for a in after] != [np.shape(b) for b in before]:
    raise ValueError('the weights after a round have other shapes than before')
  total, piece = 0.0, 1 << 18
  for a, b in zip(after, before):  # noqa: B905 old Pythons
    a, b = np.ravel(np.asarray(a)), np.ravel(np.asarray(b))
    for start in range(0, a.size, piece):
      end = start + piece
      total += float(np.sum(np.square(a[start:end] - b[start:end])))
  return total**0.5
