"""`launch.benchmark label_scores`: its contenders find the same labels."""

import dataclasses

import numpy as np
import pytest

from launch.benchmarks import catalog
from launch.benchmarks import contender
from launch.benchmarks import harness
from launch.benchmarks import label_scores
from tff_xc.measure import evaluation
from tff_xc.runtime import registry

LABEL_SCORES = catalog.get('label_scores')
SMALL = LABEL_SCORES.settings(**LABEL_SCORES.small)
SCORES = ('logsigmoid', 'logit')


@pytest.fixture(autouse=True)
def as_it_is(monkeypatch):
  """Leaves this process's runtime."""
  monkeypatch.setattr(registry, 'install', lambda name: None)


def built(name, settings=SMALL):
  made = LABEL_SCORES.build(name, settings)
  made.run()
  return made


def disagreeing(score, **checks):
  first = {
    f'{name}@{score}': contender.Reply(1.0, check)
    for name, check in checks.items()
  }
  groups = [g for g in LABEL_SCORES.groups(['floor', *first]) if g]
  assert groups == [list(first)]
  return harness.disagreeing(first, groups[0], LABEL_SCORES.tolerances)


@pytest.mark.parametrize('score', SCORES)
def test_contenders_find_labels_of_the_same_scores(score):
  ours, plain = (built(f'{name}@{score}') for name in ('ours', 'numpy'))
  check = ours.report()['check']
  assert disagreeing(score, ours=check, numpy=plain.report()['check']) == {}
  # Labels with equal scores may come in any order in NumPy.
  same = np.sort(ours.best) == np.sort(plain.best)
  assert same.mean() > 0.9
  plain.best = (plain.best + 1) % SMALL.num_classes
  plain._report = {}
  wrong = {'ours': check, 'numpy': plain.report()['check']}
  assert list(disagreeing(score, **wrong)) == [f'numpy@{score}']


def test_the_check_is_the_mean_score_of_the_labels_found():
  made = built('numpy@logit')
  embeddings, table = made.arrays
  assert embeddings.shape == (6, 3, 4) and (embeddings >= 0).all()
  assert table.shape == (60, 5) and np.abs(table).max() <= 0.5
  hashed = label_scores.buckets(SMALL, np.arange(200))
  assert hashed.shape == (3, 200)
  total = 0.0
  for r in range(3):
    rows = table[20 * r + hashed[r]]
    total += embeddings[:, r] @ rows[:, :-1].T + rows[:, -1]
  best = np.sort(total / 3, axis=1)[:, -5:]
  check = made.report()['check']
  assert check['best_logit'] == pytest.approx(best.mean(), rel=1e-5)


def test_blocks_of_examples_change_nothing(monkeypatch):
  whole = built('numpy@logit').best
  monkeypatch.setattr(label_scores, '_AT_ONCE', 2 * 200)
  np.testing.assert_array_equal(built('numpy@logit').best, whole)
  ours = built('ours@logit').best
  monkeypatch.setattr(evaluation, '_SCORES', 2 * 200)
  np.testing.assert_array_equal(built('ours@logit').best, ours)


def test_the_floor_reports_nothing():
  settings = dataclasses.replace(SMALL, num_classes=130)
  assert built('floor', settings).report() == {}
