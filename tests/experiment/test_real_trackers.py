"""Real MLflow and Weights & Biases, if they are installed, without a network."""

import math

import pytest
from PIL import Image

from tests.experiment import test_trackers
from tff_xc.experiment import trackers

pytestmark = pytest.mark.slow


def followed(name, folder):
  """Starts a run, stops it after round 1, and resumes it until round 2."""
  folder.mkdir()
  with pytest.raises(KeyboardInterrupt), trackers.Tracked(name, folder) as tracked:
    tracked.start(test_trackers.CONFIG, [])
    for row in test_trackers.ROWS:
      tracked.release(row, row['round'])
    raise KeyboardInterrupt
  picture = folder / 'curves.png'
  Image.new('RGB', (4, 4)).save(picture)
  with trackers.Tracked(name, folder) as tracked:
    tracked.start(test_trackers.CONFIG, test_trackers.ROWS)
    tracked.release({'round': 2, 'loss': 1.0, 'p@1': math.nan}, 2)
    tracked.finish([picture])


def test_mlflow_keeps_settings_rows_and_pictures(tmp_path, monkeypatch, capsys):
  mlflow = pytest.importorskip('mlflow')
  monkeypatch.delenv('MLFLOW_TRACKING_URI', raising=False)
  monkeypatch.delenv('MLFLOW_EXPERIMENT_NAME', raising=False)
  folder = tmp_path / 'run'
  followed('mlflow', folder)
  client = mlflow.MlflowClient((folder / 'mlruns').as_uri())
  experiment = client.get_experiment_by_name('tff_xc')
  [run] = client.search_runs([experiment.experiment_id])
  assert run.info.run_name == 'run'
  assert run.info.status == 'FINISHED'
  assert run.data.params == {name: str(value) for name, value in test_trackers.SETTINGS.items()}

  def history(name):
    return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]

  assert history('p_at_1') == [(0, 0.5)]
  assert history('loss') == [(1, 2.0), (2, 1.0)]
  [artifact] = client.list_artifacts(run.info.run_id)
  assert artifact.path == 'curves.png'
  assert 'warning' not in capsys.readouterr().err


def test_wandb_keeps_runs_offline(tmp_path, monkeypatch, capsys):
  pytest.importorskip('wandb')
  monkeypatch.setenv('WANDB_MODE', 'offline')
  folder = tmp_path / 'run'
  followed('wandb', folder)
  kept = trackers._read(folder / trackers.FILE)
  assert kept['round'] == 2
  # Both parts of the run have the same id.
  assert [*folder.glob(f'wandb/offline-run-*-{kept["run"]}/*.wandb')]
  assert [*folder.glob('wandb/offline-run-*/files/media/images/curves*.png')]
  assert 'warning: --tracker' not in capsys.readouterr().err
