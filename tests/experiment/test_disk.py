"""Runs on a disk that fills up, loses power, or has files that change."""

import errno
import functools
import gc
import json
import os
import pathlib
import re
import shutil
import zipfile
from unittest import mock

import pytest
import tensorflow_federated as tff
from PIL import Image

from datasets import photographs
from datasets.splits import deal
from tests import doubling, full_disk
from tff_xc import errors, files
from tff_xc.experiment import checkpoints, client_states, run_directory, storage
from tff_xc.report import run_files

# The long run writes more than a block of 4,096 bytes to metrics.csv. The short run is enough for
# other tests.
LONG, SHORT = 50, 12


@pytest.fixture
def disk(tmp_path):
  with full_disk.mounted(tmp_path / 'disk', '1m') as found:
    if isinstance(found, str):
      pytest.skip(found)
    yield found


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """Returns a function from a number of rounds to the directory of an undisturbed run."""

  @functools.cache
  def of(rounds):
    path = tmp_path_factory.mktemp('whole') / 'run'
    run(path, rounds)
    return path

  return of


def run(path, rounds):
  return doubling.run(path, rounds=rounds, process=doubling.Keeping())


def filling(disk, function, is_it, left):
  """Wraps `function`: when `is_it` is true, fills the disk until `left` bytes are free."""
  filled = []

  def wrapped(*args, **kwargs):
    if not filled and is_it(*args):
      filled.append(True)
      disk.fill(left)
    return function(*args, **kwargs)

  return wrapped


def crosses_a_block(directory, row, round_number):
  size = (directory.path / run_files.METRICS).stat().st_size
  return round_number > 5 and size % 4096 + 200 > 4096


def of_round(wanted):
  return lambda self, value, round_number: round_number == wanted


# For each file that the error names: (owner, name of the function that finds the disk full, when).
_RELEASE = run_directory.RunDirectory, 'release'
_WRITE = client_states.ClientStates, 'write', of_round(6)
MOMENTS = {
  'config.json': (files, 'write_json', lambda *_: True),
  'metrics.csv': (*_RELEASE, of_round(7)),
  'metrics.csv in its midst': (*_RELEASE, crosses_a_block),
  'tensorboard': (tff.program.TensorBoardReleaseManager, 'release', of_round(7)),
  'round_9.npz': (zipfile.ZipFile, '__init__', lambda self, file, *_: '.round_9.' in str(file)),
  'client_states/2_6.npz': _WRITE,
  'client_states/2_6.npz in its midst': _WRITE,
  'summary.json': (files, 'write_json', lambda path, _: pathlib.Path(path).name == 'summary.json'),
}


def damaged(path):
  """Returns the files of a run that are temporary or damaged."""
  return [
    str(file)
    for file in path.rglob('*')
    if 'tmp' in file.name
    or '_temp' in file.name
    or (file.suffix == '.npz' and not zipfile.is_zipfile(file))
    or (file.suffix == '.json' and not json.loads(file.read_text()))
  ]


@pytest.mark.parametrize(
  'moment', [m if 'midst' in m else pytest.param(m, marks=pytest.mark.slow) for m in MOMENTS]
)
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_later(disk, whole, monkeypatch, moment):
  owner, name, is_it = MOMENTS[moment]
  left = 4096 if moment.endswith('npz in its midst') else 0
  full = filling(disk, getattr(owner, name), is_it, left)
  path = disk.path / 'run'
  rounds = LONG if is_it is crosses_a_block else SHORT
  whole = whole(rounds)
  with monkeypatch.context() as patch:
    patch.setattr(owner, name, full)
    with pytest.raises(errors.InputError) as e:
      run(path, rounds)
  told, file = str(e.value), moment.split()[0]
  assert f'{file} cannot be written (No space left on device); mend' in told
  assert '\n' not in told
  assert not damaged(path)
  if (path / run_files.METRICS).exists():
    for line in (path / run_files.METRICS).read_text().splitlines():
      assert line.count(',') == 10, line
  assert not (path / run_files.SUMMARY).exists()
  # While the disk is full, the same command fails with the same error.
  e = None
  gc.collect()  # Release the lock of the failed run.
  with pytest.raises(errors.InputError, match='No space left on device'):
    run(path, rounds)
  gc.collect()
  disk.make_room()
  run(path, rounds)
  assert doubling.rows(path) == doubling.rows(whole)
  assert not (path / 'checkpoints' / 'damaged').exists()
  doubling.assert_same_arrays(path, whole)


@pytest.fixture(name='events')
def _events(monkeypatch):
  """Returns (event, name of the file or folder) in the order of events."""
  found = []
  fsync, replace = os.fsync, os.replace

  def name(path):
    return re.sub(r'\.\d+\.tmp', '.tmp', pathlib.Path(path).name)

  def synced(descriptor):
    found.append(('sync', name(os.readlink(f'/proc/self/fd/{descriptor}'))))
    fsync(descriptor)

  def replaced(old, new):
    found.append(('replace', name(new)))
    replace(old, new)

  monkeypatch.setattr(os, 'fsync', synced)
  monkeypatch.setattr(os, 'replace', replaced)
  return found


def test_a_file_system_may_not_know_how_to_sync_a_folder(tmp_path, monkeypatch):
  for code in (errno.EINVAL, errno.ENOTSUP):
    monkeypatch.setattr(os, 'fsync', mock.Mock(side_effect=OSError(code, 'no')))
    files.write_json(tmp_path / 'x.json', {})
  monkeypatch.setattr(os, 'fsync', mock.Mock(side_effect=OSError(errno.EIO, 'no')))
  with pytest.raises(OSError, match='no'):
    files.write_json(tmp_path / 'x.json', {'new': 1})
  assert (tmp_path / 'x.json').read_text() == '{}\n'


def test_a_checkpoint_comes_after_all_that_it_counts_on(events, tmp_path):
  """Only later rows of metrics.csv may be lost, because a resumed run writes them again."""
  run(tmp_path / 'run', rounds=7)
  saved = [e for e in events if re.match(r'round_\d', e[1])]
  assert saved == [('replace', f'round_{r}.npz') for r in (3, 6, 7)]
  begin = 0
  for round_number, rounds in ((3, (1, 2, 3)), (6, (4, 5, 6)), (7, (7,))):
    end = events.index(('replace', f'round_{round_number}.npz'))
    before = events[begin:end]
    newest = {}
    for number in rounds:  # `doubling` defines the clients of each round.
      newest |= {(number - 1) % 3: number, 3 + (number - 1) % 2: number}
    for client, number in newest.items():
      assert ('sync', f'{client}_{number}.npz') in before
    assert ('sync', 'client_states') in before
    assert before[-3:] == [
      ('sync', 'metrics.csv'),
      ('sync', 'run'),
      ('sync', f'.round_{round_number}.tmp.npz'),
    ]
    assert events[end + 1] == ('sync', 'checkpoints')
    begin = end
  assert ('sync', '.config.tmp.json') in events[: events.index(saved[0])]


def replaced(file):
  other = file.with_name('other')
  other.write_bytes(file.read_bytes()[::-1])
  os.utime(other, ns=(0, file.stat().st_mtime_ns))  # The new file has the same size and time.
  os.replace(other, file)


def written_in_place(file):
  with file.open('r+b') as opened:
    opened.write(b'x')
  os.utime(file, ns=(0, 1))


def appeared(file):
  (file.parent / 'absent').write_bytes(b'')


@pytest.mark.parametrize('change', [replaced, written_in_place, pathlib.Path.unlink, appeared])
def test_a_changed_file_is_named(tmp_path, change):
  names = [tmp_path / name for name in ('a.tar', 'b.tar', 'absent')]
  for file in names[:2]:
    file.write_bytes(b'data')
  watch = storage.Watch(names)
  names[1].read_bytes()  # Reading does not change a file.
  watch.check()
  change(names[1])
  name = 'absent' if change is appeared else 'b.tar'
  with pytest.raises(errors.InputError, match=f'{name} has changed'):
    watch.check()


def test_a_run_keeps_no_checkpoint_of_other_data(tmp_path, monkeypatch):
  """After the file is restored, the run continues from the last checkpoint before the change."""
  doubling.run(tmp_path / 'whole')
  data = tmp_path / 'data.tar'
  data.write_bytes(b'data')
  whole = run_directory.RunDirectory
  monkeypatch.setattr(
    run_directory, 'RunDirectory', lambda path, config: whole(path, config, [data])
  )

  def replace():
    data.rename(tmp_path / 'kept')
    data.write_bytes(b'other')

  path = tmp_path / 'run'
  with pytest.raises(errors.InputError, match=r'data.tar has changed'):
    doubling.run(path, process=doubling.At(4, replace))
  assert [p.name for p in (path / 'checkpoints').iterdir()] == ['round_3.npz']
  (tmp_path / 'kept').replace(data)
  doubling.run(path)
  assert doubling.rows(path) == doubling.rows(tmp_path / 'whole')
  done = checkpoints.load_newest(path, doubling.Doubling().initialize())[1]
  assert done == 10


def test_images_that_are_read_in_every_round_are_watched(tmp_path):
  for i in range(8):
    path = tmp_path / 'photos' / f'class{i % 2}' / f'{i}.png'
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new('RGB', (8, 8)).save(path)

  def load(path):
    return photographs.load(path, deal.Choice('iid:2'), side=8)

  watched = load(tmp_path / 'photos').train.pool.files
  assert len([file for file in watched if file.is_file()]) == 8
  for kind in ('tar', 'zip'):
    made = shutil.make_archive(tmp_path / 'photos', kind, tmp_path, 'photos')
    assert load(made).train.pool.files == [pathlib.Path(made)]
