"""The runs behind a published table."""

import pytest

from launch.reproduction import rows as rows_lib
from tasks.papers import registry
from tasks.papers import table
from tff_xc import errors

TABLE3 = registry.TABLES['fedmlh/table3']
EURLEX = 'eurlex-4k-sets'


def planned(output, given=(), seeds=(0, 1)):
  rows = rows_lib.of_paper(TABLE3, EURLEX, None)
  return rows, rows_lib.plan_runs(rows, dict(given), seeds, output)


def test_settings_are_the_tables_unless_flags_replace_them(tmp_path):
  _, runs = planned(tmp_path, {'rounds': 9, 'bucket_score': 'logsigmoid'})
  hashed, plain = runs
  assert [run.seed for run in hashed] == [0, 1]
  for run in (*hashed, *plain):
    assert run.config['rounds'] == 9
    assert run.config['best_by'] == 'pc_mean'
    assert run.config['options']['validation'] == 0
    assert run.config['options']['published_reading']
    assert not run.config['hyperparameters']['shuffle']
  assert hashed[0].config['hyperparameters']['bucket_score'] == 'logsigmoid'
  assert 'bucket_score' not in plain[0].config['hyperparameters']


def test_flags_that_change_results_have_folders_of_their_own(tmp_path):
  folder = lambda **given: planned(tmp_path, given)[1][0][0].folder
  plain = folder()
  assert plain.parts[-4:-2] == ('runs', EURLEX)
  assert plain.parts[-2].startswith('fedmlh_')
  assert plain.parts[-1] == 'seed0'
  assert folder(client_threads=2, data_dir='/x') == plain
  assert folder(rounds=9) != plain


TASKS = [(n, row.task) for n, t in registry.TABLES.items() for row in t.rows]


@pytest.mark.parametrize(('name', 'task'), dict.fromkeys(TASKS))
def test_different_settings_have_different_folders(name, task, tmp_path):
  rows = rows_lib.of_paper(registry.TABLES[name], task, None)
  runs = rows_lib.plan_runs(rows, {}, [0], tmp_path)
  different = {(row.algorithm, str(row.changes)) for row in rows}
  assert len({group[0].folder for group in runs}) == len(different)


def test_equal_experiments_of_two_tables_share_their_runs(tmp_path):
  folders = []
  for number in (3, 10, 11):
    rows = rows_lib.of_paper(
      registry.TABLES[f'turbosvm-fl/table{number}'], 'femnist', 'turbosvm'
    )
    runs = rows_lib.plan_runs(rows, {}, [0], tmp_path)
    folders.append({group[0].folder for group in runs})
  assert folders[0] == folders[1] & folders[2]
  assert len(folders[0]) == 1


def test_a_setting_at_its_default_shares_the_run(tmp_path):
  small = lambda number: registry.TABLES[f'turbosvm-fl/table{number}'].small
  folders = [
    {g[0].folder for g in rows_lib.plan_runs(small(n).rows, {}, (0,), tmp_path)}
    for n in (2, 3, 9, 10, 11)
  ]
  assert folders[0] == folders[1]
  assert all(len(folders[0] & other) == 2 for other in folders[2:])


def test_the_papers_rows_are_those_with_files(tmp_path):
  found = registry.TABLES['fedss/table2']
  chosen = lambda *names: {r.task for r in rows_lib.of_paper(found, *names)}
  assert chosen(None, None) == {'sop'}
  assert chosen('glyphs-sop', 'fedss') == {'glyphs-sop'}
  with pytest.raises(errors.InputError, match='has results on glyphs-sop, sop'):
    rows_lib.of_paper(found, 'omniglot', None)
  with pytest.raises(errors.InputError, match='has, on sop, fedss, negonly'):
    rows_lib.of_paper(found, None, 'moon')


def test_a_flag_in_which_rows_differ_chooses_rows():
  rows = registry.TABLES['fedaws/table1'].rows
  kept = rows_lib.having(rows, {'depth': 8, 'rounds': 3})
  assert {row.task for row in kept} == {'cifar10'}
  assert [row.changes['depth'] for row in kept] == [8] * 4
  # PosOnly has no negatives, and stays.
  rows = registry.TABLES['fedss/table1'].rows
  kept = rows_lib.having(rows, {'negatives': 5})
  assert {row.changes.get('negatives') for row in kept} == {5, None}
  assert {row.algorithm for row in kept} == {row.algorithm for row in rows}
  # A row that does not name a setting has the task's.
  rows = registry.TABLES['turbosvm-fl/table9'].rows
  kept = rows_lib.having(rows, {'clients_per_round': 8})
  assert len(kept) == len(rows) / 3
  assert not any('clients_per_round' in row.changes for row in kept)
  with pytest.raises(errors.InputError, match='this table have 8, 16, 32'):
    rows_lib.having(rows, {'clients_per_round': 9})


def test_an_algorithm_keeps_the_rows_to_which_its_results_are_relative():
  found = registry.TABLES['fedvc/table5']
  rows = rows_lib.of_paper(found, None, 'fedvc')
  assert [row.algorithm for row in rows] == [
    *('fedvc', 'fedvc', 'centralized', 'fedvc', 'fedvc', 'centralized'),
  ]
  assert all(found.reference(row, rows) for row in rows if row.is_relative)
  # Scores at rounds need none.
  rows = rows_lib.of_paper(registry.TABLES['fedvc/table4'], None, 'fedir')
  assert {row.algorithm for row in rows} == {'fedir'}


def test_rows_train_as_long_as_their_published_numbers_need(tmp_path):
  rounds = lambda name, given: {
    label: group[0].config['rounds']
    for label, group in zip(
      table.labels(registry.TABLES[name].rows),
      rows_lib.plan_runs(registry.TABLES[name].rows, given, [0], tmp_path),
      strict=True,
    )
  }
  long = rounds('fedvc/table2', {})
  assert long['inaturalist-geo-3k fedvc'] == 50_000 / 4
  assert long['inaturalist-user-120k fedavg'] == 50_000 / 4
  assert long['inaturalist-geo-3k fedavg'] == 5_000
  long = rounds('fedvc/table5', {})
  start = 'fedvc encoder_weights={} clients_per_round={}'.format
  assert long[start('imagenet', 10)] == 5_000
  assert long[start('', 10)] == 50_000
  assert long[start('', 100)] == 20_000
  # A flag replaces those of all rows, which are no others.
  rows = registry.TABLES['fedvc/table5'].rows
  assert rows_lib.having(rows, {'rounds': 3}) == [*rows]
  assert {*rounds('fedvc/table5', {'rounds': 3}).values()} == {3}
