"""Rounds on Ray's workers have the digits of one process, whatever is killed."""

import os
import subprocess
import sys

import pytest

from tests import processes
from tests.launch import light
from tests.launch import own_examples
from tests.launch import test_killed_training as killed
from tests.runtime.cluster import folders
from tff_xc.report import run_files
from tff_xc.runtime.cluster import state

pytest.importorskip('ray', reason='Ray is not installed: make venv-cluster')
pytestmark = pytest.mark.slow

# Columns of metrics.csv that only a cluster has.
OWN = ['workers', 'workers_lost', 'worker_bytes_down', 'worker_bytes_up']


def environment(folder):
  """Returns the environment of commands that use this folder's cluster."""
  return {**os.environ, state.VARIABLE: str(folder)}


def run(folder, *arguments, status=0):
  """Runs a module with this folder's cluster; returns what it said."""
  found = processes.python(
    '-m', *arguments, cwd=light.ROOT, env=environment(folder), timeout=600
  )
  assert found.returncode == status, found.stderr
  return found


@pytest.fixture(name='cluster')
def _cluster(tmp_path):
  """A folder of `launch.workers`, whose cluster ends with the test."""
  folder = tmp_path / 'cluster'
  yield folder
  run(folder, 'launch.workers', 'stop')


def _train(folder, run_dir, *more, status=0):
  found = run(
    folder,
    *('launch.train', '--task=glyphs', '--algorithm=fedss'),
    *('--clients_per_round=40', '--rounds=2', '--eval_every=1'),
    # Rates come to workers with each round's seed.
    *('--client_schedule=step', '--client_schedule_rounds=1'),
    *('--server_schedule=cosine', '--server_schedule_rounds=3', *more),
    f'--run_dir={run_dir}',
    status=status,
  )
  return found if status else run_files.read_run(run_dir).metrics


def test_a_run_on_workers_has_the_numbers_of_one_process(cluster, tmp_path):
  expected = _train(cluster, tmp_path / 'one')
  run(cluster, 'launch.workers', 'start', '--workers=2', '--threads=1')
  found = _train(cluster, tmp_path / 'two', '--runtime=cluster')
  assert (found['workers'].iloc[1:] >= 1).all()
  sent = found['worker_bytes_down'].iloc[1]
  same = found.drop(columns=OWN).assign(seconds=expected['seconds'])
  assert same.equals(expected)
  run(cluster, 'launch.workers', 'stop')
  # An evaluation needs no workers.
  run(cluster, 'launch.evaluate', f'--run_dir={tmp_path / "two"}')
  # The same with workers that make the procedural data themselves.
  run(
    cluster,
    *('launch.workers', 'start', '--workers=2', '--threads=1'),
    f'--data_dir={tmp_path}',
  )
  own = _train(cluster, tmp_path / 'own', '--runtime=cluster')
  assert own['top1'].equals(expected['top1'])
  assert own['worker_bytes_down'].iloc[1] < 0.7 * sent


@pytest.mark.parametrize('which', ['gcs_server', 'raylet'])
def test_a_run_whose_ray_hangs_saves_and_ends(cluster, tmp_path, which):
  run(cluster, 'launch.workers', 'start', '--workers=1', '--threads=2')
  command = [
    *(sys.executable, '-m', 'launch.train', '--task=glyphs'),
    *('--algorithm=fedss', '--rounds=100000', '--eval_every=50000'),
    *('--runtime=cluster', f'--run_dir={tmp_path / "run"}'),
  ]
  driver = subprocess.Popen(
    command,
    cwd=light.ROOT,
    env=environment(cluster),
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  )
  metrics = tmp_path / 'run/metrics.csv'
  rounds = lambda: metrics.exists() and len(metrics.read_text().splitlines())
  assert folders.wait(lambda: rounds() > 3, 120)
  [node] = state.read_nodes(cluster)
  [silent] = [p for p in state.marked([node.mark]) if p.name() == which]
  silent.suspend()
  try:
    _, error = driver.communicate(timeout=150)
  finally:
    silent.resume()
  assert driver.returncode == 2
  assert 'does not answer' in error and 'Traceback' not in error
  # A heading, and round 0.
  saved = tmp_path / f'run/checkpoints/round_{rounds() - 2}.npz'
  assert saved.exists()


def test_other_data_on_a_worker_are_refused(cluster, tmp_path):
  here, there = (
    own_examples.npz(tmp_path, f'{seed}.npz', seed) for seed in (0, 1)
  )
  run(cluster, 'launch.workers', 'start', '--threads=1', f'--data_dir={there}')
  found = run(
    cluster,
    *('launch.train', '--task=images', '--algorithm=fedavg'),
    *('--runtime=cluster', f'--data_dir={here}', '--rounds=1'),
    *('--clients_per_round=2', f'--run_dir={tmp_path / "run"}'),
    status=2,
  )
  assert 'than those of the run' in found.stderr
  assert 'Traceback' not in found.stderr


def test_faults_change_no_digit_and_leave_no_process(tmp_path):
  found = run(
    tmp_path / 'unused',
    *('tests.runtime.cluster.faults', str(tmp_path / 'f'), '60', '4'),
  )
  assert (
    'to the last digit: True; processes left: 0 of the faults, 0 at'
    in found.stdout
  )
  assert 'worker killed' in found.stdout or 'worker hangs' in found.stdout


def test_a_driver_killed_at_random_ends_like_one_process(cluster, tmp_path):
  run(cluster, 'launch.workers', 'start', '--workers=2', '--threads=1')
  # More than 32 clients, so that workers send sums of blocks.
  more = ('--num_classes=100', '--clients_per_round=40', '--runtime=cluster')
  flags = (*killed.FLAGS, *more)
  killed.kill(tmp_path, 20, flags, OWN, environment(cluster))
