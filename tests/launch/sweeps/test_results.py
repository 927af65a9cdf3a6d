"""The table of a sweep: best, failures, CSV; and what may not be imported."""

import csv
import json
import pathlib
import subprocess
import sys

import matplotlib.image
import pytest

from launch.sweeps import plan
from launch.sweeps import results
from tests.report import fake_runs
from tff_xc import errors

ROOT = pathlib.Path(__file__).parents[3]


def made(root, points, seeds=(0, 1)):
  """Returns finished runs; `points`: (values, top-1), None for a failed run."""
  runs = []
  for values, top1 in points:
    for seed in seeds:
      folder = root / '_'.join(f'{n}={v}' for n, v in values.items())
      folder /= f'seed{seed}'
      config = {'algorithm': 'fedss', 'seed': seed, 'target': 'top1:0.3'}
      runs.append(plan.Run(values, config, folder))
      if top1 is not None:
        fake_runs.write_run(folder, seed=seed, top1=top1 + seed / 100)
  return runs


@pytest.fixture
def runs(tmp_path):
  points = [
    ({'lr': 0.001, 'm': 4}, 0.30),
    ({'lr': 0.001, 'm': 8}, 0.40),
    ({'lr': 0.1, 'm': 4}, 0.50),
    ({'lr': 0.1, 'm': 8}, None),
  ]
  return made(tmp_path, points)


def test_rows_in_grid_order_the_best_marked_and_failures_told(runs, tmp_path):
  fake_runs.write_run(runs[7].folder, seed=1, top1=0.9)
  failures = {runs[6].folder: 'no update was finite'}
  text = results.write(runs, failures, tmp_path, None)
  lines = text.splitlines()
  labels = [line.split('  ')[0] for line in lines[2:6]]
  assert labels == [
    'fedss lr=0.001 m=4',
    'fedss lr=0.001 m=8',
    'fedss lr=0.1 m=4 *',
    'fedss lr=0.1 m=8',
  ]
  assert '50.5 ± 0.7' in lines[4]
  # A mean over the seeds that did not fail would be the best.
  assert '90' not in lines[5]
  assert lines[5].split()[-1] == '–'
  assert '* the best by top-1' in lines
  failed = 'lr=0.1 m=8 seed 0 failed: no update was finite'
  assert lines[-1] == failed
  markdown = (tmp_path / 'sweep.md').read_text()
  assert '| fedss lr=0.1 m=4 * | 2 |' in markdown
  assert markdown.endswith(f'\n{failed}\n')
  with open(tmp_path / 'sweep.csv', newline='') as f:
    rows = list(csv.DictReader(f))
  assert [(r['lr'], r['m']) for r in rows] == [
    ('0.001', '4'),
    ('0.001', '8'),
    ('0.1', '4'),
    ('0.1', '8'),
  ]
  assert [r['best'] for r in rows] == ['False', 'False', 'True', 'False']
  assert [r['failed_seeds'] for r in rows] == ['', '', '', '0']
  assert [r['seeds'] for r in rows] == ['0 1'] * 3 + ['1']
  assert rows[3]['top1_mean'] == ''
  assert float(rows[2]['top1_mean']) == pytest.approx(0.505)
  assert matplotlib.image.imread(tmp_path / 'sweep.png').std() > 0.01


def _change_config(run, **changes):
  file = run.folder / 'config.json'
  file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_runs_on_different_data_are_refused(runs, tmp_path):
  for run in runs[:6]:
    _change_config(run, data={'examples': 60, 'train_checksum': 'a'})
  results.check_data(runs)  # Those without a directory have no data yet.
  _change_config(runs[3], data={'examples': 60, 'train_checksum': 'b'})
  with pytest.raises(
    errors.InputError,
    match=r'm=4/seed0 and .*m=8/seed1 are .*: train_checksum was a and is b;',
  ):
    results.write(runs[:6], {}, tmp_path, None)
  assert not (tmp_path / 'sweep.md').exists()
  # Options, such as the classes of procedural data, change the data.
  _change_config(runs[3], options={'num_classes': 7})
  results.check_data(runs)


def test_the_best_by_rounds_to_a_target(runs, tmp_path):
  text = results.write(runs[:6], {}, tmp_path, 'top1:0.3')
  assert 'fedss lr=0.1 m=4 *' in text
  assert '* the best by rounds to top-1 30 %' in text
  # Nobody reached this one, so none is the best.
  text = results.write(runs[:6], {}, tmp_path, 'top1:0.9')
  assert '*' not in text
  assert '>20' in text
  assert matplotlib.image.imread(tmp_path / 'sweep.png').std() > 0


@pytest.mark.parametrize('metric', ['mcc', 'mcc:0.5'])
def test_a_metric_that_was_not_measured_marks_nothing(runs, tmp_path, metric):
  text = results.write(runs[:6], {}, tmp_path, metric)
  assert '*' not in text
  note = (
    f'no row is marked: no grid point has a value of {metric}; they'
    ' have top1, map@10, map@r, top1:0.3'
  )
  assert text.splitlines()[-1] == note
  assert note in (tmp_path / 'sweep.md').read_text()
  assert (tmp_path / 'sweep.csv').read_text().count(',False,') == 3
  assert matplotlib.image.imread(tmp_path / 'sweep.png').std() > 0


def test_a_sweep_without_any_success_is_an_error(runs, tmp_path):
  failures = {run.folder: f'reason of seed {run.seed}' for run in runs}
  with pytest.raises(
    errors.InputError, match='first failure: reason of seed 0'
  ):
    results.write(runs, failures, tmp_path, None)
  assert not (tmp_path / 'sweep.md').exists()


def test_texts_and_one_seed_are_drawn(tmp_path, recwarn):
  points = [({'server_optimizer': name}, 0.4) for name in ('sgd', 'adam')]
  runs = made(tmp_path, points, seeds=(0,))
  assert '±' not in results.write(runs, {}, tmp_path, 'map@10')
  assert matplotlib.image.imread(tmp_path / 'sweep.png').std() > 0.01
  assert not recwarn.list


def test_the_table_is_made_without_tensorflow(runs, tmp_path):
  code = f"""
import pathlib, sys
from launch.sweeps import children, plan, results
root = pathlib.Path({str(tmp_path)!r})
config = dict(algorithm='fedss', seed=0, target='')
folder = root / 'lr=0.1_m=4' / 'seed0'
results.write([plan.Run(dict(lr=0.1), config, folder)], {{}}, root, None)
assert 'pandas' in sys.modules
assert not {{'tensorflow', 'tensorflow_federated'}} & set(sys.modules)
"""
  subprocess.run([sys.executable, '-c', code], cwd=ROOT, check=True)
