"""The runs behind a published table."""

import pytest

from launch.reproduction import rows as rows_lib
from tasks.papers import registry
from tasks.papers import table
from tff_xc import errors

TABLES = registry.TABLES
EURLEX = 'eurlex-4k-sets'


def planned(output, given=(), seeds=(0, 1)):
  rows = rows_lib.chosen(
    TABLES['fedmlh/table3'], TABLES['fedmlh/table3'].rows, EURLEX, None
  )
  return rows_lib.plan_runs(rows, dict(given), seeds, output)


def folders(rows, output):
  return {g[0].folder for g in rows_lib.plan_runs(rows, {}, (0,), output)}


def test_settings_are_the_tables_unless_flags_replace_them(tmp_path):
  given = {'rounds': 9, 'bucket_score': 'logsigmoid'}
  hashed, plain = planned(tmp_path, given)
  assert [run.seed for run in hashed] == [0, 1]
  for run in (*hashed, *plain):
    assert run.config['rounds'] == 9
    assert run.config['best_by'] == 'pc_mean'
    assert run.config['options']['validation'] == 0
    assert run.config['options']['published_reading']
    assert not run.config['hyperparameters']['shuffle']
  assert hashed[0].config['hyperparameters']['bucket_score'] == 'logsigmoid'
  assert 'bucket_score' not in plain[0].config['hyperparameters']
  # Flags that change results have folders of their own.
  folder = lambda **given: planned(tmp_path, given)[0][0].folder
  usual = folder()
  assert usual.parts[-4:-2] == ('runs', EURLEX)
  assert usual.parts[-2].startswith('fedmlh_')
  assert usual.parts[-1] == 'seed0'
  assert folder(client_threads=2, data_dir='/x') == usual
  assert folder(rounds=9) != usual


@pytest.mark.parametrize('name', TABLES)
def test_different_settings_have_different_folders(name, tmp_path):
  for task in {row.task for row in TABLES[name].rows}:
    rows = rows_lib.chosen(TABLES[name], TABLES[name].rows, task, None)
    different = {(row.algorithm, str(row.changes)) for row in rows}
    assert len(folders(rows, tmp_path)) == len(different)


def test_equal_experiments_of_two_tables_share_their_runs(tmp_path):
  table3, table10, table11 = (
    folders(
      rows_lib.chosen(
        TABLES[f'turbosvm-fl/table{n}'],
        TABLES[f'turbosvm-fl/table{n}'].rows,
        'femnist',
        'turbosvm',
      ),
      tmp_path,
    )
    for n in (3, 10, 11)
  )
  assert table3 == table10 & table11
  assert len(table3) == 1
  # A setting at its default shares the run.
  table2, table3, *others = (
    folders(TABLES[f'turbosvm-fl/table{n}'].small.rows, tmp_path)
    for n in (2, 3, 9, 10, 11)
  )
  assert table2 == table3
  assert all(len(table2 & other) == 2 for other in others)


def test_the_papers_rows_are_those_with_files():
  of = lambda name, *chosen: rows_lib.chosen(
    TABLES[name], TABLES[name].rows, *chosen
  )
  tasks = lambda *chosen: {row.task for row in of('fedss/table2', *chosen)}
  assert tasks(None, None) == {'sop'}
  assert tasks('glyphs-sop', 'fedss') == {'glyphs-sop'}
  with pytest.raises(errors.InputError, match='has results on glyphs-sop, sop'):
    of('fedss/table2', 'omniglot', None)
  with pytest.raises(errors.InputError, match='has, on sop, fedss, negonly'):
    of('fedss/table2', None, 'moon')
  # An algorithm keeps the rows to which its results are relative.
  rows = of('fedvc/table5', None, 'fedvc')
  assert [row.algorithm for row in rows] == [
    *('fedvc', 'fedvc', 'centralized', 'fedvc', 'fedvc', 'centralized')
  ]
  reference = TABLES['fedvc/table5'].reference
  assert all(reference(row, rows) for row in rows if row.is_relative)
  # So it does where a claim relates them.
  rows = of('fedmlh/table6', 'eurlex-4k-sets', 'fedmlh')
  assert [row.algorithm for row in rows] == ['fedmlh', 'fedavg']
  # Scores at rounds need none.
  rows = of('fedvc/table4', None, 'fedir')
  assert {row.algorithm for row in rows} == {'fedir'}


def test_a_flag_in_which_rows_differ_chooses_rows():
  rows = TABLES['fedaws/table1'].rows
  kept = rows_lib.having(rows, {'depth': 8, 'rounds': 3})
  assert {row.task for row in kept} == {'cifar10'}
  assert [row.changes['depth'] for row in kept] == [8] * 4
  # PosOnly has no negatives, and stays.
  rows = TABLES['fedss/table1'].rows
  kept = rows_lib.having(rows, {'negatives': 5})
  assert {row.changes.get('negatives') for row in kept} == {5, None}
  assert {row.algorithm for row in kept} == {row.algorithm for row in rows}
  # A row that does not name a setting has the task's.
  rows = TABLES['turbosvm-fl/table9'].rows
  kept = rows_lib.having(rows, {'clients_per_round': 8})
  assert len(kept) == len(rows) / 3
  assert not any('clients_per_round' in row.changes for row in kept)
  with pytest.raises(errors.InputError, match='this table have 8, 16, 32'):
    rows_lib.having(rows, {'clients_per_round': 9})


def test_rows_train_as_long_as_their_published_numbers_need(tmp_path):
  def rounds(name, **given):
    rows = TABLES[name].rows
    runs = rows_lib.plan_runs(rows, given, [0], tmp_path)
    of_each = [run.config['rounds'] for [run] in runs]
    return dict(zip(table.labels(rows), of_each, strict=True))

  long = rounds('fedvc/table2')
  assert long['inaturalist-geo-3k fedvc'] == 50_000 / 4
  assert long['inaturalist-user-120k fedavg'] == 50_000 / 4
  assert long['inaturalist-geo-3k fedavg'] == 5_000
  long = rounds('fedvc/table5')
  start = 'fedvc encoder_weights={} clients_per_round={}'.format
  assert long[start('imagenet', 10)] == 5_000
  assert long[start('', 10)] == 50_000
  assert long[start('', 100)] == 20_000
  # A flag replaces those of all rows, which are no others.
  rows = TABLES['fedvc/table5'].rows
  assert rows_lib.having(rows, {'rounds': 3}) == [*rows]
  assert {*rounds('fedvc/table5', rounds=3).values()} == {3}


def test_rows_start_from_the_run_of_an_encoder_on_other_classes(tmp_path):
  rows = TABLES['fedvc/table5'].small.rows
  runs = [g[0] for g in rows_lib.plan_runs(rows, {}, (0,), tmp_path)]
  sources = [rows_lib.encoder_run(row, tmp_path) for row in rows]
  for run, source in zip(runs, sources, strict=True):
    if source is None:
      assert not run.config['start_from']
      continue
    assert run.config['start_from'] == str(source.folder)
    assert run.config['start_from_rows'] == 'none'
    assert source.config['algorithm'] == 'centralized'
    data = [each.config['options']['data_seed'] for each in (run, source)]
    assert data[0] != data[1]
  assert [bool(source) for source in sources] == 3 * [True] + 3 * [False]
