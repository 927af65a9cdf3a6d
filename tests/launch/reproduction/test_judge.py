"""Pairs of rows, claims and verdicts."""

import dataclasses
import math
import statistics

import pytest

from launch.reproduction import judge, lines as lines_lib, page
from tasks.papers import table
from tests.launch.reproduction import small_table


def line(row, published='', mean='', std='', seeds=3, **more):
  """Returns the cells of a line."""
  return {
    'task': 'glyphs',
    'row': row,
    'algorithm': row.split()[0],
    'published': published,
    'mean': mean,
    'std': std,
    'seeds': seeds,
    **more,
  }


def found_of(claims=(), scale='paper', **more):
  form = small_table.TABLE.form(scale)._replace(claims=claims)
  return dataclasses.replace(small_table.TABLE, forms={scale: form}, **more)


def measured_of(found, lines, scale='paper'):
  return lines_lib.Measured(found, scale, [small_table.line(**each) for each in lines])


def judged(*lines, scale='paper', claims=()):
  return judge.judge(measured_of(found_of(claims, scale), lines, scale))


def told(*lines, **more):
  return [order.told for order in judged(*lines, **more).orders]


@pytest.mark.parametrize(
  ('low', 'high', 'expected'),
  [
    # 2 standard errors are 2 * sqrt(1 / 3 + 1 / 3) = 1.63.
    ((50, 1), (51.7, 1), judge.AGREES),
    ((50, 1), (51.6, 1), judge.UNDECIDED),
    ((51.6, 1), (50, 1), judge.UNDECIDED),
    ((51.7, 1), (50, 1), judge.DISAGREES),
    ((50, 0), (50.1, 0), judge.AGREES),
    ((50, 0), (50, 0), judge.UNDECIDED),
  ],
)
def test_two_standard_errors_tell_an_order(low, high, expected):
  pair = (line('a', '40', low[0], low[1]), line('b', '60', high[0], high[1]))
  assert told(*pair) == [expected]
  assert told(*reversed(pair)) == [expected]
  # With fewer than three seeds, no pair is decided.
  few = judged(pair[0], {**pair[1], 'seeds': 2}, scale='small')
  assert [order.told for order in few.orders] == [judge.UNDECIDED]
  assert few.verdict == judge.Verdict.UNDECIDED
  assert f'{int(high[0] > low[0])} of 1 published' in few.why


@pytest.mark.parametrize(
  ('low', 'high', 'metric', 'is_ordered'),
  [
    ('40', '42', 'top1', False),
    ('63.9', '65.9', 'top1', False),  # In floating point, the difference is above 2.
    ('40', '42.1', 'top1', True),
    ('40±3', '45.9', 'top1', False),
    ('40±3', '46.1', 'top1', True),
    ('100', '109', 'top1:0.7', False),
    ('100', '112', 'top1:0.7', True),
    # A bound such as '>20000' can be ranked only against numbers below it.
    ('9005', '>20000', 'top1:0.7', True),
    ('>20000', '39236', 'top1:0.7', False),
    ('>20000', '>50000', 'top1:0.7', False),
  ],
)
def test_pairs_that_the_paper_orders(low, high, metric, is_ordered):
  pair = [line(n, p, 1, metric=metric) for n, p in (('a', low), ('b', high))]
  assert bool(told(*pair)) == is_ordered
  # Rows of different tasks are not compared.
  assert not told(line('a', low, 1), line('b', high, 1, task='sop'))


@pytest.mark.parametrize(
  ('low', 'high', 'expected'),
  [
    ('20', '>60', judge.AGREES),
    ('80', '>60', judge.UNDECIDED),  # The number behind the bound may be larger than 80.
    ('>60', '20', judge.DISAGREES),
    ('>60', '80', judge.UNDECIDED),
    ('>60', '>60', judge.UNDECIDED),
  ],
)
def test_a_missed_target_may_have_needed_any_number_of_rounds(low, high, expected):
  pair = line('a', '100', low), line('b', '200', high)
  assert told(*({**each, 'metric': 'top1:0.7'} for each in pair)) == [expected]


@pytest.mark.parametrize(
  ('published', 'mean', 'std', 'metric', 'is_equal'),
  [
    ('50', 52, '', 'top1', True),
    ('63.9', 65.9, '', 'top1', True),
    ('50', 52.1, '', 'top1', False),
    ('50±2', 54, '', 'top1', True),
    ('50', 54, 4, 'top1', True),  # 2 * 4 / sqrt(3) = 4.6.
    ('50', 54, 3, 'top1', False),
    ('144', 158, '', 'top1:0.7', True),
    ('144', 159, '', 'top1:0.7', False),
    ('144', '>140', '', 'top1:0.7', False),
    ('>200', '>200', '', 'top1:0.7', True),
    ('>200', '>160', '', 'top1:0.7', False),
    ('>200', 150, '', 'top1:0.7', False),
    ('>200', 250, '', 'top1:0.7', True),
    ('8', 7.3, '', 'support_vectors', True),
  ],
)
def test_what_counts_as_the_published_value(published, mean, std, metric, is_equal):
  each = small_table.line(**line('a', published, mean, std, metric=metric))
  assert judge.is_equal(each) is is_equal


def test_the_best_seed_stands_for_the_printed_one_and_means_tell_orders():
  def best(mean):
    return line('b', mean=mean, metric='best_seed_top1')

  pair = line('a', '40', 50, 0), line('b', '60', 51, 3)
  assert told(*pair) == [judge.UNDECIDED]  # 2 * 3 / sqrt(3) = 3.5.
  assert told(*pair, best(90)) == [judge.UNDECIDED]
  # A single run with standard deviation 3.
  _, high = (small_table.line(**each) for each in pair)
  assert not judge.is_equal(high, 66.1)
  assert judge.is_equal(high, 66.0)
  # The reference line belongs to no claim or pair, and does not count as missing.
  assert 'not measured' not in judged(*pair, best(56.1)).why


# The mean difference is 1, and the differences of seeds are 0.5 to 1.5.
LOW, HIGH = (50, 54, 58), (51, 55.5, 58.5)


def seeds_line(row, published, values, changes='', seeds=(0, 1, 2), **more):
  by_seed = ' '.join(f'{s}:{v}' for s, v in zip(seeds, values, strict=True))
  mean, std = statistics.fmean(values), statistics.stdev(values)
  more = {'by_seed': by_seed, 'changes': changes, 'seeds': len(values), **more}
  return line(row, published, mean, std, **more)


@pytest.mark.parametrize(
  ('low', 'high', 'expected'),
  [
    # 2 standard errors are 0.58 for the differences, and 6.3 for the means.
    ({}, {}, judge.AGREES),
    ({'values': HIGH}, {'values': LOW}, judge.DISAGREES),
    ({'changes': 'server_learning_rate=0.5'}, {}, judge.AGREES),
    # These rows have other clients in each round, other data, or other seeds.
    ({}, {'changes': 'virtual_client_size=128'}, judge.UNDECIDED),
    ({}, {'changes': 'clients_per_round=4'}, judge.UNDECIDED),
    ({}, {'changes': 'num_clients=50'}, judge.UNDECIDED),
    ({}, {'row': 'centralized'}, judge.UNDECIDED),
    ({}, {'seeds': (1, 2, 3)}, judge.UNDECIDED),
    ({}, {'changes': 'no_such_setting=1'}, judge.UNDECIDED),
    ({}, {'by_seed': ''}, judge.UNDECIDED),
    # A seed that only one row has is left out.
    ({'values': (*LOW, 90), 'seeds': (0, 1, 2, 3)}, {}, judge.AGREES),
  ],
)
def test_rows_that_draw_alike_are_compared_seed_by_seed(low, high, expected):
  low = {'row': 'fedavg', 'published': '40', 'values': LOW} | low
  high = {'row': 'fedavgm', 'published': '60', 'values': HIGH} | high
  assert told(seeds_line(**low), seeds_line(**high)) == [expected]


def test_a_bound_is_not_compared_seed_by_seed():
  rounds = {'metric': 'top1:0.7', 'changes': ''}
  low = seeds_line('fedavg', '100', (30, 31, 32), **rounds)
  high = seeds_line('fedavgm', '200', (60, 60, 60), **rounds)
  high |= {'mean': '>60', 'by_seed': '0:>60 1:>60 2:>60'}
  assert told(low, high) == [judge.AGREES]
  assert told({**low, 'published': '200'}, {**high, 'published': '100'}) == [judge.DISAGREES]


def test_gains_of_rows_that_draw_alike_are_compared_seed_by_seed():
  lines = [
    seeds_line(f'{name} {rate}', '', values, f'client_learning_rate={rate}')
    for name, rate, values in (
      ('fedavg', 0.1, LOW),
      ('fedir', 0.1, HIGH),
      ('fedavg', 0.2, HIGH),
      ('fedir', 0.2, LOW),
    )
  ]
  of = 'fedir client_learning_rate={}'.format
  claim = table.Claim('More', 'top1', of(0.1), of(0.2), over='fedavg')
  assert told(*lines, claims=(claim,)) == [judge.AGREES]
  assert told(*lines, claims=(claim._replace(high=claim.low, low=claim.high),)) == [judge.DISAGREES]


@pytest.mark.parametrize(
  ('published', 'is_unsure', 'is_ordered'),
  [
    ('45.9', True, False),
    ('46.1', True, True),
    ('45.9', False, True),
    # The published standard deviation is known.
    ('45.9±1', True, False),
    ('46.1±4', True, False),
  ],
)
def test_of_unsure_values_six_points_are_an_order(published, is_unsure, is_ordered):
  pair = line('a', '40', 1), line('b', published, 2)
  found = judge.judge(measured_of(found_of(is_unsure=is_unsure), pair))
  assert bool(found.orders) == is_ordered


@pytest.mark.parametrize(
  ('low', 'expected'), [(24, judge.AGREES), (26, judge.DISAGREES), (25, judge.UNDECIDED)]
)
def test_a_claim_may_be_of_a_multiple(low, expected):
  lines = line('b', '', 50, 0), line('a', '', low, 0)
  assert told(*lines, claims=(table.Claim('Below half', 'top1', 'b', 'a', times=2),)) == [expected]


def test_a_claim_may_be_of_the_share_of_good_settings():
  rates = (1, 2, 3, 4)

  def grid(skew, *of_seeds):
    return [
      seeds_line(f'a {skew} {rate}', '', values, f'skew={skew};rate={rate}')
      for rate, values in zip(rates, zip(*of_seeds, strict=True), strict=True)
    ]

  wide = grid(1, (90, 85, 82, 10), (90, 89, 85, 10), (80, 90, 85, 83))
  thin = grid(2, (30, 5, 5, 5), (30, 28, 5, 5), (30, 5, 5, 5))
  claim = table.Claim('Wider', 'top1', 'a skew=1', 'a skew=2', over='region')
  [order] = judged(*wide, *thin, claims=(claim,)).orders
  # The shares are 75, 75 and 75 %, and 25, 50 and 25 %.
  assert (order.here, order.told) == ('+41.7', judge.AGREES)
  [order] = judged(*thin, *wide, claims=(claim._replace(high='a skew=2', low='a skew=1'),)).orders
  assert order.told == judge.DISAGREES
  # Without the values of single seeds, the deviation of the difference is unknown.
  without = [{**each, 'by_seed': ''} for each in (*wide, *thin)]
  assert told(*without, claims=(claim,)) == [judge.UNDECIDED]


def test_losses_have_two_decimals_and_lower_ones_are_below():
  lines = [
    line(name, published, mean, 0.01, metric='test_loss')
    for name, published, mean in (('a', '0.44', 0.312), ('b', '0.92', 0.678))
  ]
  [order] = judged(*lines).orders
  assert order.told == judge.AGREES
  assert order[:3] == ('test loss: b above a', '+0.48', '+0.37')
  shown = page.tables(measured_of(found_of(), lines))
  assert [*shown[0].rows[0]] == ['a', '0.31 ± 0.01', '0.44', '-0.13 *']


SAME = line('a', '40', 40, 0), line('b', '60', 60, 0)
LATER = line('a', '40', 20, 0), line('b', '60', 30, 0)
NOISY = tuple(
  line(name, published, mean, 9)
  for name, published, mean in (('a', '40', 30), ('b', '60', 40), ('c', '80', 50))
)
OTHER = line('a', '40', 30, 0), line('b', '60', 20, 0)


@pytest.mark.parametrize(
  ('lines', 'scale', 'verdict'),
  [
    (SAME, 'paper', judge.Verdict.REPRODUCED),
    (SAME, 'small', judge.Verdict.SHAPE),  # On other data, equal numbers are chance.
    (LATER, 'paper', judge.Verdict.SHAPE),
    (OTHER, 'paper', judge.Verdict.NOT),
    # A row without a published number, and rows that were not measured.
    ((*SAME, line('c', '', 5)), 'paper', judge.Verdict.SHAPE),
    ((*SAME, line('c', '50')), 'paper', judge.Verdict.NOT_RUN),
    ((*OTHER, line('c', '50')), 'paper', judge.Verdict.NOT),
    # No pair of rows has an order.
    ((line('a', '40', 41),), 'paper', judge.Verdict.REPRODUCED),
    ((line('a', '40', 41, seeds=1),), 'paper', judge.Verdict.UNDECIDED),
    ((line('a', '40', 50),), 'paper', judge.Verdict.NOT),
    ((line('a', '40', 50),), 'small', judge.Verdict.UNDECIDED),
    ((line('a', '40'),), 'paper', judge.Verdict.NOT_RUN),
    ((), 'paper', judge.Verdict.NOT_RUN),
    # Half of the pairs is not a majority. Here, two of three agree, or one of three.
    ((*LATER, line('c', '80', 30, 0)), 'paper', judge.Verdict.SHAPE),
    (NOISY, 'paper', judge.Verdict.UNDECIDED),
  ],
)
def test_verdicts(lines, scale, verdict):
  assert judged(*lines, scale=scale).verdict == verdict


@pytest.mark.parametrize(
  ('few', 'expected'),
  [
    # The errors of four rows give 2 * sqrt(4 / 3) = 2.31.
    (13.4, judge.AGREES),
    (13.3, judge.UNDECIDED),
    (8.6, judge.DISAGREES),
  ],
)
def test_a_claim_may_be_of_gains_over_a_method(few, expected):
  lines = [
    line(f'{name} k={k}', '', mean, 1, changes=f'k={k}')
    for name, k, mean in (('fedavg', 2, 10), ('fedavg', 9, 30), ('fedir', 2, few), ('fedir', 9, 31))
  ]
  claim = table.Claim('More', 'top1', 'fedir k=2', 'fedir k=9', over='fedavg')
  assert told(*lines, claims=(claim,)) == [expected]
  # Without the row in `over`, the claim is undecided.
  assert told(*lines[1:], claims=(claim,)) == [judge.UNDECIDED]


@pytest.mark.parametrize(
  ('high', 'least', 'verdict'),
  [
    (35, 0, judge.Verdict.SHAPE),
    (25, 0, judge.Verdict.NOT),
    (30, 0, judge.Verdict.UNDECIDED),
    # A claim that rows are level: the row is not 3 points below.
    (28, -3, judge.Verdict.SHAPE),
    (27, -3, judge.Verdict.UNDECIDED),
    (26, -3, judge.Verdict.NOT),
  ],
)
def test_every_claim_of_the_paper_must_hold(high, least, verdict):
  claims = (table.Claim('Ahead (abstract)', 'top1', 'c', 'b', least),)
  found = judged(*LATER, line('c', '', high, 0), claims=claims)
  assert found.verdict == verdict
  assert found.orders[-1].says.startswith('Ahead (abstract)')
  # The title of the picture.
  assert judge.finding(found) == ('Ahead' if verdict == judge.Verdict.SHAPE else '')
  # The claim has no published number. It decides the verdict even if all other values equal the
  # published values.
  claim = table.Claim('Behind (abstract)', 'top1', 'a', 'b', -20)
  for least, verdict in ((-21, judge.Verdict.REPRODUCED), (-19, judge.Verdict.NOT)):
    assert judged(*SAME, claims=(claim._replace(least=least),)).verdict == verdict
  # A claim about rows that flags left out is ignored.
  assert judged(*LATER, claims=claims).verdict == judge.Verdict.SHAPE


GRID = [
  line(f'{a} rate={rate}', '', mean, 0, changes=f'rate={rate};skew=1')
  for a, means in {'a': (50, 90, 10), 'b': (85, 20, 80)}.items()
  for rate, mean in zip((0.1, 0.5, 2), means, strict=True)
]


def of_grid(*lines, metric='top1'):
  claim = table.Claim('Ahead', metric, 'a', 'b')
  lines = [{**each, 'metric': metric} for each in lines]
  found = found_of(claims=(claim,), best_over=('rate', 'moment'))
  return judge.judge(measured_of(found, lines))


def test_the_verdict_is_on_the_best_of_a_grid():
  found = of_grid(*GRID)
  [order] = found.orders
  assert order.says == 'Ahead: top-1 of a rate=0.5 above b rate=0.1'
  assert (order.here, order.told) == ('+5.0', judge.AGREES)
  assert found.verdict == judge.Verdict.SHAPE
  # A row without the setting belongs to the grid of the rows that have it.
  more = {**GRID[0], 'row': 'a', 'mean': 99, 'changes': 'skew=1'}
  assert 'of a above b rate=0.1' in of_grid(*GRID, more).orders[0].says
  # If a value of the grid is missing, the claim is undecided.
  lacking = of_grid(*GRID, {**more, 'mean': ''})
  assert lacking.verdict == judge.Verdict.NOT_RUN
  assert [order.told for order in lacking.orders] == [judge.UNDECIDED]
  # Fewer rounds are better, and a row that missed the target is worst.
  rounds = [{**GRID[0], 'mean': '>5'}, *GRID[1:]]
  [order] = of_grid(*rounds, metric='top1:0.7').orders
  assert order.says.endswith('of a rate=2 above b rate=0.5')
  assert order.told == judge.DISAGREES
  # Published numbers of a grid are compared with those of its best row.
  grid = [{**each, 'published': '85'} for each in GRID[3:]]
  made = judge.judge(measured_of(found_of(best_over=('rate',)), grid))
  assert made.verdict == judge.Verdict.REPRODUCED and '1 of 1 values' in made.why


def test_costs_and_a_row_that_is_printed_twice_do_not_count():
  assert judged(*LATER, *LATER, line('a', '', 9, metric='seconds')) == judged(*LATER)
  # Seconds that a paper prints are results.
  assert told(line('a', '4', 1, 0, metric='seconds'), line('b', '5', 2, 0, metric='seconds')) == [
    judge.AGREES
  ]


def test_what_keeps_a_row_from_being_measured_is_told():
  found = judged(*LATER, line('c', '50', note='no disk'))
  assert found.verdict == judge.Verdict.NOT_RUN and 'no disk' in found.why
  assert judged(line('-', metric='', note='no data'))[:2] == (judge.Verdict.NOT_RUN, 'no data')


STUDY = table.Study(
  paper='P',
  number='Fig. 3',
  source='',
  caption='',
  measure='m',
  expected={'a': (1, 2)},
  published={'glyphs: a': (5, 5), 'glyphs: b': (-math.inf, 1262)},
)


@pytest.mark.parametrize(
  ('scale', 'values', 'verdict'),
  [
    ('small', {'a': 1.5, 'b': 7000}, judge.Verdict.SHAPE),
    ('small', {'a': 3}, judge.Verdict.NOT),
    ('paper', {'a': 5, 'b': 1000}, judge.Verdict.REPRODUCED),
    ('paper', {'a': 5.1, 'b': 1000}, judge.Verdict.NOT),
    ('paper', {'a': 5, 'b': ''}, judge.Verdict.NOT_RUN),
    ('paper', {'a': 5}, judge.Verdict.NOT_RUN),
    ('small', {'b': 7000}, judge.Verdict.NOT_RUN),
    ('paper', {'a': 4, 'b': ''}, judge.Verdict.NOT),
    ('paper', {'c': 1}, judge.Verdict.NOT_RUN),
    ('paper', {'a': ''}, judge.Verdict.NOT_RUN),
  ],
)
def test_values_of_a_study_are_within_their_bounds(scale, values, verdict):
  lines = [line(n, mean=v, metric=lines_lib.VALUE) for n, v in values.items()]
  assert judge.judge(measured_of(STUDY, lines, scale)).verdict == verdict


@pytest.mark.parametrize(
  ('equal', 'why'),
  [(('yes', '–'), '1 of 1'), (('yes', 'of rounded'), 'rounded'), (('yes', 'no'), '1 of 2')],
)
def test_a_formula_is_compared_by_its_digits(equal, why, monkeypatch):
  cells = [['of', 'equal'], *(['a', each] for each in equal)]
  monkeypatch.setattr(table.Formula, 'cells', cells)
  formula = table.Formula(paper='P', number='Table 1', source='', caption='')
  found = judge.judge(measured_of(formula, (), 'small'))
  assert found.verdict == judge.Verdict.FORMULA and why in found.why
