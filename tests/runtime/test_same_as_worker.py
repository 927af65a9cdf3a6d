"""The in-process runtime returns the same results as TFF's own worker."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import registered
from tests import tiny
from tests import tiny_sparse
from tff_xc.algorithms import registry as algorithms

_ROUNDS = 3
# Cohorts' sizes repeat and change: a round must not depend on the last cohort.
_COHORTS = (
  [[0, 1], [2, 3, 3], [4, 5, 6, 6]],
  [[7, 7, 8]],
  [[0, 2], [9], [1, 1, 1, 3], [4, 11], [5]],
)


@pytest.fixture(scope='module')
def contexts(in_process_context, tff_worker):
  """Yields both runtimes by name; restores the worker as the default."""
  yield {'in_process': in_process_context, 'worker': tff_worker}
  tff.framework.set_default_context(tff_worker)


def _on_both(contexts, run):
  found = {}
  for name, context in contexts.items():
    tff.framework.set_default_context(context)
    found[name] = run()
  return found['in_process'], found['worker']


def _numbers(value) -> list[np.ndarray]:
  """Returns the leaves of a state or of metrics, in order."""
  if isinstance(value, tf.data.Dataset):
    value = list(value)
  arrays = [np.asarray(leaf) for leaf in tf.nest.flatten(value)]
  return [a.astype('S') if a.dtype.kind in 'OS' else a for a in arrays]


def assert_equal(ours, theirs, relative: float = 1e-4) -> None:
  left, right = _numbers(ours), _numbers(theirs)
  assert len(left) == len(right)
  for a, b in zip(left, right, strict=True):
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    if a.dtype.kind == 'f':
      scale = max(np.abs(b).max(initial=0.0), 1e-3)
      np.testing.assert_allclose(a, b, rtol=relative, atol=relative * scale)
    else:
      np.testing.assert_array_equal(a, b)


# Between them they have every part of a round; the others are slow.
_QUICK = ('fedss',)
_ADAM = {'server_optimizer': 'adam'}
_OPTIONS = {'importance_weights': 'train', 'weight_decay': 0.1}
_CHANGED = [
  pytest.param(
    name,
    changes,
    marks=[pytest.mark.slow]
    if name not in _QUICK or 'train' not in changes
    else [],
  )
  for name, algorithm in algorithms.ALGORITHMS.items()
  for changes in ({}, _ADAM, {**_OPTIONS, 'train': 'bottleneck'})
  if set(changes) <= set(algorithm.names)
  if name != 'fedmlh' or 'train' not in changes  # It hashes classes.
]


@pytest.mark.parametrize(('name', 'changes'), _CHANGED)
def test_every_registered_algorithm(contexts, name, changes):
  process = registered.process(name, **changes)
  keeps = registered.algorithm(name, **changes).client_state

  def run():
    clients = registered.Clients(keeps)
    state, metrics = process.initialize(), []
    for labels in _COHORTS:
      output = process.next(state, clients.attach(tiny.cohort(labels)))
      clients.take(output.metrics)
      state = output.state
      metrics.append(output.metrics)
    return state, metrics, process.get_model_weights(state)

  assert_equal(*_on_both(contexts, run))


@pytest.mark.slow
@pytest.mark.parametrize('name', ['fedaws', 'fedss', 'fullsoftmax'])
@pytest.mark.parametrize('max_features', [0, 4])
def test_feature_tables_by_rows(contexts, name, max_features):
  process = registered.process(
    name, registered.SPARSE, max_features, server_optimizer='adagrad'
  )
  clients = [[(3, [[0, 1], [2]]), (5, [[]])], [(7, [[8, 1, 0]])]]

  def run():
    state = process.initialize()
    for seed in range(2):
      output = process.next(state, tiny_sparse.cohort(clients, seed))
      state = output.state
    return state, output.metrics, process.get_model_weights(state)

  assert_equal(*_on_both(contexts, run))


# -- algorithms and aggregators of TFF --


def _linear_model():
  spec = collections.OrderedDict(
    x=tf.TensorSpec([None, 5], tf.float32), y=tf.TensorSpec([None], tf.int32)
  )
  model = tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer([5]),
      tf.keras.layers.Dense(
        4, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1)
      ),
    ]
  )
  return tff.learning.models.functional_model_from_keras(
    model,
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=spec,
    metrics_constructor=lambda: collections.OrderedDict(
      accuracy=tf.keras.metrics.SparseCategoricalAccuracy()
    ),
  )


def _keras_model():
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer([5]),
        tf.keras.layers.Dense(3, kernel_initializer='ones'),
        tf.keras.layers.BatchNormalization(),
        tf.keras.layers.Dense(4, kernel_initializer='ones'),
      ]
    ),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=collections.OrderedDict(
      x=tf.TensorSpec([None, 5], tf.float32), y=tf.TensorSpec([None], tf.int32)
    ),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def _datasets(number: int, round_number: int) -> list[tf.data.Dataset]:
  random = np.random.default_rng([number, round_number])
  return [
    tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
        x=random.normal(size=[size, 5]).astype(np.float32),
        y=random.integers(0, 4, size).astype(np.int32),
      )
    ).batch(3)
    for size in random.integers(1, 9, number)
  ]


_SGD = tff.learning.optimizers.build_sgdm
_PROCESSES = {
  'fed_avg': lambda: tff.learning.algorithms.build_weighted_fed_avg(
    _linear_model(), _SGD(0.1), _SGD(1.0, 0.9)
  ),
  'fed_avg_keras': lambda: tff.learning.algorithms.build_weighted_fed_avg(
    _keras_model, _SGD(0.1), _SGD(1.0)
  ),
  'fed_avg_dataset_reduce': (
    lambda: tff.learning.algorithms.build_weighted_fed_avg(
      _linear_model(),
      _SGD(0.1),
      loop_implementation=tff.learning.LoopImplementation.DATASET_REDUCE,
    )
  ),
  'fed_prox': lambda: tff.learning.algorithms.build_weighted_fed_prox(
    _linear_model(), 0.3, _SGD(0.1)
  ),
  'fed_sgd': lambda: tff.learning.algorithms.build_fed_sgd(_linear_model()),
  'mime_lite': lambda: tff.learning.algorithms.build_weighted_mime_lite(
    _linear_model(), _SGD(0.1, 0.9)
  ),
  'eval': lambda: tff.learning.algorithms.build_fed_eval(_linear_model()),
}


def _run_learning(process):
  def run():
    state, metrics = process.initialize(), []
    for round_number, number in enumerate([3, 1, 4]):
      output = process.next(state, _datasets(number, round_number))
      state = output.state
      metrics.append(output.metrics)
    return state, metrics

  return run


@pytest.mark.parametrize(
  'name',
  [
    pytest.param(
      n,
      marks=[pytest.mark.slow]
      if n not in ('fed_avg', 'eval')  # These have all parts of the others.
      else [],
    )
    for n in _PROCESSES
  ],
)
def test_algorithms_of_tff(contexts, name):
  assert_equal(*_on_both(contexts, _run_learning(_PROCESSES[name]())))


_AGGREGATORS = {
  'robust': lambda: tff.learning.robust_aggregator(),
  'clipping': lambda: tff.aggregators.clipping_factory(
    0.1, tff.aggregators.MeanFactory()
  ),
  'adaptive_clipping': lambda: tff.aggregators.clipping_factory(
    tff.aggregators.PrivateQuantileEstimationProcess.no_noise(0.1, 0.5, 0.2),
    tff.aggregators.MeanFactory(),
  ),
  'zeroing': lambda: tff.aggregators.zeroing_factory(
    2.0, tff.aggregators.MeanFactory()
  ),
  'dp': lambda: tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
    noise_multiplier=0.0, clients_per_round=3
  ),
  'secure_sum': lambda: tff.aggregators.UnweightedMeanFactory(
    tff.aggregators.SecureSumFactory(5.0)
  ),
}


@pytest.mark.parametrize(
  'name',
  [
    pytest.param(
      n,
      # 'dp' clips and adapts; TFF's robust aggregator also runs in `test_robust`.
      marks=[] if n == 'dp' else [pytest.mark.slow],
    )
    for n in _AGGREGATORS
  ],
)
def test_aggregators_of_tff(contexts, name):
  aggregator = _AGGREGATORS[name]()
  weighted = isinstance(aggregator, tff.aggregators.WeightedAggregationFactory)
  builder = (
    tff.learning.algorithms.build_weighted_fed_avg
    if weighted
    else tff.learning.algorithms.build_unweighted_fed_avg
  )
  run = _run_learning(
    builder(_linear_model(), _SGD(0.1), model_aggregator=aggregator)
  )
  if name == 'secure_sum':
    # TFF's native worker cannot run it, so TFF's test runtime is the reference.
    contexts = {
      'in_process': contexts['in_process'],
      'worker': tff.backends.test.create_sync_test_cpp_execution_context(),
    }
  assert_equal(*_on_both(contexts, run))


def _linear(factory):
  return tff.aggregators.UnweightedMeanFactory(factory)


# Their seeds come from the clock, so only their estimates can be compared.
_RANDOM_AGGREGATORS = {
  'hadamard': lambda: _linear(
    tff.aggregators.HadamardTransformFactory(tff.aggregators.SumFactory())
  ),
  'fourier': lambda: _linear(
    tff.aggregators.DiscreteFourierTransformFactory(
      tff.aggregators.SumFactory()
    )
  ),
  'compression': lambda: tff.learning.compression_aggregator(
    weighted=False, clipping=False, zeroing=False
  ),
  'secure': lambda: tff.learning.secure_aggregator(
    weighted=False, clipping=False, zeroing=False
  ),
}


@pytest.mark.parametrize(
  'name',
  [
    pytest.param(n, marks=[] if n == 'hadamard' else [pytest.mark.slow])
    for n in _RANDOM_AGGREGATORS
  ],
)
def test_aggregators_with_a_seed_from_the_clock(contexts, name):
  tff.framework.set_default_context(contexts['in_process'])

  def weights(aggregator):
    state, _ = _run_learning(
      tff.learning.algorithms.build_unweighted_fed_avg(
        _linear_model(), _SGD(0.1), model_aggregator=aggregator
      )
    )()
    return state.global_model_weights

  tolerance = 2e-2 if name == 'compression' else 1e-4
  assert_equal(weights(_RANDOM_AGGREGATORS[name]()), weights(None), tolerance)


@pytest.mark.slow  # `fed_avg` and `eval` have all of its parts.
def test_k_means(contexts):
  process = tff.learning.algorithms.build_fed_kmeans(
    2, (3,), random_seed=(1, 2)
  )

  def run():
    state = process.initialize()
    random = np.random.default_rng(0)
    for number in (3, 2, 4):
      points = [
        tf.data.Dataset.from_tensor_slices(
          random.normal(size=[5, 3]).astype(np.float32)
        )
        for _ in range(number)
      ]
      state = process.next(state, points).state
    return state

  assert_equal(*_on_both(contexts, run))
