"""The comparison of all methods: its runs can be made, and its tables say who is ahead."""

import importlib.util
import math
import pathlib
import sys
import types

import pandas as pd
import pytest

from tasks import experiment
from tff_xc import errors
from tff_xc.report import run_files

_FILE = pathlib.Path(__file__).parents[2] / 'tools' / 'methods.py'


@pytest.fixture(scope='module')
def study():
  spec = importlib.util.spec_from_file_location('methods', _FILE)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def test_all_methods_of_a_setting_have_its_server_and_batches(study):
  for setting, (task, shared, _) in study._SETTINGS.items():
    steps = shared['steps_per_round'] // shared['clients_per_round']
    for algorithm in study.methods(setting):
      changes = study.changes(setting, algorithm)
      name, rates = study.searched(setting, algorithm)
      for rate in rates:
        config = experiment.resolve(task, algorithm, changes | {name: rate})
      found = config['hyperparameters']
      assert found['batch_size'] == shared['batch_size']
      if size := found.get('virtual_client_size'):
        assert size == shared['batch_size'] * steps
      if 'server_optimizer' in found and algorithm not in study._OF_SERVERS:
        for server in study._MOMENTUM.keys() & shared.keys() - {name}:
          assert found[server] == shared[server], (setting, algorithm)
  usual = study.changes('few', 'fedavg')
  assert 'server_momentum' not in usual and usual['clients_per_round'] == 10


def test_adams_own_rate_is_searched_since_it_hides_that_of_clients(study):
  of = lambda *run: study.searched(*run)[0].partition('_')[0]
  assert of('few', 'fedss') == of('omniglot', 'fedavg') == 'client'
  assert of('few', 'fedadam') == of('omniglot', 'fedss') == 'server'
  assert of('few', 'feddyn') == of('omniglot', 'feddyn') == 'client'


@pytest.mark.parametrize(
  'scores, found, tried',
  [
    ((0, 0, 0.1, 0.3, 0.2, 0, 0), 3, 3),
    ((0, 0, 0.1, 0.2, 0.3, 0.2, 0), 4, 4),
    ((0.6, 0.5, 0.4, 0.3, 0.2, 0, 0), 0, 5),
    ((0, 0, 0, 0.1, 0.2, 0.3, -math.inf), 5, 5),
    ((0, 0, 0.3, 0.3, 0.3, 0.4, 0), 3, 3),
    ((0, 0, 0.3, 0.2, 0.3, 0.4, 0), 2, 4),
    ((0, 0.1, *[-math.inf] * 5), 1, 5),
    ([-math.inf] * 7, None, 5),
  ],
)
def test_a_rate_is_searched_until_those_beside_it_are_worse(
  study, scores, found, tried
):
  seen = []

  def score(rate):
    seen.append(rate)
    return scores[rate]

  assert study.best_rate(range(7), score) == found
  assert len(seen) == len({*seen}) == tried


def test_a_run_diverges_or_ends_the_study(study, monkeypatch, tmp_path):
  """Else, that another process trains a run would count as a bad rate."""
  run = types.SimpleNamespace(
    folder=tmp_path, config=dict.fromkeys(('task', 'data_dir', 'options'))
  )
  monkeypatch.setattr(study.training, 'is_finished', lambda run: False)
  monkeypatch.setattr(study, '_loaded', lambda *data: None)
  monkeypatch.setattr(study.experiment, 'install_runtime', lambda config: None)

  def fails(error):
    def with_data(config, loaded):
      raise error

    monkeypatch.setattr(study.experiment, 'with_data', with_data)
    return study._train(run)

  assert not fails(errors.DivergedError('its loss is not finite'))
  with pytest.raises(errors.InputError, match='another process'):
    fails(errors.InputError('another process is running'))


def test_a_score_at_a_budget_is_between_those_of_the_evaluations_beside(study):
  metrics = pd.DataFrame({'top1': [0.0, math.nan, 0.4, 0.6]})
  spent = pd.Series([0.0, 10.0, 20.0, 30.0])
  at = lambda budget: study.at_budget(metrics, spent, budget, 'top1')
  assert at(10) == 0.2 and at(20) == 0.4 and at(25) == 0.5
  assert at(30) == at(100) == 0.6


def test_the_round_of_a_score_is_between_those_of_the_evaluations_beside(study):
  scores = [0.1, math.nan, 0.5, 0.4, 0.6]
  metrics = pd.DataFrame({'round': range(5), 'top1': scores})
  at = lambda value: round(study.first_round(metrics, 'top1', value), 6)
  assert (at(0.1), at(0.2), at(0.5), at(0.55)) == (0, 0.5, 2, 3.75)
  assert at(0.61) == math.inf


def _run(clients, down, scores):
  """Returns a run of two rounds, each with an evaluation."""
  metrics = pd.DataFrame(
    {
      'round': [0.0, 1.0, 2.0],
      'top1': scores,
      'clients': [math.nan, clients, clients],
      'bytes_down_per_client': [math.nan, down, down],
    }
  )
  return run_files.Run(pathlib.Path(), {}, metrics, {})


def test_each_finished_run_has_a_line_of_its_scores(
  study, monkeypatch, tmp_path
):
  """With them the choice of rates and the tables can be computed anew."""
  scores = [k / 20 for k in range(11)]  # The first is round 0's.
  metrics = pd.DataFrame({'round': range(11), 'top1': scores})
  metrics[['clients', 'bytes_down_per_client']] = 2, 6e6
  summary = {'rounds': 10, 'final': {'client_top1_mean': 0.3}}
  run = run_files.Run(pathlib.Path(), {}, metrics, summary)
  monkeypatch.setattr(study, '_METHODS', ('fedss',))
  monkeypatch.setattr(
    study.training,
    'is_finished',
    lambda run: run.folder.parts[-2:] == ('fedss_0.1', 'seed1'),
  )
  monkeypatch.setattr(study.run_files, 'read_run', lambda folder: run)
  values = types.SimpleNamespace(output=tmp_path, rounds=0)
  [line] = study.runs(values, 'few')
  assert (line['method'], line['value'], line['seed']) == ('fedss', 0.1, 1)
  assert (line['held out %'], line['MB to clients']) == (30, 132)
  assert [line[f'top1 %, {tenth}/10'] for tenth in (1, 2, 10)] == [5, 10, 50]


def test_seconds_are_not_those_of_what_runs_first(study, monkeypatch, tmp_path):
  def read(folder):
    first = 9.0 if folder.name == 'first' else 1.0
    seconds = [math.nan, *[5.0] * 4, first, first, 2 * first]
    metrics = pd.DataFrame({'round': range(8), 'seconds': seconds})
    return run_files.Run(folder, {}, metrics, {})

  monkeypatch.setattr(study, '_METHODS', ('fedavg', 'fedss'))
  monkeypatch.setattr(study.training, 'is_finished', lambda run: True)
  monkeypatch.setattr(study.run_files, 'read_run', read)
  values = types.SimpleNamespace(output=tmp_path, rounds=0, seconds=False)
  assert study.seconds(values, 'few') == {'fedavg': 1, 'fedss': 1}


def test_methods_are_compared_at_what_the_cheapest_spent(study):
  trained = {
    'fedavg': (0.1, [_run(2, 40e6, [0, 0.4, 0.8])] * 3),
    'fedbabu': (0.3, [_run(2, 30e6, [0, 0.2, s]) for s in (0.4, 0.5, 0.6)]),
    'fedss': (0.1, [_run(2, 20e6, [0, 0.2, 0.4])] * 2),
    'moon': (math.nan, []),
    'centralized': (0.1, [_run(1, 0.0, [0, 0.5, 0.9])] * 3),
  }
  took = {'fedavg': 2.0, 'fedbabu': 4.0, 'centralized': 1.0}
  rows = study.compared('few', trained, took)
  table = pd.DataFrame(rows).set_index('method')
  assert table.columns.is_unique and set(table['setting']) == {'few'}
  assert list(table['seeds']) == [3, 3, 2, 0, 3]
  column = lambda name: table[name].round(6).fillna(-1).to_dict()
  assert column('top1 %, rounds') == {
    **{'fedavg': 80, 'fedbabu': 50, 'centralized': 90},
    **{'fedss': -1, 'moon': -1},  # A seed diverged.
  }
  assert column('std, rounds')['fedbabu'] == 10
  # 80 MB are all of fedss, half of fedavg's, and the first round and a third of fedbabu.
  assert set(table['equal bytes']) == {80e6}
  assert column('top1 %, bytes') == {
    **{'fedavg': 40, 'fedbabu': 30, 'centralized': -1},
    **{'fedss': -1, 'moon': -1},
  }
  assert set(table['equal seconds']) == {4.0}
  assert column('top1 %, seconds') == {
    **{'fedavg': 80, 'fedbabu': 20, 'centralized': 90},
    **{'fedss': -1, 'moon': -1},
  }
  assert column('MB to a client')['fedavg'] == 40
  # 81 % is 90 % of what `centralized` has in the end.
  assert column('rounds to 90 %') == {
    **{'fedavg': math.inf, 'fedbabu': math.inf, 'centralized': 1.775},
    **{'fedss': math.inf, 'moon': -1},
  }
  shown = study.speed(table.reset_index()).set_index('method')['few']
  assert shown['fedavg'] == '>2' and shown['centralized'] == '1.8'


def test_the_best_with_clients_is_marked_in_each_setting(study):
  rows = [
    {
      'setting': setting,
      'method': method,
      'seeds': seeds,
      'top1 %, rounds': score,
      'std, rounds': 1,
    }
    for setting, scores in (('few', (50, 60, 60)), ('sizes', (80, 60, 90)))
    for method, score, seeds in zip(
      ('fedss', 'fedavg', 'centralized'), scores, (3, 3, 3), strict=True
    )
  ]
  rows[-1] |= {'method': 'moon', 'seeds': 2, 'top1 %, rounds': math.nan}
  table = study.pivot(pd.DataFrame(rows), 'rounds')
  assert table.to_dict('list') == {
    'method': ['fedavg', 'moon', 'fedss', 'centralized'],
    'few': ['60.0 ± 1.0 *', '', '50.0 ± 1.0', '60.0 ± 1.0'],
    'sizes': ['60.0 ± 1.0', 'diverged', '80.0 ± 1.0 *', ''],
  }


def test_settings_of_before_stay_in_the_tables(study, monkeypatch, tmp_path):
  scores = {'few': 60, 'sizes': 70, 'omniglot': 40}

  def lines(values, setting):
    method = {'setting': setting, 'method': 'fedss', 'seeds': 3}
    score = {'top1 %, rounds': scores[setting], 'std, rounds': 1}
    score['rounds to 90 %'] = 12.0
    rest = {f'equal {unit}': math.nan for unit in ('bytes', 'seconds')}
    return [{**method, **score, 'equal rounds': 60, **rest}]

  monkeypatch.setattr(study, 'lines', lines)
  monkeypatch.setattr(study, 'runs', lambda _, s: [{'setting': s, 'seed': 1}])
  monkeypatch.setattr(study, 'draw', lambda table, path: None)
  for settings in (['omniglot', 'few'], ['sizes'], ['few']):
    scores['few'] += 1
    study._tables(types.SimpleNamespace(output=tmp_path, settings=settings))
  table = pd.read_csv(tmp_path / 'methods_rounds.csv').set_index('method')
  assert [*table] == ['sizes', 'few', 'omniglot']
  assert [*table.loc['fedss']] == [
    '70.0 ± 1.0 *',
    '63.0 ± 1.0 *',
    '40.0 ± 1.0 *',
  ]
  kept = pd.read_csv(tmp_path / 'methods_runs.csv')
  assert [*kept['setting']] == ['sizes', 'few', 'omniglot']
  (tmp_path / 'methods.csv').write_text('setting,method\nold,fedss\n')
  with pytest.raises(errors.InputError, match=r'methods\.csv has .*old'):
    study._tables(types.SimpleNamespace(output=tmp_path, settings=['few']))


def _main(study, monkeypatch, *arguments):
  """Returns the methods whose runs are made, and whether tables are."""
  made, tables = [], []
  monkeypatch.setattr(study, 'train', lambda *method: made.append(method[1:]))
  monkeypatch.setattr(
    study, '_tables', lambda values: tables.append(values.settings)
  )
  monkeypatch.setattr(sys, 'argv', ['methods.py', 'out', *arguments])
  study.main()
  return made, tables


def test_some_methods_are_trained_without_tables(study, monkeypatch, capsys):
  main = lambda *flags: _main(study, monkeypatch, *flags)
  flags = '--settings=few,omniglot', '--methods=turbosvm,fedss'
  expected = [('few', 'fedss'), ('few', 'turbosvm'), ('omniglot', 'fedss')]
  assert main(*flags) == (expected, [])
  assert main('--settings=few') == ([], [['few']])
  for bad, said in (
    (['--methods=fedss,mine'], 'there is no mine'),
    (['--methods=fedss', '--seconds'], 'leave out --methods'),
  ):
    with pytest.raises(SystemExit) as e:
      main(*bad)
    assert e.value.code == 2 and said in capsys.readouterr().err
