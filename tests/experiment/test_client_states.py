"""Files of client states after resumed runs, deleted states, damage and killed runs."""

import collections
import gc
import pathlib
import re
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from tests import doubling, small_data
from tff_xc import errors
from tff_xc.algorithms import fedavg
from tff_xc.experiment import checkpoints, client_states, storage, training
from tff_xc.round import examples

SPEC = collections.OrderedDict(a=tf.TensorSpec([2]), n=tf.TensorSpec([], tf.int32))


def kept(ids, number):
  """Returns states of these clients that contain a number."""
  value = collections.OrderedDict(
    a=np.full([len(ids), 2], number, np.float32) + np.float32([0, 1]),
    n=np.full([len(ids)], number, np.int32),
  )
  return examples.KeptStates(np.int64(ids), value)


def after(path, rounds, saved=()):
  """Writes the states of clients [[7, 3], [3], ...] in successive rounds, and saves some rounds."""
  states = client_states.ClientStates(SPEC, path)
  for number, ids in enumerate(rounds, 1):
    states.kept = states.write(kept(ids, number), number)
    if number in saved:
      states.saved(saved[0], number)
  return states


def files(path):
  return {p.name for p in (path / client_states.FOLDER).iterdir()}


def test_states_are_those_of_the_last_round_or_of_a_checkpoint(tmp_path):
  states = after(tmp_path, [[7, 3], [3]], [2])
  for client, number in ((7, 1), (3, 2)):
    found = states.of(client)
    assert found.known
    assert found.value['n'] == number
    np.testing.assert_array_equal(found.value['a'], [number, number + 1])
  new = states.of(4)
  assert not new.known
  assert not new.value['a'].any()
  after(tmp_path, [[7, 3], [3], [3, 9]], [2])  # The run continues, and is killed.
  (tmp_path / client_states.FOLDER / '.7_4.123.tmp.npz').write_bytes(b'half')
  resumed = client_states.ClientStates(SPEC, tmp_path)
  resumed.restore(states.arrays(), 2)
  assert resumed.of(3).value['n'] == 2
  assert not resumed.of(9).known
  assert '.7_4.123.tmp.npz' not in files(tmp_path)


def test_files_that_no_checkpoint_needs_are_removed(tmp_path):
  states = after(tmp_path, [[7, 3], [3], [3]], [1, 2, 3])
  assert files(tmp_path) == {'7_1.npz', '3_1.npz', '3_2.npz', '3_3.npz'}
  states.saved(2, 3)
  assert files(tmp_path) == {'7_1.npz', '3_2.npz', '3_3.npz'}
  resumed = client_states.ClientStates(SPEC, tmp_path)
  resumed.restore(states.arrays(), 3)
  resumed.saved(3, 3)
  assert files(tmp_path) == {'7_1.npz', '3_3.npz'}
  assert resumed.of(7).value['n'] == 1
  best = tmp_path / 'best'
  best.mkdir()
  after(best, [[3]] * 5, [1, 2, 3, 4, 5]).saved(4, 5, best=2)
  assert files(best) == {'3_2.npz', '3_4.npz', '3_5.npz'}
  # Without a checkpoint, only the newest states are left, and the next round must be done first.
  other = tmp_path / 'other'
  other.mkdir()
  states = after(other, [[3]] * 5, [1])
  assert files(other) == {'3_1.npz', '3_4.npz', '3_5.npz'}
  states.saved(5, 5)
  assert files(other) == {'3_5.npz'}


def test_a_missing_or_damaged_file_is_one_sentence(tmp_path, monkeypatch):
  states = after(tmp_path, [[7, 3]])
  path = tmp_path / client_states.FOLDER / '7_1.npz'
  path.write_bytes(path.read_bytes()[:50])
  with pytest.raises(errors.InputError, match=r'7_1.npz'):
    states.of(7)
  assert '7_1.npz, is damaged' in states.problem(states.arrays())
  path.unlink()
  assert '7_1.npz, is missing' in states.problem(states.arrays())
  assert not states.problem({})
  # This error is not the fault of a file.
  monkeypatch.setattr(np, 'load', mock.Mock(side_effect=MemoryError))
  with pytest.raises(errors.InputError, match=r'MemoryError.*mend'):
    states.of(3)


def test_states_of_another_run_are_told_from_those_of_this(tmp_path):
  states = after(tmp_path, [[7, 3], [3]], [1])
  path = tmp_path / client_states.FOLDER / '3_2.npz'
  arrays, own = states.arrays(), path.read_bytes()
  (tmp_path / 'other').mkdir()
  other = after(tmp_path / 'other', [[7], [7, 3], [3]])
  path.write_bytes((other._folder / '3_3.npz').read_bytes())
  assert '3_2.npz, is not that of this run' in states.problem(arrays)
  with pytest.raises(errors.InputError, match='not that of this run'):
    client_states.of_checkpoint(SPEC, tmp_path, arrays)
  path.write_bytes(own)
  resumed = client_states.ClientStates(SPEC, tmp_path)
  assert not resumed.problem(arrays)
  read = client_states.of_checkpoint(SPEC, tmp_path, arrays)
  assert read.of(3).value['n'] == 2 and read.of(7).value['n'] == 1
  resumed.restore(arrays, 2)
  resumed.kept = resumed.write(kept([7], 3), 3)
  again = resumed.arrays()
  for client, number in ((3, 2), (7, 3)):
    [place] = np.flatnonzero(again['client_ids'] == client)
    found = storage.checksum(path.with_name(f'{client}_{number}.npz'))
    assert again['client_sums'][place] == found


def test_without_a_damaged_file_the_checkpoint_before_is_taken(tmp_path):
  """The program notices a flipped bit only when the client participates again."""

  def run(name, rounds):
    return doubling.run(tmp_path / name, rounds=rounds, process=doubling.Keeping())

  run('whole', 10)
  run('run', 6)
  for file in (tmp_path / 'run' / client_states.FOLDER).glob('*_6.npz'):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
  with pytest.raises(errors.InputError, match='or move it away, and') as e:
    run('run', 10)
  [file] = re.findall(r'state, (.*?), cannot', str(e.value))
  del e
  gc.collect()  # Release the lock of the failed run.
  pathlib.Path(file).rename(tmp_path / 'away.npz')
  run('run', 10)
  assert doubling.rows(tmp_path / 'run') == doubling.rows(tmp_path / 'whole')


def test_a_checkpoint_whose_states_are_damaged_is_damaged(tmp_path, capsys):
  """There are two checkpoints, so the files of the older checkpoint must still exist."""
  checkpoints.prepare(tmp_path)
  states = client_states.ClientStates(SPEC, tmp_path)
  for number in (1, 2):
    states.kept = states.write(kept([7], number), number)
    oldest = checkpoints.save(tmp_path, np.float32(number), number, states.arrays())
    states.saved(oldest, number)
  path = tmp_path / client_states.FOLDER / '7_2.npz'
  path.write_bytes(b'')
  resumed = client_states.ClientStates(SPEC, tmp_path)
  state, done, more = checkpoints.load_newest(
    tmp_path, np.float32(0), resumed.problem, moves_damaged=True
  )
  assert (float(state), done) == (1, 1)
  assert '7_2.npz, is damaged); it is now' in capsys.readouterr().err
  resumed.restore(more, done)
  assert resumed.of(7).value['n'] == 1


@pytest.mark.parametrize(
  'spec',
  [
    {'a': tf.TensorSpec([3]), 'n': SPEC['n']},
    {'a': SPEC['a'], 'n': tf.TensorSpec([])},
    {'b': SPEC['a']},
  ],
)
def test_states_of_another_algorithm_are_refused(spec, tmp_path):
  saved = after(tmp_path, [[7, 3]]).arrays()
  states = client_states.ClientStates(spec, tmp_path)
  states.restore({}, 0)
  with pytest.raises(errors.InputError, match="no clients' states"):
    states.restore({}, 4)
  states.restore(saved, 1)
  with pytest.raises(errors.InputError, match=r'7_1.npz'):
    states.of(7)


def test_states_that_may_fill_a_disk_are_warned_of(monkeypatch):
  dataset, model = small_data.images()
  made = fedavg.MOON.made(model=model, contrastive_weight=1.0)
  assert not training._large_states(made, dataset, 'runs/mine')
  monkeypatch.setattr(training, '_MUCH', 6 * 256 * 4 * 4)
  (warning,) = training._large_states(made, dataset, 'runs/mine')
  assert 'keeps 4.10 kB in runs/mine/client_states, 24.6 kB' in warning
