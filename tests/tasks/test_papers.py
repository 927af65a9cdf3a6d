"""Published tables: their experiments exist here."""

import pytest

from tasks import registry as tasks
from tasks.papers import registry
from tasks.papers import table
from tff_xc.algorithms import registry as algorithms
from tff_xc.measure import catalog

ROWS = [
  pytest.param(row, id=f'{name}-{i}')
  for name, t in registry.TABLES.items()
  for i, row in enumerate(t.rows)
]


@pytest.mark.parametrize('row', ROWS)
def test_every_row_is_an_experiment_of_this_package(row):
  task = tasks.get(row.task)
  taken = algorithms.get(row.algorithm).names
  assert set(row.changes) <= {*taken, *task.options}
  assert set(row.published) <= set(task.metrics)
  for metric, value in row.published.items():
    assert catalog.SCORES[metric].unit == 'fraction'  # Percent are printed.
    assert 0 <= value.mean <= 100
    assert value.std is None or 0 < value.std < 10


def test_names_and_rows_are_unique():
  assert list(registry.TABLES)[:2] == ['fedss/table1', 'fedss/table2']
  for t in registry.TABLES.values():
    found = [
      (r.task, r.algorithm, sorted(r.changes.items()))
      for r in t.rows
      if t.name != 'fedaws/table4'  # Both of its sweeps have the same centre.
    ]
    assert all(found.count(row) == 1 for row in found)
    assert t.title.count('Table') == 1
    assert t.source.startswith('arXiv:')


def test_a_tables_summary_is_of_one_task_and_its_first_metric():
  published = lambda mean: {'top1': table.Published(mean)}
  t = table.PaperTable(
    'P',
    'Table 9',
    'arXiv:1',
    '',
    (
      table.Row('a', 'x', {}, {'m': 1}),
      table.Row('a', 'x', published(3.0), {'m': 2}),
      table.Row('a', 'x', published(1.0), {'m': 3}),
      table.Row('a', 'y', published(2.0)),
      table.Row('b', 'x', published(9.0)),
    ),
  )
  assert t.summary('a') == 'top-1 %: x 1.0 to 3.0, y 2.0'
  assert t.summary('b') == 'top-1 %: x 9.0'
  assert t.name == 'p/table9'
  assert t.rows[1].results() == 'top-1 3.0 %'
  assert not t.rows[0].results()
  assert str(table.Published(51.7, 0.06)) == '51.7 ± 0.06'


def test_values_are_read_as_printed():
  first, second = table.Published(51.7, 0.4), table.Published(18.0)
  assert table.read('51.7±0.4 – 18.0') == [first, None, second]


def test_every_task_of_a_table_is_listed_with_it():
  assert [t.name for t in registry.of_task('amazoncat-13k')] == [
    'fedaws/table3',
    'fedaws/table4',
  ]
  assert not registry.of_task('omniglot')
