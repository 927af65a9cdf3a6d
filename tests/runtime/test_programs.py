"""TFF's federated programs on the in-process runtime."""

import asyncio
import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import registered, tiny
from tff_xc import errors
from tff_xc.data import client_data, from_tff
from tff_xc.round import cohort
from tff_xc.runtime import programs

K, SEED = 2, 3


@pytest.fixture(scope='module')
def learning():
  return tiny.shared_process()


@pytest.fixture(scope='module')
def cohorts():
  """Draws 2 of 4 clients of `tff.simulation`. One client has no examples."""
  random = np.random.default_rng(0)
  sizes = {'a': 4, 'b': 2, 'c': 0, 'd': 5}
  simulated = tff.simulation.datasets.TestClientData(
    {
      name: collections.OrderedDict(
        x=random.normal(size=[n, tiny.FEATURES]).astype(np.float32), y=random.integers(0, 3, n)
      )
      for name, n in sizes.items()
    }
  )
  dataset = client_data.FederatedDataset('simulated', 12, from_tff.as_client_data(simulated))
  return cohort.UniformClients(K).cohorts(dataset, SEED)


@pytest.fixture
def context(in_process):
  with tff.framework.get_context_stack().install(programs.ProgramContext(in_process)):
    yield in_process


def train(folder, process, cohorts, rounds, metrics=None, k=K):
  """Runs TFF's own program. Returns the last state that the program released."""
  released = tff.program.MemoryReleaseManager()
  asyncio.run(
    tff.learning.programs.train_model(
      train_process=process,
      train_data_source=programs.Cohorts(cohorts, process),
      train_per_round_clients=k,
      train_total_rounds=rounds,
      program_state_manager=tff.program.FileProgramStateManager(folder),
      model_output_manager=released,
      train_metrics_manager=metrics,
      evaluation_manager=None,
      evaluation_periodicity=1,
    )
  )
  return released.values()[f'training_checkpoint_round_{rounds}']


@pytest.mark.slow
def test_train_model_gives_what_a_loop_gives_and_resumes(
  tmp_path, learning, cohorts, in_process, context
):
  process = programs.with_train_metrics(learning)
  metrics = tff.program.MemoryReleaseManager()
  train(tmp_path / 'run', process, cohorts, 1, metrics)
  found = train(tmp_path / 'run', process, cohorts, 3, metrics)
  with tff.framework.get_context_stack().install(in_process):
    state, shown = learning.initialize(), []
    for number in range(3):
      state, measured = learning.next(state, cohorts(number))
      shown.append(measured)
  assert found.round_number == 3
  tiny.assert_same_weights(found.weights, state.weights, 0)
  assert sorted(metrics.values()) == [1, 2, 3]
  for number, measured in enumerate(shown, 1):
    released = metrics.values()[number]['model_metrics']
    for name, value in measured.items():
      np.testing.assert_array_equal(released[name], value)


def test_the_program_asks_for_as_many_clients_as_are_drawn(tmp_path, learning, cohorts, context):
  with pytest.raises(errors.InputError, match='train_per_round_clients=2'):
    train(tmp_path, learning, cohorts, 1, k=3)


@pytest.mark.slow
def test_clients_that_keep_a_state_are_refused():
  with pytest.raises(errors.InputError, match=r'keep a state.*training\.train'):
    programs.Cohorts(lambda number: [], registered.process('moon'))


def test_a_program_of_ones_own_may_compute_side_by_side(context):
  @tff.tensorflow.computation(np.int32, np.int32)
  def added(a, b):
    return a + b

  @tff.tensorflow.computation(np.int32)
  def pair(a):
    return collections.OrderedDict(z=a, a=(a + 1, collections.OrderedDict()))

  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def total(values):
    return tff.federated_sum(values)

  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def same(values):
    return values

  async def program():
    first, second = pair(1), pair(10)  # References to results, which computations accept.
    both = added(first['z'], second['a'][0])
    assert isinstance(both, tff.program.MaterializableValueReference)
    assert both.type_signature == tff.TensorType(np.int32)
    known = await tff.program.materialize_value([both, first, total([4, 5])])
    with pytest.raises(ValueError, match='of the server only'):
      same([1])
    with pytest.raises(TypeError, match='client 1'):
      await total([1, 'one']).get_value()
    return known

  both, first, summed = asyncio.run(program())
  assert (both, summed) == (12, 9)
  assert first == collections.OrderedDict(z=1, a=(2, collections.OrderedDict()))
  assert not isinstance(both, tf.Tensor)
