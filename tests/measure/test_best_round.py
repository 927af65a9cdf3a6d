"""The best round by a score, and stopping without a better one."""

import math

import pandas as pd
import pytest

from tff_xc.measure import best_round

NAN = math.nan


def rows(*values, metric='p@1'):
  return [{metric: value} for value in values]


@pytest.mark.parametrize(
  ('values', 'waited'),
  [
    ((), 0),
    ((NAN, NAN), 0),
    ((0.1,), 0),
    ((0.1, NAN, 0.1), 1),  # The first of equals is the best.
    ((0.3, 0.2, NAN, 0.1), 2),
    ((0.3, 0.2, 0.4), 0),
  ],
)
def test_evaluations_since_the_best(values, waited):
  assert best_round.Choice('p@1').waited(rows(*values)) == waited
  choice = best_round.Choice('p@1', 2)
  assert choice.stops(rows(*values)) == (waited >= 2)
  assert not best_round.Choice('p@1', 0).stops(rows(*values))


def test_less_may_be_better():
  metric = 'class_distance_min'
  found = best_round.Choice(metric).waited(rows(1.0, 2.0, metric=metric))
  assert found == 0  # Of distances, more is better.
  table = pd.DataFrame({'round': [0, 1], metric: [1.0, 2.0]})
  table = table.assign(
    bytes_down_per_client=[NAN, 10.0], bytes_up_per_client=4.0, clients=[NAN, 3]
  )
  assert best_round.Choice(metric).summary(table, ())['round'] == 1


def test_the_summary_has_the_volume_up_to_the_best_round():
  table = pd.DataFrame(
    {
      'round': [0, 1, 2, 3],
      'p@1': [0.1, 0.5, 0.5, 0.2],
      'p@3': [0.2, NAN, 0.3, 0.4],
      'bytes_down_per_client': [NAN, 100.0, 120.0, 90.0],
      'bytes_up_per_client': [NAN, 10.0, 12.0, 9.0],
      'clients': [NAN, 4.0, 3.0, 4.0],
    }
  )
  found = best_round.Choice('p@1').summary(table, ('p@1',))
  assert found == {
    'by': 'p@1', 'round': 1, 'p@1': 0.5, 'bytes_down': 400, 'bytes_up': 40,
  }  # fmt: skip
  found = best_round.Choice('p@3').summary(table, ('p@1', 'p@3'))
  assert (found['round'], found['bytes_down']) == (3, 400 + 360 + 360)
  assert best_round.Choice().summary(table, ()) is None
  table['p@1'] = NAN
  assert best_round.Choice('p@1').summary(table, ()) is None
