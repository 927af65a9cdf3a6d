"""`launch.sweep`: wrong input, repeated runs, its table, and an interrupted sweep."""

import dataclasses
import json
import pathlib
import subprocess
import sys
import time
import types

import matplotlib.image
import psutil
import pytest

from launch import runs as runs_lib, settings, sweep as sweep_lib
from tests.launch import light, test_compare, test_train
from tests.report import fake_runs
from tff_xc import errors, lock


def points(*grids):
  return sweep_lib.points(grids, settings.parameters())


def planned_runs(*grids, given=None, seeds=(0,)):
  return sweep_lib.plan('glyphs', 'fedss', given or {}, points(*grids), seeds, pathlib.Path('out'))


def test_a_grid_is_a_product_in_the_order_given():
  found = points('client_learning_rate:1e-3,0.1', 'negatives:2, 5')
  assert [tuple(point.values()) for point in found] == [(0.001, 2), (0.001, 5), (0.1, 2), (0.1, 5)]
  assert points('row_renormalize:true,FALSE') == [
    {'row_renormalize': True},
    {'row_renormalize': False},
  ]
  assert points('server_optimizer:sgd,adam')[1] == {'server_optimizer': 'adam'}


def test_runs_are_resolved_with_their_settings_and_directories():
  found = planned_runs(
    'client_learning_rate:1e-3,1', 'server_optimizer:adam', given={'rounds': 7}, seeds=(3, 1)
  )
  points = ['client_learning_rate=0.001', 'client_learning_rate=1']
  assert [str(run.folder) for run in found] == [
    f'out/{point}_server_optimizer=adam/seed{seed}' for point in points for seed in (3, 1)
  ]
  assert [run.seed for run in found] == [3, 1, 3, 1]
  assert found[0].point == 'client_learning_rate=0.001 server_optimizer=adam'
  assert found[0].config['rounds'] == 7
  assert found[3].config['hyperparameters']['client_learning_rate'] == 1


def test_a_name_that_no_file_system_takes_is_cut(tmp_path):
  values = {f'client_learning_rate_{i}': 0.1 for i in range(20)}
  found = runs_lib.folder_of(tmp_path, values, 'fedss')
  found.mkdir()
  assert found.name.startswith('fedss_client_learning_rate_0=0.1_')
  other = runs_lib.folder_of(tmp_path, {**values, 'client_learning_rate_19': 0.2})
  assert found != other and len(other.name) == len(found.name) <= 200


def test_values_that_differ_in_special_characters_have_two_folders(tmp_path):
  values = 'a/b', 'a:b', 'a-b', 'a-b.csv', 'a_b.csv'
  names = [runs_lib.folder_of(tmp_path, {'split': of}).name for of in values]
  assert len({*names}) == len(values) and names[2] == 'split=a-b'


@pytest.mark.parametrize(
  ('grids', 'message'),
  [
    (('negatives',), 'expected NAME:VALUE,VALUE'),
    (('negatives:',), 'expected NAME:VALUE,VALUE'),
    (('negatives:1,',), 'a whole number'),
    (('client_learning_rate:x',), '--client_learning_rate=.x.: expected a num'),
    (('client_learning_rate:1e-1,0.1',), 'it has 0.1 twice'),
    (('negatives:1', 'negatives:2'), 'negatives has a grid already'),
    (('seed:1,2',), 'seeds are given by --seeds'),
    (('nonsense:1',), 'nonsense is no setting that changes results'),
    (('lr:1',), r'did you mean client_learning_rate\?'),
    (('client_threads:1,2',), 'client_threads is no setting that changes'),
    (('algorithm:fedss,moon',), 'a sweep has one'),
    (('task:glyphs',), 'a sweep has one'),
    (('batch_size:4,0',), '--grid=batch_size:4,0: --batch_size=0: expected at'),
    (('spreadout_weight:1',), 'not a hyper-parameter of fedss'),
    (('negatives:1,200',), 'fewer than the 200 classes'),
    (('rounds:5,6',), '--rounds is given, and has a --grid as well'),
  ],
)
def test_a_bad_grid_is_refused(grids, message):
  with pytest.raises(errors.InputError, match=message):
    planned_runs(*grids, given={'rounds': 7})


def test_bad_seeds_are_refused():
  assert runs_lib.seeds('0,1, 5') == [0, 1, 5]
  for text in ('', 'a', '0,,1', '1,1', '0.5'):
    with pytest.raises(errors.InputError, match='different whole numbers'):
      runs_lib.seeds(text)
  with pytest.raises(errors.InputError, match='--seed=-1'):
    planned_runs('negatives:1', seeds=runs_lib.seeds('-1'))


def test_missing_data_are_told_once_and_nothing_is_started(tmp_path):
  runs = sweep_lib.plan(
    'shakespeare',
    'fedavg',
    {'data_dir': str(tmp_path / 'absent')},
    [{'batch_size': 4}, {'batch_size': 8}],
    [0],
    tmp_path / 'sweep',
  )
  with pytest.raises(errors.InputError, match='no shakespeare of LEAF in'):
    sweep_lib.sweep(runs, {}, tmp_path / 'sweep', 0, None)
  assert not list(tmp_path.iterdir())


@pytest.fixture
def planned(tmp_path):
  """Returns two runs and their common settings. The first run is finished."""
  given = {'rounds': 20}
  runs = sweep_lib.plan('glyphs', 'fedss', given, [{'negatives': n} for n in (2, 5)], [0], tmp_path)
  _finish(runs[0])
  return runs, given


def _finish(run):
  if not run.folder.exists():
    fake_runs.write_run(run.folder)
    (run.folder / 'config.json').write_text(json.dumps(run.config))


@pytest.fixture
def started(monkeypatch):
  """Ends runs at once, and lets those in `failing` fail. Returns the arguments of the runs."""
  found, failing = [], {}

  def run_all(waiting, arguments_of, jobs):
    for place, run in enumerate(waiting):
      found.append(arguments_of(run, 2 if len(waiting) > 1 else 1))
      if place not in failing:
        _finish(run)
      child = types.SimpleNamespace(run=run, error=failing.get(place), seconds=30.0)
      yield child, max(1, 3 - place)

  monkeypatch.setattr(runs_lib, 'run_all', run_all)
  monkeypatch.setattr(runs_lib, 'threads', lambda n: 4 if n > 1 else None)
  return found, failing


def test_finished_runs_are_kept(planned, tmp_path, started, capsys):
  (runs, given), (arguments, _) = planned, started
  text = sweep_lib.sweep(runs, given, tmp_path, 0, None)
  [[*words]] = arguments
  assert words[:3] == ['-m', 'launch.train', f'--run_dir={tmp_path}/negatives=5/seed0']
  own = {'--task=glyphs', '--algorithm=fedss', '--rounds=20', '--negatives=5', '--seed=0'}
  assert {*words[3:]} == own
  assert '2 runs in' in capsys.readouterr().out
  assert 'fedss negatives=2 *' in text
  arguments.clear()
  sweep_lib.sweep(runs, given, tmp_path, 0, None)
  assert not arguments


def test_failures_are_told_with_the_time_left(tmp_path, started, capsys):
  arguments, failing = started
  failing[0] = 'no memory'
  runs = sweep_lib.plan('glyphs', 'fedss', {}, [{'negatives': n} for n in (3, 4, 6)], [0], tmp_path)
  assert runs_lib.train(runs, {}, tmp_path, 0) == {runs[0].folder: 'no memory'}
  said = capsys.readouterr().out
  assert 'negatives=3 seed 0: failed: no memory' in said
  assert 'finished 2 of 3, about 30 s left: negatives=4' in said
  # Runs in parallel share the cores.
  assert all('--client_threads=4' in each for each in arguments)
  assert '--client_threads=4' not in runs_lib.arguments_of(runs[0], {'client_threads': 1}, 4)


def test_what_is_no_run_of_this_sweep_is_refused(planned, tmp_path, started):
  runs, given = planned
  other = sweep_lib.plan('glyphs', 'fedss', {'rounds': 21}, [{'negatives': 2}], [0], tmp_path)
  assert not runs_lib.is_finished(other[0])  # With more rounds, the run continues.
  run = dataclasses.replace(runs[0], config={**runs[0].config, 'eval_every': 3})
  with pytest.raises(errors.InputError, match='eval_every was 10 and is 3'):
    sweep_lib.sweep([run], {}, tmp_path, 0, None)
  with (
    lock.lock(tmp_path, 'output'),
    pytest.raises(errors.InputError, match=r'another process .* --output'),
  ):
    sweep_lib.sweep(runs, given, tmp_path, 0, None)
  lock.lock(tmp_path, 'output').close()  # The sweep has released the lock.
  # If a run has other data, the sweep stops when this run ends.
  _change_config(runs[0], data={'examples': 60})
  runs = sweep_lib.plan(
    'glyphs', 'fedss', given, [{'negatives': n} for n in (2, 5, 7)], [0], tmp_path
  )
  with pytest.raises(errors.InputError, match='examples was 60 and is None'):
    sweep_lib.sweep(runs, given, tmp_path, 0, None)
  assert len(started[0]) == 1  # The third run is not started.
  assert not (tmp_path / 'sweep.md').exists()


def _change_config(run, **changes):
  file = run.folder / 'config.json'
  file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def made(root, points, seeds=(0, 1)):
  """Returns finished runs. `points` are (values, top-1); None means that the run failed."""
  runs = []
  for values, top1 in points:
    for seed in seeds:
      folder = root / '_'.join(f'{n}={v}' for n, v in values.items())
      folder /= f'seed{seed}'
      config = {'task': 'omniglot', 'algorithm': 'fedss', 'seed': seed}
      config |= {'rounds': 20, 'target': 'top1:0.3'}
      runs.append(runs_lib.Run(values, config, folder))
      if top1 is not None:
        fake_runs.write_run(folder, seed=seed, top1=top1 + seed / 100)
  return runs


@pytest.fixture
def swept(tmp_path):
  points = [
    ({'lr': 0.001, 'm': 4}, 0.30),
    ({'lr': 0.001, 'm': 8}, 0.40),
    ({'lr': 0.1, 'm': 4}, 0.50),
    ({'lr': 0.1, 'm': 8}, None),
  ]
  return made(tmp_path, points)


def test_rows_in_grid_order_the_best_marked_and_failures_told(swept, tmp_path):
  fake_runs.write_run(swept[7].folder, seed=1, top1=0.9)
  text = sweep_lib.write(swept, {swept[6].folder: 'no update was finite'}, tmp_path, None)
  lines = text.splitlines()
  names = [f'fedss lr={lr} m={m}' for lr in (0.001, 0.1) for m in (4, 8)]
  names[2] += ' *'
  assert [line.split('  ')[0] for line in lines[2:6]] == names
  assert '50.5 ± 0.7' in lines[4]
  # The mean over the seeds that did not fail would be the best.
  assert '90' not in lines[5]
  failed = 'lr=0.1 m=8 seed 0 failed: no update was finite'
  assert failed in lines and failed in (tmp_path / 'sweep.md').read_text()
  rows = test_compare.read_csv(tmp_path / 'sweep.csv')
  assert [(row['lr'], row['m'], row['best']) for row in rows] == [
    ('0.001', '4', 'False'),
    ('0.001', '8', 'False'),
    ('0.1', '4', 'True'),
    ('0.1', '8', 'False'),
  ]
  assert (rows[3]['failed_seeds'], rows[3]['seeds'], rows[3]['top1_mean']) == ('0', '1', '')
  assert float(rows[2]['top1_mean']) == pytest.approx(0.505)
  assert matplotlib.image.imread(tmp_path / 'sweep.png').std() > 0.01


def test_runs_on_different_data_are_refused(swept, tmp_path):
  for run in swept[:6]:
    _change_config(run, data={'examples': 60, 'train_checksum': 'a'})
  runs_lib.check_data(swept)  # Runs without a directory have no data yet.
  _change_config(swept[3], data={'examples': 60, 'train_checksum': 'b'})
  with pytest.raises(errors.InputError, match=r'm=4/seed0 and .*m=8/seed1.*was a and is b;'):
    sweep_lib.write(swept[:6], {}, tmp_path, None)
  assert not (tmp_path / 'sweep.md').exists()
  # Options change the data, such as the number of classes of procedural data.
  _change_config(swept[3], options={'num_classes': 7})
  runs_lib.check_data(swept)
  for share in ('client_test_fraction', 'unseen_clients'):
    _change_config(swept[2], data={'examples': 50}, **{share: 0.1})
    runs_lib.check_data(swept)


def test_the_best_is_that_of_the_metric_if_one_has_it(swept, tmp_path):
  def write(metric):
    return sweep_lib.write(swept[:6], {}, tmp_path, metric)

  assert 'fedss lr=0.1 m=4 *' in write('top1:0.3')
  for metric in ('top1:0.9', 'mcc', 'mcc:0.5'):  # No run reached or measured these targets.
    assert '*' not in write(metric)
    rows = test_compare.read_csv(tmp_path / 'sweep.csv')
    assert [row['best'] for row in rows] == ['False'] * 3
  failures = {run.folder: f'reason of seed {run.seed}' for run in swept}
  with pytest.raises(errors.InputError, match='reason of seed 0'):
    sweep_lib.write(swept, failures, tmp_path / 'none', None)
  assert not (tmp_path / 'none').exists()
  # Values may be text, and there may be one seed.
  points = [({'server_optimizer': name}, 0.4) for name in ('sgd', 'adam')]
  runs = made(tmp_path / 'texts', points, seeds=(0,))
  assert '±' not in sweep_lib.write(runs, {}, tmp_path, 'map@10')
  assert matplotlib.image.imread(tmp_path / 'sweep.png').std() > 0.01


SMALL = (
  '--task=sparse-words',
  '--algorithm=fedss',
  '--num_classes=20',
  '--num_features=64',
  '--feature_dim=5',
  '--hidden_dim=7',
  '--classes_per_client=2',
  '--examples_per_round=9',
  '--embedding_dim=6',
  '--batch_size=3',
  '--negatives=4',
  '--clients_per_round=5',
  '--rounds=200',
  '--eval_every=20',
  '--server_optimizer=sgd',
  '--seeds=0,1',
  # With the second value, no client's update stays finite.
  '--grid=client_learning_rate:0.01,2e9',
)


def start(output, jobs):
  return subprocess.Popen(
    [sys.executable, '-m', 'launch.sweep', *SMALL, f'--jobs={jobs}', f'--output={output}'],
    cwd=light.ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def without_seconds(file):
  return [
    {name: cell for name, cell in row.items() if not name.startswith('seconds')}
    for row in test_compare.read_csv(file)
  ]


@pytest.mark.slow
def test_an_interrupted_and_resumed_sweep_ends_like_another(tmp_path):
  whole = start(tmp_path / 'whole', 2)
  said, _ = whole.communicate(timeout=300)
  assert whole.returncode == 0, said
  cut = start(tmp_path / 'cut', 1)
  first, second = (
    tmp_path / 'cut' / 'client_learning_rate=0.01' / f'seed{seed}' for seed in (0, 1)
  )
  try:
    while not test_train.rounds_done(second) > 28:
      assert cut.poll() is None, cut.communicate()[0]
      time.sleep(0.05)
    below = psutil.Process(cut.pid).children(recursive=True)
    assert below
  finally:
    cut.terminate()
    said, _ = cut.communicate(timeout=90)
  assert cut.returncode == 143
  assert 'stopped; the same command goes on from here' in said
  assert not [process for process in below if process.is_running()]
  assert not (second / 'summary.json').exists()
  assert '\nstopped ' in (second.parent / 'seed1.log').read_text()
  written = (first / 'summary.json').stat().st_mtime_ns
  again = start(tmp_path / 'cut', 2)
  said, _ = again.communicate(timeout=300)
  assert again.returncode == 0, said
  assert '4 runs in' in said
  assert '1 of them finished' in said
  # Two runs, each in the log and in the table.
  assert said.count("dropped every client's update") == 4
  assert (first / 'summary.json').stat().st_mtime_ns == written
  files = ['sweep.csv', *(f'{first.parent.name}/{s.name}/metrics.csv' for s in (first, second))]
  for file in files:
    assert without_seconds(tmp_path / 'cut' / file) == without_seconds(tmp_path / 'whole' / file)
  [best] = [row for row in without_seconds(tmp_path / 'cut' / 'sweep.csv') if row['best'] == 'True']
  assert float(best['client_learning_rate']) == 0.01


@pytest.mark.parametrize(
  'more',
  [
    ('--more_metrics=top5', '--metric=top5'),
    ('--client_test_fraction=0.1', '--evaluate_clients=5', '--metric=client_top1_mean'),
  ],
)
def test_any_measured_score_may_choose(more):
  given = ('--task=shakespeare', '--algorithm=fedavg', '--data_dir=absent', '--grid=batch_size:4,8')
  light.assert_one_sentence(light.call('sweep', *given, *more), 'no shakespeare of LEAF in')
  light.assert_one_sentence(light.call('sweep', *given, more[-1], '--rounds=3'), 'measures top1')


def test_without_the_validation_score_the_main_score_chooses(tmp_path, monkeypatch):
  runs = made(tmp_path, [({'m': 4}, 0.3), ({'m': 8}, 0.4)])
  for run in runs:
    run.config['best_by'] = 'top1_validation'
  assert 'fedss m=8 *' in sweep_lib.write(runs, {}, tmp_path, None)
  for run in runs:
    run.config['task'] = 'landmarks'
  task = types.SimpleNamespace(metrics=('map@10', 'top1'))
  monkeypatch.setattr(sweep_lib.tasks, 'get', lambda name: task)
  assert 'best row by MAP@10' in sweep_lib.write(runs, {}, tmp_path, None)
