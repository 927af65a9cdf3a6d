"""A run and its evaluation accept only the run's data, in any directory."""

import json

import numpy as np
import pytest

from datasets import arrays
from launch import evaluation
from launch import train
from tasks import experiment
from tff_xc import errors
from tff_xc.data import fingerprint
from tff_xc.round import process


def write(path, classes=8, seed=0):
  random, numbers = np.random.default_rng(seed), np.arange(40)
  images = lambda count: random.integers(0, 256, (count, 16, 16), np.uint8)
  x, test_x = images(40), images(8)
  test = {'test_x': test_x, 'test_y': np.arange(8)}
  np.savez(path, x=x, y=numbers % classes, client=numbers // 10, **test)
  return str(path)


def configuration(data_dir, rounds):
  changes = {'rounds': rounds, 'eval_every': 1, 'clients_per_round': 2}
  changes |= {'device': 'cpu', 'data_dir': data_dir}
  return experiment.resolve('images', 'posonly', changes)


def contents(path):
  return {
    str(p.relative_to(path)): p.is_file() and p.read_bytes()
    for p in path.rglob('*')
  }


@pytest.fixture
def built_once(monkeypatch):
  """Builds one process for each number of classes; all else is equal here."""
  built, build = {}, process.build_process

  def once(algorithm, seed):
    key = algorithm.model.num_classes
    if key not in built:
      built[key] = build(algorithm, seed)
    return built[key]

  monkeypatch.setattr(process, 'build_process', once)


@pytest.mark.slow
def test_other_data_are_refused_and_nothing_changes(
  in_process, built_once, tmp_path
):
  run_dir, moved = tmp_path / 'run', tmp_path / 'moved'
  first = write(tmp_path / 'a.npz')
  train.run(configuration(first, rounds=1), str(run_dir))
  moved.mkdir()
  again = write(moved / 'b.npz')
  train.run(configuration(again, rounds=1), str(run_dir))
  config = json.loads((run_dir / 'config.json').read_text())
  assert config['data_dir'] == again

  before = contents(run_dir)
  for name, changes, told in (
    ('pixels', {'seed': 1}, 'train_checksum was '),
    ('classes', {'classes': 10}, 'classes was 8 and is 10, '),
  ):
    other = write(tmp_path / f'{name}.npz', **changes)
    with pytest.raises(errors.InputError, match=f'other data: {told}'):
      train.run(configuration(other, rounds=2), str(run_dir))
    with pytest.raises(errors.InputError, match=f'other data: {told}'):
      evaluation.run(str(run_dir), named={'data_dir': other})
    assert contents(run_dir) == before

  # A second check protects checkpoints that were copied from another run.
  others = fingerprint.fingerprint(arrays.load(other))
  (run_dir / 'config.json').write_text(json.dumps({**config, 'data': others}))
  message = r'of another model: weights/tables/class is float32 \[8, 64\]'
  before = contents(run_dir)
  with pytest.raises(errors.InputError, match=message):
    evaluation.run(str(run_dir), named={'data_dir': other})
  with pytest.raises(errors.InputError, match=message):
    train.run(configuration(other, rounds=2), str(run_dir))
  assert contents(run_dir) == before

  (run_dir / 'config.json').write_text(json.dumps(config))
  before = contents(run_dir)

  # An evaluation writes only its own files; it keeps a damaged checkpoint.
  mine = {'data_dir': config['data_dir']}
  assert evaluation.run(str(run_dir), named=mine)['rounds'] == 1
  after = contents(run_dir)
  outputs = {'evaluation.json', 'confusion.csv', 'confusion.png'}
  assert {n: v for n, v in after.items() if n not in outputs} == before
  assert outputs <= set(after)
  (run_dir / 'checkpoints' / 'round_1.npz').write_bytes(b'')
  before = contents(run_dir)
  with pytest.raises(errors.InputError, match='has no sound checkpoint'):
    evaluation.run(str(run_dir), named=mine)
  assert contents(run_dir) == before
