"""Runs with differential privacy: participation, epsilon, and refused settings."""

import dataclasses
import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest

from launch import export, trained
from tasks import configuration, experiment
from tests import small_data, tiny
from tff_xc import errors
from tff_xc.experiment import checkpoints
from tff_xc.measure import privacy_loss
from tff_xc.report import run_files
from tff_xc.round import cohort, randomness

CLIENTS = 40
SMALL = {
  'num_classes': 30,
  'num_clients': 20,
  'clients_per_round': 5,
  'examples_per_client': 10,
  'classes_per_client': 3,
}


@pytest.fixture(scope='module')
def data():
  return small_data.images(CLIENTS)[0]


def test_each_client_comes_by_itself(data):
  sampling = cohort.UniformClients(10, poisson=True)
  draw, again = (sampling.cohorts(data, 3) for _ in range(2))
  rounds = [draw(r).numbers for r in range(400)]
  assert rounds[7] == again(7).numbers
  counts = np.bincount(np.concatenate(rounds), minlength=CLIENTS)
  # Each client participates in 400 rounds with probability 1 / 4. Allow five standard errors.
  assert np.abs(counts - 100).max() < 5 * math.sqrt(400 * 3 / 16)
  sizes = np.array([len(r) for r in rounds])
  assert np.var(sizes) == pytest.approx(CLIENTS * 3 / 16, rel=0.3)
  found = sampling.participation(data)
  assert found == ('poisson', 0.25)
  assert cohort.UniformClients(10).participation(data)[0] == 'fixed'
  assert cohort.Dropout(sampling, 0.5).participation(data) == found


def test_virtual_clients_come_in_proportion_to_their_examples(data):
  sampling = cohort.VirtualClients(10, 4, poisson=True)
  draw = sampling.cohorts(data, 3)
  sizes = data.train.partition.sizes
  rounds = [draw(r).numbers for r in range(400)]
  counts = np.bincount(np.concatenate(rounds), minlength=CLIENTS)
  p = np.minimum(1.0, 10 * sizes / sizes.sum())
  assert np.abs(counts - 400 * p).max() < 5 * math.sqrt(100)
  assert sampling.participation(data)[1] == pytest.approx(p.max())
  with pytest.raises(errors.InputError, match='client_sampling=poisson'):
    cohort.VirtualClients(10, 4).participation(data)


def test_the_noise_for_too_few_clients_is_refused():
  given = {**SMALL, 'negatives': 4, 'dp': 'central', 'dp_epsilon': 8.0, 'clients_per_round': 500}
  with pytest.raises(errors.InputError, match='--clients_per_round=20'):
    experiment.assemble(configuration.resolve('glyphs', 'fedss', given))


def test_a_round_to_which_nobody_comes(data):
  draw = cohort.UniformClients(1, poisson=True).cohorts(data, 0)
  empty = [draw(r) for r in range(30) if not draw(r).client_ids]
  assert empty
  [nobody] = empty[0].examples
  assert not len(nobody.labels)


def run(path, rounds=4, **changes):
  config = configuration.resolve(
    'glyphs', 'fedss', {**SMALL, **{'negatives': 4, 'rounds': rounds, 'eval_every': 2, **changes}}
  )
  made = experiment.assemble(config)
  return made, made.run(path)


@pytest.mark.slow
def test_epsilon_is_a_column_and_goes_on_after_a_stop(in_process, tmp_path):
  given = {
    **SMALL,
    'negatives': 4,
    'dp': 'central',
    'dp_noise_multiplier': 0.8,
    'dp_clip': 0.5,
    'client_sampling': 'poisson',
    'dp_noise_seed': 'public',
  }
  small_data.trained_and_resumed(tmp_path, 'fedss', **given)
  found, resumed = (
    pd.read_csv(tmp_path / name / 'metrics.csv') for name in ('straight', 'resumed')
  )
  assert found['epsilon'][0] == 0
  accountant = privacy_loss.Accountant(0.8, privacy_loss.Sampling('poisson', 0.25), 1e-5)
  for rounds in (2, 4):
    assert found['epsilon'][rounds] == accountant.epsilon(rounds)
  assert np.isnan(found['epsilon'][1])
  same = [c for c in found if c != 'seconds']
  pd.testing.assert_frame_equal(found[same], resumed[same])
  assert (found['clipping_norm'].dropna() == 0.5).all()


@pytest.mark.slow
def test_the_noise_of_an_epsilon(in_process, tmp_path):
  given = {'dp': 'central', 'dp_epsilon': 8.0}
  made, summary = run(tmp_path / 'run', **given)
  of_clients = {'dp': 'local', 'dp_epsilon': 50.0}
  with pytest.raises(ValueError, match='run_dir'):
    run(tmp_path / 'other', **of_clients)
  assert made.algorithm.part('dp').dp_noise_multiplier == made.config['dp_noise']
  last = pd.read_csv(tmp_path / 'run' / 'metrics.csv')['epsilon'].iloc[-1]
  assert 7.5 < last <= 8.0
  assert summary['epsilon'] == last
  # Later commands use the noise multiplier of the run.
  config = run_files.read_config(tmp_path / 'run' / 'config.json')
  again = experiment.assemble(configuration.recorded(config))
  assert again.algorithm.part('dp') == made.algorithm.part('dp')
  run(tmp_path / 'run', **given)
  with pytest.raises(errors.InputError, match='more noise'):
    run(tmp_path / 'run', 6, **given)


@pytest.mark.slow
def test_local_noise_counts_who_took_part_most(in_process, tmp_path):
  made, _ = run(tmp_path / 'run', dp='local', dp_noise_multiplier=2.0, dp_noise_seed='public')
  assert made.algorithm.part('dp').local
  cohorts = made.algorithm.sampling.cohorts(made.dataset, 0)
  numbers = [n for r in range(4) for n in cohorts(r).numbers]
  most = np.bincount(numbers).max()
  assert most < 4
  sampling = privacy_loss.Sampling('fixed', 1.0)
  expected = privacy_loss.Accountant(2.0, sampling, 1e-5).epsilon(int(most))
  last = pd.read_csv(tmp_path / 'run' / 'metrics.csv')['epsilon'].iloc[-1]
  assert last == expected


@pytest.mark.slow
def test_noise_follows_from_a_secret_of_the_run(in_process, tmp_path):
  """A resumed run uses the same secret. Other runs and the run's public files do not have it."""
  private = {
    'dp': 'central',
    'dp_noise_multiplier': 0.8,
    'dp_clip': 0.5,
    'checkpoint_every': 1,
  }
  whole, half, other = (tmp_path / name for name in ('whole', 'half', 'other'))
  run(whole, 2, **private)
  shutil.copytree(whole, half)
  run(whole, 4, **private)
  run(half, 3, **private)
  run(half, 4, **private)
  run(other, 4, **private)
  model = 'weights/tables/class'
  rows = [np.load(path / 'checkpoints' / 'round_4.npz')[model] for path in (whole, half, other)]
  np.testing.assert_array_equal(rows[0], rows[1])
  assert (rows[0] != rows[2]).all()
  secret = whole / 'checkpoints' / 'secret_seed'
  assert secret.stat().st_mode & 0o777 == 0o600
  export.run(str(whole), str(tmp_path / 'export'), 'npz')
  numbers = [int(secret.read_text())]
  numbers += randomness.pair(numbers[0])
  for file in [*whole.rglob('*'), *(tmp_path / 'export').rglob('*')]:
    if file.is_file() and file.parent.name != 'checkpoints':
      content = file.read_bytes()
      for number in numbers:
        assert str(number).encode() not in content
        assert number.to_bytes(8, 'little') not in content
  assert 'seed' not in json.loads((tmp_path / 'export/model.json').read_text())
  secret.write_text('12345')
  with pytest.raises(errors.InputError, match='another seed'):
    run(whole, 6, **private)
  secret.unlink()
  with pytest.raises(errors.InputError, match='secret_seed'):
    run(whole, 6, **private)


def test_a_secret_is_kept_with_its_checkpoints_and_only_where_there_is_noise(tmp_path):
  hidden = tiny.hidden(1.0, 1.0, 2.0, secret=True)

  def draw(how, run=0):
    return checkpoints.seed_of(how, tmp_path / str(run), 7)

  found = {draw(hidden, run) for run in range(20)}
  assert len(found) == 20 and max(found) > 2**56
  assert draw(hidden) == draw(hidden)
  for how in (
    None,
    dataclasses.replace(hidden, dp_noise_multiplier=0.0),
    dataclasses.replace(hidden, dp_noise_seed='public'),
  ):
    assert draw(how) == 7
  checkpoints.prepare(tmp_path)
  checkpoints.keep_secret(tmp_path, 5)
  checkpoints.keep_secret(tmp_path, 5)
  with pytest.raises(errors.InputError, match='another process'):
    checkpoints.keep_secret(tmp_path, 6)
  assert checkpoints.seed_of(hidden, tmp_path, 0) == 5
  assert (tmp_path / 'checkpoints').stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
  'changes',
  [{'dp': 'central', 'calibration': 'prior'}, {'dp': 'local', 'importance_weights': 'train'}],
)
def test_exact_class_shares_are_refused(changes, tmp_path):
  config = configuration.resolve('glyphs', 'fedavg', changes)
  with pytest.raises(errors.InputError, match='FILE'):
    experiment.run(config, tmp_path)
  configuration.check_private(
    configuration.resolve('glyphs', 'fedavg', {**changes, 'dp_noise_multiplier': 0.0})
  )


@pytest.mark.slow
def test_a_private_run_with_probabilities_of_a_file_is_evaluated(in_process, tmp_path):
  file = tmp_path / 'p.csv'
  lines = [f'{i},{1 / 30}' for i in range(30)]
  file.write_text('\n'.join(['class,probability', *lines]))
  given = {
    'dp': 'central',
    'calibration': 'prior',
    'calibration_tau': 0.5,
    'calibration_probabilities': str(file),
  }
  config = configuration.resolve(
    'glyphs', 'fedavg', {**SMALL, 'rounds': 2, 'eval_every': 1, **given}
  )
  experiment.run(config, tmp_path / 'run')
  assert trained.restore(str(tmp_path / 'run')).rounds == 2
  file.write_text('\n'.join(['class,probability', '0,0.9', *lines[1:]]))
  with pytest.raises(errors.InputError, match='calibration_probabilities'):
    experiment.run({**config, 'rounds': 3}, tmp_path / 'run')


def test_without_noise_there_need_be_no_norm():
  """Without noise, the clipping norm may be infinite. config.json can store infinity."""
  given = {'dp': 'central', 'dp_noise_multiplier': 0.0, 'dp_clip': math.inf}
  for more in ({}, {'dp_rows': 'chosen'}):
    config = configuration.resolve('glyphs', 'fedss', {**given, **more})
    written = json.loads(json.dumps(config, allow_nan=False))
    again = configuration.recorded(written)
    found = again['hyperparameters']
    assert found == config['hyperparameters']
    assert np.float32(found['dp_clip']) == np.finfo(np.float32).max
