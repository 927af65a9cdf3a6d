"""Grids and seeds, and the runs that they make."""

import pathlib

import pytest

from launch import settings
from launch.sweeps import plan
from tff_xc import errors

OUTPUT = pathlib.Path('out')


def points(*grids):
  return plan.points(grids, settings.parameters())


def runs(*grids, given=None, seeds=(0,)):
  return plan.runs(
    'glyphs', 'fedss', given or {}, points(*grids), seeds, OUTPUT
  )


def test_a_grid_is_a_product_in_the_order_given():
  found = points('client_learning_rate:1e-3,0.1', 'negatives:2, 5')
  assert [tuple(point.values()) for point in found] == [
    (0.001, 2),
    (0.001, 5),
    (0.1, 2),
    (0.1, 5),
  ]
  assert points('row_renormalize:true,FALSE') == [
    {'row_renormalize': True},
    {'row_renormalize': False},
  ]
  assert points('server_optimizer:sgd,adam')[1] == {'server_optimizer': 'adam'}


def test_runs_are_resolved_with_their_settings_and_directories():
  found = runs(
    'client_learning_rate:1e-3,1',
    'server_optimizer:adam',
    given={'rounds': 7},
    seeds=(3, 1),
  )
  assert [str(run.folder) for run in found] == [
    'out/client_learning_rate=0.001_server_optimizer=adam/seed3',
    'out/client_learning_rate=0.001_server_optimizer=adam/seed1',
    'out/client_learning_rate=1_server_optimizer=adam/seed3',
    'out/client_learning_rate=1_server_optimizer=adam/seed1',
  ]
  assert [run.seed for run in found] == [3, 1, 3, 1]
  assert found[0].point == 'client_learning_rate=0.001 server_optimizer=adam'
  assert found[0].config['rounds'] == 7
  assert found[3].config['hyperparameters']['client_learning_rate'] == 1


def test_a_name_that_no_file_system_takes_is_cut(tmp_path):
  values = {f'client_learning_rate_{i}': 0.1 for i in range(20)}
  found = plan.folder_of(tmp_path, values, 'fedss')
  found.mkdir()
  assert found.name.startswith('fedss_client_learning_rate_0=0.1_')
  other = plan.folder_of(tmp_path, {**values, 'client_learning_rate_19': 0.2})
  assert found != other and len(other.name) == len(found.name) <= 200


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
    (('algorithm:fedss,moon',), 'has one algorithm; run a sweep for each'),
    (('task:glyphs',), 'a sweep has one task'),
    (('batch_size:4,0',), '--grid=batch_size:4,0: --batch_size=0: expected at'),
    (('spreadout_weight:1',), 'not a hyper-parameter of fedss'),
    (('negatives:1,200',), 'fewer than the 200 classes'),
    (('rounds:5,6',), '--rounds is given, and has a --grid as well'),
  ],
)
def test_a_bad_grid_is_refused(grids, message):
  with pytest.raises(errors.InputError, match=message):
    runs(*grids, given={'rounds': 7})


def test_values_of_one_directory_and_bad_seeds_are_refused():
  with pytest.raises(errors.InputError, match='one name'):
    plan.runs(
      'cifar10', 'fedss', {}, points('split:a/b.csv,a-b.csv'), [0], OUTPUT
    )
  assert plan.seeds('0,1, 5') == [0, 1, 5]
  for text in ('', 'a', '0,,1', '1,1', '0.5'):
    with pytest.raises(errors.InputError, match='different whole numbers'):
      plan.seeds(text)
  with pytest.raises(errors.InputError, match='--seed=-1'):
    runs('negatives:1', seeds=plan.seeds('-1'))
