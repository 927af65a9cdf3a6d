"""FedAwS's theory on drawn examples: the losses, the values and the picture."""

import numpy as np
import pytest

from launch.reproduction import judge
from launch.reproduction import results
from launch.reproduction.studies import fedaws_theory
from tasks.papers import registry
from tests.algorithms import numpy_fedaws
from tests.launch.reproduction import small_table
from tff_xc import errors

FOUND = registry.RESULTS['fedaws/theory']


def test_the_losses_are_those_of_plain_loops():
  random = np.random.default_rng(1)
  rows = numpy_fedaws.normalised(random.normal(size=(5, 3)))
  y, margin = np.repeat(np.arange(5), 4), 1.3
  away = numpy_fedaws.normalised(random.normal(size=(20, 3)))
  found = fedaws_theory.compared(rows, away, y, margin)
  of = lambda embeddings, pull: numpy_fedaws.contrastive(
    embeddings, rows, y, pull, 1.0, margin, 'cosine'
  )
  np.testing.assert_allclose(found.contrastive, of(away, 1.0))
  own = (away * rows[y]).sum(axis=1)
  np.testing.assert_allclose(found.cosines, own)
  # An embedding at its own row pushes as that row does in eq. (7).
  spread = (1 - own) ** 2 + of(rows[y], 0.0)
  np.testing.assert_allclose(found.spread, spread)
  assert found.objective == pytest.approx(spread.mean())
  wrong = (away @ rows.T).argmax(axis=1) != y
  np.testing.assert_array_equal(found.is_wrong, wrong)
  assert 0 < wrong.sum() < 20
  sums = [
    sum(abs(rows[c] @ (rows[k] - g)) for c in range(5) if c != k)
    for k, g in zip(y, away, strict=True)
  ]
  np.testing.assert_allclose(found.mismatch, sums)


def test_the_lemmas_bound_is_met_between_two_rows():
  """Two rows with the cosine 1 - nu / 2: the loss is nu^2 / 2, and not less."""
  angle = np.arccos(1 - 1.4 / 2)
  rows = np.array([[np.cos(a), np.sin(a)] for a in (angle, -angle)])
  embeddings = np.array([[1.0, 0.0]] * 2)
  found = fedaws_theory.compared(rows, embeddings, np.arange(2), 1.4)
  np.testing.assert_allclose(found.contrastive, 1.4**2 / 2)


def test_all_values_are_measured_and_judged(tmp_path):
  made = fedaws_theory.measure((2, 10), tmp_path)
  verdict, why, _ = judge.judge(FOUND, results.frame(made), 'small')
  assert verdict == judge.Verdict.SHAPE
  assert why == f'all {len(FOUND.expected)} expected values hold'
  assert (tmp_path / 'result.png').read_bytes().startswith(b'\x89PNG')
  # A loss that is too small does not hold.
  for line in made:
    if 'Lemma 1' in line['row']:
      line['mean'] = 0.9
  assert (
    judge.judge(FOUND, results.frame(made), 'small')[0] == judge.Verdict.NOT
  )


def test_it_has_one_size():
  for scale in ('small', 'paper'):
    assert small_table.resolved('fedaws/theory', scale)[1][-1] == 1000
  with pytest.raises(errors.InputError, match='--task'):
    small_table.resolved('fedaws/theory', 'small', 'glyphs')
