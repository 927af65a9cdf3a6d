"""Trackers, with tiny modules instead of MLflow and Weights & Biases."""

import json
import math
import sys

import pytest

from tff_xc import errors
from tff_xc.experiment import trackers

CONFIG = {
  'task': 'glyphs',
  'unset': ['negatives'],
  'options': {'num_classes': 5},
  'hyperparameters': {'negatives': 3},
  'versions': {'tensorflow': '2'},
}
SETTINGS = {'task': 'glyphs', 'num_classes': 5, 'negatives': 3, 'versions.tensorflow': '2'}
ROWS = [{'round': 0, 'p@1': 0.5, 'loss': math.nan}, {'round': 1, 'p@1': math.nan, 'loss': 2.0}]

# The tiny modules append their arguments to the file told.json in the working directory.
TELL = """
import json
def tell(*what):
  with open('told.json', 'a') as file:
    file.write(json.dumps(what) + '\\n')
"""
WANDB = (
  TELL
  + """
class Settings:
  def __init__(self, **more): pass
class Image(str): pass
class Run:
  def __init__(self): self.config = self
  def update(self, settings, allow_val_change): tell('settings', settings)
  def log(self, row, step=None):
    if step == 13: raise OSError('no server')
    tell('row', row, step)
  def finish(self, exit_code): tell('end', exit_code)
def init(id, **more):
  if id == 'bad': raise ValueError('not logged in')
  tell('run', id)
  return Run()
"""
)
MLFLOW = (
  TELL
  + """
class Info: run_id = 'r1'
class Run: info = Info
class MlflowClient:
  def __init__(self, tracking_uri): self.uri = tracking_uri
  def get_experiment_by_name(self, name): return None
  def create_experiment(self, name): return name
  def create_run(self, experiment, run_name):
    tell('run', 'r1')
    return Run
  def update_run(self, run, status): tell('run', run)
  def log_batch(self, run, metrics=(), params=()):
    if params: tell('settings', dict(params))
    if metrics: tell('row', {m[0]: m[1] for m in metrics}, metrics[0][3])
  def log_artifact(self, run, path): tell('row', {'curves': path})
  def set_terminated(self, run, status): tell('end', int(status != 'FINISHED'))
"""
)


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
  folder = tmp_path / 'modules'
  (folder / 'mlflow').mkdir(parents=True)
  (folder / 'mlflow' / '__init__.py').write_text(MLFLOW)
  (folder / 'mlflow' / 'entities.py').write_text('Metric = Param = lambda *parts: parts')
  (folder / 'wandb.py').write_text(WANDB)
  monkeypatch.syspath_prepend(folder)
  monkeypatch.chdir(tmp_path)
  yield
  for name in ('wandb', 'mlflow', 'mlflow.entities'):
    sys.modules.pop(name, None)


def told(tmp_path):
  lines = (tmp_path / 'told.json').read_text().splitlines()
  return [json.loads(line) for line in lines]


@pytest.mark.parametrize('name', ['mlflow', 'wandb'])
def test_it_gets_settings_rows_and_pictures_and_goes_on(tmp_path, name):
  tracked = trackers.Tracked(name, tmp_path)
  with pytest.raises(KeyboardInterrupt), tracked:
    tracked.start(CONFIG, [])
    for row in ROWS:
      tracked.release(row, row['round'])
    raise KeyboardInterrupt
  first = told(tmp_path)
  (what, run), (_, settings), *rows, end = first
  assert what == 'run'
  assert settings == (
    SETTINGS if name == 'wandb' else {n: str(value) for n, value in SETTINGS.items()}
  )
  p = 'p@1' if name == 'wandb' else 'p_at_1'
  assert rows == [['row', {p: 0.5}, 0], ['row', {'loss': 2.0}, 1]]
  assert end == ['end', 1]
  # Resume from a state before round 1. The tracker already has the row of round 1.
  picture = tmp_path / 'curves.png'
  picture.touch()
  with trackers.Tracked(name, tmp_path) as tracked:
    tracked.start(CONFIG, ROWS[:1])
    tracked.release(ROWS[1], 1)
    tracked.release({'loss': 1.0}, 2)
    tracked.finish([picture, tmp_path / 'none.png'])
  more = [line for line in told(tmp_path)[len(first) :] if line[0] != 'settings']
  assert more[0] == ['run', run]
  assert more[1] == ['row', {'loss': 1.0}, 2]
  assert [line[0] for line in more[2:]] == ['row', 'end']
  assert more[2][1] == {'curves': str(picture)}
  assert more[3] == ['end', 0]


def test_a_tracker_that_fails_does_not_end_training(tmp_path, capsys):
  with trackers.Tracked('wandb', tmp_path) as tracked:
    tracked.start(CONFIG, [])
    for number in (12, 13, 14):
      tracked.release({'loss': 1.0}, number)
  assert capsys.readouterr().err.count('no server') == 1
  assert told(tmp_path)[-1] == ['row', {'loss': 1.0}, 12]
  assert json.loads((tmp_path / trackers.FILE).read_text())['round'] == 12


def test_one_that_does_not_start_or_is_not_there_is_one_sentence(tmp_path, monkeypatch):
  (tmp_path / trackers.FILE).write_text('{"tracker": "wandb", "run": "bad", "round": 1}')
  with pytest.raises(errors.InputError, match='not logged in'):
    trackers.Tracked('wandb', tmp_path).start(CONFIG, [])
  monkeypatch.setattr(trackers.importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(errors.InputError, match=r'uv pip install .* mlflow-skinny'):
    trackers.Tracked('mlflow', tmp_path)
