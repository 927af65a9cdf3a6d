"""Macro F1 and MCC equal scikit-learn's."""

import numpy as np
import pytest
from sklearn import metrics

from tff_xc.measure import ranking

RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 62, 3000).astype(np.int32)
GUESSES = np.where(
  RANDOM.random(3000) < 0.6, LABELS, RANDOM.permutation(LABELS)
)


@pytest.mark.parametrize(
  ('predictions', 'labels'),
  [
    (GUESSES, LABELS),
    (LABELS, LABELS),
    (GUESSES % 2, LABELS % 2),
    # A class that only labels or only predictions have counts, absent ones not.
    (GUESSES % 7 * 1000, LABELS % 5 * 1000),
    ([3, 3, 3], [3, 3, 3]),
    ([3, 3, 3], [4, 4, 4]),
    ([1, 2, 0], [0, 1, 2]),
    ([1, 1, 1, 1], [1, 0, 1, 1]),
    ([1, 0, 1, 1], [1, 1, 1, 1]),
    ([1, 0, 0, 1], [0, 1, 1, 0]),
    ([-1, 5, -1], [5, 5, 0]),  # -1 stands for no prediction.
    ([7], [7]),
  ],
)
def test_they_are_those_of_scikit_learn(predictions, labels):
  found = ranking.single_label_scores(predictions, labels)
  f1 = metrics.f1_score(labels, predictions, average='macro', zero_division=0)
  assert found == {
    'macro_f1': pytest.approx(f1, abs=1e-12),
    'mcc': pytest.approx(
      metrics.matthews_corrcoef(labels, predictions), abs=1e-12
    ),
  }


def test_a_constant_predictor_of_two_classes():
  """FedOpt's collapse on CelebA: 51.6 % accuracy, F1 34.0, MCC 0."""
  labels = np.arange(1000) < 516
  found = ranking.single_label_scores(np.ones(1000, int), labels.astype(int))
  assert found['macro_f1'] == pytest.approx(0.340, abs=5e-4)
  assert found['mcc'] == 0


def test_many_examples_do_not_overflow():
  labels = np.arange(200_000) % 2
  found = ranking.single_label_scores(np.roll(labels, 50_001), labels)
  assert found == {'macro_f1': 0.0, 'mcc': -1.0}


@pytest.mark.parametrize(('predictions', 'labels'), [([], []), ([1], [1, 2])])
def test_no_examples_and_other_lengths_are_refused(predictions, labels):
  with pytest.raises(ValueError, match='as many predictions as labels'):
    ranking.single_label_scores(predictions, labels)
