"""FedDyn compared with NumPy, and the states of its clients."""

import numpy as np
import pytest

from tests import registered, small_data, tiny
from tests.algorithms import numpy_fedss, test_fedavg, test_scaffold
from tff_xc import errors
from tff_xc.algorithms import feddyn, scaffold
from tff_xc.round import algorithm

pytestmark = pytest.mark.usefixtures('tff_worker')

ALPHA, RATE, CLIENTS = 0.3, 0.1, 5
SETTINGS = {'local_training': test_fedavg.FULL_BATCH, 'clients_per_round': 2}
# Client 0 participates three times, and client 1 twice.
COHORTS = [
  tiny.cohort(labels, seed)
  for seed, labels in enumerate(([[0, 1], [2, 3, 3]], [[4, 5, 6], [7]], [[8, 8], [9, 10, 1]]))
]


def _as_arrays(weights, x, y, received, kept, alpha):
  """Returns the weights after a client's two steps on eq. (1)."""
  for _ in range(2):
    _, *gradients = numpy_fedss.loss_and_gradients(
      *weights, x, y, np.ones([len(x), 12], bool), np.zeros(12), 4.0
    )
    weights = [
      w - RATE * (g - k + alpha * (w - r))
      for w, g, k, r in zip(weights, gradients, kept, received, strict=True)
    ]
  return weights


def _reference(weights, cohorts, alpha, clients):
  """Runs Algorithm 1. Returns the weights and the state of each client."""
  kept, drift = {}, [np.zeros_like(w) for w in weights]
  for cohort in cohorts:
    changes = []
    for client in cohort:
      name = int(client.client_id)
      own = kept.get(name, [np.zeros_like(w) for w in weights])
      after = _as_arrays(weights, client.x, client.labels, weights, own, alpha)
      changes.append([a - w for a, w in zip(after, weights, strict=True)])
      kept[name] = [k - alpha * c for k, c in zip(own, changes[-1], strict=True)]
    total = [np.sum(each, axis=0) for each in zip(*changes, strict=True)]
    drift = [h - alpha / clients * t for h, t in zip(drift, total, strict=True)]
    weights = [
      w + t / len(cohort) - h / alpha for w, t, h in zip(weights, total, drift, strict=True)
    ]
  return weights, kept


def _run(cohorts=COHORTS, **changes):
  """Returns (the first weights, the last weights, the clients' states) of a run."""
  arguments = {**SETTINGS, 'num_clients': CLIENTS, **changes}
  learning = tiny.process('feddyn', **arguments)
  made = feddyn.FedDyn.made(model=tiny.model(), **arguments)
  found = registered.run(learning, cohorts, made.client_state)
  return *(tiny.as_numpy(s.weights) for s in found[:2]), found.kept


def test_three_rounds_equal_the_numpy_reference():
  first, last, kept = _run(feddyn_alpha=ALPHA)
  weights, own = _reference(first, COHORTS, ALPHA, CLIENTS)
  tiny.assert_near(last, weights)
  assert sorted(kept) == sorted(own) == [0, 1]
  for name, gradients in own.items():
    tiny.assert_near(test_scaffold.flat(kept[name]), gradients)


def test_the_drift_is_of_those_whose_updates_arrive():
  """Clients that fail, have no examples or are dropped do not change h, the mean of all g_k."""
  [one, two], (*_, empty) = COHORTS[1], tiny.cohort([[], [], []])
  nan = two._replace(x=np.full_like(two.x, np.nan))
  arrive = [COHORTS[0], [one], [one], [one], COHORTS[2]]
  drawn = [COHORTS[0], [one], [one, empty], [one, nan], COHORTS[2]]
  first, last, kept = _run(drawn, feddyn_alpha=ALPHA)
  weights, own = _reference(first, arrive, ALPHA, CLIENTS)
  tiny.assert_near(last, weights)
  for name, gradients in own.items():
    tiny.assert_near(test_scaffold.flat(kept[name]), gradients)


@pytest.mark.slow
def test_without_alpha_and_of_countless_clients_it_is_a_plain_mean():
  _, last, _ = _run(feddyn_alpha=1e-9, num_clients=10**9)
  fedavg = tiny.process('fedavg', **SETTINGS, weighting='uniform')
  plain = tiny.weights_after(fedavg, 3, COHORTS.__getitem__)
  tiny.assert_near(last, tiny.as_numpy(plain))


@pytest.mark.parametrize('cls', [feddyn.FedDyn, scaffold.SCAFFOLD])
def test_what_does_not_go_with_it_is_refused(cls):
  for number in (None, 0, -3):
    with pytest.raises(TypeError, match='num_clients'):
      cls().algorithm(tiny.model(), num_clients=number)
  made = cls.made(model=registered.SPARSE, num_clients=9)
  with pytest.raises(errors.InputError, match="'feature'"):
    algorithm.own_rows(made, 'feature', 6)


@pytest.mark.slow
def test_clients_keep_nothing_for_what_is_frozen():
  given = {'num_clients': CLIENTS, 'trainable': 'head'}
  made = feddyn.FedDyn.made(model=tiny.model(), **given)
  assert [*made.client_state.spec['tables']] == ['class']
  assert not made.client_state.spec['encoder']
  first, last, kept = _run(trainable='head')
  np.testing.assert_array_equal(first[0], last[0])
  assert not np.allclose(first[-1], last[-1])
  assert not kept[0]['encoder']


@pytest.mark.slow
def test_a_run_resumes_with_its_drift(tmp_path):
  straight = small_data.trained_and_resumed(
    tmp_path, 'feddyn', client_failure_rate=0.3, client_sampling='poisson'
  )
  kept = small_data.kept_by_clients(tmp_path / 'resumed')
  own = [gradients['tables/class'] for gradients in kept.values()]
  mean = np.sum(own, 0) / small_data.GLYPHS['num_clients']
  drift = 0.01 * straight['server/tables/class/optimizer']
  np.testing.assert_allclose(drift, mean, atol=1e-7)
  assert np.abs(mean).max() > 1e-5
