"""Test examples that are held out."""

import numpy as np
import pytest
import scipy.sparse

from datasets.splits import hold_out
from tff_xc import errors

SIZES = [40, 1, 2, 3, 0, 17]
LABELS = np.random.default_rng(0).permutation(
  np.append(np.repeat(np.arange(6), SIZES), [-1] * 10)
)


@pytest.mark.parametrize('fraction', [0.1, 0.2, 0.5])
def test_the_same_share_of_every_class(fraction):
  drawn = [hold_out.by_fraction(LABELS, fraction, s) for s in range(300)]
  counts = np.array([np.bincount(LABELS[d], minlength=6) for d in drawn])
  assert (np.diff(drawn[0]) > 0).all()
  for label, size in enumerate(SIZES):
    exact = fraction * size if size > 1 else 0
    found = counts[:, label]
    assert np.floor(exact) <= found.min() <= found.max() <= np.ceil(exact)
    assert found.mean() == pytest.approx(exact, abs=0.1)
    assert found.max() < max(size, 1)
  assert len(set(map(tuple, drawn))) > 290
  again = hold_out.by_fraction(LABELS, fraction, 3)
  np.testing.assert_array_equal(again, drawn[3])


def test_so_many_of_every_class():
  drawn = hold_out.by_class(LABELS, 5, 0)
  counts = np.bincount(LABELS[drawn], minlength=6)
  assert counts.tolist() == [5, 0, 1, 1, 0, 5]
  assert (np.diff(drawn) > 0).all()


def test_sets_of_labels():
  sets = scipy.sparse.csr_matrix(np.ones([40, 3], bool))
  drawn = hold_out.by_fraction(sets, 0.25, 0)
  assert len(np.unique(drawn)) == 10
  with pytest.raises(errors.InputError, match='take --test_fraction'):
    hold_out.by_class(sets, 1, 0)


def test_nothing_to_hold_out_is_an_error():
  labels = np.arange(5)
  with pytest.raises(errors.InputError, match='--test_fraction='):
    hold_out.by_fraction(labels, 0.5, 0)
  with pytest.raises(errors.InputError, match='--test_per_class='):
    hold_out.by_class(labels, 2, 0)
