"""FedAvg, FedAvgM, FedAdam, FedAMS and FedProx compared with NumPy."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tasks import configuration
from tests import registered, sameness, tiny
from tests.algorithms import numpy_fedavg
from tests.round import test_robust
from tff_xc import errors
from tff_xc.algorithms import fedavg, fedss, fedvc, registry
from tff_xc.round import frozen, local_training, process as process_lib

pytestmark = pytest.mark.usefixtures('tff_worker')

COHORTS = (
  tiny.cohort([[0, 0, 3, 5], [7, 3], [11, 11, 11]], seed=1),
  tiny.cohort([[1, 2, 2], [3, 4, 5, 9, 9]], seed=2),
  tiny.cohort([[10], [0, 1, 2, 3], [6, 6]], seed=3),
)
FULL_BATCH = local_training.LocalTraining(0.1, 64, 2)


def check_three_rounds(process, server, weighing=None, client_state=None, **on_client):
  """Asserts that three rounds equal NumPy's rounds.

  Args:
    process: an algorithm's learning process.
    server: a function from weights and pseudo-gradients to weights.
    weighing: a function from a client's labels to weights of its examples, or None.
    client_state: the algorithm's client state.
    **on_client: arguments of `numpy_fedavg.train_client`.

  Returns:
    (the reference's weights, its clients' last models by id, the clients' states).
  """
  models, run = {}, registered.run(process, COHORTS, client_state)
  weights = tiny.as_numpy(run.first.weights)
  for cohort in COHORTS:
    trained = {
      int(c.client_id): numpy_fedavg.train_client(
        weights,
        c.x,
        c.labels,
        example_weights=weighing and weighing(c.labels),
        previous=models.get(int(c.client_id)),
        **on_client,
      )[0]
      for c in cohort
    }
    counts = [len(c.labels) for c in cohort]
    average = numpy_fedavg.mean([*trained.values()], counts)
    gradients = [w - a for w, a in zip(weights, average, strict=True)]
    weights = server(weights, gradients)
    models |= trained
  tiny.assert_near(tiny.as_numpy(process.get_model_weights(run.last)), weights)
  return weights, models, run.kept


def check_clients(algorithm, weighing=None, **on_client):
  """Asserts that the changes of clients equal NumPy's, without a process."""
  state, sent = test_robust.first_state(algorithm), test_robust.Sent(algorithm)
  weights = tiny.as_numpy(state.weights)
  for client in COHORTS[0]:
    changes, weight = sent.changes(state, client)
    y = client.labels
    example_weights = weighing and weighing(y)
    after, _ = numpy_fedavg.train_client(
      weights, client.x, y, example_weights=example_weights, **on_client
    )
    expected = [a - b for a, b in zip(after, weights, strict=True)]
    tiny.assert_near([changes.get(n, 0.0) for n in ('kernel', 'bias', 'class')], expected)
    assert weight == len(y)


def plain_kernel():
  """Returns the encoder's kernel after three rounds of FedAvg."""
  process = tiny.process('fedavg', local_training=FULL_BATCH)
  return tiny.weights_after(process, 3, COHORTS.__getitem__).encoder['kernel']


@pytest.mark.parametrize(
  ('name', 'server'),
  [
    ('fedavg', ('sgd', 1.0)),
    ('fedadam', ('adam', 1e-3)),
    pytest.param('fedavgm', ('sgd', 1.0, 0.9), marks=pytest.mark.slow),
    pytest.param('fedams', ('amsgrad', 1e-3), marks=pytest.mark.slow),
  ],
)
def test_three_rounds_equal_the_numpy_reference(name, server):
  process = tiny.process(name, local_training=FULL_BATCH)
  check_three_rounds(process, numpy_fedavg.Server(*server))


@pytest.mark.parametrize(
  ('name', 'given', 'is_amsgrad'),
  [
    ('fedadam', {}, False),
    ('fedams', {}, True),
    ('fedss', {'server_optimizer': 'amsgrad', 'negatives': 3}, True),
  ],
)
def test_adam_and_amsgrad_are_told_apart(name, given, is_amsgrad):
  """Three rounds give equal results, so compare states: only AMSGrad's has a largest square."""
  made = registry.get(name).made(model=tiny.model(), max_positives=4, **given)
  for optimizer in (made.encoder_optimizer, made.tables[0].optimizer):
    state = optimizer.initialize(tf.TensorSpec([1]))
    assert ('largest' in str(tf.nest.map_structure(str, state))) == is_amsgrad


PROX = {'model': tiny.model(), 'local_training': FULL_BATCH, 'prox_mu': 1.0}


def test_clients_of_fedprox_equal_the_numpy_reference():
  made = fedavg.FedProx.made(**PROX)
  check_clients(made, proximal_weight=0.5)
  with pytest.raises(AssertionError, match='Not equal'):
    check_clients(made)


@pytest.mark.parametrize(
  'target', [pytest.param(None, marks=pytest.mark.slow), np.arange(1.0, 13.0)]
)
@pytest.mark.parametrize('rounds', [0, pytest.param(3, marks=pytest.mark.slow)])
def test_fedir_equals_the_numpy_reference(target, rounds):
  made = fedvc.FedIR.made(
    model=tiny.model(),
    local_training=FULL_BATCH,
    importance_weights='uniform' if target is None else 'train',
    class_probabilities=target,
  )
  p = np.ones(12) / 12 if target is None else target / target.sum()

  def weighing(y):
    return p[y] / (np.bincount(y)[y] / len(y))  # Eq. (3).

  if not rounds:
    return check_clients(made, weighing)
  server = numpy_fedavg.Server('sgd', 1.0)
  process = process_lib.build_process(made)
  near, *_ = check_three_rounds(process, server, weighing)
  assert not np.allclose(near[0], plain_kernel(), atol=1e-4)


# `test_frozen` also tests training of only the head.
@pytest.mark.parametrize('part', [pytest.param('head', marks=pytest.mark.slow), 'bottleneck'])
@pytest.mark.parametrize('rounds', [0, pytest.param(3, marks=pytest.mark.slow)])
def test_frozen_weights_equal_the_numpy_reference(part, rounds):
  made = frozen.train_only(fedavg.FedAvg.made(model=tiny.model()), part)
  made = dataclasses.replace(made, local_training=dataclasses.replace(FULL_BATCH, weight_decay=0.2))
  kept = (0, 1) if part == 'head' else (0,)  # The last layer of the encoder is the bias.
  given = {'frozen': kept, 'weight_decay': 0.2}
  if not rounds:
    return check_clients(made, **given)
  check_three_rounds(process_lib.build_process(made), numpy_fedavg.Server('sgd', 1.0), **given)


def test_the_measured_loss_is_without_penalties():
  made = fedavg.FedProx.made(**PROX)
  state, [client, *_] = test_robust.first_state(made), COHORTS[0]

  def at(weights, **more):
    return numpy_fedavg.train_client(weights, client.x, client.labels, epochs=1, **more)

  received = tiny.as_numpy(state.weights)
  after, first = at(received, proximal_weight=0.5)
  update, _ = test_robust.Sent(made).of(state, client)
  mean = update.measured['loss'] / update.measured['examples']
  np.testing.assert_allclose(mean, (first + at(after)[1]) / 2, rtol=1e-5)


@pytest.mark.parametrize(
  ('task', 'name', 'given', 'expected'),
  [
    # FedAvg keeps its server optimizer if the task has another one, here Adam with rate 0.003.
    ('omniglot', 'fedavg', {}, ('sgd', 1.0, 0.0)),
    ('omniglot', 'fedprox', {}, ('sgd', 1.0, 0.0)),
    ('omniglot', 'fedavgm', {}, ('sgd', 1.0, 0.9)),
    ('omniglot', 'fedadam', {}, ('adam', 0.003, None)),
    ('omniglot', 'fedams', {}, ('amsgrad', 0.001, None)),
    ('omniglot', 'fullsoftmax', {}, ('adam', 0.003, None)),
    ('omniglot', 'centralized', {}, ('sgd', 1.0, 0.0)),
    # The user's setting.
    ('omniglot', 'fedavg', {'server_optimizer': 'adam'}, ('adam', 0.001, None)),
    # TurboSVM-FL, Table 8.
    ('shakespeare', 'fedadam', {}, ('adam', 1e-2, None)),
    ('shakespeare', 'fedams', {}, ('amsgrad', 1e-2, None)),
  ],
)
def test_the_server_is_what_the_name_says_on_every_task(task, name, given, expected):
  values = configuration.resolve(task, name, given)['hyperparameters']
  names = ('server_optimizer', 'server_learning_rate', 'server_momentum')
  assert tuple(map(values.get, names)) == expected


@pytest.mark.slow
def test_a_round_leaves_frozen_statistics_alone():
  """TurboSVM-FL's code has this property for FedOpt algorithms."""
  for is_frozen in (True, False):
    learning = tiny.process(
      'fedadam', model=tiny.model_with_statistics(), frozen_statistics=is_frozen
    )
    state = learning.next(learning.initialize(), COHORTS[0]).state
    assert np.any(state.weights.encoder_state['mean']) != is_frozen
  with pytest.raises(errors.InputError, match='has no batch statistics'):
    fedavg.FedAMS.made(model=tiny.model(), frozen_statistics=True)


def test_fedavg_is_fullsoftmax_with_a_plain_server():
  made = fedss.FullSoftmax.made(model=tiny.model(), server_momentum=0.0)
  assert sameness.same(made, fedavg.FedAvg.made(model=tiny.model()))
