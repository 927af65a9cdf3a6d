"""Published tables: their experiments exist here."""

import math
import zlib

import pytest

from tasks import experiment
from tasks import registry as tasks
from tasks.papers import fedss_sizes
from tasks.papers import names
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
  assert set(row.changes) <= {
    *taken,
    *task.option_values(),
    *experiment.SETTINGS,
  }
  _check_published(row, task.metrics)


def _check_published(row, metrics):
  for name, value in row.published.items():
    parts = names.parse(name)
    if value is None:
      continue
    if parts.metric in catalog.SCORES:
      assert parts.metric in metrics
      assert catalog.SCORES[parts.metric].unit == 'fraction'  # In percent.
      assert 0 <= value.mean <= (100 if parts.is_percent else 50_000)
    assert value.std is None or 0 < value.std < (10 if parts.is_percent else 25)
    bounds = (200, 20_000, 50_000)
    assert not value.is_bound or (not parts.is_percent and value.mean in bounds)


TURBOSVM = [
  t
  for t in registry.TABLES.values()
  if t.paper == 'TurboSVM-FL' and t.number.startswith('Table')
]
METHODS = {'fedavg', 'fedadam', 'fedams', 'fedprox', 'moon', 'turbosvm'}
METHODS |= {'fedaws_softmax'}
SETS = {'femnist', 'celeba', 'shakespeare'}
# Rows of each table: 7 methods, 3 sets, 1 or 3 settings.
SIZES = {2: 21, 3: 21, 4: 15, 9: 63, 10: 63, 11: 63, 12: 9}

# Checksums of rows as they were compared with the papers: settings, and numbers.
CHECKED = {
  'turbosvm-fl/table2': 0x9769D4A6,
  'turbosvm-fl/table3': 0xCCC33C7F,
  'turbosvm-fl/table4': 0x3B989140,
  'turbosvm-fl/table9': 0x67A824F2,
  'turbosvm-fl/table10': 0x348C292D,
  'turbosvm-fl/table11': 0xD4E6332F,
  'turbosvm-fl/table12': 0xEBD8EAB1,
  'fedss/table1': 0x8C78DE73,
  'fedss/table2': 0xC1FD241F,
  'fedss/table3': 0x897D17FE,
  'fedss/table4': 0xFDA84885,
  'fedaws/table1': 0x5B1C6D19,
  'fedaws/table3': 0x1B799CC5,
  'fedaws/table4': 0x62D6B7DB,
  'fedmlh/table3': 0x99390912,
  'fedmlh/table6': 0xB158D3FD,
  'fedmlh/table7': 0x738F735C,
  'fedvc/table1': 0xCB537676,
  'fedvc/table2': 0xB491E784,
  'fedvc/table3': 0x145E0628,
  'fedvc/table4': 0x00FB0B20,
  'fedvc/table5': 0x23CC22AC,
}


@pytest.mark.parametrize('name', CHECKED)
def test_every_digit_is_the_papers(name):
  of = lambda r: f'{r.task} {r.algorithm} {sorted(r.changes.items())}'
  rows = [f'{of(r)} {r.results()}' for r in registry.TABLES[name].rows]
  assert zlib.crc32('\n'.join(rows).encode()) == CHECKED[name]


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


@pytest.mark.parametrize(
  'name', ['turbosvm-fl/table2', 'turbosvm-fl/table9', 'fedvc/table5']
)
def test_rounds_are_counted_after_every_round(name):
  for row in registry.TABLES[name].rows:
    default = tasks.get(row.task).eval_every
    if not all(names.parse(n).is_percent for n in row.published):
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
  assert result.Expected('top1', 'a', most=2.5).bounds == 'at most 2.5'
  assert result.Expected('top1', 'a', -1, 1).bounds == '-1 to 1'


@pytest.mark.parametrize(
  ('bounds', 'text', 'reversed_by', 'in_order'),
  [
    ({'least': 10}, 'at least 10 points above', (), (10, 12)),
    ({'least': 0}, 'not below', (), (0, 1)),
    ({'least': -3}, 'at most 3 points below', (-3, -0.1), (0, 5)),
    ({'most': -5}, 'at least 5 points below', (), (-5, -6)),
    ({'most': 0}, 'not above', (), (0, -1)),
    ({'most': 2.5}, 'at most 2.5 points above', (2.5, 1), (0, -1)),
    # A range is of no order.
    (
      {'least': -3, 'most': 12},
      'from 3 points below to 12 points above',
      (),
      (-3, 0, 12),
    ),
  ],
)
def test_an_expectation_says_what_it_tests(bounds, text, reversed_by, in_order):
  expected = result.Expected('top1', 'a', **bounds, than='b')
  assert expected.compared(' points') == text
  assert all(map(expected.holds, (*reversed_by, *in_order)))
  assert all(map(expected.is_reversed, reversed_by))
  assert not any(map(expected.is_reversed, in_order))
  beyond = (expected.least - 1, expected.most + 1)
  assert not any(map(expected.holds, filter(math.isfinite, beyond)))


def test_fedvcs_tables_agree_with_each_other():
  t = {n: registry.TABLES[f'fedvc/table{n}'] for n in range(1, 6)}
  # Plain and virtual clients of Table 2 are those without FedIR of Table 3.
  of_user = [r.published for r in t[2].rows if 'user' in r.task][2:]
  rounds = lambda found: {n: v for n, v in found.items() if 'batches' not in n}
  plain = [
    r.published
    for r in t[3].rows
    if r.changes['clients_per_round'] == 10
    and 'importance_weights' not in r.changes
  ]
  assert [rounds(found) for found in of_user] == plain
  alone = [r for r in t[1].rows if r.task == 'landmarks-user-160k']
  assert t[4].rows[-1].published == alone[0].published
  assert (
    t[5].reference(t[5].rows[0], t[5].rows).published == t[1].rows[2].published
  )
  # A virtual client takes 4 batches a round.
  for row in t[2].rows:
    if row.algorithm == 'fedvc' or 'virtual_clients' in row.changes:
      at = lambda budget, row=row: row.published[f'top1@{budget}']
      assert at('rounds:2500') == at('batches:10000')


def test_scores_at_budgets_and_rounds_to_a_part_are_results():
  value = table.Published(47.0)
  found = ('map@10', 'top1@rounds:1000', 'map@10@batches:50', 'p@1:0.5')
  assert [names.heading(name) + names.unit(name) for name in found] == [
    'MAP@10 %',
    'top-1 at 1,000 rounds %',
    'MAP@10 at 50 batches %',
    'rounds to P@1 50 %',
  ]
  row = table.Row('a', 'x', {'top1@rounds:1000': value})
  assert row.results() == 'top-1 at 1,000 rounds 47.0 %'
  row = table.Row('a', 'x', {'relative_top1:0.9': value})
  assert row.results() == 'rounds to relative top-1 90 %: 47.0'


def test_a_row_is_relative_to_the_centralised_row_with_its_settings():
  rows = [
    table.Row(task, algorithm, {}, changes)
    for task, algorithm, changes in (
      ('b', 'centralized', {}),
      ('a', 'centralized', {'m': 1}),
      ('a', 'centralized', {'m': 2}),
      ('a', 'fedavg', {'k': 5, 'm': 2}),
      ('a', 'fedavg', {'k': 5, 'm': 3}),
    )
  ]
  t = paper_table('Table 1', rows)
  assert t.reference(rows[3], rows) is rows[2]
  assert t.reference(rows[4], rows) is None


def test_the_share_of_the_class_table_has_the_printed_digits():
  rows = fedss_sizes.FIGURE8.rows
  digits = [row[6] for row in rows if row[4] != '–']
  assert digits == ['yes'] * 5
  # Of tests/encoders/test_mobilenet.py, which counts the network's weights.
  assert fedss_sizes.encoder_here(64) == 3_033_456
  assert fedss_sizes.share(100, 50, 2) == 0.5
  assert fedss_sizes.share(100, 50, 2, sent=10) == pytest.approx(0.4)


def test_the_reproduction_matrix_is_whole():
  """Every table and figure of the five papers has a name (specification, 7)."""
  numbers = {
    'fedss': (4, 10),
    'fedaws': (4, 0),
    'turbosvm-fl': (12, 5),
    'fedmlh': (7, 5),
    'fedvc': (5, 10),
  }
  wanted = {
    f'{paper}/{kind}{number}'
    for paper, counts in numbers.items()
    for kind, most in zip(('table', 'fig'), counts, strict=True)
    for number in range(1, most + 1)
  }
  assert wanted | {'fedmlh/theory'} == set(registry.RESULTS)


@pytest.mark.parametrize(
  ('figure', 'of'),
  [
    *(('fedss/fig3', 'table1'), ('fedss/fig10', 'table3')),
    *(('fedvc/fig5', 'table4'), ('fedvc/fig6', 'table2')),
    *(('fedvc/fig7', 'table4'), ('fedvc/fig9', 'table5')),
  ],
)
def test_a_figure_has_the_runs_of_its_table(figure, of):
  paper = figure.split('/')[0]
  assert registry.TABLES[figure].rows == registry.TABLES[f'{paper}/{of}'].rows
