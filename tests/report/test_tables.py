"""Rows of tables over seeds, their labels, and the three forms of a table."""

import csv
import io

import numpy as np
import pytest

from tests.report import fake_runs
from tff_xc import errors
from tff_xc.measure import budgets
from tff_xc.measure import catalog
from tff_xc.measure import targets
from tff_xc.report import columns
from tff_xc.report import groups as groups_lib
from tff_xc.report import run_files
from tff_xc.report import tables


def test_means_and_sample_std(runs):
  rows = tables.build_rows(groups_lib.group_runs(runs))
  row = next(row for row in rows if len(row.seeds) == 3)
  assert row.seeds == (0, 1, 2)
  assert row.values['top1'].mean == pytest.approx(np.mean(fake_runs.TOP1))
  assert row.values['top1'].std == pytest.approx(np.std(fake_runs.TOP1, ddof=1))
  assert row.values['map@10'].mean == pytest.approx(np.mean(fake_runs.TOP1) / 3)
  assert row.values['seconds_per_round'].mean == pytest.approx(0.6)
  assert row.values['bytes_down'] == columns.Value(100_000 + 256 * 109, 0.0)
  assert row.values['train_top1'] is None
  alone = next(row for row in rows if row.label == 'posonly')
  assert alone.values['top1'] == columns.Value(0.09, None)


def test_a_value_that_one_seed_lacks_is_left_out(runs):
  del runs[1].summary['final']['map@10']
  row = tables.build_rows(groups_lib.group_runs(runs[:3]))[0]
  assert row.values['map@10'] is None
  assert row.values['map@r'] is not None


def test_sorted_by_the_metric_chosen_and_unmeasured_last(runs):
  runs[5].summary['final']['map@10'] = None
  groups = groups_lib.group_runs(runs)
  names = lambda rows: [row.label.split()[0] for row in rows]
  assert names(tables.build_rows(groups)) == [
    'centralized',
    'fullsoftmax',
    'fedss',
    'fedss',
    'posonly',
  ]
  assert names(tables.build_rows(groups, 'map@10'))[-1] == 'fullsoftmax'
  with pytest.raises(
    errors.InputError, match=r'train_top1.*they have top1, map'
  ):
    tables.build_rows(groups, 'train_top1')
  for run in runs:
    run.summary['final']['top1'] = None
  assert (
    names(tables.build_rows(groups_lib.group_runs(runs)))[-1] == 'fullsoftmax'
  )


def test_less_is_better_of_some_metrics(runs, monkeypatch):
  lower = catalog.SCORES['top1']._replace(better='lower')
  monkeypatch.setitem(catalog.SCORES, 'top1', lower)
  rows = tables.build_rows(groups_lib.group_runs(runs))
  values = [row.values['top1'].mean for row in rows]
  assert values == sorted(values)
  assert len(set(values)) > 1


def test_text_is_aligned(runs):
  text = tables.to_text(tables.build_rows(groups_lib.group_runs(runs)))
  lines = text.splitlines()
  assert len(lines) == 2 + 5
  assert len({len(line) for line in lines}) == 1
  assert lines[0].split()[:3] == ['algorithm', 'seeds', 'rounds']
  fedss = next(line for line in lines if 'correction=negatives' in line)
  assert '50.0 ± 3.0' in fedss
  assert '128 kB' in fedss
  assert 'train top-1' not in text  # No run has it.
  posonly = next(line for line in lines if line.startswith('posonly'))
  assert '±' not in posonly
  assert '97.0' in posonly  # 1 - 29/964.
  centralized = next(line for line in lines if line.startswith('centralized'))
  assert centralized.count('–') == 4


def wide(runs):
  """Gives the runs all scores of a multi-label task."""
  for run in runs:
    for i, name in enumerate(catalog.SCORES):
      run.summary['final'][name] = (i + 1) / 100
  return tables.build_rows(groups_lib.group_runs(runs))


@pytest.mark.parametrize('width', [60, 80, 100, 140])
def test_text_fits_a_width_and_says_what_it_leaves_out(runs, width):
  rows = wide(runs)
  whole = tables.to_text(rows).splitlines()
  assert len(whole[0]) > 190
  text = tables.to_text(rows, width=width, elsewhere='compare.csv')
  assert max(map(len, text.splitlines())) <= width
  table, _, rest = text.partition('more columns in compare.csv: ')
  kept = [c.strip() for c in table.splitlines()[0].split('  ') if c.strip()]
  left_out = [c.strip() for c in ' '.join(rest.split()).rstrip('.').split(',')]
  every = [c.strip() for c in whole[0].split('  ') if c.strip()]
  assert [c for c in every if c in kept] == kept
  assert sorted(kept + left_out) == sorted(every)
  assert kept[:1] == ['algorithm']
  assert 'top-1 %' in kept


def test_the_metric_sorted_by_is_the_last_to_be_left_out(runs):
  text = tables.to_text(wide(runs), width=60, metric='ndcg@5')
  assert 'nDCG@5 %' in text.splitlines()[0]


def test_nothing_is_said_where_everything_fits(runs):
  rows = wide(runs)
  assert tables.to_text(rows, width=600) == tables.to_text(rows)


def test_distances_are_no_percentages(runs):
  for run in runs:
    run.summary['final'] |= {'p@1': 0.25, 'class_distance_min': 0.0125}
  rows = tables.build_rows(groups_lib.group_runs(runs[:3]), 'p@1')
  lines = tables.to_text(rows).splitlines()
  assert 'P@1 %' in lines[0]
  assert 'least class distance ' in lines[0]
  assert 'distance %' not in lines[0]
  assert '25.0 ± 0.0' in lines[2]
  assert ' 0.0125 ± 0.0000' in lines[2]


def test_a_correlation_below_chance_is_negative(runs):
  for run, mcc in zip(runs[:3], (-0.125, -0.25, 0.0), strict=True):
    run.summary['final'] = {'macro_f1': 0.5, 'mcc': mcc}
  rows = tables.build_rows(groups_lib.group_runs(runs[:3]), 'mcc')
  lines = tables.to_text(rows).splitlines()
  assert 'macro F1 %' in lines[0]
  assert 'MCC %' in lines[0]
  assert '-12.5 ± 12.5' in lines[2]


def test_no_score_is_minus_zero(tmp_path):
  made = fake_runs.write_run(tmp_path / 'a', rows=964.01, top1=-1e-9)
  run = run_files.read_run(made)
  text = tables.to_text(tables.build_rows(groups_lib.group_runs([run])))
  assert '-0' not in text


def test_markdown_has_the_same_cells_as_the_text(runs):
  rows = tables.build_rows(groups_lib.group_runs(runs))
  lines = tables.to_markdown(rows).splitlines()
  assert len({line.count('|') for line in lines}) == 1
  assert lines[1].startswith('| --- | ---: |')
  text = tables.to_text(rows).splitlines()
  for line, other in zip(lines[2:], text[2:], strict=True):
    cells = [cell.strip() for cell in line.strip('|').split('|')]
    assert ' '.join(other.split()) == ' '.join(cells)


def test_csv_is_exact(runs):
  rows = tables.build_rows(groups_lib.group_runs(runs))
  read = list(csv.DictReader(io.StringIO(tables.to_csv(rows))))
  fedss = read[2]
  assert fedss['algorithm'] == 'fedss negatives=80 correction=negatives'
  assert fedss['seeds'] == '0 1 2'
  assert float(fedss['top1_mean']) == rows[2].values['top1'].mean
  assert float(fedss['top1_std']) == rows[2].values['top1'].std
  assert float(fedss['bytes_down_mean']) == 100_000 + 256 * 109
  assert float(fedss['bytes_up_mean']) == 100_004 + 264 * 109
  assert fedss['train_top1_mean'] == ''
  assert read[4]['top1_std'] == ''


def test_rounds_to_a_target_over_seeds(runs):
  """Seeds that did not reach it are told; there is no mean without them."""
  seeds = runs[:3]
  alone = next(run for run in runs if run.algorithm == 'fullsoftmax')
  for run, rises in zip(seeds, (8, 12, 20), strict=True):
    run.metrics['top1'] = np.where(run.metrics['round'] >= rises, 0.5, 0.1)
    run.metrics['map@10'] = np.where(run.metrics['round'] >= 2 * rises, 0.5, 0)
  alone.metrics['top1'] = 0.6
  seeds[0].config['target'] = 'top1:0.4'
  groups = groups_lib.group_runs([*seeds, alone])
  found = {r.label.split()[0]: r for r in tables.build_rows(groups)}
  three, one = found['fedss'], found['fullsoftmax']
  assert set(three.values) - set(one.values) == set()
  value = three.values['top1:0.4']
  assert value.mean == pytest.approx(40 / 3)
  assert value.std == pytest.approx(np.std([8, 12, 20], ddof=1))
  assert str(value) == '13.3 ± 6.1'
  assert str(one.values['top1:0.4']) == '1'
  rows = tables.build_rows(
    groups, targets=targets.parse('map@10:0.4,top1:0.55')
  )
  printed = {
    row.label.split()[0]: [
      str(row.values[n]) for n in ('map@10:0.4', 'top1:0.55')
    ]
    for row in rows
  }
  assert printed == {
    'fedss': ['>20 in 2 of 3 seeds', '>20'],
    'fullsoftmax': ['>20', '1'],
  }
  text = tables.to_text(rows, 100)
  assert 'rounds to MAP@10 40 %' in text.splitlines()[0]
  read = list(csv.DictReader(io.StringIO(tables.to_csv(rows))))
  cells = [row for row in read if 'fedss' in row['algorithm']]
  assert cells[0]['rounds_to_map@10:0.4_by_seed'] == '16 >20 >20'
  assert cells[0]['rounds_to_map@10:0.4_mean'] == ''


def test_sorted_by_rounds_to_a_target(runs):
  for run, rises in zip(runs[:6], (8, 12, 40, 40, 40, 18), strict=True):
    run.metrics['top1'] = np.where(run.metrics['round'] >= rises, 0.5, 0.1)
  labels = [
    row.label.split()[0]
    for row in tables.build_rows(groups_lib.group_runs(runs), 'top1:0.4')
  ]
  # FullSoftmax's one seed reached it, and not every seed of FedSS.
  assert labels.index('fullsoftmax') < labels.index('fedss')
  with pytest.raises(errors.InputError, match=r'p@1:0.4.*they have top1'):
    tables.build_rows(groups_lib.group_runs(runs), 'p@1:0.4')


def test_a_target_that_no_run_can_have_is_refused(runs):
  groups = groups_lib.group_runs(runs)
  given = targets.parse('top1:0.4,p@1:0.1')
  with pytest.raises(
    errors.InputError,
    match=r'target p@1:0.1 needs; they have top1, .*top1:0.4.',
  ):
    tables.build_rows(groups, targets=given)
  # Of the targets that the runs were trained with, a column stays empty.
  runs[0].config['target'] = 'p@1:0.1'
  rows = tables.build_rows(groups)
  assert all(row.values['p@1:0.1'] is None for row in rows)
  assert 'rounds to P@1' not in tables.to_text(rows, 100)
  read = list(csv.DictReader(io.StringIO(tables.to_csv(rows))))
  assert {row['rounds_to_p@1:0.1_by_seed'] for row in read} == {''}


def test_a_score_at_a_budget_is_a_column(runs):
  groups = groups_lib.group_runs(runs)
  some = budgets.parse('rounds:10,rounds:999')
  rows = tables.build_rows(groups, 'top1', budgets=some)
  row = next(row for row in rows if len(row.seeds) == 3)
  [group] = [g for g in groups if g.label == row.label]
  at = [
    run.metrics.set_index('round')['top1'].loc[:10].dropna().iloc[-1]
    for run in group.runs
  ]
  value = row.values['top1@rounds:10']
  assert value.mean == pytest.approx(np.mean(at))
  assert value.std == pytest.approx(np.std(at, ddof=1))
  assert row.values['top1@rounds:999'] is None
  text = tables.to_text(rows)
  assert 'top-1 % at 10 rounds' in text
  # A budget that no run reached is shown as well: it was asked for.
  assert 'top-1 % at 999 rounds' in text
  assert '–' in text.splitlines()[2]
  assert 'top1@rounds:10_mean' in tables.to_csv(rows)
  # Of rows that are sorted by a target, it is the target's score.
  [row, *_] = tables.build_rows(groups, 'map@10:0.1', budgets=some)
  assert 'map@10@rounds:10' in row.values
