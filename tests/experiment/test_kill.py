"""A run that is killed at any moment and then resumed ends like an undisturbed run."""

import json
import os
import pathlib
import shutil

import pytest
import tensorflow as tf
from tensorboard.backend.event_processing import plugin_event_accumulator

from tests import doubling, killed, processes
from tff_xc import errors
from tff_xc.experiment import run_directory

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope='module')
def root_of_all(tmp_path_factory):
  """Makes an undisturbed run, runs that are killed, and a refused run."""
  root = tmp_path_factory.mktemp('all')
  doubling.run(root / 'whole')
  held = run_directory.RunDirectory(root / 'held', doubling.CONFIG)
  done = processes.python('-m', 'tests.killed', str(root), cwd=ROOT, timeout=600)
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


class Stopped(BaseException):
  """Ends a run in this process after its directory was copied."""


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """Returns a folder with undisturbed runs."""
  root = tmp_path_factory.mktemp('whole')
  doubling.run(root / 'whole')
  doubling.run(root / 'keeping', process=doubling.Keeping())
  return root


@pytest.fixture
def files_at(tmp_path, monkeypatch):
  """Returns a function from a moment of `killed` to a copy of the run's files at that moment."""

  def copied(moment):
    def kill():
      shutil.copytree(tmp_path / 'run', tmp_path / 'copy')
      # Temporary files of a killed run have the number of another process.
      for file in (tmp_path / 'copy').rglob(f'.*.{os.getpid()}.tmp*'):
        file.rename(file.with_name(file.name.replace(f'.{os.getpid()}.', '.1.')))
      raise Stopped

    with monkeypatch.context() as patch:
      patch.setattr(killed, 'kill', kill)
      for owner, name in killed.PATCHED:  # A moment replaces one of them, until here.
        patch.setattr(owner, name, getattr(owner, name))
      with pytest.raises(Stopped):
        moment(tmp_path / 'run')
    return tmp_path / 'copy'

  return copied


@pytest.mark.parametrize('moment', killed.MOMENTS)
def test_a_run_whose_files_are_those_of_a_moment_ends_like_another(whole, files_at, moment):
  """A killed run leaves these files."""
  check_a_killed_run(whole, files_at(killed.MOMENTS[moment]))


def test_states_of_clients_without_their_checkpoint_are_those_of_another_run(whole, files_at):
  def before_a_checkpoint(path):
    killed.before_checkpoint(path, doubling.Keeping())

  path = files_at(before_a_checkpoint)
  check_the_end(path, whole / 'keeping', doubling.Keeping())


@pytest.mark.slow
@pytest.mark.parametrize('moment', killed.MOMENTS)
def test_a_killed_run_ends_like_one_that_was_not(root_of_all, moment):
  path = root_of_all / moment
  assert path.is_dir(), (root_of_all / 'status').read_text()
  check_a_killed_run(root_of_all, path)


def check_a_killed_run(root, path):
  check_the_end(path, root / 'whole')
  found = events(path)
  del found['seconds']
  for column, values in found.items():
    expected = [
      (int(row['round']), pytest.approx(float(row[column])))
      for row in doubling.rows(root / 'whole')
      if row[column] not in ('nan', '')
    ]
    assert values == expected, column


@pytest.mark.slow
@pytest.mark.parametrize('point', range(killed.POINTS))
def test_a_run_killed_at_random_ends_like_one_that_was_not(root_of_all, point):
  path = root_of_all / f'point_{point}'
  assert path.is_dir(), (root_of_all / 'status').read_text()
  check_the_end(path, root_of_all / 'keeping', doubling.Keeping())


def check_the_end(path, whole, process=None):
  doubling.run(path, process=process)
  assert doubling.rows(path) == doubling.rows(whole)
  kept = 'tensorboard/events.out.tfevents.0000000000.kept'
  assert tree_of(path) - {kept} == tree_of(whole)
  doubling.assert_same_arrays(path, whole)
  ends = [json.loads((p / 'summary.json').read_text()) for p in (path, whole)]
  for end in ends:
    del end['seconds_per_round_median']
  assert ends[0] == ends[1]


def test_a_second_run_is_refused_before_it_trains(tmp_path):
  path = tmp_path / 'held'
  held = run_directory.RunDirectory(path, doubling.CONFIG)
  with pytest.raises(errors.InputError, match=f'another process is running in {path}'):
    doubling.run(path)
  assert {p.name for p in path.iterdir()} == {'.lock', 'checkpoints', 'config.json'}
  del held


@pytest.mark.slow
def test_a_second_process_is_refused_before_it_trains(root_of_all):
  held, said = root_of_all / 'held', (root_of_all / 'status').read_text()
  assert said.startswith('2\n'), said
  assert f'another process is running in {held}' in said
  assert {p.name for p in held.iterdir()} == {'.lock', 'checkpoints', 'config.json'}
