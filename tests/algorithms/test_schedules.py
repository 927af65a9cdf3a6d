"""FedSS with other schedules of negatives, against NumPy and on threads."""

import numpy as np
import pytest
import tensorflow as tf

from tests import tiny
from tests.algorithms import numpy_fedss
from tff_xc.algorithms import fedss
from tff_xc.round import local_training
from tff_xc.round import randomness

N, M = 12, 4
COHORTS = (
  tiny.cohort([[0, 0, 3, 5], [7, 3], [11, 11, 11]], seed=1),
  tiny.cohort([[1, 2, 2], [3, 4, 5, 9, 9], [8]], seed=2),
  tiny.cohort([[10], [0, 1, 2, 3], [6, 6]], seed=3),
)
FULL_BATCH = local_training.LocalTraining(0.1, 64, 2)
SCHEDULES = {
  'sticky': {},
  'partial': {'negatives_renewed': 0.5},
  'randomized': {'request_epsilon': 1.5, 'negatives_renewed': 0.3},
}


def process(schedule, **more):
  return tiny.process(
    'fedss',
    max_positives=4,
    negatives=M,
    local_training=FULL_BATCH,
    negatives_schedule=schedule,
    **SCHEDULES[schedule],
    **more,
  )


def held_ids(schedule, client, round_number):
  made = fedss.FedSS.made(
    model=tiny.model(),
    max_positives=4,
    negatives=M,
    negatives_schedule=schedule,
    **SCHEDULES[schedule],
  )
  seed = randomness.round_seed(tf.constant([0, 0]), round_number)
  who = client.client_id, randomness.Purpose.NEGATIVES
  held = made.tables[0].request.held_rows(
    tf.constant(client.y),
    randomness.client_seed(seed, *who),
    lasting=randomness.lasting(seed, *who),
  )
  return held.ids.numpy()[held.mask.numpy()]


@pytest.mark.parametrize('schedule', SCHEDULES)
def test_three_rounds_equal_the_numpy_reference(schedule):
  made = process(schedule)
  state = made.initialize()
  weights = tiny.as_numpy(state.weights)
  velocity, missed = [np.zeros_like(w) for w in weights], 0
  for round_number, cohort in enumerate(COHORTS):
    clients = []
    for client in cohort:
      held = held_ids(schedule, client, round_number)
      # Examples of classes that were not requested are left out.
      kept = np.isin(client.y, held)
      missed += (~kept).sum()
      if schedule != 'randomized':
        assert len(held) == len(np.unique(client.y)) + M
      if not kept.any():
        continue
      x, y = client.x[kept], client.y[kept]
      deltas = numpy_fedss.train_client(
        'fedss', weights, held, x, y, correct=True
      )
      clients.append((held, deltas, len(y)))
    weights, velocity = numpy_fedss.server_round(
      weights, velocity, clients, learning_rate=1.0, momentum=0.9
    )
    output = made.next(state, cohort)
    state = output.state
    assert output.metrics['examples'] == sum(size for *_, size in clients)
  assert (missed > 0) == (schedule == 'randomized')
  after = tiny.as_numpy(made.get_model_weights(state))
  for found, expected in zip(after, weights, strict=True):
    np.testing.assert_allclose(found, expected, atol=2e-5)
