"""A disk that fills up while a run writes: one sentence, and it goes on later."""

import functools
import gc
import json
import pathlib
import zipfile

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import doubling
from tests import full_disk
from tff_xc import errors
from tff_xc import files
from tff_xc.experiment import client_states
from tff_xc.experiment import run_directory
from tff_xc.report import run_files

# Enough for metrics.csv to grow over a block of 4,096 bytes, and for all else.
LONG, SHORT = 50, 12


@pytest.fixture
def disk(tmp_path):
  with full_disk.mounted(tmp_path / 'disk', '1m') as found:
    if isinstance(found, str):
      pytest.skip(found)
    yield found


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """Returns rounds -> the directory of a run that nothing disturbed."""

  @functools.cache
  def of(rounds):
    path = tmp_path_factory.mktemp('whole') / 'run'
    run(path, rounds)
    return path

  return of


def run(path, rounds):
  return doubling.run(path, rounds=rounds, process=doubling.Keeping())


def filling(disk, function, is_it, left):
  """Wraps `function`: the disk is full once `is_it` is true of its arguments,

  but for `left` bytes.
  """
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


# File that is named, (owner, name of the function that finds the disk full, when).
MOMENTS = {
  'config.json': (files, 'write_json', lambda *_: True),
  'metrics.csv': (run_directory.RunDirectory, 'release', lambda *a: a[2] == 7),
  'metrics.csv in its midst': (
    run_directory.RunDirectory,
    'release',
    crosses_a_block,
  ),
  'tensorboard': (
    tff.program.TensorBoardReleaseManager,
    'release',
    lambda self, value, round_number: round_number == 7,
  ),
  'round_9.npz': (
    zipfile.ZipFile,
    '__init__',
    lambda self, file, *_: '.round_9.' in str(file),
  ),
  'client_states/2_6.npz': (
    client_states.ClientStates,
    'write',
    lambda self, new, round_number: round_number == 6,
  ),
  'client_states/2_6.npz in its midst': (
    client_states.ClientStates,
    'write',
    lambda self, new, round_number: round_number == 6,
  ),
  'summary.json': (
    files,
    'write_json',
    lambda path, _: pathlib.Path(path).name == 'summary.json',
  ),
}  # fmt: skip


def damaged(path):
  """Returns the files of a run that are temporary or cannot be read whole."""
  return [
    str(file)
    for file in path.rglob('*')
    if 'tmp' in file.name
    or '_temp' in file.name
    or (file.suffix == '.npz' and not zipfile.is_zipfile(file))
    or (file.suffix == '.json' and not json.loads(file.read_text()))
  ]


@pytest.mark.parametrize('moment', MOMENTS)
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_later(
  disk, whole, monkeypatch, moment
):
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
  # With the disk still full, the same command says so again.
  e = None
  gc.collect()  # The lock of the run that failed.
  with pytest.raises(errors.InputError, match='No space left on device'):
    run(path, rounds)
  gc.collect()
  disk.make_room()
  run(path, rounds)
  assert doubling.rows(path) == doubling.rows(whole)
  assert not (path / 'checkpoints' / 'damaged').exists()
  for kept in whole.rglob('*.npz'):
    with np.load(kept) as a, np.load(path / kept.relative_to(whole)) as b:
      for array in a.files:
        np.testing.assert_array_equal(a[array], b[array], f'{kept} {array}')
