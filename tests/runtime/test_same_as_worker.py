"""The in-process runtime returns the same results as TFF's worker."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks import configuration, experiment
from tests import registered, tiny, tiny_sparse
from tff_xc.algorithms import registry as algorithms
from tff_xc.round import process as process_lib

# Cohorts repeat and have different sizes. A round must not depend on the last cohort.
_COHORTS = (
  [[0, 1], [2, 3, 3], [4, 5, 6, 6]],
  [[7, 7, 8]],
  [[0, 2], [9], [1, 1, 1, 3], [4, 11], [5]],
)


def _on_both(contexts, run):
  found = {}
  for name, context in contexts.items():
    tff.framework.set_default_context(context)
    found[name] = run()
  return found['in_process'], found['worker']


def _numbers(value) -> list[np.ndarray]:
  """Returns the leaves of a state or of metrics, in order."""
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


_CENTRAL = {'dp': 'central', 'dp_clip': 0.1}
_RATES = {'client_schedule': 'step', 'client_schedule_rounds': 1, 'server_warmup_rounds': 4}
_COMPRESSED = {'compression': 'rotate_quantize'}
_ROUNDED = {'message_precision': 'bfloat16'}
_BOUNDED = {
  'robust_aggregation': 'zeroing+clipping',
  'clipping_norm': 0.01,
  'attack': 'scale',
  'attack_fraction': 0.5,
}
_TRIMMED = {'robust_aggregation': 'trimmed_mean', 'trimmed_fraction': 0.3}
_CHANGED = [
  pytest.param(
    name,
    changes,
    # The quick case includes all parts of a round.
    marks=[pytest.mark.slow] if name != 'fullsoftmax' or 'trainable' not in changes else [],
  )
  for name, algorithm in algorithms.ALGORITHMS.items()
  for changes in (
    {},
    {'server_optimizer': 'adam'},
    {'importance_weights': 'train', 'weight_decay': 0.1, 'trainable': 'bottleneck'},
    _CENTRAL,
    {'dp': 'local', 'dp_clip': 0.1},
    {**_CENTRAL, 'dp_clip_quantile': 0.5},
    {**_CENTRAL, 'dp_rows': 'chosen', 'dp_rows_threshold': 1.0},
    _COMPRESSED,
    _ROUNDED,
    _BOUNDED,
    _TRIMMED,
    _RATES,
  )
  if set(changes) <= set(algorithm.names)
  # FedMLH hashes classes, and FedBABU and FedRep freeze their own weights.
  if name not in ('fedmlh', 'fedbabu', 'fedrep') or 'trainable' not in changes
  if changes is not _RATES or name in ('fedss', 'centralized')
  # These algorithms refuse differential privacy.
  if 'dp' not in changes or name not in ('turbosvm', 'scaffold', 'fednova', 'fedproto')
  if name != 'fedvc' or changes.get('dp') != 'central'
  if 'dp_rows' not in changes or name in ('fedss', 'fedaws', 'posonly')
  # One algorithm for each kind of merge.
  if changes not in (_COMPRESSED, _ROUNDED, _BOUNDED) or name in ('fedss', 'fedaws', 'turbosvm')
  if changes is not _TRIMMED or name in ('fedss', 'fullsoftmax')
]


def assert_same_rounds(contexts, process, cohorts, client_state=None):
  """Checks the last state, the metrics of all rounds and the global model."""

  def run():
    found = registered.run(process, cohorts, client_state)
    return found.last, found.metrics, process.get_model_weights(found.last)

  assert_equal(*_on_both(contexts, run))


@pytest.mark.parametrize(('name', 'changes'), _CHANGED)
def test_every_registered_algorithm(contexts, name, changes):
  process = registered.process(name, **changes)
  keeps = registered.algorithm(name, **changes).client_state
  assert_same_rounds(contexts, process, [*map(tiny.cohort, _COHORTS)], keeps)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['fedaws', 'fedss', 'fullsoftmax'])
@pytest.mark.parametrize('max_features', [0, 4])
def test_feature_tables_by_rows(contexts, name, max_features):
  process = registered.process(name, registered.SPARSE, max_features, server_optimizer='adagrad')
  clients = [[(3, [[0, 1], [2]]), (5, [[]])], [(7, [[8, 1, 0]])]]
  assert_same_rounds(contexts, process, [tiny_sparse.cohort(clients, seed) for seed in range(2)])


@pytest.mark.slow
@pytest.mark.parametrize('network', [{'encoder': 'sequence'}, {'hidden_dim': 8}])
def test_items_that_have_one_row(contexts, network):
  given = {'num_classes': 40, 'num_clients': 12, 'embedding_dim': 8, 'negatives': 5, **network}
  # The default rates amplify rounding: a change in the last bit of the initial model becomes a
  # relative change of 4e-4 in one round, even without a second runtime.
  given |= {'local_steps': 2, 'client_learning_rate': 0.03}
  given |= {'server_optimizer': 'sgd', 'server_learning_rate': 1.0}
  config = configuration.resolve('items-demo', 'fedss', given)
  made = experiment.assemble(config)
  cohorts = made.algorithm.sampling.cohorts(made.dataset, 0)
  process = process_lib.build_process(made.algorithm, 0)
  assert_same_rounds(contexts, process, [cohorts(number).examples for number in range(2)])


def _linear_model():
  model = tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer([5]),
      tf.keras.layers.Dense(4, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1)),
    ]
  )
  return tff.learning.models.functional_model_from_keras(
    model,
    _LOSS,
    input_spec=_SPEC,
    metrics_constructor=lambda: collections.OrderedDict(
      accuracy=tf.keras.metrics.SparseCategoricalAccuracy()
    ),
  )


def _keras_model():
  layers = [
    tf.keras.layers.InputLayer([5]),
    tf.keras.layers.Dense(3, kernel_initializer='ones'),
    tf.keras.layers.BatchNormalization(),
    tf.keras.layers.Dense(4, kernel_initializer='ones'),
  ]
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential(layers),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=_SPEC,
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
_LOSS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
_SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 5], tf.float32), y=tf.TensorSpec([None], tf.int32)
)
_algorithms, _aggregators = tff.learning.algorithms, tff.aggregators


def _aggregated(aggregator):
  weighted = isinstance(aggregator, _aggregators.WeightedAggregationFactory)
  build = _algorithms.build_weighted_fed_avg if weighted else _algorithms.build_unweighted_fed_avg
  return build(_linear_model(), _SGD(0.1), model_aggregator=aggregator)


_PROCESSES = {
  'fed_avg': lambda: _algorithms.build_weighted_fed_avg(_linear_model(), _SGD(0.1), _SGD(1.0, 0.9)),
  'fed_avg_keras': lambda: _algorithms.build_weighted_fed_avg(_keras_model, _SGD(0.1), _SGD(1.0)),
  'fed_avg_dataset_reduce': lambda: _algorithms.build_weighted_fed_avg(
    _linear_model(), _SGD(0.1), loop_implementation=tff.learning.LoopImplementation.DATASET_REDUCE
  ),
  'fed_prox': lambda: _algorithms.build_weighted_fed_prox(_linear_model(), 0.3, _SGD(0.1)),
  'fed_sgd': lambda: _algorithms.build_fed_sgd(_linear_model()),
  'mime_lite': lambda: _algorithms.build_weighted_mime_lite(_linear_model(), _SGD(0.1, 0.9)),
  'eval': lambda: _algorithms.build_fed_eval(_linear_model()),
  'robust': lambda: _aggregated(tff.learning.robust_aggregator()),
  'clipping': lambda: _aggregated(_aggregators.clipping_factory(0.1, _aggregators.MeanFactory())),
  'adaptive_clipping': lambda: _aggregated(
    _aggregators.clipping_factory(
      _aggregators.PrivateQuantileEstimationProcess.no_noise(0.1, 0.5, 0.2),
      _aggregators.MeanFactory(),
    )
  ),
  'zeroing': lambda: _aggregated(_aggregators.zeroing_factory(2.0, _aggregators.MeanFactory())),
  'dp': lambda: _aggregated(
    _aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
      noise_multiplier=0.0, clients_per_round=3
    )
  ),
  'secure_sum': lambda: _aggregated(
    _aggregators.UnweightedMeanFactory(_aggregators.SecureSumFactory(5.0))
  ),
}


def _run_learning(process):
  """Returns the last state and the metrics of three rounds."""
  cohorts = [_datasets(number, at) for at, number in enumerate([3, 1, 4])]
  found = registered.run(process, cohorts)
  return found.last, found.metrics


@pytest.mark.slow
@pytest.mark.parametrize('name', _PROCESSES)
def test_algorithms_and_aggregators_of_tff(contexts, name):
  if name == 'secure_sum':
    # TFF's native worker cannot run secure sums, so TFF's test runtime is the reference.
    test = tff.backends.test.create_sync_test_cpp_execution_context()
    contexts = {**contexts, 'worker': test}
  process = _PROCESSES[name]()
  assert_equal(*_on_both(contexts, lambda: _run_learning(process)))


# The seeds of these aggregators come from the clock, so compare only their estimates.
_RANDOM_AGGREGATORS = {
  'hadamard': lambda: _aggregators.UnweightedMeanFactory(
    _aggregators.HadamardTransformFactory(_aggregators.SumFactory())
  ),
  'fourier': lambda: _aggregators.UnweightedMeanFactory(
    _aggregators.DiscreteFourierTransformFactory(_aggregators.SumFactory())
  ),
  'compression': lambda: tff.learning.compression_aggregator(
    weighted=False, clipping=False, zeroing=False
  ),
  'secure': lambda: tff.learning.secure_aggregator(weighted=False, clipping=False, zeroing=False),
}


@pytest.mark.slow
@pytest.mark.parametrize('name', _RANDOM_AGGREGATORS)
def test_aggregators_with_a_seed_from_the_clock(contexts, name):
  tff.framework.set_default_context(contexts['in_process'])

  def weights(aggregator):
    return _run_learning(_aggregated(aggregator))[0].global_model_weights

  mean = _aggregators.UnweightedMeanFactory()
  tolerance = 2e-2 if name == 'compression' else 1e-4
  assert_equal(weights(_RANDOM_AGGREGATORS[name]()), weights(mean), tolerance)
