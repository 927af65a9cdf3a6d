"""Files that change while a run reads them: noticed before the next checkpoint."""

import os
import pathlib
import shutil

import numpy as np
import pytest
from PIL import Image

from datasets.images import clients
from datasets.splits import own
from tests import doubling
from tff_xc import errors
from tff_xc.experiment import checkpoints
from tff_xc.experiment import run_directory
from tff_xc.experiment import storage


def replaced(file):
  other = file.with_name('other')
  other.write_bytes(file.read_bytes()[::-1])
  os.utime(other, ns=(0, file.stat().st_mtime_ns))  # Of the same size and time.
  os.replace(other, file)


def written_in_place(file):
  with file.open('r+b') as opened:
    opened.write(b'x')
  os.utime(file, ns=(0, 1))


def removed(file):
  file.unlink()


def appeared(file):
  (file.parent / 'absent').write_bytes(b'')


@pytest.mark.parametrize(
  'change', [replaced, written_in_place, removed, appeared]
)
def test_a_changed_file_is_named(tmp_path, change):
  files = [tmp_path / 'a.tar', tmp_path / 'b.tar']
  for file in files:
    file.write_bytes(b'data')
  watch = storage.Watch([*files, tmp_path / 'absent'])
  watch.check()
  files[1].read_bytes()  # Reading is no change.
  watch.check()
  change(files[1])
  name = 'absent' if change is appeared else 'b.tar'
  with pytest.raises(errors.InputError, match=f'{name} has changed'):
    watch.check()


def test_a_file_system_that_is_mounted_anew_is_no_change(tmp_path, monkeypatch):
  file = tmp_path / 'a.tar'
  file.write_bytes(b'data')
  watch = storage.Watch([file])
  stat = os.stat

  def elsewhere(*args, **kwargs):
    mode, inode, device, *more = found = stat(*args, **kwargs)
    times = {'st_mtime_ns': found.st_mtime_ns}
    return os.stat_result([mode, inode, device + 1, *more], times)

  with monkeypatch.context() as patch:
    patch.setattr(os, 'stat', elsewhere)
    assert os.stat(file).st_dev != stat(file).st_dev
    watch.check()


def test_a_run_keeps_no_checkpoint_of_other_data(tmp_path, monkeypatch):
  """It goes back to the last one before, once the file is restored."""
  doubling.run(tmp_path / 'whole')
  data = tmp_path / 'data.tar'
  data.write_bytes(b'data')
  whole = run_directory.RunDirectory
  monkeypatch.setattr(
    run_directory,
    'RunDirectory',
    lambda path, config: whole(path, config, [data]),
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
  assert (
    checkpoints.load_newest(path, doubling.Doubling().initialize())[1] == 10
  )


def test_images_that_are_read_in_every_round_are_watched(tmp_path):
  for i in range(8):
    path = tmp_path / 'photos' / f'class{i % 2}' / f'{i}.png'
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full([8, 8, 3], 30 * i, np.uint8)).save(path)
  load = lambda path: clients.load(path, own.Choice('iid:2'), side=8)
  watched = load(tmp_path / 'photos').train.pool.files
  assert len([file for file in watched if file.is_file()]) == 8
  for kind in ('tar', 'zip'):
    made = shutil.make_archive(tmp_path / 'photos', kind, tmp_path, 'photos')
    assert load(made).train.pool.files == [pathlib.Path(made)]
