"""Runs in which some clients attack."""

import numpy as np
import pandas as pd
import pytest

from tasks import configuration, experiment
from tests import small_data
from tff_xc.options import attack as attack_lib
from tff_xc.report import run_files
from tff_xc.round import cohort

CLIENTS = 40


@pytest.fixture(scope='module')
def data():
  return small_data.images(CLIENTS)[0]


def draws(data, kind='flip_labels', sampling=None, seed=3, fraction=0.3):
  sampling = sampling or cohort.UniformClients(10)
  made = attack_lib.Attack(attack=kind, attack_fraction=fraction, num_clients=CLIENTS)
  return attack_lib.attacked(sampling, made).cohorts(data, seed)


def test_the_same_clients_flip_their_labels_in_all_rounds(data):
  everybody = cohort.UniformClients(CLIENTS)
  sound, flips = everybody.cohorts(data, 3), draws(data, sampling=everybody)
  found = []
  for r in (4, 0):
    pairs = list(zip(flips(r).examples, sound(r).examples, strict=True))
    for ours, theirs in pairs:
      np.testing.assert_array_equal(ours.x, theirs.x)
      if (ours.labels == theirs.labels).all():
        continue
      np.testing.assert_array_equal(ours.labels, 7 - theirs.labels)
      np.testing.assert_array_equal(ours.all_labels, 7 - theirs.all_labels)
      found.append((r, int(ours.client_id)))
    assert flips(r).attackers == 12

  def of(r):
    return {client for at, client in found if at == r}

  assert of(4) == of(0)
  assert len(of(0)) == 12
  # The attackers do not depend on the other clients or on other settings.
  few = draws(data, 'scale')
  for r in range(5):
    assert few(r).attackers == len(of(0) & {*few(r).numbers})
    np.testing.assert_array_equal(
      few(r).examples[0].labels, cohort.UniformClients(10).cohorts(data, 3)(r).examples[0].labels
    )
  with pytest.raises(ValueError, match='40 clients'):
    draws(small_data.images(6)[0], sampling=cohort.UniformClients(2))


def test_attackers_are_counted_however_clients_are_drawn(data):
  virtual = cohort.VirtualClients(60, 5, replace=True)
  found = draws(data, sampling=virtual)(0)
  sound = virtual.cohorts(data, 3)(0)
  flipped = [
    (a.all_labels != b.all_labels).any()
    for a, b in zip(found.examples, sound.examples, strict=True)
  ]
  assert found.attackers == sum(flipped) > 0
  # A client that is drawn twice attacks twice.
  clients = np.array(found.numbers) % CLIENTS
  for client in set(clients.tolist()):
    assert len(set(np.array(flipped)[clients == client])) == 1
  nobody = draws(data, sampling=cohort.Dropout(cohort.UniformClients(1), 0.99))
  assert 0 in [nobody(r).attackers for r in range(20)]
  left = draws(data, sampling=cohort.Dropout(cohort.UniformClients(10), 0.5))
  assert all(left(r).attackers <= len(left(r).numbers) for r in range(20))


@pytest.mark.slow
@pytest.mark.parametrize(
  'given',
  [
    {'attack': 'flip_labels', 'client_failure_rate': 0.3},
    {
      **{'attack': 'flip_signs', 'robust_aggregation': 'trimmed_mean'},
      'compression': 'rotate_quantize',
    },
  ],
)
def test_a_run_counts_attackers_and_resumes(in_process, built_once, tmp_path, given):
  given = {**given, 'attack_fraction': 0.4, 'negatives': 3}
  small_data.trained_and_resumed(tmp_path, 'fedss', **given)
  straight, resumed = (
    run_files.read_run(tmp_path / name).metrics for name in ('straight', 'resumed')
  )
  config = configuration.resolve('glyphs', 'fedss', {**small_data.GLYPHS, **given})
  made = experiment.assemble(config)
  drawn = made.algorithm.sampling.cohorts(made.dataset, 0)
  expected = [drawn(r).attackers for r in range(4)]
  assert straight['client_attackers'][1:].tolist() == expected
  assert 0 < sum(expected) < 12
  pd.testing.assert_frame_equal(resumed.drop(columns='seconds'), straight.drop(columns='seconds'))
