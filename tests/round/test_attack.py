"""Which clients attack, and what attackers read and send."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from tests import registered, tiny
from tests.round import test_robust
from tff_xc import errors
from tff_xc.data import sparse
from tff_xc.options import attack as attack_lib, robust
from tff_xc.round import examples as examples_lib, process as process_lib, randomness

pytestmark = pytest.mark.usefixtures('in_process')


def attackers(fraction, seed=0, clients=1000):
  made = attack_lib.Attack(attack='scale', attack_fraction=fraction, num_clients=clients)
  found = made.drawn(randomness.pair(seed)).attackers
  return found, found.include(tf.range(clients, dtype=tf.int64)).numpy()


def test_who_attacks_is_a_share_of_the_clients_by_seed_and_id():
  who, some = attackers(0.1)
  assert some.sum() == 100
  more = attackers(0.3)[1]
  assert more.sum() == 300
  assert more[some].all()
  np.testing.assert_array_equal(some, attackers(0.1)[1])
  # With another seed, also one of more than 31 bits, about 10 attackers are the same.
  for seed in (1, 2**31, 2**40):
    assert (some & attackers(0.1, seed)[1]).sum() < 30
  # The attackers are spread over the ids. A client that is drawn twice is the same client.
  assert 30 < some[:500].sum() < 70
  first = np.flatnonzero(some)[0]
  again = tf.constant([first, first + 1000, first + 3000])
  assert who.include(again).numpy().all()
  assert attackers(1.0)[1].all()
  assert attackers(1e-6)[1].sum() == 1
  for kind, fraction in (('bribe', 0.1), ('scale', 0.0), ('scale', 1.1)):
    with pytest.raises(errors.InputError, match='expected'):
      attack_lib.Attack(attack=kind, attack_fraction=fraction, num_clients=10)


def test_flipped_labels_are_mirror_images():
  [client] = tiny.cohort([[0, 3, 11]])
  flipped = attack_lib.flipped(client._replace(all_labels=np.int32([0, 5])), 12)
  assert flipped.labels.tolist() == [11, 8, 0]
  assert flipped.all_labels.tolist() == [11, 6]
  assert flipped.labels.dtype == flipped.all_labels.dtype == np.int32
  assert flipped.x is client.x
  sets = scipy.sparse.csr_matrix(np.array([[1, 1, 0, 0], [0, 0, 0, 0], [0, 1, 0, 1]], bool))
  y = sparse.as_tensors(sets)
  flipped = attack_lib.flipped(examples_lib.ClientExamples(None, y, 0, y.ids), 4)
  # Labels are ascending within an example.
  assert flipped.labels.ids.tolist() == [2, 3, 0, 2]
  assert flipped.labels.row_splits.tolist() == [0, 2, 2, 4]
  assert flipped.labels.ids.dtype == np.int32


CLIENTS = 8


def attacked(name, kind, scale=10.0, fraction=0.25, bounds=None):
  made = attack_lib.Attack(
    attack=kind, attack_fraction=fraction, num_clients=CLIENTS, attack_scale=scale
  )
  return test_robust.made(name, bounds, rate=0.1).with_part(made)


def attack_of(algorithm):
  """Returns whether each client of the cohort attacks, for seed 0 of the process."""
  drawn = algorithm.part('attack').drawn([0, 0]).attackers
  return drawn.include(tf.range(CLIENTS, dtype=tf.int64)).numpy()


FACTORS = {'scale': 10.0, 'flip_signs': -10.0}


@pytest.mark.parametrize(
  ('name', 'kind'),
  [
    ('fedss', 'flip_signs'),
    pytest.param('fedss', 'scale', marks=pytest.mark.slow),
    pytest.param('fedaws', 'flip_signs', marks=pytest.mark.slow),
  ],
)
def test_attackers_send_a_multiple_of_what_they_changed(name, kind):
  algorithm = attacked(name, kind)
  attacks = attack_of(algorithm)
  assert attacks.sum() == 2
  state = test_robust.first_state(algorithm)
  honest = test_robust.Sent(tiny.without_part(algorithm, 'attack'))
  sent = test_robust.Sent(algorithm.part('attack').of_run(algorithm, [0, 0]))
  for client, attacks_too in zip(test_robust.cohort_of(0, ()), attacks, strict=True):
    (change, weight), (found, same) = (each.changes(state, client) for each in (honest, sent))
    factor = FACTORS[kind] if attacks_too else 1.0
    for key, values in change.items():
      assert values.any()
      np.testing.assert_allclose(found[key], factor * values, rtol=1e-4, atol=1e-6)
    assert weight == same


@pytest.mark.slow
@pytest.mark.parametrize(
  ('name', 'kind'), [('fedss', 'flip_signs'), ('fedss', 'scale'), ('fedaws', 'flip_signs')]
)
def test_a_round_averages_what_attackers_send(name, kind):
  algorithm = attacked(name, kind)
  if name == 'fedaws':  # Leave out the spreadout step.
    table = dataclasses.replace(algorithm.tables[0], steps=())
    algorithm = algorithm.with_table(table)
  sent = test_robust.Sent(tiny.without_part(algorithm, 'attack'))
  process = process_lib.build_process(algorithm)
  attacks = attack_of(algorithm)
  assert attacks.sum() == 2
  state, cohort = process.initialize(), test_robust.cohort_of(0, ())
  each = [sent.changes(state, client) for client in cohort]
  factors = np.where(attacks, FACTORS[kind], 1.0)
  before, after = map(tiny.as_numpy, (state.weights, process.next(state, cohort).state.weights))
  examples = np.array([len(client.labels) for client in cohort])
  weights = np.array([weight for _, weight in each])
  for key, old, new in zip(('kernel', 'bias', 'class'), before, after, strict=True):
    total, share = 0.0, np.full([12, 1], weights.sum())
    by = weights
    if name == 'fedaws' and key == 'class':
      holds = np.array([np.isin(np.arange(12), c.labels) for c in cohort])
      by, share = examples, (examples @ holds)[:, None]
    for weight, factor, (change, _) in zip(by, factors, each, strict=True):
      total = total + weight * factor * change[key]
    share = share if key == 'class' else weights.sum()
    np.testing.assert_allclose(new - old, total / np.maximum(share, 1), rtol=1e-4, atol=3e-6)


@pytest.mark.slow
def test_bounds_apply_to_what_attackers_send():
  bounds = robust.Bounds(None, robust.Quantile(3.0, 0.8, 0.2))
  process = process_lib.build_process(attacked('fedss', 'scale', 1e4, bounds=bounds))
  state = process.initialize()
  output = process.next(state, test_robust.cohort_of(0, ()))
  assert 2 <= output.metrics['clients_clipped'] < 8
  moved = [
    np.asarray(a) - np.asarray(b)
    for a, b in zip(
      tf.nest.flatten(output.state.weights), tf.nest.flatten(state.weights), strict=True
    )
  ]
  assert np.sqrt(sum((m**2).sum() for m in moved)) < 3.0
  # An attacker whose update is not finite is dropped like other clients.
  process = process_lib.build_process(attacked('fedss', 'scale', 1e38))
  output = process.next(state=process.initialize(), examples=test_robust.cohort_of(0, ()))
  assert output.metrics['clients_dropped'] <= 2


def test_options_make_the_attack():
  made = registered.algorithm('fedss', attack='flip_signs', attack_scale=3.0)
  assert made.part('attack') == attack_lib.Attack(
    attack='flip_signs', attack_fraction=0.1, num_clients=12, attack_scale=3.0
  )
  assert made.sampling.attack == made.part('attack')
  assert made.part('attack').factor == -3.0
  assert registered.algorithm('fedss').part('attack') is None
