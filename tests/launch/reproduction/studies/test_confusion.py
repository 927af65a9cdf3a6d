"""FedSS's confusion matrices, from runs of Table 1."""

import types

import numpy as np
import pytest

from launch import trained as trained_lib
from launch.reproduction import experiments
from launch.reproduction import results
from launch.reproduction import rows as rows_lib
from launch.reproduction.studies import confusion
from launch.sweeps import training
from tasks.papers import registry
from tests.launch.reproduction import small_table
from tff_xc import errors

# A client's labels, and what each method predicts.
LABELS = np.array([3, 3, 5, 8])
PREDICTED = {'fedss': [3, 3, 5, 1], 'negonly': [5, 3, 1, 1]}


class Trained:
  """What `trained.restore` returns."""

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

  def train(runs, given, output, jobs):
    asked.extend(runs)
    assert (output.name, jobs) == ('features', 2)
    return {}

  by_folder = lambda path, *_: Trained(path.parent.name.split('_')[0])
  monkeypatch.setattr(training, 'train', train)
  monkeypatch.setattr(trained_lib, 'restore', by_folder)
  return asked


def test_shares_of_the_diagonal_and_two_pictures(trains, tmp_path):
  found = registry.RESULTS['fedss/fig7']
  asked = experiments.Request(scale='small', output=tmp_path, jobs=2)
  experiments.run_all([experiments.plan_one(found, asked)], asked)
  grid, value = results.read(tmp_path, found, 'small').tables()
  assert value.rows == ((confusion.DIFFERENCE, '50', 'at least 20', 'yes'),)
  assert [row[1:] for row in grid.rows] == [('75', '2', '3'), ('25', '2', '3')]
  assert all('client large' in row[0] for row in grid.rows)
  pictures = {path.name for path in (tmp_path / found.name).glob('*.png')}
  assert pictures == {'fedss.png', 'negonly.png'}
  assert [run.config['algorithm'] for run in trains] == ['fedss', 'negonly']
  assert {run.config['hyperparameters']['negatives'] for run in trains} == {1}
  # They are those of Table 1.
  small = registry.TABLES['fedss/table1'].small
  of_table = rows_lib.plan_runs(small.rows, {}, small.seeds, tmp_path)
  folders = {run.folder for group in of_table for run in group}
  assert {run.folder for run in trains} <= folders


def test_a_failed_run_is_named(tmp_path, monkeypatch):
  fails = lambda runs, *_: {runs[0].folder: 'no memory'}
  monkeypatch.setattr(training, 'train', fails)
  _, config = small_table.resolved('fedss/fig7', 'small', output=tmp_path)
  with pytest.raises(errors.InputError, match='seed0 failed: no memory'):
    confusion.measure(config, tmp_path)


def test_settings_are_of_the_papers_size_alone():
  of = lambda *given, **flags: small_table.resolved(
    'fedss/fig7', *given, **flags
  )[1]
  runs, _ = of('paper', 'glyphs-landmarks', rounds=3)
  assert [run.config['task'] for run in runs] == ['glyphs-landmarks'] * 2
  for scale, task, given, problem in (
    ('small', None, {'rounds': 3}, '--rounds: fedss/fig7 --scale=small'),
    ('small', 'glyphs', {}, '--task: fedss/fig7 --scale=small'),
    ('paper', 'sop', {}, '--task=sop: fedss/table1 has'),
    ('paper', None, {'negatives': 3}, '--negatives: fedss/fig7 has'),
  ):
    with pytest.raises(errors.InputError, match=problem):
      of(scale, task, **given)
