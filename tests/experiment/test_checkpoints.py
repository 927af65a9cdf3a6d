"""Checkpoints that are damaged, of another model, or opened only to read."""

import collections
import contextlib
import io
import os
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tests import doubling
from tff_xc import errors
from tff_xc import memory
from tff_xc.experiment import checkpoints
from tff_xc.experiment import storage

State = collections.namedtuple('State', 'weights round_number')


def state(rows=3, kernel=(5, 2)):
  encoder = collections.OrderedDict(
    kernel=np.zeros(kernel, np.float32), bias=np.ones(2, np.float32)
  )
  weights = {'encoder': encoder, 'class_table': np.zeros([rows, 2], np.float32)}
  return State(weights, np.int32(4))


def contents(path):
  return {
    str(p.relative_to(path)): p.is_file() and p.read_bytes()
    for p in path.rglob('*')
  }


def damage(file):
  file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_the_newest_state_comes_back(tmp_path):
  saved = checkpoints.Checkpoints(tmp_path)
  assert saved.load(state())[1] == 0
  for rounds_done in (4, 12):
    saved.save(state(), rounds_done, {'ids': np.arange(rounds_done)})
  found, done, more = checkpoints.load_newest(tmp_path, state())
  assert done == 12
  np.testing.assert_array_equal(more.pop('ids'), np.arange(12))
  assert not more
  tf.nest.map_structure(np.testing.assert_array_equal, found, state())
  assert found.weights['encoder']['bias'].dtype == np.float32


def test_the_model_is_there_where_its_state_lacks_updates(tmp_path):
  saved = checkpoints.Checkpoints(tmp_path)
  saved.save(state(), 4, model=lambda: state().weights)
  file = tmp_path / 'checkpoints' / 'round_4.npz'
  before = set(np.load(file).files)
  model = state().weights
  model['class_table'] = np.full([3, 2], 7, np.float32)
  saved.save(state(), 8, {'ids': np.arange(2)}, lambda: model)
  with np.load(file.with_name('round_8.npz')) as found:
    assert {*found.files} - before == {
      *('model/class_table', 'model/README', 'more:ids'),
    }
    np.testing.assert_array_equal(
      found['model/class_table'], model['class_table']
    )
    assert 'momentum' in str(found['model/README'])
  found, done, more = checkpoints.load_newest(tmp_path, state())
  assert done == 8
  assert [*more] == ['ids']
  tf.nest.map_structure(np.testing.assert_array_equal, found, state())


def test_a_checkpoint_that_announces_too_much_is_not_read(
  tmp_path, monkeypatch
):
  checkpoints.Checkpoints(tmp_path).save(state(), 4)
  monkeypatch.setattr(memory, 'free_bytes', lambda: 40)
  with pytest.raises(errors.InputError, match=r'round_4.npz: .*152 B'):
    checkpoints.load_newest(tmp_path, state())


def test_a_pipe_is_not_opened(tmp_path, capsys):
  os.mkfifo(tmp_path / 'a.npz')
  assert not storage.is_whole(tmp_path / 'a.npz')
  with pytest.raises(storage.DamagedError):
    storage.read_arrays(tmp_path / 'a.npz')


@pytest.mark.parametrize(
  ('like', 'message'),
  [
    (
      state(rows=4),
      r'class_table is float32 \[3, 2\]',
    ),
    (state(kernel=(5, 1)), r'kernel is float32 \[5, 2\]'),
    (State({}, np.int64(4)), 'round_number is int32'),
    (
      state()._replace(round_number=[np.int32(4), np.int32(0)]),
      'no round_number/0',
    ),
    (
      state()._replace(weights={}),
      'not expected',
    ),
  ],
)  # fmt: skip
def test_another_model_is_refused_and_nothing_is_lost(tmp_path, like, message):
  saved = checkpoints.Checkpoints(tmp_path)
  saved.save(state(), 8)
  before = contents(tmp_path)
  for load in (
    saved.load,
    lambda like: checkpoints.load_newest(tmp_path, like),
  ):
    with pytest.raises(errors.InputError, match=message) as e:
      load(like)
    assert 'round_8.npz is of another model' in str(e.value)
  assert contents(tmp_path) == before


def test_damaged_checkpoints_are_moved_aside_and_kept(tmp_path, capsys):
  saved = checkpoints.Checkpoints(tmp_path)
  folder = tmp_path / 'checkpoints'
  for turn in ('', '_2', '_3'):
    for rounds_done in (4, 8):
      saved.save(state(), rounds_done)
    damage(folder / 'round_8.npz')
    before = (folder / 'round_8.npz').read_bytes()
    assert saved.load(state())[1] == 4
    said = capsys.readouterr().err
    assert 'the checkpoint of round 8 is damaged' in said
    aside = folder / 'damaged' / f'round_8{turn}.npz'
    assert f'it is now {aside}, and' in said
    assert aside.read_bytes() == before
  assert {p.name for p in folder.iterdir()} == {'round_4.npz', 'damaged'}


def test_a_flipped_bit_is_damage(tmp_path, capsys):
  saved = checkpoints.Checkpoints(tmp_path)
  for rounds_done in (4, 8):
    saved.save(state(), rounds_done)
  file = tmp_path / 'checkpoints' / 'round_8.npz'
  content = bytearray(file.read_bytes())
  content[content.index(np.ones(2, np.float32).tobytes())] ^= 1
  file.write_bytes(content)
  assert saved.load(state())[1] == 4
  assert 'round 8 is damaged' in capsys.readouterr().err


def _found(path, like):
  """Returns what `load_newest` does, None where it refuses."""
  try:
    return checkpoints.load_newest(path, like)
  except errors.InputError as e:
    assert '\n' not in str(e)
    return None


@pytest.fixture
def two_checkpoints(tmp_path):
  """Returns (directory, newest file, its content) of rounds 4 and 8."""
  saved = checkpoints.Checkpoints(tmp_path)
  for number in (4, 8):
    new = state()._replace(round_number=np.int32(number))
    saved.save(new, number, {'ids': np.arange(number)})
  file = tmp_path / 'checkpoints' / 'round_8.npz'
  return tmp_path, file, file.read_bytes()


def check_what_is_found(path, content, capsys) -> str:
  """Checks that no wrong number is taken; returns what became of the newest."""
  found = _found(path, state())
  told = capsys.readouterr().err
  if found is None:
    return 'refused'
  loaded, done, more = found
  np.testing.assert_array_equal(more.pop('ids'), np.arange(done))
  assert not more
  assert ('round 8 is damaged' in told) == (done == 4), content
  assert told.count('\n') == (done == 4)
  expected = state()._replace(round_number=np.int32(done))
  tf.nest.map_structure(np.testing.assert_array_equal, loaded, expected)
  return {4: 'the one before', 8: 'sound'}[done]


@pytest.mark.parametrize('every', [5, pytest.param(1, marks=pytest.mark.slow)])
def test_any_flipped_bit_is_noticed_or_harms_nothing(
  every, two_checkpoints, capsys
):
  path, file, content = two_checkpoints
  random = np.random.default_rng(0)
  ends = collections.Counter()
  places = range(0, len(content), every)
  for place in places:
    flipped = bytearray(content)
    flipped[place] ^= 1 << int(random.integers(8))
    file.write_bytes(flipped)
    ends[check_what_is_found(path, place, capsys)] += 1
  # Sound: times, versions and modes in the archive's lists, which nobody reads.
  assert ends['the one before'] > 0.7 * len(places)
  assert not ends['refused']


def test_a_list_that_hides_arrays_is_damage(two_checkpoints, capsys):
  path, file, content = two_checkpoints
  lists = content.index(b'PK\1\2')
  hidden = 0
  for place in range(lists, len(content)):
    flipped = bytearray(content)
    flipped[place] ^= 0x80
    file.write_bytes(flipped)
    with contextlib.suppress(Exception):
      hidden += len(zipfile.ZipFile(io.BytesIO(flipped)).namelist()) < 5
    check_what_is_found(path, place, capsys)
  assert hidden > 3


@pytest.mark.parametrize('every', [13, pytest.param(5, marks=pytest.mark.slow)])
def test_a_checkpoint_of_any_shorter_length_is_noticed(
  every, two_checkpoints, capsys
):
  path, file, content = two_checkpoints
  for length in range(0, len(content), every):
    file.write_bytes(content[:length])
    assert check_what_is_found(path, length, capsys) == 'the one before'
  # Bytes at the end are no part of the archive.
  file.write_bytes(content + b'more')
  assert check_what_is_found(path, 'more', capsys) in (
    'sound',
    'the one before',
  )


def test_the_newest_three_are_kept(tmp_path):
  saved = checkpoints.Checkpoints(tmp_path)
  oldest = [saved.save(state(), done) for done in (2, 9, 10, 11, 100)]
  assert oldest == [2, 2, 2, 9, 10]
  assert saved.save(state(), 100) == 10
  found = {p.name for p in (tmp_path / 'checkpoints').iterdir()}
  assert found == {'round_10.npz', 'round_11.npz', 'round_100.npz'}


def test_looking_writes_nothing(tmp_path, capsys):
  assert checkpoints.load_newest(tmp_path, state())[1] == 0
  assert not list(tmp_path.iterdir())
  saved = checkpoints.Checkpoints(tmp_path)
  for rounds_done in (4, 8):
    saved.save(state(), rounds_done)
  damage(tmp_path / 'checkpoints' / 'round_8.npz')
  (tmp_path / 'checkpoints' / '.round_12.7.tmp.npz').write_bytes(b'')
  before = contents(tmp_path)
  assert checkpoints.load_newest(tmp_path, state())[1] == 4
  assert 'round 8 is damaged' in capsys.readouterr().err
  assert contents(tmp_path) == before


def test_memory_that_runs_out_is_no_damage(tmp_path, monkeypatch):
  saved = checkpoints.Checkpoints(tmp_path)
  saved.save(state(), 8)

  def load(path, **_):
    raise MemoryError('no memory')

  monkeypatch.setattr(np, 'load', load)
  with pytest.raises(errors.InputError, match='no memory'):
    saved.load(state())
  assert (tmp_path / 'checkpoints' / 'round_8.npz').is_file()


def test_only_what_a_kill_leaves_is_removed(tmp_path):
  folder = tmp_path / 'checkpoints'
  folder.mkdir()
  kept = {
    '.round_8.tmp.npz',
    'round_8.tmp.npz',
    'mine.npz',
    '.round_x.1.tmp.npz',
  }
  for name in ('.round_8.1234.tmp.npz', *kept):
    (folder / name).write_bytes(b'')
  checkpoints.Checkpoints(tmp_path)
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
  # The rows that were measured, too.
  aside = {p.name for p in (path / 'checkpoints' / 'damaged').iterdir()}
  assert len(aside) == 4
  assert 'metrics.csv' in aside


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
  saved = checkpoints.Checkpoints(tmp_path)
  saved.save(state(), 4)

  def full(*_, **__):
    raise OSError(28, 'No space left on device')

  monkeypatch.setattr(np.lib.format, 'write_array', full)
  with pytest.raises(errors.InputError, match='No space left on device'):
    saved.save(state(), 8)
  assert [p.name for p in (tmp_path / 'checkpoints').iterdir()] == [
    'round_4.npz'
  ]
