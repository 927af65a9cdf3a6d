"""Clients that leave a round: which clients, how many, and the effect on a run."""

import numpy as np
import pandas as pd
import pytest

from tests import small_data
from tff_xc.report import run_files
from tff_xc.round import cohort

CLIENTS = 40


@pytest.fixture(scope='module')
def data():
  return small_data.images(CLIENTS)[0]


def draws(data, probability, seed=3, sampling=None):
  sampling = sampling or cohort.UniformClients(10)
  return cohort.Dropout(sampling, probability).cohorts(data, seed)


def numbers(found):
  return [int(client.client_id) for client in found.examples]


def test_who_leaves_depends_on_seed_round_and_client_alone(data):
  one, two = (draws(data, 0.3) for _ in range(2))
  drawn = cohort.UniformClients(10).cohorts(data, 3)
  for r in (7, 0, 3):
    assert numbers(one(r)) == numbers(two(r))
    # The remaining clients keep their order and their examples.
    stay = set(numbers(one(r)))
    assert numbers(one(r)) == [n for n in numbers(drawn(r)) if n in stay]
    assert one(r).numbers == tuple(numbers(one(r)))
    assert one(r).client_ids == tuple(str(n) for n in numbers(one(r)))
    assert one(r).dropouts == 10 - len(stay)
  # Whether a client leaves the round does not depend on the other clients.
  more = draws(data, 0.3, sampling=cohort.UniformClients(CLIENTS))
  assert set(numbers(one(5))) <= set(numbers(more(5)))
  # In other rounds and with other seeds, other clients leave.
  kept = [set(numbers(more(r))) for r in range(5)]
  assert len(set(map(frozenset, kept))) == 5
  other = draws(data, 0.3, 4, cohort.UniformClients(CLIENTS))
  assert set(numbers(other(0))) != kept[0]


def test_as_many_leave_as_the_probability_says(data):
  sampling = cohort.UniformClients(CLIENTS)
  left, rounds = {}, 250
  for p in (0.1, 0.9):
    drawn = [*map(draws(data, p, sampling=sampling), range(rounds))]
    left[p] = np.array([each.dropouts for each in drawn])
    # Allow four standard errors of the mean of 10,000 draws.
    error = np.sqrt(p * (1 - p) / (CLIENTS * rounds))
    assert abs(left[p].mean() / CLIENTS - p) < 4 * error
    # Both numbers are binomial, because clients leave independently of each other and of other
    # rounds.
    assert left[p].var() == pytest.approx(CLIENTS * p * (1 - p), rel=0.35)
    stayed = [n for each in drawn for n in each.numbers]
    stayed = np.bincount(stayed, minlength=CLIENTS)
    assert stayed.var() == pytest.approx(rounds * p * (1 - p), rel=0.7)
  assert (left[0.1] <= left[0.9]).all()


def test_of_virtual_clients_each_draw_leaves_by_itself():
  data = small_data.images(3)[0]
  sampling, parted = cohort.VirtualClients(6, 5, replace=True), 0
  drawn, left = sampling.cohorts(data, 3), draws(data, 0.5, sampling=sampling)
  for r in range(30):
    everyone, stay = drawn(r).numbers, left(r).numbers
    assert list(stay) == [n for n in everyone if n in stay]
    assert left(r).dropouts == 6 - len(stay)
    parted += any(n % 3 == m % 3 for n in stay for m in everyone if m not in stay)
  assert parted > 10


def test_a_round_of_which_nobody_is_left_has_one_client_without_examples(data):
  draw = draws(data, 0.99, sampling=cohort.UniformClients(3))
  [empty, *_] = [c for c in map(draw, range(50)) if c.dropouts == 3]
  assert len(empty.examples) == 1
  assert len(empty.examples[0].labels) == 0
  assert empty.client_ids == empty.numbers == ()


@pytest.mark.slow
@pytest.mark.parametrize(
  ('algorithm', 'given'),
  [
    ('fedss', {'negatives': 3}),
    (
      'fedss',
      {
        'negatives': 3,
        'virtual_client_size': 8,
        'robust_aggregation': 'zeroing+clipping',
      },
    ),
    ('turbosvm', {}),
  ],
)
def test_a_run_goes_on_with_the_rest_and_resumes(
  in_process, built_once, tmp_path, algorithm, given
):
  small_data.trained_and_resumed(tmp_path, algorithm, **given, client_failure_rate=0.5)
  straight, resumed = (run_files.read_run(tmp_path / name) for name in ('straight', 'resumed'))
  done, summary = straight.metrics[1:], straight.summary
  assert (done['clients'] + done['client_dropouts'] == 3).all()
  assert summary['client_dropouts_total'] == done['client_dropouts'].sum()
  assert 2 <= summary['client_dropouts_total'] <= 10
  assert np.isnan(straight.metrics['client_dropouts'][0])
  assert ('clipping_norm' in straight.metrics) == ('robust_aggregation' in given)
  pd.testing.assert_frame_equal(
    resumed.metrics.drop(columns='seconds'), straight.metrics.drop(columns='seconds')
  )
