"""Scores at a round, or after a number of local batches."""

import math

import pandas as pd
import pytest

from tff_xc import errors
from tff_xc.measure import budgets

NAN = math.nan
METRICS = pd.DataFrame(
  {
    'round': [0, 1, 2, 3, 4, 5],
    'local_batches': [NAN, 4, 46, 10, 40, 4],
    'top1': [0.1, NAN, 0.3, NAN, 0.5, 0.6],
  }
)


@pytest.mark.parametrize(
  ('budget', 'score'),
  [
    ('rounds:1', 0.1),
    ('rounds:2', 0.3),
    ('rounds:3', 0.3),
    ('rounds:5', 0.6),
    ('rounds:6', None),
    ('batches:3', 0.1),
    ('batches:49', 0.1),
    ('batches:50', 0.3),
    ('batches:99', 0.3),
    ('batches:100', 0.5),
    ('batches:104', 0.6),
    ('batches:105', None),
  ],
)
def test_the_last_evaluated_round_within_the_budget_counts(budget, score):
  [found] = budgets.parse(budget)
  assert found.score(METRICS, 'top1') == score


def test_with_four_steps_a_round_batches_are_rounds():
  """As in all rows of FedVC, Table 2: N_VC = 256 and B = 64."""
  rounds = range(1, 51)
  metrics = pd.DataFrame(
    {'round': rounds, 'local_batches': 4.0, 'top1': [r / 50 for r in rounds]}
  )
  for number in (1, 10, 25, 50):
    at_round, at_batch = budgets.parse(f'rounds:{number},batches:{4 * number}')
    assert at_round.score(metrics, 'top1') == at_batch.score(metrics, 'top1')


def test_runs_without_the_number_have_no_score():
  [budget] = budgets.parse('batches:10')
  assert budget.score(METRICS.drop(columns='local_batches'), 'top1') is None
  assert budget.score(METRICS, 'mcc') is None


def test_names_and_headings():
  some = budgets.parse('rounds:1000, batches:10000,rounds:1000')
  assert [b.name for b in some] == ['rounds:1000', 'batches:10000']
  assert [b.heading for b in some] == ['at 1,000 rounds', 'at 10,000 batches']
  assert budgets.parse('') == ()


@pytest.mark.parametrize(
  'text',
  ['1000', 'bytes:3', 'rounds:0', 'rounds:x', ',', f'rounds:{"9" * 5000}'],
)
def test_others_are_refused(text):
  with pytest.raises(errors.InputError, match='is not of the form rounds:1000'):
    budgets.parse(text)
