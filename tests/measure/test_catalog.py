"""The catalog of metrics: which data they need, and which of two values is better."""

import pathlib

import pandas as pd
import pytest

from tff_xc.measure import catalog


def test_a_score_is_measurable_if_all_that_it_needs_is_there():
  names = tuple(catalog.SCORES)
  every = {part for score in catalog.SCORES.values() for part in score.needs}
  assert every >= {'test', 'retrieval', 'propensity', 'train', 'class rows'}
  assert catalog.measurable(names, every) == names
  without = catalog.measurable(names, every - {'propensity'})
  of_counts = [n for n in names if n not in without]
  assert len(of_counts) == 9
  assert all(n.startswith('psp') or 'frequent' in n for n in of_counts)
  assert catalog.measurable(('map@r', 'top1'), {'retrieval'}) == ('map@r',)
  # Propensities weight the hits on test examples.
  assert not catalog.measurable(('psp@1',), every - {'test'})
  assert not catalog.measurable(catalog.DISTANCES, {'train'})


@pytest.mark.parametrize('task', ['glyphs', 'sparse-words'])
def test_it_names_every_column_of_a_run(task):
  """A run's metrics.csv has these columns, and also `seconds`."""
  folder = pathlib.Path(__file__).parents[1] / 'experiment' / 'recorded'
  columns = pd.read_csv(folder / f'{task}.csv', nrows=0).columns
  assert set(columns) - {'algorithm', 'round'} <= set(catalog.METRICS)
