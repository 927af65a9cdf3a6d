"""The flags of results, the runs of results, and the data that runs need."""

import contextlib
import json

import pandas as pd
import pytest

from launch import runs as runs_lib
from launch.reproduction import plan
from tasks import registry as tasks, task as task_lib
from tasks.papers import comparisons, data, fedmlh, registry
from tests.launch.reproduction import small_table
from tff_xc import errors, wording

EURLEX = 'eurlex-4k-sets'


def planned(output, *names, **more):
  """Returns the plans by name."""
  found = registry.chosen(names)
  values = {'scale': 'paper', 'output': output, 'is_one': len(found) == 1}
  plans = plan.plan_all(found, plan.Request(**values | more))
  return {each.found.name: each for each in plans}


@pytest.mark.slow
def test_all_results_have_a_plan_at_the_papers_size(tmp_path, capsys):
  assert planned(tmp_path, 'all').keys() == registry.RESULTS.keys()
  # Flags that do not change results leave out no result.
  found = planned(tmp_path, 'all', given={'data_dir': '/x', 'client_threads': 2}, seeds=(0,))
  assert found.keys() == registry.RESULTS.keys()
  assert not capsys.readouterr().out
  # A study receives the data folder, and a command receives the flags that it accepts.
  assert {c['data_dir'] for c in found['fedmlh/theory'].configs} == {'/x'}
  assert found['fedmlh/table5'].command.endswith(' --scale=paper')
  assert found['fedmlh/table3'].command.endswith('--seeds=0 --client_threads=2')


@pytest.mark.parametrize('found', comparisons.COMPARISONS, ids=lambda c: c.name)
def test_comparisons_run_like_a_papers_table(found, tmp_path):
  assert found.name not in registry.RESULTS
  [each] = planned(tmp_path, found.name, scale='small').values()
  assert len(each.by_folder) == 3 * len(found.form('small').rows)
  with pytest.raises(errors.InputError, match='no form at this scale'):
    planned(tmp_path, found.name)


def test_a_flag_in_which_rows_differ_chooses_rows_and_changes_no_others(tmp_path):
  given = {'client_learning_rate': 0.1, 'server_momentum': 0.5, 'rounds': 9}
  [found] = planned(
    tmp_path, 'fedvc/fig4', task='cifar10-dirichlet', given=given, seeds=(0,)
  ).values()
  of = {
    (config['algorithm'], *map(config['hyperparameters'].get, list(given)[:2]))
    for [run] in found.runs
    for config in [run.config]
  }
  assert of == {('fedavg', 0.1, 0.0), ('fedavgm', 0.1, 0.5), ('centralized', 0.01, 0.0)}
  assert {run.config['rounds'] for [run] in found.runs} == {9}
  # PosOnly has no negatives and stays. A row without this setting has the task's default.
  rows = plan.having(registry.TABLES['fedss/table1'].rows, {'negatives': 5})
  assert {row.changes.get('negatives') for row in rows} == {5, None}
  rows = registry.TABLES['turbosvm-fl/table9'].rows
  assert len(plan.having(rows, {'clients_per_round': 8})) == len(rows) / 3
  with pytest.raises(errors.InputError, match='this table have 8, 16, 32'):
    plan.having(rows, {'clients_per_round': 9})
  # The setting selects rows of a table, and is the first one in the command.
  given = {'depth': 8, 'rounds': 1000, 'data_dir': '/x'}
  [each] = planned(tmp_path, 'fedaws/table1', given=given).values()
  assert [row.changes['depth'] for row in each.rows] == [8] * 4
  assert each.command.endswith('--scale=paper --depth=8 --rounds=1000')


def test_flags_limit_the_results_that_take_them(tmp_path, capsys):
  found = planned(tmp_path, 'fedmlh', task=EURLEX)
  without = {f'fedmlh/{n}' for n in ('table2', 'table4', 'table5', 'fig1')}
  whole = {name for name in registry.RESULTS if name.startswith('fedmlh/')}
  assert found.keys() == whole - without
  for each in found.values():
    assert {r.task for g in each.runs for r in g} <= {EURLEX}
  told = capsys.readouterr().out.splitlines()
  assert {line.split(': ')[1] for line in told} == without
  assert all('--task' in line for line in told)
  # With this setting, some tables lack the scores of the round that they show.
  names = [f'turbosvm-fl/{name}' for name in ('table2', 'table3', 'table10')]
  found = planned(tmp_path, *names, given={'eval_every': 40})
  assert found.keys() == {'turbosvm-fl/table2'}
  for flags, problem in (
    ({'task': 'sopp'}, "unknown task 'sopp'|--task=sopp"),
    ({'algorithm': 'fedxx'}, '--algorithm=fedxx: fedss/'),
    ({'given': {'rounds': 0}}, '--rounds=0'),
  ):
    with pytest.raises(errors.InputError, match=problem):
      planned(tmp_path, 'fedss', **flags)


EARLY = {'early_stopping_patience': 3, 'best_by': 'mcc'}


@pytest.mark.parametrize(
  ('name', 'given', 'problem'),
  [
    ('turbosvm-fl/table3', {'eval_every': 40}, 'round 100 of 201'),
    ('turbosvm-fl/table3', EARLY, 'before round 100,'),
    ('turbosvm-fl/table2', EARLY, None),
    ('turbosvm-fl/table3', {'eval_every': 25}, None),
    # The last round is always evaluated.
    ('turbosvm-fl/table3', {'eval_every': 40, 'rounds': 57}, None),
    ('fedvc/table3', {'eval_every': 1000}, '2500 of 12500'),
    # Rounds that are not reached are not shown.
    ('fedvc/table3', {'eval_every': 1000, 'rounds': 1500}, None),
  ],
)
def test_rounds_whose_scores_a_table_shows_are_evaluated(name, given, problem, tmp_path):
  refused = pytest.raises(errors.InputError, match=problem) if problem else contextlib.nullcontext()
  with refused:
    planned(tmp_path, name, given=given)


def folders(rows, output):
  return {g[0].folder for g in plan.plan_runs(rows, {}, (0,), output)}


def test_settings_are_the_tables_unless_flags_replace_them(tmp_path):
  rows = plan.choose(
    registry.TABLES['fedmlh/table3'], registry.TABLES['fedmlh/table3'].rows, EURLEX, None
  )

  def runs(**given):
    return plan.plan_runs(rows, given, (0, 1), tmp_path)

  hashed, plain = runs(rounds=9, bucket_score='logsigmoid')
  assert [run.seed for run in hashed] == [0, 1]
  for run in (*hashed, *plain):
    assert (run.config['rounds'], run.config['best_by']) == (9, 'pc_mean')
    assert run.config['options']['published_reading']
  assert hashed[0].config['hyperparameters']['bucket_score'] == 'logsigmoid'
  assert 'bucket_score' not in plain[0].config['hyperparameters']
  # If flags change results, runs are in other folders.
  usual = runs()[0][0].folder
  assert usual.parts[-4:-2] == ('runs', EURLEX)
  assert usual.parts[-1] == 'seed0'
  assert runs(client_threads=2, data_dir='/x')[0][0].folder == usual
  assert runs(rounds=9)[0][0].folder != usual


@pytest.mark.parametrize('name', registry.TABLES)
def test_different_settings_have_different_folders(name, tmp_path):
  for task in {row.task for row in registry.TABLES[name].rows}:
    rows = plan.choose(registry.TABLES[name], registry.TABLES[name].rows, task, None)
    different = {(row.algorithm, str(row.changes)) for row in rows}
    assert len(folders(rows, tmp_path)) == len(different)


def test_equal_experiments_of_two_tables_share_their_runs(tmp_path):
  of = {
    number: folders(registry.TABLES[f'turbosvm-fl/table{number}'].form('small').rows, tmp_path)
    for number in (2, 3, 9, 10, 11)
  }
  assert of[2] == of[3]  # A setting with its default value does not change the run.
  assert all(len(of[2] & of[number]) == 2 for number in (9, 10, 11))
  # Figure 7 uses one seed of the runs of table 1.
  study, table1 = (
    planned(tmp_path, f'fedss/{name}', scale='small')[f'fedss/{name}']
    for name in ('fig7', 'table1')
  )
  assert study.by_folder.keys() < table1.by_folder.keys()
  assert [row.algorithm for row in study.rows] == ['fedss', 'negonly']


def test_an_algorithm_keeps_the_rows_to_which_its_results_relate():
  def chosen(name, *flags):
    rows = plan.choose(registry.TABLES[name], registry.TABLES[name].rows, *flags)
    return [row.algorithm for row in rows]

  assert chosen('fedvc/table5', None, 'fedvc').count('centralized') == 2
  assert chosen('fedmlh/table6', EURLEX, 'fedmlh') == ['fedmlh', 'fedavg']
  assert {*chosen('fedvc/table4', None, 'fedir')} == {'fedir'}


def test_rows_start_from_the_run_of_an_encoder_on_other_classes(tmp_path):
  rows = registry.TABLES['fedvc/table5'].form('small').rows
  runs = [g[0] for g in plan.plan_runs(rows, {}, (0,), tmp_path)]
  sources = [plan.encoder_run(row, tmp_path) for row in rows]
  for run, source in zip(runs, sources, strict=True):
    assert run.config['start_from'] == (str(source.folder) if source else '')
    if source:
      seeds = [each.config['options']['data_seed'] for each in (run, source)]
      assert seeds[0] != seeds[1]
  assert [bool(source) for source in sources] == 3 * [True] + 3 * [False]


def test_studies_have_the_settings_of_their_tasks(tmp_path):
  [each] = planned(tmp_path, 'turbosvm-fl/table1', task='femnist').values()
  [config] = each.configs
  assert config['task'] == 'femnist'
  assert config['options']['min_examples'] == 1
  [each] = planned(
    tmp_path,
    'fedmlh/theory',
    task='sparse-words-sets',
    given={'hash_buckets': 7, 'num_classes': 60},
    scale='small',
  ).values()
  assert each.configs[0]['hyperparameters']['hash_buckets'] == 7
  theory = planned(tmp_path, 'fedmlh/theory')['fedmlh/theory']
  tasks_ = [config['task'] for config in theory.configs]
  assert tasks_ == [each.task for each in fedmlh.CONFIGURATIONS]


@pytest.mark.parametrize('name', data.STATISTICS)
def test_sets_are_of_tasks_and_numbers_within_their_bands(name):
  for each in (*data.sets(name, 'small'), *data.sets(name, 'paper')):
    task = tasks.get(each.task)
    assert set(each.options) <= set(task.option_values())
    classes = each.numbers.get(data.CLASSES)
    if classes and task.num_classes:
      assert classes.least == classes.most == task.num_classes
    for number in each.numbers.values():
      value = number.printed.value if number.printed else number.least
      assert number.least <= value <= number.most


def line_of(runs, output, kind):
  text = plan.needs(runs, output)
  [line] = [line for line in text.splitlines() if line.startswith(kind)]
  return line.removeprefix(kind).split(), text


def test_needs_are_the_runs_and_rounds_left_and_earlier_seconds(tmp_path, monkeypatch):
  monkeypatch.setattr(plan, '_KEPT_RESULTS', tmp_path / 'none')
  groups = plan.plan_runs(small_table.ROWS, {}, (0, 1), tmp_path)
  runs = [run for group in groups for run in group]
  words, text = line_of(runs, tmp_path, 'glyphs fedss')
  assert words == ['4', '80', '–', '–']
  assert 'without 6 runs' in text
  assert not list(tmp_path.iterdir())
  small_table.finish(runs[0], 0.5)
  path = runs[0].folder / 'metrics.csv'
  pd.read_csv(path).assign(seconds=2.0).to_csv(path, index=False)
  # For a stopped run, the estimate starts from its newest checkpoint.
  folder = runs[1].folder / 'checkpoints'
  folder.mkdir(parents=True)
  (runs[1].folder / 'config.json').write_text(json.dumps(runs[1].config))
  for name in ('round_8', 'round_12', '.round_13.7.tmp'):
    (folder / f'{name}.npz').touch()
  words, text = line_of(runs, tmp_path, 'glyphs fedss')
  assert text.startswith('6 runs, 5 of them not finished')
  assert words[:3] == ['3', '48', '2']
  assert wording.human_duration(48 * 2) in ' '.join(words)


def test_kept_results_tell_seconds_too(tmp_path):
  [runs] = plan.plan_runs(registry.TABLES['fedaws/table1'].rows[:1], {}, (0,), tmp_path)
  words, text = line_of(runs, tmp_path, 'cifar10 fedaws')
  assert float(words[3]) > 0  # The time of the run of fedaws_baseline1.
  assert 'without' not in text.split('one after another')[1]


def test_data_that_are_missing_or_a_part_are_told(monkeypatch, tmp_path, capsys):
  def told(*missing):
    def look(task, data_dir):
      if task in missing:
        raise errors.InputError('no rows')

    monkeypatch.setattr(runs_lib, 'check_files', look)
    found = plan.with_data([{'task': task, 'data_dir': 'd'} for task in ('glyphs', 'features')])
    return found, capsys.readouterr().out

  found = {'glyphs': True, 'features': False}
  assert told('features') == (found, 'missing: features: no rows\n')
  with pytest.raises(errors.InputError, match='these data are missing'):
    told('features', 'glyphs')
  monkeypatch.setattr(task_lib, 'part', lambda *_: '5 of 9 users')
  found, text = told()
  assert all(found.values()) and 'glyphs in d has 5 of 9 users' in text
