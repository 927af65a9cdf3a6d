"""When measured values count as the published ones."""

import math

import pytest

from launch.reproduction import bands
from launch.reproduction import outcome
from tasks.papers import registry
from tasks.papers import table

VERDICTS = outcome.Verdict


def pair(printed, mean, std=None, metric='top1', task='t'):
  [published] = table.read(printed)
  return bands.Pair(task, metric, published, mean, std, mean)


@pytest.mark.parametrize(
  ('printed', 'metric', 'mean', 'std', 'inside'),
  [
    ('50.0', 'top1', 52.0, None, True),
    ('50.0', 'top1', 52.1, None, False),
    ('50.0±1.5', 'top1', 53.0, None, True),
    ('50.0', 'top1', 55.0, 2.5, True),
    ('100', 'top1:0.7', 110, None, True),
    ('100', 'top1:0.7', 111, None, False),
    ('100±10', 'top1:0.7', 120, None, True),
    ('>200', 'top1:0.7', math.inf, None, True),
    ('>200', 'top1:0.7', 150.0, None, False),
    ('100', 'top1:0.7', math.inf, None, False),
  ],
)
def test_bands_are_two_deviations_points_or_a_tenth_of_the_rounds(
  printed, metric, mean, std, inside
):
  found = pair(printed, mean, std, metric)
  assert found.in_band == inside
  assert found.difference.endswith('*') != inside


def test_the_verdict_needs_every_value_or_the_whole_order():
  judged = lambda *pairs, missing=0: bands.judged(pairs, missing)[0]
  assert judged(pair('50', 51), pair('60', 59)) == VERDICTS.REPRODUCED
  assert judged(pair('50', 11), pair('60', 20)) == VERDICTS.SHAPE
  assert judged(pair('50', 21), pair('60', 20)) == VERDICTS.NOT
  assert judged() == VERDICTS.NOT_RUN
  # Values that were not measured may change both, except an order that is broken.
  assert judged(pair('50', 51), missing=1) == VERDICTS.NOT_RUN
  assert judged(pair('50', 11), missing=1) == VERDICTS.NOT_RUN
  assert judged(pair('50', 11), pair('60', 20), missing=1) == VERDICTS.NOT_RUN
  assert judged(pair('50', 21), pair('60', 20), missing=1) == VERDICTS.NOT
  # Values within each other's band have no order.
  assert judged(pair('50', 11), pair('51', 10)) == VERDICTS.NOT


def test_results_without_a_published_number_are_not_reproduced():
  judged = lambda *pairs: bands.judged(pairs, 0, 12)
  inside = pair('50', 51), pair('60', 59)
  verdict, why = judged(*inside)
  assert verdict == VERDICTS.SHAPE
  assert why == (
    '2 of 2 values are in the band; 12 have no published number; 1 of 1 pairs are in'
    ' the published order'
  )
  # One number tells of no shape.
  verdict, why = judged(inside[0])
  assert verdict == VERDICTS.NOT_RUN
  assert why == (
    '1 of 1 values are in the band; 12 have no published number; no two of them have'
    ' a published order'
  )
  assert judged(pair('50', 11))[0] == VERDICTS.NOT
  assert judged(pair('50', 21), pair('60', 20))[0] == VERDICTS.NOT
  assert judged()[0] == VERDICTS.NOT_RUN


def test_wide_bands_do_not_hide_another_order():
  verdict, why = bands.judged(
    [pair('59.3', 31, std=15), pair('50.3', 62, std=12)], 0
  )
  assert verdict == VERDICTS.NOT
  assert why == (
    '2 of 2 values are in the band; 0 of 1 pairs are in the published order'
  )


def rounds(printed, mean):
  return pair(printed, mean, metric='top1:0.7')


def test_two_targets_that_were_missed_tell_of_no_order():
  missed = rounds('50', math.inf), rounds('100', math.inf)
  assert bands.order(missed) == (1, 0, 1)
  # Further rounds may still tell, but not of a pair that is in the other order.
  assert bands.judged(missed, 0)[0] == VERDICTS.NOT_RUN
  broken = rounds('20', 60.0), rounds('10', 70.0)
  assert bands.judged([*missed, *broken], 0)[0] == VERDICTS.NOT
  found = bands.order([*missed, rounds('20', 60.0)])
  assert str(found) == (
    '2 of 3 pairs are in the published order, 1 cannot tell'
  )


def test_two_targets_that_were_reached_at_one_evaluation_tell_of_no_order():
  tied = rounds('9005', 10.0), rounds('1463', 10.0)
  assert bands.order(tied) == (1, 0, 1)
  assert bands.judged(tied, 0)[0] == VERDICTS.NOT_RUN
  for metric in ('relative_top1:0.1', 'top1'):
    two = [pair(value, 10.0, metric=metric) for value in ('90', '14')]
    assert bands.order(two) == (1, 0, metric != 'top1')
  assert bands.order([rounds('9005', 10.0), rounds('1463', 20.0)]) == (1, 0, 0)
  # A tie is not the other order: all that was printed was measured.
  near = rounds('51.0±5.0', 47.0), rounds('43.4±2.9', 47.0)
  assert bands.order(near) == (0, 0, 0)
  near = rounds('51', 47.0), rounds('43.4±2.9', 47.0)
  assert bands.order(near) == (1, 0, 1)
  assert bands.judged(near, 0)[0] == VERDICTS.REPRODUCED
  assert bands.judged(near, 1)[0] == VERDICTS.NOT_RUN


@pytest.mark.parametrize(
  ('printed', 'other', 'total'),
  [
    ('>20000', '9005', 1),
    ('>20000', '39236', 0),
    ('>20000', '>50000', 0),
    ('>20000', '>20000', 0),
    ('>20000', '19500', 0),  # Within its band.
  ],
)
def test_a_bound_is_later_than_the_numbers_below_it(printed, other, total):
  two = rounds(printed, 7.0), rounds(other, 5.0)
  assert bands.order(two) == (total, total, 0)
  assert bands.order(two[::-1]) == (total, total, 0)


def _perfect(found):
  """Returns a table's values, each measured as it is printed; None without."""
  pairs = []
  for row in found.rows:
    for name, value in row.published.items():
      if value is None:
        pairs.append(None)
        continue
      mean, least = value.mean, value.mean
      if value.is_bound:  # Missed in that many rounds.
        mean, least = math.inf, value.mean + 1
      pairs.append(bands.Pair(row.task, name, value, mean, value.std, least))
  return pairs


@pytest.mark.parametrize('name', registry.TABLES)
def test_the_published_values_reproduce_every_table_that_has_them_all(name):
  pairs = _perfect(registry.TABLES[name])
  printed = [each for each in pairs if each]
  verdict, _ = bands.judged(printed, 0, pairs.count(None))
  if len(printed) == len(pairs):
    assert verdict == VERDICTS.REPRODUCED
  elif bands.order(printed).total:
    assert verdict == VERDICTS.SHAPE
  else:
    assert verdict == VERDICTS.NOT_RUN


def test_only_rows_of_one_task_and_metric_have_an_order():
  verdict, why = bands.judged(
    [
      *(pair('50', 11), pair('60', 20)),
      *(pair('10', 31, metric='mcc'), pair('20', 40, metric='mcc')),
      *(pair('1', 91, task='u'), pair('9', 95, task='u')),
    ],
    0,
  )
  assert verdict == VERDICTS.SHAPE
  assert why == (
    '0 of 6 values are in the band; 3 of 3 pairs are in the published order'
  )


def test_fewer_rounds_are_in_order_with_a_target_that_was_missed():
  judged = lambda *pairs: bands.judged(pairs, 0)[0]
  assert judged(rounds('50', 150.0), rounds('100', math.inf)) == VERDICTS.SHAPE
  assert judged(rounds('50', math.inf), rounds('100', 150.0)) == VERDICTS.NOT
