"""The comparison of all methods: its runs can be made, and its tables say who is ahead."""

import importlib.util
import math
import pathlib

import pandas as pd
import pytest

from tasks import experiment

_FILE = pathlib.Path(__file__).parents[2] / 'tools' / 'methods.py'


@pytest.fixture(scope='module')
def study():
  spec = importlib.util.spec_from_file_location('methods', _FILE)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def test_all_runs_resolve_and_methods_have_the_same_server(study):
  for setting, (task, shared, _) in study._SETTINGS.items():
    for algorithm in study.methods(setting):
      changes = study.changes(setting, algorithm)
      for rate in study.rates(setting, algorithm):
        changes |= {'client_learning_rate': rate}
        config = experiment.resolve(task, algorithm, changes)
      optimizer = config['hyperparameters'].get('server_optimizer')
      if optimizer and algorithm not in study._OF_SERVERS:
        assert optimizer == shared['server_optimizer']
  usual = study.changes('few', 'fedavg')
  assert 'server_momentum' not in usual and usual['clients_per_round'] == 10


def test_a_score_at_a_budget_is_that_of_the_last_evaluation_within(study):
  metrics = pd.DataFrame({'top1': [0.0, math.nan, 0.4, 0.6]})
  spent = pd.Series([0.0, 10.0, 20.0, 30.0])
  assert study.at_budget(metrics, spent, 29, 'top1') == 0.4
  assert study.at_budget(metrics, spent, 100, 'top1') == 0.6
  assert study.at_budget(metrics, spent - 40, -50, 'top1') == 0.0


def test_the_best_with_clients_is_marked_in_each_setting(study):
  rows = [
    {
      'setting': setting,
      'method': method,
      'top1 %, rounds': score,
      'std, rounds': 1,
    }
    for setting, scores in (('few', (50, 60, 70)), ('sizes', (80, 60, 90)))
    for method, score in zip(
      ('fedss', 'fedavg', 'centralized'), scores, strict=True
    )
  ]
  table = study.pivot(pd.DataFrame(rows[:-1]), 'rounds')
  assert table.to_dict('list') == {
    'method': ['fedavg', 'fedss', 'centralized'],
    'few': ['60.0 ± 1.0 *', '50.0 ± 1.0', '70.0 ± 1.0'],
    'sizes': ['60.0 ± 1.0', '80.0 ± 1.0 *', ''],
  }
