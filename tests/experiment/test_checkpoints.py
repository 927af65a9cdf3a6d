"""Checkpoints that are damaged, that belong to another model, or that are opened for reading."""

import collections
import contextlib
import os
import zipfile
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from tests import doubling
from tff_xc import errors, memory
from tff_xc.experiment import checkpoints, storage

State = collections.namedtuple('State', 'weights round_number')


def state(rows=3, kernel=(5, 2), number=4):
  encoder = collections.OrderedDict(
    kernel=np.zeros(kernel, np.float32), bias=np.ones(2, np.float32)
  )
  weights = {'encoder': encoder, 'class_table': np.zeros([rows, 2], np.float32)}
  return State(weights, np.int32(number))


def save(path, *rounds, **more):
  """Saves a state after each of these rounds, with as many `ids` as rounds are done."""
  checkpoints.prepare(path)
  for done in rounds:
    oldest = checkpoints.save(path, state(number=done), done, {'ids': np.arange(done)}, **more)
  return oldest


def contents(path):
  return {p: p.is_file() and p.read_bytes() for p in path.rglob('*')}


def damage(file):
  file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def load(path, like=None, **more):
  return checkpoints.load_newest(path, like or state(), **more)


def newest(path, capsys, where='') -> str:
  """Checks that the program loads no wrong number. Returns what it did with round 8."""
  found, done, more = load(path)
  told = capsys.readouterr().err
  assert more.keys() == {'ids'}
  np.testing.assert_array_equal(more['ids'], np.arange(done))
  assert ('round 8 is damaged' in told) == (done == 4), where
  assert told.count('\n') == (done == 4)
  tf.nest.map_structure(np.testing.assert_array_equal, found, state(number=done))
  assert found.weights['encoder']['bias'].dtype == np.float32
  return {4: 'the one before', 8: 'sound'}[done]


@pytest.fixture
def two(tmp_path):
  """Returns (directory, newest file, its content) of a run with checkpoints 4 and 8."""
  save(tmp_path, 4, 8)
  file = tmp_path / 'checkpoints' / 'round_8.npz'
  return tmp_path, file, file.read_bytes()


def test_the_newest_of_three_comes_back(tmp_path, capsys):
  assert load(tmp_path)[1:] == (0, {})
  assert not list(tmp_path.iterdir())  # Loading writes nothing.
  oldest = [save(tmp_path, done) for done in (2, 9, 10, 11, 4, 8)]
  assert oldest == [2, 2, 2, 9, 9, 9]
  save(tmp_path, 100, 101)
  assert load(tmp_path, state(number=101))[1] == 101
  assert save(tmp_path, 101) == 11
  found = {p.name for p in (tmp_path / 'checkpoints').iterdir()}
  assert found == {'round_11.npz', 'round_100.npz', 'round_101.npz'}


def test_the_model_is_there_where_its_state_lacks_updates(two, capsys):
  path, file, _ = two
  before = set(np.load(file).files)
  file.unlink()
  model = state().weights
  save(path, 8, model=lambda: model)
  assert set(np.load(file).files) == before
  file.unlink()
  model['class_table'] = np.full([3, 2], 7, np.float32)
  save(path, 8, model=lambda: model)
  with np.load(file) as found:
    assert {*found.files} - before == {'model/class_table', 'model/README'}
    np.testing.assert_array_equal(found['model/class_table'], model['class_table'])
    assert 'momentum' in str(found['model/README'])
  assert newest(path, capsys) == 'sound'


@pytest.mark.parametrize(
  ('like', 'message'),
  [
    (state(rows=4), r'class_table is float32 \[3, 2\]'),
    (state(kernel=(5, 1)), r'kernel is float32 \[5, 2\]'),
    (State({}, np.int64(4)), 'round_number is int32'),
    (state()._replace(round_number=[np.int32(4), np.int32(0)]), 'no round_number/0'),
    (state()._replace(weights={}), 'not expected'),
  ],
)
def test_another_model_is_refused_and_nothing_is_lost(two, like, message):
  before = contents(two[0])
  for moves in (True, False):
    with pytest.raises(errors.InputError, match=f'round_8.npz .*{message}'):
      load(two[0], like, moves_damaged=moves)
  assert contents(two[0]) == before


def test_damaged_checkpoints_are_moved_aside_and_kept(tmp_path, capsys):
  folder = tmp_path / 'checkpoints'
  for turn in ('', '_2', '_3'):
    save(tmp_path, 4, 8)
    damage(folder / 'round_8.npz')
    before = contents(tmp_path)
    assert load(tmp_path)[1] == 4  # A program that only reads leaves the damaged file in place.
    assert contents(tmp_path) == before
    capsys.readouterr()
    assert load(tmp_path, moves_damaged=True)[1] == 4
    aside = folder / 'damaged' / f'round_8{turn}.npz'
    assert f'it is now {aside}, and' in capsys.readouterr().err
    assert aside.read_bytes() == before[folder / 'round_8.npz']
  assert {p.name for p in folder.iterdir()} == {'round_4.npz', 'damaged'}


def flipped(content, place, bit):
  return content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]


@pytest.mark.parametrize('every', [5, pytest.param(1, marks=pytest.mark.slow)])
def test_any_damage_is_noticed_or_harms_nothing(every, two, capsys):
  path, file, content = two
  random, ends, hidden = np.random.default_rng(0), [], 0
  places = range(0, len(content), every)
  for place in places:
    file.write_bytes(flipped(content, place, 1 << int(random.integers(8))))
    ends.append(newest(path, capsys, place))
  # The file counts as undamaged if the change is in the archive's times, versions or modes, which
  # nothing reads.
  assert ends.count('the one before') > 0.7 * len(places)
  for length in range(0, len(content), 2 * every + 3):
    file.write_bytes(content[:length])
    assert newest(path, capsys, length) == 'the one before'
  file.write_bytes(content + b'more')  # These bytes are not part of the archive.
  newest(path, capsys)
  # The archive's list of files no longer has some arrays.
  for place in range(content.index(b'PK\1\2'), len(content)):
    file.write_bytes(flipped(content, place, 0x80))
    with contextlib.suppress(Exception):
      hidden += len(zipfile.ZipFile(file).namelist()) < 5
    newest(path, capsys, place)
  assert hidden > 3


def test_what_may_be_sound_is_not_called_damaged(two, monkeypatch):
  path, file, _ = two
  with monkeypatch.context() as patch:
    patch.setattr(memory, 'free_bytes', lambda: 40)
    with pytest.raises(errors.InputError, match=r'round_8.npz.* 40 B are free'):
      load(path)

  monkeypatch.setattr(np, 'load', mock.Mock(side_effect=MemoryError('no memory')))
  with pytest.raises(errors.InputError, match='no memory'):
    load(path, moves_damaged=True)
  assert file.is_file()


def test_an_array_is_read_again_where_python_failed_to_parse_its_header(tmp_path, monkeypatch):
  """CPython 3.11 sometimes fails if other threads parse at the same time."""
  read, failed = np.lib.format.read_array, []

  def flaky(*given, **named):
    if not failed:
      failed.append(True)
      raise SystemError('AST constructor recursion depth mismatch')
    return read(*given, **named)

  storage.write_arrays(tmp_path / 'a.npz', {'x': np.arange(3)})
  monkeypatch.setattr(np.lib.format, 'read_array', flaky)
  np.testing.assert_array_equal(storage.read_arrays(tmp_path / 'a.npz')['x'], [0, 1, 2])
  assert failed


def test_a_pipe_is_not_opened(tmp_path):
  os.mkfifo(tmp_path / 'a.npz')
  with pytest.raises(storage.DamagedError):
    storage.read_arrays(tmp_path / 'a.npz')


def test_only_what_a_kill_leaves_is_removed(tmp_path):
  folder = tmp_path / 'checkpoints'
  folder.mkdir()
  kept = {'.round_8.tmp.npz', 'round_8.tmp.npz', 'mine.npz', '.round_x.1.tmp.npz'}
  for name in ('.round_8.1234.tmp.npz', *kept):
    (folder / name).write_bytes(b'')
  checkpoints.prepare(tmp_path)
  assert {p.name for p in folder.iterdir()} == kept


def test_all_checkpoints_damaged_starts_again(tmp_path, capsys):
  path = tmp_path / 'run'
  doubling.run(path)
  for file in (path / 'checkpoints').iterdir():
    damage(file)
  before = doubling.rows(path)
  doubling.run(path)
  said = capsys.readouterr().err
  assert said.count('is damaged') == 3
  assert said.count('there is none before it') == 1
  assert doubling.rows(path) == before
  # The rows of metrics.csv are also moved to the folder.
  aside = {p.name for p in (path / 'checkpoints' / 'damaged').iterdir()}
  assert len(aside) == 4
  assert 'metrics.csv' in aside
