"""The catalog of metrics: what they need, and which of two values is better."""

import pathlib

import pandas as pd
import pytest

from tff_xc.measure import catalog


def test_a_score_is_measurable_if_all_that_it_needs_is_there():
  names = tuple(catalog.SCORES)
  every = {
    'test',
    'validation',
    'retrieval',
    'propensity',
    'train',
    'class rows',
  }
  assert catalog.measurable(names, every) == names
  without = catalog.measurable(names, every - {'propensity'})
  of_counts = [n for n in names if n not in without]
  assert len(of_counts) == 9
  assert all(n.startswith('psp') or 'frequent' in n for n in of_counts)
  assert catalog.measurable(('map@r', 'top1'), {'retrieval'}) == ('map@r',)
  # Propensities weight the hits on test examples.
  assert not catalog.measurable(('psp@1',), every - {'test'})
  assert not catalog.measurable(catalog.DISTANCES, {'train'})


@pytest.mark.parametrize(
  ('better', 'best'), [('higher', 3.0), ('lower', 1.0), ('neither', 3.0)]
)
def test_the_best_value_depends_on_the_metric(better, best):
  metric = catalog.SCORES['top1']._replace(better=better)
  assert metric.best(pd.Series([float('nan'), 3.0, 1.0, 2.0])) == best
  nothing = metric.best(pd.Series([float('nan')]))
  assert nothing != nothing


def test_no_name_or_heading_is_used_twice():
  assert not set(catalog.SCORES) & set(catalog.ROUND)
  headings = [metric.heading for metric in catalog.METRICS.values()]
  assert len(set(headings)) == len(headings)
  assert set(catalog.HEADLINES) <= set(catalog.HELD_OUT)


@pytest.mark.parametrize('task', ['glyphs', 'sparse-words'])
def test_it_names_every_column_of_a_run(task):
  """A run's metrics.csv has these columns, and `seconds`."""
  folder = pathlib.Path(__file__).parents[1] / 'experiment' / 'recorded'
  columns = pd.read_csv(folder / f'{task}.csv', nrows=0).columns
  assert set(columns) - {'algorithm', 'round'} <= set(catalog.METRICS)
