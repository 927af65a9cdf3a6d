"""Published tables: their experiments exist here."""

import zlib

import pytest

from tasks import experiment
from tasks import registry as tasks
from tasks.papers import registry
from tasks.papers import result
from tasks.papers import table
from tff_xc import errors
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
  assert set(row.changes) <= {*taken, *task.options, *experiment.SETTINGS}
  _check_published(row, task.metrics)


def _check_published(row, metrics):
  for name, value in row.published.items():
    metric, is_target, _ = name.partition(':')
    if value is None:
      continue
    if metric in catalog.SCORES:
      assert metric in metrics
      assert catalog.SCORES[metric].unit == 'fraction'  # Percent are printed.
      assert 0 <= value.mean <= (200 if is_target else 100)
    assert value.std is None or 0 < value.std < (25 if is_target else 10)
    assert not value.is_bound or (is_target and value.mean == 200)


TURBOSVM = [
  t
  for t in registry.TABLES.values()
  if t.paper == 'TurboSVM-FL' and t.number.startswith('Table')
]
METHODS = {'fedavg', 'fedadam', 'fedaws_softmax', 'fedprox', 'fedams', 'moon'}
METHODS |= {'turbosvm'}
SETS = {'femnist', 'celeba', 'shakespeare'}
# Rows of each table: 7 methods, 3 sets, 1 or 3 settings.
SIZES = {2: 21, 3: 21, 4: 15, 9: 63, 10: 63, 11: 63, 12: 9}

# Checksums of the numbers as they were compared with the paper, one by one.
CHECKED = {
  2: 0xB792AE0F,
  3: 0x8800B22B,
  4: 0x27919B03,
  9: 0x078F9A01,
  10: 0x0D984D16,
  11: 0xF0D41CAC,
  12: 0xAF2F9FD4,
}


@pytest.mark.parametrize('t', TURBOSVM, ids=lambda t: t.number)
def test_every_digit_is_the_papers(t):
  printed = '\n'.join(f'{r.task} {r.algorithm} {r.results()}' for r in t.rows)
  number = int(t.number.split()[1])
  assert zlib.crc32(printed.encode()) == CHECKED[number]


def test_turbosvms_tables_have_all_methods_and_sets():
  for t in TURBOSVM:
    if t.number not in ('Table 4', 'Table 12'):  # TurboSVM-FL alone.
      assert {row.algorithm for row in t.rows} == METHODS
      assert {row.task for row in t.rows} == SETS


def test_turbosvms_tables_agree_with_each_other():
  t = {int(t.number.split()[1]): t for t in TURBOSVM}
  assert {number: len(table.rows) for number, table in t.items()} == SIZES
  for found in t.values():
    for row in found.rows:
      _check_published(row, ('top1', 'macro_f1', 'mcc'))
  plain = lambda number: {
    (r.task, r.algorithm): r.published
    for r in t[number].rows
    if not r.changes.keys() - {'eval_every'}
  }
  assert plain(3) == plain(10) == plain(11)
  for key, published in plain(2).items():
    [(name, exact)] = published.items()
    rounded = plain(9)[key][name]
    assert rounded.mean == int(exact.mean + 0.5)
    assert rounded.is_bound == exact.is_bound
  last = t[11].rows[-1]
  assert last.task == 'shakespeare'
  assert last.changes == {'local_epochs': 4}
  assert last.results() == 'macro F1 18.1 %, top-1 51.0 %, MCC 47.0 %'


@pytest.mark.parametrize('number', ['Table 2', 'Table 9'])
def test_rounds_are_counted_after_every_round(number):
  [found] = [t for t in TURBOSVM if t.number == number]
  for row in found.rows:
    default = tasks.get(row.task).eval_every
    assert row.changes.get('eval_every', default) == 1


def test_names_and_rows_are_unique():
  assert list(registry.TABLES)[:2] == ['fedss/table1', 'fedss/table2']
  for t in registry.TABLES.values():
    found = [
      (r.task, r.algorithm, sorted(r.changes.items()))
      for r in t.rows
      if t.name != 'fedaws/table4'  # Both of its sweeps have the same centre.
    ]
    assert all(found.count(row) == 1 for row in found)
    assert t.number.startswith(('Table ', 'Fig. '))
    assert t.source.startswith('arXiv:')


def paper_table(number, rows):
  return table.PaperTable(
    paper='P', number=number, source='arXiv:1', caption='', rows=tuple(rows)
  )


def test_a_tables_summary_is_of_one_task_and_its_first_metric():
  published = lambda mean: {'top1': table.Published(mean)}
  t = paper_table(
    'Table 9',
    (
      table.Row('a', 'x', {'top1': None}, {'m': 1}),
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
  bound = table.Published(200, is_bound=True)
  assert table.read('>200 144') == [bound, table.Published(144)]
  assert str(bound) == '>200'
  assert str(table.Published(144)) == '144'


def test_rounds_to_a_target_are_results():
  row = lambda *values: [
    table.Row('a', 'x', {'top1:0.7': value}, {'m': i})
    for i, value in enumerate(table.read(' '.join(values)))
  ]
  t = paper_table('Table 1', row('91.6±18.2', '>200'))
  assert t.rows[0].results() == 'rounds to top-1 70 %: 91.6 ± 18.2'
  assert t.rows[1].results() == 'rounds to top-1 70 %: >200'
  assert t.summary('a') == 'rounds to top-1 70 %: x 91.6 to >200'


def test_every_task_of_a_table_is_listed_with_it():
  assert [t.name for t in registry.of_task('amazoncat-13k')] == [
    'fedaws/table3',
    'fedaws/table4',
  ]
  assert not registry.of_task('omniglot')


@pytest.mark.parametrize(
  'each', registry.RESULTS.values(), ids=lambda r: r.name
)
def test_expectations_are_of_something_that_is_measured(each):
  if isinstance(each, result.Study):
    assert each.expected
  if not isinstance(each, table.PaperTable) or not each.small:
    return
  small = each.small
  labels = table.labels(small.rows)
  assert len(set(labels)) == len(labels)
  assert small.expected
  for expected in small.expected:
    assert {expected.of, expected.than or expected.of} <= set(labels)
    if expected.metric.partition(':')[0] not in catalog.SCORES:
      continue
    for row in small.rows:
      assert expected.metric.partition(':')[0] in tasks.get(row.task).metrics
    assert expected.bounds
  for row in small.rows:
    assert tasks.get(row.task).find is None  # Always there.
    assert 'rounds' in row.changes


def test_results_are_chosen_by_name_paper_or_all():
  chosen = lambda *names: [r.name for r in registry.chosen(names)]
  assert chosen('fedmlh/table5', 'fedmlh/table2') == [
    *('fedmlh/table2', 'fedmlh/table5'),
  ]
  assert chosen('fedmlh') == [n for n in registry.RESULTS if 'fedmlh/' in n]
  assert chosen('all', 'fedss') == list(registry.RESULTS)
  with pytest.raises(errors.InputError, match=r"'fedmlh/table99': .*/table2, "):
    chosen('fedmlh/table99')
  with pytest.raises(errors.InputError, match="'x': there are all, fedss, "):
    chosen('x')


def test_bounds_read_well():
  assert result.Expected('top1', 'a', 10).bounds == 'at least 10'
  assert (
    result.Expected('top1', 'a', most=2.5, than='b').bounds == 'at most +2.5'
  )
  assert result.Expected('top1', 'a', -1, 1, than='b').bounds == '-1 to +1'
