"""FedSS's confusion matrices, from runs of Table 1."""

import types

import numpy as np
import pytest

from launch import evaluation
from launch.reproduction import experiments
from launch.reproduction import results
from launch.reproduction import rows as rows_lib
from launch.reproduction.studies import confusion
from launch.sweeps import training
from tasks.papers import registry
from tff_xc import errors

# A client's labels, and what each method predicts.
LABELS = np.array([3, 3, 5, 8])
PREDICTED = {'fedss': [3, 3, 5, 1], 'negonly': [5, 3, 1, 1]}


class Trained:
  """What `evaluation.load` returns."""

  def __init__(self, algorithm):
    self.predicted = np.array(PREDICTED[algorithm])
    clients = {'small': np.arange(2), 'large': np.arange(4)}
    self.dataset = types.SimpleNamespace(
      train=types.SimpleNamespace(
        client_ids=list(clients), numbers=clients.__getitem__
      )
    )

  def predictions(self, client):
    assert client == 'large'
    return 'training', self.predicted, LABELS


@pytest.fixture
def trains(monkeypatch):
  """Makes runs finish at once; () -> the runs that were asked for."""
  asked = []

  def train(runs, given, output, jobs, write):
    del given, jobs
    asked.extend(runs)
    assert output.name == 'glyphs'
    return write({})

  by_folder = lambda path, *_: Trained(path.parent.name.split('_')[0])
  monkeypatch.setattr(training, 'train', train)
  monkeypatch.setattr(evaluation, 'load', by_folder)
  return asked


def test_shares_of_the_diagonal_and_two_pictures(trains, tmp_path):
  config = confusion.resolve('fedss/fig7', 'small', None, {})
  folder = tmp_path / 'fedss' / 'fig7'
  folder.mkdir(parents=True)
  lines = results.frame(confusion.measure(config, folder, tmp_path))
  found = registry.RESULTS['fedss/fig7']
  grid, value = results.Measured(found, 'small', lines).tables()
  assert value.rows == ((confusion.DIFFERENCE, '50', 'at least 20', 'yes'),)
  assert [row[1:] for row in grid.rows] == [
    ('75', '2', '3'),
    ('25', '2', '3'),
  ]
  assert all('client large' in row[0] for row in grid.rows)
  pictures = {path.name for path in folder.iterdir()}
  assert pictures == {'fedss.png', 'negonly.png'}
  assert [run.config['algorithm'] for run in trains] == ['fedss', 'negonly']
  assert {run.config['hyperparameters']['negatives'] for run in trains} == {5}


def test_the_runs_are_those_of_table_1(trains, tmp_path):
  small = registry.TABLES['fedss/table1'].small
  of_table = rows_lib.plan_runs(small.rows, {}, small.seeds, tmp_path)
  config = confusion.resolve('fedss/fig7', 'small', None, {})
  confusion.measure(config, tmp_path, tmp_path)
  folders = {run.folder for group in of_table for run in group}
  assert len(trains) == 2
  assert {run.folder for run in trains} <= folders


def test_its_runs_are_trained_side_by_side(trains, tmp_path, monkeypatch):
  seen = []
  by_two = lambda *given: seen.append(given[3]) or given[4]({})
  monkeypatch.setattr(training, 'train', by_two)
  found = registry.RESULTS['fedss/fig7']
  asked = experiments.Request(
    names=(found.name,), scale='small', output=tmp_path, jobs=2
  )
  experiments.run_all([experiments.plan_one(found, asked)], asked)
  assert seen == [2]


def test_a_failed_run_is_named(trains, tmp_path, monkeypatch):
  fails = lambda runs, *_: _[-1]({runs[0].folder: 'no memory'})
  monkeypatch.setattr(training, 'train', fails)
  config = confusion.resolve('fedss/fig7', 'small', None, {})
  with pytest.raises(errors.InputError, match='seed0 failed: no memory'):
    confusion.measure(config, tmp_path, tmp_path)


def test_settings_are_of_the_papers_size_alone():
  of = lambda *given: confusion.resolve('fedss/fig7', *given)
  with pytest.raises(errors.InputError, match='--rounds: fedss/fig7 --scale=s'):
    of('small', None, {'rounds': 3})
  with pytest.raises(errors.InputError, match='--task: fedss/fig7 --scale=s'):
    of('small', 'glyphs', {})
  with pytest.raises(errors.InputError, match='--task=sop: fedss/table1 has'):
    of('paper', 'sop', {})
  with pytest.raises(errors.InputError, match='--negatives: fedss/fig7 has'):
    of('paper', None, {'negatives': 3})
  found = of('paper', 'glyphs-landmarks', {'rounds': 3})
  assert [row.task for row in found.rows] == ['glyphs-landmarks'] * 2
