"""Reads complete and damaged files of runs."""

import os

import numpy as np
import pytest

from tests.report import fake_runs
from tff_xc import errors
from tff_xc.report import run_files


def test_a_run_is_read_with_nan_for_empty_cells(tmp_path):
  path = fake_runs.write_run(tmp_path / 'a', seed=3, top1=0.4, negatives=80)
  run = run_files.read_run(path)
  assert (run.task, run.algorithm, run.seed) == ('omniglot', 'fedss', 3)
  assert run.hyperparameters == {'client_learning_rate': 0.1, 'negatives': 80}
  assert run.summary['final']['top1'] == 0.4
  lines = (path / 'metrics.csv').read_text().splitlines()
  wanted = [[float(c or 'nan') for c in line.split(',')] for line in lines[1:]]
  np.testing.assert_array_equal(run.metrics[[*fake_runs.COLUMNS]], wanted)
  (path / 'summary.json').unlink()
  (path / 'metrics.csv').write_text(lines[0] + '\n')
  run = run_files.read_run(path)  # The run has not finished.
  assert run.summary is None
  assert run.metrics.empty


def test_what_is_no_run_is_refused_and_a_pipe_is_not_opened(tmp_path):
  def refused(told):
    return pytest.raises(errors.InputError, match=told)

  with refused('no directory'):
    run_files.read_run(tmp_path / 'absent')
  with refused(r'no config\.json'):
    run_files.read_run(tmp_path)
  path = fake_runs.write_run(tmp_path / 'a')
  (path / 'metrics.csv').unlink()
  with refused(r'metrics\.csv is missing'):
    run_files.read_run(path)
  os.mkfifo(path / 'metrics.csv')
  with refused(r'metrics\.csv.*regular'):
    run_files.read_run(path)
  (path / 'config.json').unlink()
  os.mkfifo(path / 'config.json')
  with refused(r'config\.json'):
    run_files.read_run(path)
  with refused('regular'):
    run_files.read_config(path / 'config.json')


IDS = '{"task": "a", "algorithm": "b"'
WHOLE = f'{IDS}, "seed": 0, "rounds": 1'
DONE = '{"rounds": 3, "final": {'


@pytest.mark.parametrize(
  ('file', 'text', 'message'),
  [
    ('config.json', '{"task": ', 'config.json is damaged'),
    ('config.json', '[]', 'JSON object'),
    ('config.json', IDS + '}', '"seed" to be of type int'),
    ('config.json', WHOLE + ', "hyperparameters": 1}', 'of type dict'),
    ('config.json', '[' * 100_000, 'nested'),
    ('summary.json', '{"rounds": 3}', '"final" to be of type dict'),
    ('summary.json', DONE + '"top1": "x"}}', '"top1" is no number'),
    ('summary.json', DONE + '"a": Infinity}}', 'no number'),
    ('summary.json', DONE + '}, "best_round": {"round": []}}', 'no number'),
    ('metrics.csv', '', 'expected a header'),
    ('metrics.csv', 'loss,round\n1,2\n', 'expected a header'),
    ('metrics.csv', 'round,a,a\n', 'expected a header'),
    ('metrics.csv', 'round,a\n1,2\n2\n', 'line 3 has'),
    ('metrics.csv', 'round,a\n1,x\n', "'x'"),
    ('metrics.csv', 'round,a\n2,1\n2,1\n', 'rounds must ascend'),
    ('metrics.csv', 'round,a\n,1\n2,3\n', 'rounds must ascend'),
    ('metrics.csv', b'\x89PNG\xff\x00', 'metrics.csv is damaged'),
  ],
)
def test_a_damaged_file_is_named_with_its_cure(tmp_path, file, text, message):
  path = fake_runs.write_run(tmp_path / 'a')
  (path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
  with pytest.raises(errors.InputError, match=message) as error:
    run_files.read_run(path)
  assert str(path / file) in str(error.value)
  assert 'train again' in str(error.value)
