"""What finished runs say of a published table."""

import csv
import dataclasses
import json
import math
import sys
import types

import pytest

from launch.reproduction import lines
from launch.reproduction import outcome as outcome_lib
from launch.reproduction import runs as runs_lib
from launch.reproduction import trained
from tasks.papers import registry
from tasks.papers import result
from tests.launch.reproduction import small_table
from tests.report import fake_runs
from tff_xc.report import columns
from tff_xc.report import groups
from tff_xc.report import run_files

VERDICTS = outcome_lib.Verdict
TABLE = small_table.TABLE


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
  monkeypatch.setitem(registry.RESULTS, TABLE.name, TABLE)


def concluded(output, scores, scale='small', seeds=(0,), **more):
  """Returns the outcome of rows with these top-1 of each seed; None: no run."""
  rows = TABLE.rows
  runs = runs_lib.plan_runs(rows, {}, seeds, output)
  for group, found in zip(runs, scores, strict=True):
    for run, score in zip(group, found, strict=True):
      if score is not None:
        small_table.finish(run, score)
  return trained.conclude(TABLE, rows, runs, output, scale, **more)


def test_a_small_table_is_judged_by_what_was_expected(tmp_path):
  found = concluded(tmp_path, [(0.3,), (0.5,), (0.4,)])
  assert found.verdict == VERDICTS.SHAPE
  assert [(e.measured, e.holds) for e in found.checked] == [
    *(('50.0', True), ('+10.0', True)),
  ]
  assert found.checked[1].says == (
    'top-1 of fedss negatives=9: at least 5 points above that of posonly'
  )
  scores, costs = found.tables
  assert scores.heading == ('', 'top-1 %', 'paper', 'MAP@10 %', 'paper')
  assert scores.rows[1][:3] == ('fedss negatives=9', '50.0', '80.0')
  assert scores.rows[2][3:] == ('13.3', '–')
  assert costs.rows[0][1] == '1'
  assert found.pictures == ('result.png',)
  folder = outcome_lib.folder(tmp_path, 'p/fig1')
  assert (folder / 'result.png').read_bytes().startswith(b'\x89PNG')
  assert all((tmp_path / run / 'summary.json').exists() for run in found.runs)
  assert len(found.runs) == 3


def test_an_order_that_is_reversed_within_its_slack_is_told(
  tmp_path, monkeypatch
):
  slack = result.Expected('top1', 'fedss negatives=9', -3, than='posonly')
  rows = (*TABLE.rows[:2], TABLE.rows[2]._replace(published={'top1': None}))
  small = small_table.SMALL._replace(expected=(slack,))
  changed = dataclasses.replace(TABLE, rows=rows, small=small)
  monkeypatch.setattr(sys.modules[__name__], 'TABLE', changed)
  found = concluded(tmp_path, [(0.3,), (0.5,), (0.51,)])
  assert found.verdict == VERDICTS.SHAPE
  assert found.why == (
    'what was expected holds, 1 in the other order, by no more than allowed; 2 of 2'
    ' pairs are in the published order'
  )
  [row] = outcome_lib.expectations(found).rows
  assert row == (
    'top-1 of fedss negatives=9: at most 3 points below that of posonly',
    *('-1.0', 'yes, in the other order'),
  )
  outcome_lib.write(found, tmp_path)
  assert outcome_lib.read(tmp_path, TABLE.name) == found
  found = concluded(tmp_path / 'b', [(0.3,), (0.52,), (0.51,)])
  assert found.why.startswith('what was expected holds; 2 of 2 pairs')


def test_most_pairs_of_a_small_table_are_in_the_published_order(tmp_path):
  found = concluded(tmp_path, [(0.3,), (0.5,), (0.4,)])
  assert found.verdict == VERDICTS.SHAPE
  assert found.why == (
    'all 2 expectations hold; 3 of 4 pairs are in the published order'
  )
  found = concluded(tmp_path / 'b', [(0.52,), (0.5,), (0.45,)])
  assert all(each.holds for each in found.checked)
  assert found.verdict == VERDICTS.NOT
  assert found.why == (
    'all 2 expectations hold; only 2 of 4 pairs are in the published order'
  )


@pytest.mark.parametrize(
  ('best', 'measured', 'holds'),
  [(20, '-5.0', True), (40, 'at least -5.0', None)],
)
def test_the_best_round_may_be_later_than_the_last(best, measured, holds):
  def line(best):
    summary = {'best_round': {'round': best}, 'rounds': 40}
    group = types.SimpleNamespace(runs=[types.SimpleNamespace(summary=summary)])
    value = columns.Value(float(best), None)
    return types.SimpleNamespace(group=group, value=lambda name: value)

  expected = result.Expected('best_round', 'a', most=0, than='b')
  found = trained.check(expected, {'a': line(best), 'b': line(best + 5)})
  assert found.measured in (measured, 'unknown')
  assert found.holds is holds


def values(output):
  """Returns the lines of the CSV, by row and metric."""
  with open(output / 'p' / 'fig1' / 'result.csv', newline='') as file:
    return {
      (line['row'], line['metric']): line for line in csv.DictReader(file)
    }


def test_values_are_written_as_csv(tmp_path):
  scores = [(0.60, 0.62), (0.79, None), (0.30, 0.30)]
  concluded(tmp_path, scores, 'paper', (0, 1))
  found = values(tmp_path)
  assert len(found) == 6
  line = found['fedss negatives=5', 'top1']
  assert float(line['measured_mean']) == pytest.approx(61)
  assert float(line['measured_std']) == pytest.approx(2**0.5)
  assert {k: v for k, v in line.items() if not k.startswith('measured')} == {
    **{'row': 'fedss negatives=5', 'task': 'glyphs', 'algorithm': 'fedss'},
    **{'metric': 'top1', 'unit': '%', 'published_mean': '60.0'},
    **{'published_std': '', 'published_is_bound': 'no', 'in_band': 'yes'},
    **{'seeds': '2', 'rounds': '20'},
  }
  assert found['posonly', 'top1']['in_band'] == 'no'
  for key in (('fedss negatives=9', 'top1'), ('posonly', 'map@10')):
    assert found[key]['in_band'] == ''
  assert found['fedss negatives=9', 'top1']['measured_mean'] == ''
  assert found['posonly', 'map@10']['published_mean'] == ''


def test_values_of_a_small_table_are_not_in_a_band(tmp_path):
  concluded(tmp_path, [(0.6,), (0.5,), (0.4,)])
  assert {line['in_band'] for line in values(tmp_path).values()} == {''}


def test_an_expectation_that_fails_is_named(tmp_path):
  found = concluded(tmp_path, [(0.3,), (0.5,), (0.46,)])
  assert found.verdict == VERDICTS.NOT
  assert found.why.startswith('1 of 2 do not hold: top-1 of fedss negatives=9')
  assert '5 points above that of posonly: +4.0; 3 of 4' in found.why


def test_an_expectation_that_fails_waits_for_no_run(tmp_path):
  found = concluded(tmp_path, [(0.3,), (0.95,), (None,)], missing=['no disk'])
  assert found.verdict == VERDICTS.NOT
  assert found.why == (
    '1 of 1 do not hold: top-1 of fedss negatives=9: 40 to 90 %: 95.0; 1 of 2'
    ' expectations wait for runs; no disk'
  )
  assert [each.holds for each in found.checked] == [False, None]


def test_expectations_wait_for_their_runs(tmp_path):
  found = concluded(tmp_path, [(0.3,), (0.5,), (None,)], missing=['no disk'])
  assert found.verdict == VERDICTS.NOT_RUN
  assert found.why == '1 of 2 expectations wait for runs; no disk'
  assert found.tables[0].rows[2][1:3] == ('–', '40.0')
  nothing = concluded(tmp_path / 'b', [(None,)] * 3)
  assert nothing.verdict == VERDICTS.NOT_RUN
  assert nothing.tables[0].rows[0][1:3] == ('–', '60.0')


def test_a_paper_table_is_judged_by_its_bands(tmp_path):
  scores = [(0.60, 0.62), (0.79, 0.80), (0.30, 0.30)]
  found = concluded(tmp_path, scores, 'paper', (0, 1))
  assert found.verdict == VERDICTS.SHAPE
  assert found.why.startswith(
    '3 of 5 values are in the band; 1 have no published number; '
  )
  assert not found.checked
  rows = found.tables[0].rows
  assert rows[0][:4] == ('fedss negatives=5', '61.0 ± 1.4', '60.0', '+1.0')
  assert rows[2][1:4] == ('30.0 ± 0.0', '40.0', '-10.0 *')


def test_a_paper_table_without_numbers_is_judged_by_its_shape(
  tmp_path, monkeypatch
):
  rows = tuple(row._replace(published={'top1': None}) for row in TABLE.rows)
  shape = (result.Expected('top1', 'fedss negatives=9', 0, than='posonly'),)
  changed = dataclasses.replace(TABLE, rows=rows, shape=shape)
  monkeypatch.setattr(sys.modules[__name__], 'TABLE', changed)
  found = concluded(tmp_path, [(0.3,), (0.5,), (0.4,)], 'paper')
  assert found.verdict == VERDICTS.SHAPE
  assert found.why == 'what was expected holds'
  found = concluded(tmp_path / 'b', [(0.3,), (0.4,), (0.5,)], 'paper')
  assert found.verdict == VERDICTS.NOT


def test_what_is_expected_of_rows_that_flags_left_out_is_not_asked(tmp_path):
  rows = tuple(row._replace(published={'top1': None}) for row in TABLE.rows)
  shape = (
    result.Expected('top1', 'fedss negatives=9', 0, than='posonly'),
    result.Expected('top1', 'fedss negatives=9', 0, than='fedss negatives=5'),
  )
  changed = dataclasses.replace(TABLE, rows=rows, shape=shape)

  def of(left, name):
    runs = runs_lib.plan_runs(left, {}, (0,), tmp_path / name)
    for number, [run] in enumerate(runs):
      small_table.finish(run, 0.5 - number / 10)
    return trained.conclude(changed, left, runs, tmp_path / name, 'paper')

  found = of(rows[1:], 'a')  # Whose label is now 'fedss'.
  assert found.tables[0].rows[0][0] == 'fedss'
  assert found.verdict == VERDICTS.SHAPE
  assert found.why == 'what was expected holds'
  assert len(found.checked) == 1
  found = of(rows[2:], 'b')
  assert found.verdict == VERDICTS.NOT_RUN
  assert found.why == 'nothing is expected of the rows that flags left'


def test_the_version_is_that_of_the_runs(tmp_path):
  scores = [(0.6, 0.62), (0.7, 0.7), (0.3, 0.3)]
  concluded(tmp_path, scores, 'paper', (0, 1))
  runs = runs_lib.plan_runs(TABLE.rows, {}, (0, 1), tmp_path)
  for number, run in enumerate(run for group in runs for run in group):
    config = {**run.config, 'git_revision': f'v{number // 4}'}
    (run.folder / 'config.json').write_text(json.dumps(config))
  found = trained.conclude(TABLE, TABLE.rows, runs, tmp_path, 'paper')
  assert found.version == 'v0, v1'


def test_a_row_that_is_printed_twice_counts_once(tmp_path, monkeypatch):
  scores = [(0.60, 0.62), (0.79, 0.80), (0.30, 0.30)]
  once = concluded(tmp_path, scores, 'paper', (0, 1))
  twice = dataclasses.replace(TABLE, rows=(*TABLE.rows, TABLE.rows[0]))
  monkeypatch.setattr(sys.modules[__name__], 'TABLE', twice)
  runs = runs_lib.plan_runs(twice.rows, {}, (0, 1), tmp_path)
  found = trained.conclude(twice, twice.rows, runs, tmp_path, 'paper')
  assert found.why == once.why
  assert len(found.tables[0].rows) == 4


def test_a_mean_over_some_of_the_seeds_is_no_result(tmp_path):
  scores = [(0.60, None), (0.79, 0.80), (0.30, 0.30)]
  found = concluded(tmp_path, scores, 'paper', (0, 1))
  assert found.tables[0].rows[0][1] == '–'
  assert '2 were not measured' in found.why


def test_an_outcome_is_written_and_read(tmp_path):
  found = concluded(tmp_path, [(0.3,), (0.5,), (0.4,)])
  outcome_lib.write(found, tmp_path)
  assert outcome_lib.read(tmp_path, TABLE.name) == found
  markdown = (tmp_path / 'p' / 'fig1' / 'result.md').read_text()
  assert '| fedss negatives=9 | 50.0 | 80.0 |' in markdown
  assert '**shape reproduced**: all 2 expectations hold; 3 of 4' in markdown
  text = outcome_lib.to_text(found)
  assert text.startswith('P, Fig. 1, arXiv:1. Top-1 by negatives. Two methods')
  assert outcome_lib.read(tmp_path, 'fedss/table1') is None


def test_a_number_that_the_last_round_lacks_was_not_measured(tmp_path):
  group = write_scores(tmp_path / 'run', (0.5, 0.8))
  table = group.runs[0].metrics
  table['support_vectors_class_1'] = [8.0, 7.0]
  name = 'support_vectors_class_1'
  assert lines.measured(group, name).mean == 7
  table[name] = [8.0, math.nan]  # The class was not drawn in the last round.
  assert lines.measured(group, name) is None


def write_scores(folder, scores):
  """Writes a finished run with a score after rounds 2, 4, 6 and so on."""
  fake_runs.write_run(folder, top1=scores[-1], rounds=2 * len(scores))
  text = 'round,local_batches,top1,seconds\n' + ''.join(
    f'{2 * n},8,{score},1.0\n' for n, score in enumerate(scores, 1)
  )
  (folder / 'metrics.csv').write_text(text)
  run = run_files.read_run(folder)
  return groups.Group('', '', (run,))


def test_results_at_budgets_and_relative_ones_are_measured(tmp_path):
  whole = write_scores(tmp_path / 'whole', (0.5, 0.8))
  part = write_scores(tmp_path / 'part', (0.1, 0.3, 0.4))

  def measured(name, reference=None):
    found = lines.measured(part, name, reference)
    return trained._shown(found)

  assert measured('top1') == '40.0'
  assert measured('top1@rounds:5') == '30.0'
  assert measured('top1@batches:16') == '30.0'
  assert measured('top1@rounds:7') == '–'  # It ended before.
  assert measured('top1:0.3') == '4'
  assert measured('relative_top1:0.1', whole) == '2'
  assert measured('relative_top1:0.5', whole) == '6'
  assert measured('relative_top1:0.9', whole) == '>6'
  assert measured('relative_top1:0.1') == '–'
  assert measured('seconds') == '0.5'
  assert measured('best_round') == '–'
  assert measured('support_vectors') == '–'


def test_many_results_stand_below_each_other(tmp_path, monkeypatch):
  monkeypatch.setenv('COLUMNS', '100')
  found = registry.TABLES['fedvc/table2']
  rows = runs_lib.of_paper(found, 'inaturalist-geo-3k', None)
  runs = runs_lib.plan_runs(rows, {}, (0,), tmp_path)
  outcome = trained.conclude(found, rows, runs, tmp_path, 'paper')
  [cells] = outcome.tables
  assert cells.heading == ('', 'result', 'here', 'paper', 'difference')
  assert len(cells.rows) == 4 * 6
  assert cells.rows[0] == (
    'fedavg',
    'top-1 at 5,000 rounds %',
    '–',
    '48.7',
    '–',
  )
  text = outcome_lib.to_text(outcome)
  assert max(map(len, text.splitlines())) <= 100
