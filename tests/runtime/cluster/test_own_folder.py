"""The folder of a cluster is made private, and nobody else's is touched."""

import stat

import pytest

from tests.runtime.cluster import folders
from tff_xc import errors
from tff_xc.runtime.cluster import own_folder


def test_a_file_that_cannot_be_written_stays_as_it_is(tmp_path):
  path = tmp_path / 'token'
  own_folder.write(path, 'before')
  with (
    folders.no_room(),
    pytest.raises(errors.InputError, match=r'token cannot be written.*large'),
  ):
    own_folder.write(path, 'after')
  assert path.read_text() == 'before'
  assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize('mode', [0o777, 0o750, 0o701])
def test_an_open_folder_is_refused_as_it_is(tmp_path, mode):
  tmp_path.chmod(mode)
  with pytest.raises(errors.InputError, match=r'open to others.*chmod 700'):
    own_folder.make(tmp_path)
  assert stat.S_IMODE(tmp_path.stat().st_mode) == mode
  assert not list(tmp_path.iterdir())


def test_a_file_and_a_folder_of_other_files_are_refused(tmp_path):
  (tmp_path / 'file').touch()
  for refused in (own_folder.make, own_folder.is_made):
    with pytest.raises(errors.InputError, match='cannot be used'):
      refused(tmp_path / 'file')
    with pytest.raises(errors.InputError, match='holds other files'):
      refused(tmp_path)
  assert {p.name for p in tmp_path.iterdir()} == {'file'}


def test_folders_that_were_made_are_known(tmp_path):
  folder = tmp_path / 'a'
  assert not own_folder.is_made(folder)
  folder.mkdir(mode=0o700)
  assert not own_folder.is_made(folder)
  own_folder.make(folder)
  (folder / 'mine').touch()
  assert own_folder.is_made(folder)
  own_folder.make(folder)
  # By an earlier version, too.
  (folder / 'tff_xc.lock').rename(folder / 'lock')
  assert own_folder.is_made(folder)
  folder.chmod(0o755)
  with pytest.raises(errors.InputError, match='holds other files'):
    own_folder.is_made(folder)


def test_only_one_command_changes_a_folder(tmp_path):
  def refused(folder, why):
    with pytest.raises(errors.InputError, match=why):
      own_folder.locked(folder).__enter__()

  with own_folder.locked(tmp_path):
    refused(tmp_path, 'another command')
  with own_folder.locked(tmp_path):
    pass
  refused(tmp_path / 'nowhere', 'cannot be used')
