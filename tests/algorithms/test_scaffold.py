"""SCAFFOLD compared with NumPy, and its control variates."""

import dataclasses

import numpy as np
import pytest

from tests import registered, small_data, tiny
from tests.algorithms import numpy_fedss, test_fedavg
from tff_xc.algorithms import scaffold
from tff_xc.options import schedules

pytestmark = pytest.mark.usefixtures('in_process')

RATE, CLIENTS = 0.1, 3
# Client 0 participates three times, client 1 twice, client 2 once. One client is empty.
COHORTS = [
  tiny.cohort(labels, seed)
  for seed, labels in enumerate(
    ([[0, 1], [2, 3, 3]], [[4, 5, 6], [], [7, 7]], [[8, 8], [9, 10, 1]])
  )
]
SETTINGS = {
  'local_training': test_fedavg.FULL_BATCH,
  'num_clients': CLIENTS,
  'server_learning_rate': 0.7,
}


def gradients(weights, client):
  """Returns the gradients of a client's mean loss, float64."""
  x, y = client.x, client.labels
  every, nothing = np.ones([len(x), 12], bool), np.zeros(12)
  return numpy_fedss.loss_and_gradients(*weights, x, y, every, nothing, 4.0)[1:]


def reference(weights, variate):
  """Runs Algorithm 1. Returns the weights, c, and c_k by client."""
  zeros = [np.zeros_like(w) for w in weights]
  server, own = zeros, {}
  for cohort in COHORTS:
    moves, changes = [], []
    for client in (client for client in cohort if len(client.labels)):
      y, c_k = weights, own.get(int(client.client_id), zeros)
      for _ in range(2):
        each = zip(y, gradients(y, client), c_k, server, strict=True)
        y = [w - RATE * (g - k + c) for w, g, k, c in each]
      if variate == 'gradient':
        new = gradients(weights, client)
      else:
        each = zip(c_k, server, weights, y, strict=True)
        new = [k - c + (x - w) / (2 * RATE) for k, c, x, w in each]
      moves.append([w - x for w, x in zip(y, weights, strict=True)])
      changes.append([n - k for n, k in zip(new, c_k, strict=True)])
      own[int(client.client_id)] = new

    def mean(found):
      return [np.mean(each, 0) for each in zip(*found, strict=True)]

    weights = [x + 0.7 * m for x, m in zip(weights, mean(moves), strict=True)]
    share = len(moves) / CLIENTS
    server = [c + share * d for c, d in zip(server, mean(changes), strict=True)]
  return weights, server, own


def flat(variate) -> list[np.ndarray]:
  """Returns (kernel, bias, table) of a control variate."""
  encoder, tables = variate['encoder'], variate['tables']
  each = encoder['kernel'], encoder['bias'], tables['class']
  return [np.asarray(t, np.float64) for t in each]


def run(cohorts=COHORTS, **changes):
  """Returns (the first state, the last state, the clients' states)."""
  arguments = {**SETTINGS, **changes}
  learning = tiny.process('scaffold', **arguments)
  made = scaffold.SCAFFOLD.made(model=tiny.model(), **arguments)
  return registered.run(learning, cohorts, made.client_state)[:3]


@pytest.mark.parametrize('variate', ['steps', pytest.param('gradient', marks=pytest.mark.slow)])
def test_three_rounds_equal_the_numpy_reference(variate):
  # The default value uses the same learning process as other tests.
  given = {} if variate == 'steps' else {'scaffold_variate': variate}
  first, last, kept = run(**given)
  weights, server, own = reference(tiny.as_numpy(first.weights), variate)
  tiny.assert_near(tiny.as_numpy(last.weights), weights)
  tiny.assert_near(flat(last.parts['scaffold']), server)
  assert sorted(kept) == sorted(own) == [0, 1, 2]
  for client, variates in own.items():
    tiny.assert_near(flat(kept[client]), variates)
  # The server's variate is the mean of the clients' variates.
  mean = [np.mean(each, 0) for each in zip(*map(flat, kept.values()), strict=True)]
  tiny.assert_near(flat(last.parts['scaffold']), mean)
  assert max(np.abs(c).max() for c in mean) > 0.01


@pytest.mark.slow
def test_without_variates_it_is_fedavg_whose_clients_count_alike():
  _, state, _ = run(COHORTS[:1])
  given = {k: v for k, v in SETTINGS.items() if k != 'num_clients'}
  fedavg = tiny.process('fedavg', **given, weighting='uniform')
  plain, _ = tiny.run(fedavg, 1, COHORTS.__getitem__)
  tiny.assert_same_weights(state.weights, plain.weights, 1e-6)


def test_a_dropped_client_keeps_its_variate_and_sends_none():
  bad = COHORTS[1][2]
  bad = bad._replace(x=np.full_like(bad.x, np.nan))
  dropped = [COHORTS[0], [COHORTS[1][0], bad]]
  _, state, kept = run(dropped)
  _, without, same = run([COHORTS[0], COHORTS[1][:1]])
  assert sorted(kept) == sorted(same) == [0, 1]
  tiny.assert_same_weights(state.parts, without.parts, 1e-7)
  tiny.assert_same_weights(state.weights, without.weights, 1e-7)


@pytest.mark.slow
def test_attackers_send_honest_variates():
  attacks = {'attack': 'flip_signs', 'attack_fraction': 0.6}
  (_, one, kept), (_, two, same) = (run(COHORTS[:1], **given) for given in ({}, attacks))
  tiny.assert_same_weights((one.parts, kept), (two.parts, same), 0.0)
  moved = one.weights.class_table - two.weights.class_table
  assert np.abs(moved).max() > 0.1


@pytest.mark.slow
def test_at_a_rate_of_0_a_client_keeps_its_variate():
  ends = dataclasses.replace(
    SETTINGS['local_training'], schedule=schedules.Schedule('step', 1, 0.0)
  )
  one, two = (run(COHORTS[:n], local_training=ends) for n in (1, 2))
  tiny.assert_same_weights(one[2][0], two[2][0], 0.0)
  tiny.assert_same_weights(one[1].parts, two[1].parts, 0.0)
  tiny.assert_same_weights(one[1].weights, two[1].weights, 0.0)


@pytest.mark.slow
def test_a_variate_that_is_not_finite_is_not_taken():
  """The variate is not finite although the update is, because training replaces such numbers."""
  training = dataclasses.replace(SETTINGS['local_training'], replace_nonfinite=True)
  good, bad = COHORTS[0]
  bad = bad._replace(x=np.full_like(bad.x, np.nan))
  more = {'local_training': training, 'scaffold_variate': 'gradient'}
  _, state, kept = run([[good, bad]], **more)
  _, alone, same = run([[good]], **more)
  assert [*kept] == [*same] == [0]
  tiny.assert_same_weights(state.parts, alone.parts, 1e-7)


@pytest.mark.slow
def test_the_gradient_is_over_all_batches_and_has_weight_decay():
  """Tests option I of the paper with five examples in batches of two."""
  training = dataclasses.replace(test_fedavg.FULL_BATCH, batch_size=2, weight_decay=0.5)
  [client] = tiny.cohort([[0, 1, 2, 3, 3]])
  first, _, kept = run([[client]], scaffold_variate='gradient', local_training=training)
  weights = tiny.as_numpy(first.weights)
  each = zip(flat(kept[0]), gradients(weights, client), weights, strict=True)
  for found, g, w in each:
    np.testing.assert_allclose(found, g + 0.5 * w, atol=2e-5)


@pytest.mark.slow
def test_a_run_resumes_with_its_variates(tmp_path):
  straight = small_data.trained_and_resumed(tmp_path, 'scaffold', client_failure_rate=0.2)
  variate = straight['parts/scaffold/tables/class']
  kept = small_data.kept_by_clients(tmp_path / 'resumed')
  own = [variates['tables/class'] for variates in kept.values()]
  count = small_data.GLYPHS['num_clients']
  np.testing.assert_allclose(variate, np.sum(own, 0) / count, atol=1e-6)
  assert np.abs(variate).max() > 1e-4
