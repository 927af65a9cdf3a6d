"""FedRep compared with NumPy, the heads that clients keep, and the heads' scores."""

import dataclasses
import functools

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from launch import evaluate, export, prediction, trained
from tests import registered, small_data, tiny
from tests.algorithms import numpy_fedavg, test_fedavg
from tests.launch import test_evaluate
from tff_xc import errors
from tff_xc.algorithms import fedrep
from tff_xc.round import local_training, personal, randomness

pytestmark = pytest.mark.usefixtures('in_process')
here, rounds = test_evaluate.here, test_evaluate.rounds

# Client 0 participates three times, client 1 twice, client 2 once. One client is empty.
COHORTS = [
  tiny.cohort(labels, seed)
  for seed, labels in enumerate(
    ([[0, 1], [2, 3, 3]], [[4, 5, 6], [], [7, 7]], [[8, 8], [9, 10, 1]])
  )
]
FULL_BATCH = {'local_training': test_fedavg.FULL_BATCH, 'head_epochs': 3}
BATCHES = local_training.LocalTraining(0.1, 2, 2)


def run(cohorts=COHORTS, name='fedrep', **given):
  """Returns (the first state, the last state, heads by client, the last metrics)."""
  made = fedrep.FedRep.made(model=tiny.model())
  keeps = made.client_state if name == 'fedrep' else None
  found = registered.run(tiny.process(name, **given), cohorts, keeps)
  return *found[:3], found.metrics[-1]


def test_three_rounds_equal_the_numpy_reference():
  first, last, kept, metrics = run(**FULL_BATCH)
  kernel, bias, table = tiny.as_numpy(first.weights)
  heads = {}
  for cohort_ in COHORTS:
    encoders, counts = [], []
    for client in (c for c in cohort_ if len(c.labels)):
      number, examples = int(client.client_id), (client.x, client.labels)
      own = kernel, bias, heads.get(number, table)
      (*_, own_rows), _ = numpy_fedavg.train_client(own, *examples, epochs=3, frozen=(0, 1))
      (*encoder, _), _ = numpy_fedavg.train_client(
        (kernel, bias, own_rows), *examples, epochs=2, frozen=(2,)
      )
      heads[number] = own_rows
      encoders.append(encoder)
      counts.append(len(client.labels))
    kernel, bias = numpy_fedavg.mean(encoders, counts)
  tiny.assert_near(tiny.as_numpy(last.weights), (kernel, bias, table))
  assert sorted(kept) == sorted(heads) == [0, 1, 2]
  for number, rows in heads.items():
    np.testing.assert_allclose(kept[number]['head'], rows, atol=2e-5)
    assert np.abs(rows - table).max() > 0.05
  assert metrics['local_batches'] == 3 + 2


@pytest.mark.slow
def test_without_head_epochs_it_is_fedbabu_to_the_last_digit():
  given = {'local_training': BATCHES}
  _, plain, *_ = run(name='fedbabu', **given)
  first, last, kept, _ = run(head_epochs=0, **given)
  tiny.assert_same_weights(last.weights, plain.weights, 0.0)
  np.testing.assert_array_equal(kept[0]['head'], first.weights.class_table)


@pytest.mark.slow
def test_the_encoder_takes_other_batches_than_the_head_did():
  """The epochs of head and encoder have different numbers, so their orders of batches differ."""
  client = tiny.cohort([[0, 1, 2, 3, 4, 5, 6]])
  training = dataclasses.replace(BATCHES, epochs=1, learning_rate=1e-3)
  frozen = {'local_training': training, 'head_epochs': 1}
  first, last, kept, _ = run([client], **frozen)
  # Train the encoder from the client's head, in the order of the second epoch.
  made = fedrep.FedRep.made(model=tiny.model(), **frozen)
  seed = randomness.client_seed(
    randomness.round_seed(tf.constant([0, 0]), 0), client[0].client_id, randomness.Purpose.ORDER
  )
  weights = [*tiny.as_numpy(first.weights)[:2], kept[0]['head']]
  order = made.local_training.order(seed, tf.constant(4), tf.range(7))
  for step in range(4, 8):
    places = made.local_training.batch(order, tf.constant(step)).numpy()
    weights, _ = numpy_fedavg.train_client(
      weights, client[0].x[places], client[0].labels[places], rate=1e-3, epochs=1, frozen=(2,)
    )

  def change(w):
    return (np.asarray(w) - first.weights.encoder['kernel']) * 1e3

  np.testing.assert_allclose(change(last.weights.encoder['kernel']), change(weights[0]), atol=2e-3)


@pytest.mark.slow
def test_local_steps_are_of_the_encoder_alone():
  """The head trains for all its epochs, here of two batches, whatever the encoder's steps are."""
  steps = dataclasses.replace(BATCHES, steps=1)
  *_, metrics = run(COHORTS[:1], local_training=steps, head_epochs=3)
  assert metrics['local_batches'] == 3 * 2 + 1


def test_a_dropped_client_keeps_its_head():
  broken = COHORTS[1][0]
  broken = broken._replace(x=np.full_like(broken.x, np.nan))
  *_, before, _ = run(COHORTS[:1], **FULL_BATCH)
  _, state, kept, metrics = run([COHORTS[0], [broken, COHORTS[1][2]]], **FULL_BATCH)
  assert metrics['clients_dropped'] == 1
  np.testing.assert_array_equal(kept[0]['head'], before[0]['head'])
  assert np.isfinite(state.weights.encoder['kernel']).all()


def test_a_client_goes_on_from_its_own_head():
  """`personal.build` starts from `own_model`, which contains the head that the client kept."""
  made = fedrep.FedRep.made(model=tiny.model(), **FULL_BATCH)
  _, last, kept, _ = run(**FULL_BATCH)
  keeper = registered.Clients(made.client_state)
  keeper.kept = kept
  [client] = keeper.attach(COHORTS[0][:1])
  own = made.client_state.own_model(last.weights, tf.nest.map_structure(tf.constant, client.state))
  np.testing.assert_array_equal(own.class_table, kept[0]['head'])
  adapt = personal.build(made, 3, 'head')
  seed = randomness.round_seed(tf.constant([0, 0]), 3)
  after = adapt(own, client._replace(state=()), seed)
  expected, _ = numpy_fedavg.train_client(
    tiny.as_numpy(own), client.x, client.labels, epochs=3, frozen=(0, 1)
  )
  tiny.assert_near(tiny.as_numpy(after), expected)


def test_scores_of_rows_that_nobody_trains_are_refused():
  cls = fedrep.FedRep
  assert 'per_client' in cls().warnings(10, 3)[0]
  with pytest.raises(errors.InputError, match='by chance; mine'):
    trained.check_rows({'algorithm': 'a', 'hyperparameters': {'head_epochs': 1}}, 'mine')
  for values in ({}, {'head_epochs': 0}):  # FedBABU and other algorithms without head epochs.
    trained.check_rows({'algorithm': 'a', 'hyperparameters': values}, 'mine')
  with pytest.raises(ValueError, match='head_epochs'):
    dataclasses.replace(registered.algorithm('fedavg'), head_epochs=1)


@pytest.mark.slow
def test_a_run_resumes_and_its_heads_are_scored(here, rounds, capsys):
  given = {'client_test_fraction': 0.25, 'unseen_clients': 0.2}
  given |= {'head_epochs': 2, 'client_learning_rate': 0.3}
  small_data.trained_and_resumed(here, 'fedrep', **given)
  kept = small_data.kept_by_clients(here / 'straight')
  heads = {client: arrays['head'] for client, arrays in kept.items()}
  folder = here / 'straight' / 'client_states'
  files = sorted(p.name for p in folder.iterdir())

  result = evaluate.run(str(here / 'straight'), per_client=True)
  assert sorted(p.name for p in folder.iterdir()) == files
  assert result['clients']['keep_models'] == len(heads)
  assert 'kept in this run' in capsys.readouterr().out
  of_run = trained.restore(str(here / 'straight'))
  dataset = of_run.dataset
  frame = pd.read_csv(here / 'straight' / 'clients.csv')
  kept, is_trained = frame['top1_personalized'], frame['part'] == 'trained'
  for index in range(is_trained.sum()):
    weights = of_run.weights
    if index in heads:
      tables = type(weights.tables)(weights.tables)
      tables['class'] = heads[index]
      weights = weights._replace(tables=tables)
    numbers = dataset.held_out.of_client(index)
    pool = dataset.train.pool
    found = of_run.evaluator.predict(weights, pool, numbers)
    assert kept[index] == np.mean(found == pool.labels[numbers])
  np.testing.assert_array_equal(kept[~is_trained], frame['top1'][~is_trained])
  assert np.mean(kept[is_trained]) > np.mean(frame['top1'][is_trained]) + 0.2

  # No client trained the server's rows, so an export needs `--calibrate`.
  exported = functools.partial(export.run, str(here / 'straight'), 'model')
  with pytest.raises(errors.InputError, match='by chance; give --calibrate'):
    exported()
  with pytest.raises(errors.InputError, match='by chance; give a model'):
    prediction.run([], run_dir=str(here / 'straight'))
  assert exported('npz')['rounds'] == 4
  assert exported(calibrate=(5, 1, 0.1))['calibrate']['features'] == 5
