"""Workers and one process give equal digits, also with options of a run."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tasks import configuration, experiment
from tests import registered, small_data
from tests.runtime.cluster import threads_crew
from tff_xc.algorithms import fedavg, fednova, fedss, scaffold
from tff_xc.options import attack, compression, robust
from tff_xc.round import cohort, process, trimming
from tff_xc.runtime.cluster import context

_ROUNDS = 3
# These bounds zero some of the clients' updates and clip others.
_BOUNDS = robust.Bounds(robust.Quantile(0.01, 0.9, 0.5, 2.0), robust.Quantile(0.05, 0.8, 0.2))


def _fedss(model):
  found = fedss.FedSS.made(model=model, max_positives=4, negatives=2)
  return found.with_part(_BOUNDS)


def _chosen(model):
  return fedss.FedSS.made(
    model=model,
    max_positives=4,
    negatives=2,
    dp='central',
    dp_clip=0.05,
    dp_rows='chosen',
    dp_rows_threshold=1.0,
  )


def _moon(model):
  return fedavg.MOON.made(model=model).with_part(_BOUNDS)


def _scaffold(model):
  made = scaffold.SCAFFOLD.made(model=model, num_clients=60)
  return made.with_part(_BOUNDS)


def _changing_rates(model):
  made = fedss.FedSS.made(
    model=model,
    calibration='restricted',
    client_schedule='step',
    client_schedule_rounds=1,
    server_schedule='cosine',
    server_schedule_rounds=3,
    client_warmup_rounds=2,
    negatives=2,
    max_positives=4,
  )
  return made.with_part(_BOUNDS)


def _fednova(model):
  made = fednova.FedNova.made(model=model, prox_mu=0.5, batch_size=4)
  return made.with_part(_BOUNDS)


def _attacked(model):
  adversary = attack.Attack(attack='flip_signs', attack_fraction=0.2, num_clients=60)
  rounded = compression.Compression(compression='rotate_quantize', compression_bits=4)
  made = _fedss(model).with_part(adversary).with_part(rounded)
  return trimming.trimmed(made, 0.2)


def _secure(model):
  made = fedss.FullSoftmax.made(model=model, secure_sums=True)
  return made.with_part(_BOUNDS)


def _run(runtime, algorithm, learning, cohorts):
  """Returns the state, the clients' states, and the metrics of all rounds, as arrays."""
  examples = (cohorts(number).examples for number in range(_ROUNDS))
  with tff.framework.get_context_stack().install(runtime):
    found = registered.run(learning, examples, algorithm.client_state)
    weights = learning.get_model_weights(found.last)
  every = weights, found.last.parts, found.metrics, found.kept
  return [np.asarray(x) for x in tf.nest.flatten(every)], found.metrics


@pytest.mark.slow
@pytest.mark.parametrize(
  'make',
  [
    _fedss,
    _chosen,
    _moon,
    _scaffold,
    _changing_rates,
    _fednova,
    _attacked,
    _secure,
  ],
)
def test_the_numbers_are_those_of_one_process(make, in_process_context):
  data, model = small_data.images(60)
  algorithm = make(model)
  learning = process.build_process(algorithm, 0)
  crew = threads_crew.ThreadsCrew()
  runtime = context.ClusterContext(crew, 600)
  zeroed = clipped = 0
  for clients, leaving, workers in (
    (60, 0.3, 4),  # Each block has several clients.
    (9, 0.5, 4),
    (1, 0.0, 2),
    (3, 0.99, 2),  # No client is left.
  ):
    sampling = cohort.UniformClients(clients)
    if leaving:
      sampling = cohort.Dropout(sampling, leaving)
    cohorts = sampling.cohorts(data, 1)
    stay = [len(cohorts(r).numbers) for r in range(_ROUNDS)]
    assert (min(stay) > 32) == (clients == 60)
    assert (max(stay) == 0) == (clients == 3)
    expected, metrics = _run(in_process_context, algorithm, learning, cohorts)
    crew.reset(workers)
    runtime._roster.members.clear()
    found, _ = _run(runtime, algorithm, learning, cohorts)
    assert crew.calls
    for one, other in zip(found, expected, strict=True):
      np.testing.assert_array_equal(one, other)
    zeroed += sum(float(m.get('clients_zeroed', 1.0)) for m in metrics)
    clipped += sum(float(m['clients_clipped']) for m in metrics)
  assert zeroed and clipped
  crew.close()


@pytest.mark.slow
@pytest.mark.parametrize('network', [{'encoder': 'sequence'}, {'hidden_dim': 8}])
def test_items_that_have_one_row(network, in_process_context):
  """Features use class rows, and dropout uses the clients' seeds."""
  sizes = {
    'num_classes': 40,
    'num_clients': 12,
    'embedding_dim': 8,
    'negatives': 5,
    'clients_per_round': 6,
  }
  config = configuration.resolve('items-demo', 'fedss', {**sizes, **network})
  made = experiment.assemble(config)
  assert made.algorithm.model.encoder.tied
  learning = process.build_process(made.algorithm, 0)
  cohorts = made.algorithm.sampling.cohorts(made.dataset, 0)
  how = made.algorithm, learning, cohorts
  expected, _ = _run(in_process_context, *how)
  crew = threads_crew.ThreadsCrew()
  crew.reset(2)
  found, _ = _run(context.ClusterContext(crew, 600), *how)
  assert crew.calls
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_array_equal(one, other)
  crew.close()
