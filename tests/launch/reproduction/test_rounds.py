"""What rounds to a target tell that some runs missed, or reached together."""

import math
import types

import pytest

from launch.reproduction import bands
from launch.reproduction import lines
from launch.reproduction import outcome as outcome_lib
from launch.reproduction import runs as runs_lib
from launch.reproduction import trained
from tasks.papers import result
from tasks.papers import table
from tests.launch.reproduction import small_table
from tests.report import fake_runs
from tff_xc.report import columns
from tff_xc.report import groups
from tff_xc.report import run_files

VERDICTS = outcome_lib.Verdict
TABLE = small_table.TABLE


class _Line(lines.Line):
  """A row of one result, with the value that is its reference."""

  def value(self, name):
    return self.reference


def line(printed, value):
  [published] = table.read(printed)
  row = table.Row('celeba', 'fedadam', {'top1:0.7': published})
  return _Line(printed, row, None, value)


@pytest.mark.parametrize(
  ('of', 'than', 'bounds', 'measured', 'holds'),
  [
    (20, 30, {'most': -5}, '-10.0', True),
    (20, 30, {'most': -15}, '-10.0', False),
    # Of 60 rounds: a run that missed may have needed any number of more.
    (56, None, {'most': -5}, 'at most -5.0', True),
    (56, None, {'most': -6}, 'at most -5.0', None),
    (56, None, {'least': -4}, 'at most -5.0', False),
    (None, 20, {'most': 0}, 'at least +41.0', False),
    (None, 20, {'least': 41}, 'at least +41.0', True),
    (None, None, {'most': 0}, 'unknown', None),
    # One of two seeds missed: the mean is at least (20 + 61) / 2.
    ((20, None), 30, {'least': 10}, 'at least +10.5', True),
    ((20, None), 30, {'least': 5, 'most': 15}, 'at least +10.5', None),
    ((20, None), 30, {'least': -4, 'most': 4}, 'at least +10.5', False),
    (30, (20, None), {'least': -15, 'most': 0}, 'at most -10.5', None),
    (30, (20, None), {'least': -4, 'most': 4}, 'at most -10.5', False),
  ],
)
def test_a_missed_target_may_have_needed_any_number_of_rounds(
  of, than, bounds, measured, holds
):
  def line(rounds):
    seeds = rounds if isinstance(rounds, tuple) else (rounds,)
    mean = math.inf if None in seeds else sum(seeds) / len(seeds)
    value = columns.RoundsTo(mean, None, seeds, 60)
    return types.SimpleNamespace(value=lambda metric: value)

  expected = result.Expected('top1:0.7', 'a', **bounds, than='b')
  found = trained.check(expected, {'a': line(of), 'b': line(than)})
  assert (found.measured, found.holds) == (measured, holds)


@pytest.mark.parametrize(
  ('rounds', 'verdict', 'told'),
  [
    ((20, 10, 30), VERDICTS.SHAPE, '3 of 3 pairs are in the published order'),
    (
      (10, 10, 20),
      VERDICTS.SHAPE,
      '2 of 3 pairs are in the published order, 1 cannot tell',
    ),
    (
      (10, 10, 10),
      VERDICTS.SHAPE,
      '0 of 3 pairs are in the published order, 3 cannot tell',
    ),
    (
      (10, 20, 20),
      VERDICTS.NOT,
      'only 1 of 3 pairs are in the published order, 1 cannot tell',
    ),
  ],
)
def test_pairs_of_a_small_table_that_cannot_tell_do_not_count(
  rounds, verdict, told
):
  checked = [outcome_lib.Checked('top-1 of posonly', '40.0', True)]
  of = [
    line(printed, columns.RoundsTo(each, None, (each,), 60))
    for each, printed in zip(rounds, ('200', '100', '300'), strict=True)
  ]
  found, why = trained._as_expected(checked, of)
  assert found == verdict
  assert why == f'what was expected holds; {told}'


def test_rounds_to_a_target_that_was_missed_are_at_least_one_more(tmp_path):
  runs = runs_lib.plan_runs(TABLE.rows, {}, (0,), tmp_path)
  for [run] in runs:
    small_table.finish(run, 0.5)
  group = lines._group(TABLE, runs[0])
  missed = lines.measured(group, 'top1:0.7')
  assert lines.possible(missed) == (21.0, math.inf)
  at_once = columns.RoundsTo(math.inf, None, (0, None), 20)
  assert lines.possible(at_once) == (10.5, math.inf)
  least, most = lines.possible(lines.measured(group, 'top1:0.1'))
  assert least == most < 20


def test_too_few_rounds_do_not_tell_of_a_published_bound():
  pairs = [
    line('>200', columns.RoundsTo(math.inf, None, (None,), rounds)).pair(
      'top1:0.7'
    )
    for rounds in (30, 200)
  ]
  assert pairs[0].in_band is None
  assert pairs[1].in_band


@pytest.mark.parametrize(
  ('by_seed', 'inside'),
  [
    ((None,) * 5, True),
    ((150, 150, 150, 150, None), None),  # It may reach it at 201, or at 1,000.
    ((190, 200, None, None, None), None),
    ((201, None, None, None, None), True),  # At least 201 each.
    ((150, 150, 150, 150, 150), False),
    ((250, 250, 250, 250, 250), True),
  ],
)
def test_a_bound_is_in_the_band_of_seeds_that_must_be_above_it(by_seed, inside):
  mean, std = math.inf, None
  if None not in by_seed:
    mean, std = columns.mean_and_std(by_seed)
  pair = line('>200', columns.RoundsTo(mean, std, by_seed, 200)).pair(
    'top1:0.7'
  )
  assert pair.in_band is inside
  assert pair.difference == ('*' if inside is False else '–')
  verdict, why = bands.judged([pair], 0)
  if inside is None:
    assert verdict == VERDICTS.NOT_RUN
    assert why.startswith('0 of 1 values are in the band, 1 cannot tell; ')
  else:
    assert verdict == (VERDICTS.REPRODUCED if inside else VERDICTS.NOT)


@pytest.mark.parametrize(
  ('by_seed', 'rounds', 'inside'),
  [
    ((None,), 5000, None),
    ((None,), 9005, None),
    ((None,), 9904, None),  # The band ends at 9905.5.
    ((None,), 9905, False),
    ((9000, 9100, None), 5000, None),
    ((9000, 9100, None), 20000, False),
    ((20000, 20000, None), 5000, False),
  ],
)
def test_a_run_too_short_for_a_published_number_does_not_contradict_it(
  by_seed, rounds, inside
):
  missed = columns.RoundsTo(math.inf, None, by_seed, rounds)
  pair = line('9005', missed).pair('top1:0.7')
  assert pair.in_band is inside
  assert pair.difference == ('*' if inside is False else '–')
  # No other row has an order with it.
  verdict, _ = bands.judged([pair], 0)
  assert verdict == (VERDICTS.NOT_RUN if inside is None else VERDICTS.NOT)


def test_a_shape_needs_no_value_that_tells_of_its_band():
  missed = columns.RoundsTo(math.inf, None, (None,), 8000)
  values = [
    line('9005', missed),
    line('1463', columns.RoundsTo(1400.0, None, (1400,), 8000)),
  ]
  pairs = [each.pair('top1:0.7') for each in values]
  verdict, why = bands.judged(pairs, 0)
  assert verdict == VERDICTS.SHAPE
  assert why == (
    '1 of 2 values are in the band, 1 cannot tell; 1 of 1 pairs are in the'
    ' published order'
  )


@pytest.mark.parametrize(
  ('by_seed', 'rounds', 'order'),
  [
    ((None,), 60, (1, 1, 0)),
    ((None,), 40, (1, 0, 1)),  # It may reach it before the other.
    ((10, None), 60, (1, 0, 1)),  # Its mean may be 35.5, or 100.
    ((45, None), 60, (1, 1, 0)),
  ],
)
def test_a_seed_that_missed_is_later_where_no_further_round_tells_otherwise(
  by_seed, rounds, order
):
  missed = columns.RoundsTo(math.inf, None, by_seed, rounds)
  reached = columns.RoundsTo(50.0, None, (50,), 60)
  pairs = lambda *printed: [
    line(each, value).pair('top1:0.7')
    for each, value in zip(printed, (missed, reached), strict=True)
  ]
  assert bands.order(pairs('200', '100')) == order
  total, kept, unknown = order
  assert bands.order(pairs('100', '200')) == (total, 0, unknown)
  assert bands.order(pairs('100', '200')).broken == kept


def test_a_seed_that_stopped_early_missed_its_target_in_few_rounds(tmp_path):
  runs = [
    fake_runs.write_run(tmp_path / f'{rounds}', top1=top1, rounds=rounds)
    for rounds, top1 in ((60, 0.8), (20, 0.5), (40, 0.5))
  ]
  group = groups.Group('', '', tuple(map(run_files.read_run, runs)))
  value = lines.measured(group, 'top1:0.7')
  [reached, *others] = value.by_seed
  assert reached
  assert others == [None, None]
  assert str(value) == '>20 in 2 of 3 seeds'
  assert lines.possible(value)[0] == pytest.approx((reached + 21 + 21) / 3)
