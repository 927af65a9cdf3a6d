"""TurboSVM-FL's server step: machines of all pairs of classes, and spread-out.

Compares it to the same step around scikit-learn, vectorised in NumPy, and to the
floor: the inner products of all clients' class rows. Growth, each in one run:

  python -m launch.benchmark svm --dim=64 --classes=62,964,2028 --passes=3
  python -m launch.benchmark svm --dim=64 --clients=8,64,512 --passes=3
  python -m launch.benchmark svm --dim=64 --classes=10000 --drawn=1000 --passes=3
"""

import dataclasses
import os

from launch.benchmarks import spec

# As published; C is that of the first round.
_BOUND, _TOLERANCE, _STEPS = 1.0, 1e-3, 50
_LEARNING_RATE, _EPSILON = 0.01, 1e-5
# A client's rows differ from the common ones by this part of their range.
_NOISE = 0.3
_EXAMPLES = 227
_BLOCK = 2048
# scikit-learn's step takes up to 40 ns for each number of the points of all pairs,
# and up to 27 bytes for each number of their normals. Beyond these it takes more
# than 2 minutes, or 4 GB; 2,028 classes x 65 numbers x 8 clients are just below.
_SKLEARN_POINTS, _SKLEARN_NORMALS = 3e9, 1.5e8


@dataclasses.dataclass(frozen=True)
class Settings:
  """Sizes of a step; every number of classes with every number of clients."""

  classes: tuple[int, ...] = (62,)  # Values of n.
  clients: tuple[int, ...] = (8,)  # Clients of a round.
  dim: int = 2048  # Embedding length; a row has a bias, too.
  # The most classes with machines; of more, so many are drawn.
  drawn: int = 10_000


def _drawn(settings: Settings, classes: int) -> int:
  return min(max(settings.drawn, 2), classes)


def make_arrays(settings: Settings, classes: int, clients: int):
  """Returns what the clients sent, the same in every process."""
  import numpy as np

  random = np.random.default_rng(0)
  shape = [classes, settings.dim + 1]
  uniform = lambda: 2 * random.random(shape, np.float32) - 1
  common = uniform()
  rows = np.empty([clients, *shape], np.float32)
  for of_client in rows:
    of_client[:] = (common + _NOISE * uniform()) * settings.dim**-0.5
  weights = random.integers(1, _EXAMPLES, clients).astype(np.float32)
  return rows, weights


def our_step(rows, weights, drawn: int):
  """Returns the first step, again and again, as a contender's round."""
  import numpy as np
  import tensorflow as tf

  from tff_xc.algorithms import svm
  from tff_xc.round import folding
  from tff_xc.round import optimizers
  from tff_xc.round import server

  clients, classes, row_dim = rows.shape
  step = svm.SupportVectors(
    classes,
    svm.Bound(_BOUND, 'constant'),
    subset=drawn,
    tolerance=_TOLERANCE,
    steps=_STEPS,
    optimizer=optimizers.TorchAdam(_LEARNING_RATE, epsilon=_EPSILON),
  )
  seed, places = tf.zeros([2], tf.int32), np.arange(classes)
  if drawn < classes:
    ids = step.drawn(seed).numpy()
    places = np.concatenate([ids, np.setdiff1d(places, ids)])
    rows = rows[:, np.argsort(places)]
  merged = folding.StackedRows(
    tf.constant(np.tile(np.arange(classes, dtype=np.int32), clients)),
    tf.constant(rows.reshape(-1, row_dim)),
    tf.constant(np.repeat(weights, classes)),
  )
  state = step.initialize(tf.TensorSpec([classes, row_dim]))

  table = tf.TensorSpec([None, row_dim])
  specs = tf.nest.map_structure(tf.TensorSpec.from_tensor, state)
  stacked = folding.StackedRows(
    tf.TensorSpec([None], tf.int32), table, tf.TensorSpec([None])
  )

  # For any number of clients, as in a round.
  @tf.function(
    input_signature=[specs, table, tf.TensorSpec([2], tf.int32), stacked],
    autograph=False,
  )
  def take(state, table, seed, merged):
    context = server.StepContext(seed, tf.constant(0), merged, lambda: table)
    return step.next(state, table, context)

  zeros = tf.zeros([classes, row_dim])

  def run():
    _, new, measured = take(state, zeros, seed, merged)
    new = new.numpy()
    names = 'support_vectors', 'pair_similarity'
    return {
      'check': {name: float(measured[name]) for name in names},
      'new': lambda: new[places],
    }

  return run


def sklearn_step(rows, weights, drawn: int):
  """Returns the step that its authors published, without their loops.

  scikit-learn fits the machines of all pairs in one call, their normals are read
  once, and the gradient of the spread-out is a few matrix products for each class.
  """
  import warnings

  import numpy as np
  from sklearn import svm

  clients, _, size = rows.shape
  points, pairs = rows[:, :drawn], drawn * (drawn - 1) / 2
  machine = svm.SVC(kernel='linear', C=_BOUND, tol=_TOLERANCE, max_iter=_STEPS)

  def mean(rows, weights):
    """Returns [n, size], means of [M, n, size] by weights [M, n or 1]."""
    weights = np.broadcast_to(weights, rows.shape[:2])
    total = np.einsum('mnd,mn->nd', rows, weights)
    return total / weights.sum(axis=0)[:, None]

  def run():
    new = mean(rows, weights[:, None])
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')  # It stops at the bound, as published.
      labels = np.tile(np.arange(drawn), clients)
      machine.fit(points.reshape(-1, size), labels)
    supports = np.zeros(clients * drawn, bool)
    supports[machine.support_] = True
    supports = supports.reshape(clients, drawn)
    # A class without a support vector keeps the mean of its rows.
    chosen = np.where(supports.any(axis=0), supports, True)
    new[:drawn] = mean(points, weights[:, None] * chosen)
    loss, gradient = similarities(new[:drawn], machine.coef_)
    # Adam's first step: both of its means, corrected, are of one gradient.
    new[:drawn] -= _LEARNING_RATE * gradient / (np.abs(gradient) + _EPSILON)
    return {
      'check': {
        'support_vectors': float(supports.sum() / drawn),
        'pair_similarity': float(loss / pairs),
      },
      'new': lambda: new,
    }

  return run


def similarities(rows, normals):
  """Returns eq. (8)'s sum, and its gradient by the rows.

  With h = normal / |normal| and u = (w_a - w_b) . h, a pair adds exp(-u^2 / 2),
  and -u exp(-u^2 / 2) h to the gradient of w_a, the opposite to that of w_b.
  """
  import numpy as np

  loss, gradient, start = 0.0, np.zeros(rows.shape), 0
  for a in range(len(rows) - 1):
    of_a = normals[start : start + len(rows) - 1 - a]
    start += len(of_a)
    lengths = np.sqrt(np.einsum('bd,bd->b', of_a, of_a))
    exists = lengths > 0
    lengths[~exists] = 1.0
    along = of_a @ rows[a] - np.einsum('bd,bd->b', of_a, rows[a + 1 :])
    along /= lengths
    terms = np.exp(-0.5 * along**2) * exists
    loss += terms.sum()
    shares = -along * terms / lengths
    gradient[a] += shares @ of_a
    gradient[a + 1 :] -= shares[:, None] * of_a
  return loss, gradient


def products(rows):
  """Computes the inner products of rows [R, row_dim], each once, in blocks."""
  for first in range(0, len(rows), _BLOCK):
    block = rows[first : first + _BLOCK]
    for second in range(first, len(rows), _BLOCK):
      block @ rows[second : second + _BLOCK].T


def build(contender: str, settings: Settings):
  """Builds a contender 'NAME@CLASSESxCLIENTS', in its own process."""
  name, size = spec.name_and_size(contender)
  classes, clients = map(int, size.split('x'))
  rows, weights = make_arrays(settings, classes, clients)
  drawn = _drawn(settings, classes)
  if name == 'product':
    flat = rows[:, :drawn].reshape(-1, rows.shape[-1])
    return lambda: products(flat) or {}
  if name == 'sklearn':
    step = sklearn_step(rows, weights, drawn)
  else:
    from tff_xc.runtime import registry

    if name == 'ours_1':
      # Before TensorFlow starts its threads.
      os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    registry.install('in_process')  # Sets one thread for each op.
    step = our_step(rows, weights, drawn)
  return lambda: {'check': step()['check']}


def _contenders(settings: Settings) -> list[str]:
  names = 'product', 'ours', 'ours_1', 'sklearn'
  left_out = _optional(settings)
  wanted = [
    f'{name}@{n}x{m}'
    for n in settings.classes
    for m in settings.clients
    for name in names
  ]
  return [name for name in wanted if name not in left_out]


def _optional(settings: Settings) -> list[str]:
  """Returns the sizes that take scikit-learn too long, or too much memory."""
  found = []
  for n in settings.classes:
    drawn = _drawn(settings, n)
    normals = drawn * (drawn - 1) / 2 * (settings.dim + 1)
    for m in settings.clients:
      if normals * m > _SKLEARN_POINTS or normals > _SKLEARN_NORMALS:
        found.append(f'sklearn@{n}x{m}')
  return found


BENCHMARK = spec.Benchmark(
  name='svm',
  summary="TurboSVM-FL's server step, 62 classes of 2,048 from 8 clients",
  settings=Settings,
  small={'classes': (5,), 'clients': (4,), 'dim': 6},
  contenders=_contenders,
  optional=_optional,
  notes=lambda settings: [
    f'{name} runs only if named: it takes more than 2 minutes or 4 GB'
    for name in _optional(settings)
  ],
  ratios=(('ours', 'product'), ('sklearn', 'ours'), ('ours_1', 'ours')),
  growth=('ours',),
  groups=(('ours', 'ours_1', 'sklearn'),),
  tolerances={'support_vectors': 0.005, 'pair_similarity': 1e-3},
  build=build,
)
