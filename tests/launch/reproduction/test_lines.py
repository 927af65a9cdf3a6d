"""Finished runs: what a table takes from them, and files that lack something."""

import dataclasses
import json
import math

import pytest

from launch.reproduction import lines
from launch.reproduction import runs as runs_lib
from tests.launch.reproduction import small_table
from tff_xc import errors
from tff_xc.report import run_files

BEST = {'by': 'top1', 'round': 4, 'top1': 0.5, 'bytes_down': 10.0}


@pytest.fixture
def folder(tmp_path):
  """Returns the directory of the first of a table's runs, which have finished."""
  for [run] in planned(tmp_path):
    small_table.finish(run, 0.5)
  return planned(tmp_path)[0][0].folder


def planned(output):
  return runs_lib.plan_runs(small_table.ROWS, {}, (0,), output)


def of_table(output):
  return lines.of_table(small_table.TABLE, small_table.ROWS, planned(output))


def change(path, **values):
  """Changes a summary; None removes a key."""
  summary = json.loads(path.read_text()) | values
  kept = {name: value for name, value in summary.items() if value is not None}
  path.write_text(json.dumps(kept))


@pytest.mark.parametrize(
  ('name', 'values'),
  [
    ('bytes_down', {'best_round': {**BEST, 'bytes_down': None}}),
    ('bytes_down', {'best_round': {'by': 'top1', 'round': 4, 'top1': 0.5}}),
    ('round', {'best_round': {**BEST, 'round': 'x'}}),
    ('best_round', {'best_round': [4]}),
    ('seconds_per_round_median', {'seconds_per_round_median': None}),
    ('top1', {'best_round': {**BEST, 'top1': math.nan}}),
    ('mcc', {'final': {'top1': 0.5, 'mcc': math.inf}}),
    ('seconds_per_round_median', {'seconds_per_round_median': math.nan}),
  ],
)
def test_what_a_summary_lacks_is_named(name, values, folder, tmp_path):
  path = folder / 'summary.json'
  change(path, best_round=BEST)
  assert all(line.group for line in of_table(tmp_path))
  change(path, **values)
  with pytest.raises(errors.DamageError) as told:
    of_table(tmp_path)
  assert str(told.value).startswith(f'{path} is damaged (')
  assert f'"{name}"' in str(told.value)


@pytest.mark.parametrize('kept', ['round,lo', 'round,loss,seconds\n', 'half'])
def test_metrics_that_were_cut_are_named(kept, folder, tmp_path):
  path = folder / 'metrics.csv'
  whole = path.read_text().splitlines(keepends=True)
  path.write_text(''.join(whole[:9]) if kept == 'half' else kept)
  with pytest.raises(errors.DamageError) as told:
    of_table(tmp_path)
  assert str(told.value).startswith(
    f'{path} is damaged (expected 20 rounds with seconds); restore it'
  )


def test_scores_are_those_of_the_round_that_the_command_chooses(tmp_path):
  """Another command may have trained the runs, with another --best_by."""
  values = lambda found, rows, given: [
    line.value('top1').mean
    for line in lines.of_table(
      found, rows, runs_lib.plan_runs(rows, given, (0,), tmp_path)
    )
  ]
  rows = small_table.ROWS[:1]
  found = dataclasses.replace(small_table.TABLE, rows=rows)
  [[run]] = runs_lib.plan_runs(rows, {}, (0,), tmp_path)
  small_table.finish(run, 0.5)
  table = run_files.read_metrics(run.folder / 'metrics.csv')
  table.loc[table['round'] == 10, 'top1'] = 0.9
  table.to_csv(run.folder / 'metrics.csv', index=False)
  best = {'by': 'mcc', 'round': 20, 'top1': 0.4, 'bytes_down': 10.0}
  change(run.folder / 'summary.json', best_round=best)
  assert values(found, rows, {}) == [50.0]
  assert values(found, rows, {'best_by': 'top1'}) == [90.0]
  assert values(found, rows, {'best_by': 'mcc'}) == [40.0]
  at_end = dataclasses.replace(found, at_rounds=20)
  assert values(at_end, rows, {'best_by': 'top1'}) == [
    pytest.approx(100 * table['top1'].iloc[-1])
  ]
