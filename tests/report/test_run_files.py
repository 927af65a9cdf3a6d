"""Reading a run's files, whole and damaged."""

import os

import numpy as np
import pytest

from tests.report import fake_runs
from tff_xc import errors
from tff_xc.report import run_files


def test_reads_a_finished_run(tmp_path):
  path = fake_runs.write_run(tmp_path / 'a', seed=3, top1=0.4, negatives=80)
  run = run_files.read_run(path)
  assert (run.task, run.algorithm, run.seed) == ('omniglot', 'fedss', 3)
  assert run.hyperparameters == {'client_learning_rate': 0.1, 'negatives': 80}
  assert run.summary['final']['top1'] == 0.4
  assert run.metrics.columns.tolist() == list(fake_runs.COLUMNS)
  assert (run.metrics.dtypes == 'float64').all()
  assert run.metrics['round'].tolist() == list(range(1, 21))
  top1 = run.metrics['top1'].to_numpy()
  assert np.isnan(top1[::2]).all()
  assert np.isfinite(top1[1::2]).all()
  assert np.isnan(run.metrics['map@10'].to_numpy()[::2]).all()
  line = (path / 'metrics.csv').read_text().splitlines()[2].split(',')
  assert [run.metrics.loc[1, c] for c in fake_runs.COLUMNS] == [
    float(cell) for cell in line
  ]


@pytest.mark.parametrize(
  ('hyperparameters', 'added'),
  [
    ({'clients_per_round': 3}, {'client_dropout': 0.0, 'robust': 'none'}),
    ({'clients_per_round': 3, 'robust': 'zeroing'}, {'client_dropout': 0.0}),
    ({'steps_per_round': 3}, {}),  # Centralized.
  ],
)
def test_a_run_of_before_drop_outs_has_none(tmp_path, hyperparameters, added):
  config = {'task': 'a', 'algorithm': 'b', 'seed': 0, 'rounds': 1}
  file = tmp_path / run_files.CONFIG
  run_files.write_json(file, config | {'hyperparameters': hyperparameters})
  found = run_files.read_config(file)
  assert found == config | {'hyperparameters': hyperparameters | added}


def test_a_run_of_images_of_before_samples_has_the_whole_test(tmp_path):
  config = {'task': 'images', 'algorithm': 'b', 'seed': 0, 'rounds': 1}
  file = tmp_path / run_files.CONFIG
  for options, added in (({'crop': 4}, 0), ({'test_examples': 9}, 9)):
    run_files.write_json(file, config | {'options': options})
    found = run_files.read_config(file)
    assert found['options'] == options | {'test_examples': added}


def test_an_unfinished_run_has_no_summary(tmp_path):
  run = run_files.read_run(fake_runs.write_run(tmp_path / 'a', finished=False))
  assert run.summary is None
  header = (run.path / 'metrics.csv').read_text().splitlines()[0]
  (run.path / 'metrics.csv').write_text(header + '\n')
  assert run_files.read_run(run.path).metrics.empty


@pytest.mark.parametrize(
  ('file', 'text', 'message'),
  [
    ('config.json', '{"task": ', r'config.json is damaged.*train again'),
    ('config.json', '[]', 'expected a JSON object'),
    (
      'config.json',
      '{"task": "a", "algorithm": "b"}',
      '"seed" to be of type int',
    ),
    (
      'config.json',
      '{"task": "a", "algorithm": "b", "seed": 0, "rounds": 1,'
      ' "hyperparameters": 1}',
      '"hyperparameters" to be of type dict',
    ),
    ('summary.json', '{"rounds": 3}', '"final" to be of type dict'),
    (
      'summary.json',
      '{"rounds": 3, "final": {"top1": "x"}}',
      '"final": "top1" is no number',
    ),
    (
      'summary.json',
      '{"rounds": 3, "final": {}, "best": [1]}',
      'expected "best" to be of type dict',
    ),
    ('summary.json', '{"rounds": 3, "final": {}, "emd": "x"}', 'no number'),
    (
      'summary.json',
      '{"rounds": 3, "final": {"top1": 1' + 400 * '0' + '}}',
      'no number',
    ),
    ('summary.json', '{"rounds": 3, "final": {"a": Infinity}}', 'no number'),
    (
      'summary.json',
      '{"rounds": 3, "final": {}, "best_round": {"round": []}}',
      'no number',
    ),
    ('summary.json', '[' * 100_000, 'nested'),
    ('config.json', '[' * 100_000, 'nested'),
    (
      'config.json',
      '{"task": "a", "algorithm": "b", "seed": 0, "rounds": 1, "target": 5}',
      '"target" to be of type str',
    ),
    (
      'config.json',
      '{"task": "a", "algorithm": "b", "seed": 0, "rounds": 1,'
      ' "stop_after": "1"}',
      '"stop_after" to be of type int',
    ),
    ('metrics.csv', '', 'expected a header'),
    ('metrics.csv', 'loss,round\n1,2\n', 'expected a header'),
    ('metrics.csv', 'round,a,a\n', 'expected a header'),
    ('metrics.csv', 'round,a\n1,2\n2\n', 'line 3: 1 cells'),
    ('metrics.csv', 'round,a\n1,x\n', "line 2: could not convert.*'x'"),
    ('metrics.csv', 'round,a\n2,1\n2,1\n', 'line 3: rounds must ascend'),
    ('metrics.csv', 'round,a\n,1\n', 'line 2: rounds must ascend'),
  ],
)
def test_a_damaged_file_is_named_with_its_cure(tmp_path, file, text, message):
  path = fake_runs.write_run(tmp_path / 'a')
  (path / file).write_text(text)
  with pytest.raises(errors.InputError, match=message) as error:
    run_files.read_run(path)
  assert str(path / file) in str(error.value)
  assert 'train again' in str(error.value)


def test_a_binary_metrics_file_is_an_input_error(tmp_path):
  path = fake_runs.write_run(tmp_path / 'a')
  (path / 'metrics.csv').write_bytes(b'\x89PNG\xff\x00')
  with pytest.raises(errors.InputError, match=r'metrics.csv is damaged'):
    run_files.read_run(path)


@pytest.mark.parametrize('name', ['config.json', 'metrics.csv'])
def test_a_pipe_is_not_opened(tmp_path, name):
  path = fake_runs.write_run(tmp_path / 'a')
  (path / name).unlink()
  os.mkfifo(path / name)
  with pytest.raises(errors.InputError, match=name):
    run_files.read_run(path)
  with pytest.raises(errors.InputError, match='regular'):
    run_files.read_config(path / name)


def test_what_is_no_run_is_refused(tmp_path):
  with pytest.raises(errors.InputError, match='no directory'):
    run_files.read_run(tmp_path / 'absent')
  with pytest.raises(errors.InputError, match=r'no config\.json'):
    run_files.read_run(tmp_path)
  path = fake_runs.write_run(tmp_path / 'a')
  (path / 'metrics.csv').unlink()
  with pytest.raises(errors.InputError, match=r'metrics\.csv is missing'):
    run_files.read_run(path)
