"""A run that is killed at any moment and then resumed ends like an undisturbed run."""

import json
import pathlib

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing import plugin_event_accumulator

from tests import doubling, killed, processes
from tff_xc.experiment import run_directory

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='module')
def root(tmp_path_factory):
  root = tmp_path_factory.mktemp('killed')
  return made(root, killed.QUICK_MOMENTS, killed.QUICK_POINTS)


@pytest.fixture(scope='module')
def root_of_all(tmp_path_factory):
  root = tmp_path_factory.mktemp('all')
  return made(root, len(killed.MOMENTS), killed.POINTS)


def made(root, moments, points):
  """Makes an undisturbed run, runs that are killed, and a refused run."""
  doubling.run(root / 'whole')
  held = run_directory.RunDirectory(root / 'held', doubling.CONFIG)
  done = processes.python(
    '-m', 'tests.killed', *map(str, (root, moments, points)), cwd=ROOT, timeout=600
  )
  (root / 'status').write_text(f'{done.returncode}\n{done.stdout}{done.stderr}')
  del held
  return root


def tree_of(path):
  """Returns the files of a run, except event files, whose names contain the time."""
  found = {str(p.relative_to(path)) for p in path.rglob('*')}
  return {name for name in found if 'tfevents.1' not in name}


def events(path):
  """Returns a mapping of columns to [(step, value)], as TensorBoard reads them."""
  accumulator = plugin_event_accumulator.EventAccumulator(
    str(path / 'tensorboard'), size_guidance={'tensors': 0}
  )
  accumulator.Reload()
  return {
    tag: [(e.step, float(tf.make_ndarray(e.tensor_proto))) for e in accumulator.Tensors(tag)]
    for tag in accumulator.Tags()['tensors']
  }


NAMES = [*killed.MOMENTS]


@pytest.mark.parametrize('moment', NAMES[: killed.QUICK_MOMENTS])
def test_a_killed_run_ends_like_one_that_was_not(root, moment):
  check_a_killed_run(root, moment)


@pytest.mark.slow
@pytest.mark.parametrize('moment', NAMES[killed.QUICK_MOMENTS :])
def test_a_run_killed_at_more_moments(root_of_all, moment):
  check_a_killed_run(root_of_all, moment)


def check_a_killed_run(root, moment):
  check_the_end(root, root / moment, root / 'whole')
  found = events(root / moment)
  del found['seconds']
  for column, values in found.items():
    expected = [
      (int(row['round']), pytest.approx(float(row[column])))
      for row in doubling.rows(root / 'whole')
      if row[column] not in ('nan', '')
    ]
    assert values == expected, column


@pytest.mark.parametrize('point', range(killed.QUICK_POINTS))
def test_a_run_killed_at_random_ends_like_one_that_was_not(root, point):
  path, whole = root / f'point_{point}', root / 'keeping'
  check_the_end(root, path, whole, doubling.Keeping())


@pytest.mark.slow
@pytest.mark.parametrize('point', range(killed.QUICK_POINTS, killed.POINTS))
def test_a_run_killed_at_more_points(root_of_all, point):
  path, whole = root_of_all / f'point_{point}', root_of_all / 'keeping'
  check_the_end(root_of_all, path, whole, doubling.Keeping())


def check_the_end(root, path, whole, process=None):
  assert path.is_dir(), (root / 'status').read_text()
  doubling.run(path, process=process)
  assert doubling.rows(path) == doubling.rows(whole)
  kept = 'tensorboard/events.out.tfevents.0000000000.kept'
  assert tree_of(path) - {kept} == tree_of(whole)
  doubling.assert_same_arrays(path, whole)
  ends = [json.loads((p / 'summary.json').read_text()) for p in (path, whole)]
  for end in ends:
    del end['seconds_per_round_median']
  assert ends[0] == ends[1]


def test_a_second_process_is_refused_before_it_trains(root):
  said = (root / 'status').read_text()
  assert said.startswith('2\n'), said
  assert f'another process is running in {root / "held"}' in said
  assert {p.name for p in (root / 'held').iterdir()} == {'.lock', 'checkpoints', 'config.json'}
