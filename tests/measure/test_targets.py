"""Targets, budgets and the best round of a run."""

import math

import pandas as pd
import pytest

from tff_xc import errors
from tff_xc.measure import catalog, targets

METRICS = pd.DataFrame(
  {
    'round': [0.0, 1.0, 2.0, 3.0, 4.0],
    'top1': [0.1, float('nan'), 0.7, float('nan'), 0.6],
    'mcc': [float('nan')] * 5,
  }
)


def test_targets_and_budgets_are_read_and_written():
  found = targets.parse('top1:0.70, mcc:-.5,map@10:1e-3,top1:0.7')
  assert [t.name for t in found] == ['top1:0.7', 'mcc:-0.5', 'map@10:0.001']
  assert found[0].heading == 'rounds to top-1 70 %'
  assert found[2].heading == 'rounds to MAP@10 0.1 %'
  distance = targets.Target('class_distance_min', 1.25)
  assert distance.heading == 'rounds to least class distance 1.25'
  some = targets.parse_budgets('rounds:1000, batches:10000,rounds:1000,bytes:9')
  assert [b.name for b in some] == ['rounds:1000', 'batches:10000', 'bytes:9']
  assert [b.heading for b in some] == ['at 1,000 rounds', 'at 10,000 batches', 'at 9 bytes']
  assert targets.parse('') == targets.parse_budgets(' ') == ()


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    *((text, 'not of the form') for text in ('top1', 'top1:', 'top1:x', 'top1:nan', 'top1:inf')),
    ('top1:0.7,', "target '' is not"),
    (':0.7', 'names no metric'),
    ('loss:0.7', 'names no metric'),
    ('p@1:0.7', 'not measured'),
    ('top1:70', 'top1:0.7 for 70 %'),
    ('mcc:-2', 'mcc:-0.02 for -2 %'),
  ],
)
def test_what_is_no_target_is_refused(text, message):
  with pytest.raises(errors.InputError, match=message):
    targets.parse(text, ('top1', 'mcc'))


@pytest.mark.parametrize(
  'text', ['1000', 'seconds:3', 'rounds:0', 'rounds:x', ',', f'rounds:{"9" * 5000}']
)
def test_what_is_no_budget_is_refused(text):
  with pytest.raises(errors.InputError, match='rounds:1000'):
    targets.parse_budgets(text)


def test_the_first_evaluated_round_counts(monkeypatch):
  def first(text):
    return targets.parse(text)[0].first_round(METRICS)

  assert first('top1:0.7') == 2
  assert first('top1:0.65') == 2
  assert first('top1:0.05') == 0
  assert first('top1:0.71') is None
  assert first('mcc:-1') is None  # The metric was never measured.
  lower = catalog.SCORES['top1']._replace(better='lower')
  monkeypatch.setitem(catalog.SCORES, 'top1', lower)
  assert first('top1:0.6') == 0
  assert first('top1:0.05') is None


NAN = math.nan
BATCHES = pd.DataFrame(
  {
    'round': [0, 1, 2, 3, 4, 5],
    'local_batches': [NAN, 4, 46, 10, 40, 4],
    'top1': [0.1, NAN, 0.3, NAN, 0.5, 0.6],
    'bytes_down_per_client': [NAN, 100.0, 120.0, 90.0, 100.0, 100.0],
    'clients': [NAN, 4.0, 3.0, 4.0, 2.0, 1.0],
  }
)


@pytest.mark.parametrize(
  ('unit', 'scores'),
  [
    ('rounds', {1: 0.1, 2: 0.3, 3: 0.3, 5: 0.6, 6: None}),
    ('batches', {3: 0.1, 49: 0.1, 50: 0.3, 99: 0.3, 100: 0.5, 104: 0.6, 105: None}),
    # After the rounds, 400, 760, 1,120, 1,320 and 1,420 bytes were sent to all clients.
    ('bytes', {759: 0.1, 760: 0.3, 1319: 0.3, 1320: 0.5, 1420: 0.6, 1421: None}),
  ],
)
def test_the_last_evaluated_round_within_the_budget_counts(unit, scores):
  budgets = [targets.Budget(unit, number) for number in scores]
  assert [b.score(BATCHES, 'top1') for b in budgets] == [*scores.values()]
  assert budgets[0].score(BATCHES, 'mcc') is None


@pytest.mark.parametrize(
  ('values', 'waited', 'of_less'),
  [
    ((), 0, 0),
    ((NAN, NAN), 0, 0),
    ((0.1,), 0, 0),
    ((0.1, NAN, 0.1), 1, 1),  # The first of equal scores is the best.
    ((0.3, 0.2, NAN, 0.1), 2, 0),
    ((0.3, 0.2, 0.4), 0, 1),
  ],
)
def test_evaluations_since_the_best(values, waited, of_less, monkeypatch):
  rows = [{'p@1': value} for value in values]

  def stops():
    return [targets.BestRound('p@1', n).stops(rows) for n in range(4)]

  assert stops() == [False, *(waited >= n for n in (1, 2, 3))]
  lower = catalog.SCORES['p@1']._replace(better='lower')
  monkeypatch.setitem(catalog.SCORES, 'p@1', lower)
  assert stops() == [False, *(of_less >= n for n in (1, 2, 3))]


def test_the_best_round_counts_from_the_first_row():
  rows = [{'round': 3, 'p@1': 0.1}, {'round': 4, 'p@1': 0.3}, {'round': 5, 'p@1': 0.3}]
  assert targets.BestRound('p@1').round(rows) == 4


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
  found = targets.BestRound('p@1').summary(table, ('p@1',))
  assert found == {
    'by': 'p@1', 'round': 1, 'p@1': 0.5, 'bytes_down': 400, 'bytes_up': 40,
  }  # fmt: skip
  found = targets.BestRound('p@3').summary(table, ('p@1', 'p@3'))
  assert (found['round'], found['bytes_down']) == (3, 400 + 360 + 360)
  assert targets.BestRound().summary(table, ()) is None
  table['p@1'] = NAN
  assert targets.BestRound('p@1').summary(table, ()) is None
