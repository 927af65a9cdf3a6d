"""Tars of tars, and folders of tars, equal folders of folders."""

import concurrent.futures
import gzip
import io
import tarfile

import numpy as np
import pytest

from datasets import examples as examples_lib
from datasets.images import in_place
from datasets.images import store as store_lib
from datasets.images import tars
from tests.datasets.images import on_disk
from tff_xc import errors

NAMES = [
  f'n{c:08}/n{c:08}_{i}.JPEG' for c in (1, 20, 3) for i in range(c % 7 + 2)
]


def everything(store):
  names = store.names.take(np.arange(len(store.names)))
  return dict(zip(names, map(store.read, range(len(names))), strict=True))


def folders(folder):
  """ImageNet's unpacked form: a folder for each synset."""
  return on_disk.write(folder / 'folders', NAMES)


def folder_of_tars(folder):
  """Its distributed form: a tar for each synset, with images at the top."""
  (folder / 'tars').mkdir()
  for synset in sorted(folders(folder).iterdir()):
    on_disk.tarred(synset, folder / 'tars' / f'{synset.name}.tar')
  (folder / 'tars' / '._n00000001.tar').write_bytes(b'a Mac leaves these')
  (folder / 'tars' / 'words.txt').write_text('n00000001 cat')
  return folder / 'tars'


def tar_of_tars(folder):
  """The fall release: all of these in one tar."""
  path = folder / 'whole.tar'
  with tarfile.open(path, 'w') as whole:
    for tar in sorted(folder_of_tars(folder).iterdir()):
      whole.add(tar, tar.name)
  return path


def compressed(folder):
  path = folder / 'whole.tar.gz'
  with tarfile.open(path, 'w:gz') as whole:
    for tar in sorted(folder_of_tars(folder).iterdir()):
      whole.add(tar, tar.name)
  return path


@pytest.mark.parametrize('write', [folder_of_tars, tar_of_tars])
def test_images_are_read_in_place_as_from_folders(tmp_path, write, monkeypatch):
  monkeypatch.setattr(in_place, '_OPEN', 2)
  path = write(tmp_path)
  expected = everything(store_lib.open_store(tmp_path / 'folders'))
  assert list(expected) == sorted(NAMES)
  assert everything(store_lib.open_store(path)) == expected
  monkeypatch.setattr(tarfile, 'open', None)  # The index is kept.
  store = store_lib.open_store(path)
  assert everything(store) == expected
  numbers = list(range(len(NAMES))) * 20
  with concurrent.futures.ThreadPoolExecutor(8) as threads:
    read = list(threads.map(store.read, numbers))
  assert read == [list(expected.values())[i] for i in numbers]


def test_a_compressed_tar_of_tars_can_be_listed(tmp_path):
  assert list(store_lib.names_of(compressed(tmp_path))) == sorted(NAMES)


def test_an_index_is_made_again_when_one_tar_changes(tmp_path):
  path = folder_of_tars(tmp_path)
  before = store_lib.open_store(path)
  more = on_disk.write(tmp_path / 'more', ['9.JPEG', '8.JPEG', '7.JPEG'])
  on_disk.tarred(more, path / 'n00000020.tar')
  after = store_lib.open_store(path)
  others = [n for n in sorted(NAMES) if 'n00000020' not in n]
  assert list(after.names) == others + [
    f'n00000020/{i}.JPEG' for i in (7, 8, 9)
  ]
  kept, changed = np.arange(len(others)), np.array([len(others)])
  assert after.stamp(kept) == before.stamp(kept)
  assert after.stamp(changed) != before.stamp(changed)


@pytest.mark.parametrize('pack', [lambda f, _: f, on_disk.tarred])
def test_tars_beside_images_do_not_count(tmp_path, pack):
  folder = on_disk.write(tmp_path / 'photos', ['cat/1.jpg', 'dog/1.jpg'])
  on_disk.tarred(folder / 'cat', folder / 'backup.tar')
  store = store_lib.open_store(pack(folder, tmp_path / 'photos.tar'))
  assert list(store.names) == ['cat/1.jpg', 'dog/1.jpg']


def test_a_damaged_tar_is_named(tmp_path):
  path = folder_of_tars(tmp_path)
  damaged = path / 'n00000003.tar'
  damaged.write_bytes(damaged.read_bytes()[:1100])
  with pytest.raises(errors.InputError, match=r'n00000003\.tar is no archive'):
    store_lib.open_store(path)
  on_disk.tarred(path, tmp_path / 'all.tar')
  with pytest.raises(
    errors.InputError, match=r'all.tar, .*n00000003.tar is no'
  ):
    store_lib.open_store(tmp_path / 'all.tar')


@pytest.mark.parametrize('suffix', ['.tar', '.tar.gz'])
@pytest.mark.parametrize(
  'damage',
  [
    lambda data: data[:1024],  # After the first image.
    lambda data: data[:1300],  # Within the second header.
    lambda data: data[:1024] + b'x' * 100 + data[1124:],
  ],
)
def test_a_damaged_header_is_not_the_end(tmp_path, suffix, damage):
  whole = io.BytesIO()
  with tarfile.open(fileobj=whole, mode='w') as tar:
    for name in ('cat/1.png', 'dog/1.png', 'dog/2.png'):
      tar.addfile(_member(name), io.BytesIO(b'a' * 9))
  path = tmp_path / f'photos{suffix}'
  data = damage(whole.getvalue())
  path.write_bytes(gzip.compress(data) if suffix == '.tar.gz' else data)
  with pytest.raises(errors.InputError, match=r'at byte 1,024'):
    store_lib.names_of(path)


def _member(name):
  member = tarfile.TarInfo(name)
  member.size = 9
  return member


def test_a_tar_that_was_cut_later_is_damage(tmp_path):
  path = folder_of_tars(tmp_path)
  store = store_lib.open_store(path)
  last = path / 'n00000020.tar'
  last.write_bytes(last.read_bytes()[:600])
  with pytest.raises(EOFError, match=r'n00000020\.tar ends within it'):
    store.read(len(store.names) - 1)


def test_ids_may_leave_out_the_outer_folder(tmp_path):
  outer = tmp_path / 'outer' / 'winter21_whole'
  outer.mkdir(parents=True)
  folder_of_tars(tmp_path).rename(outer)
  on_disk.tarred(tmp_path / 'outer', tmp_path / 'w.tar')
  store = store_lib.open_store(tmp_path / 'w.tar')
  assert all(name.startswith('winter21_whole/n000') for name in store.names)
  ids = examples_lib.texts([sorted(NAMES)[::-1]])
  expected = np.arange(len(NAMES))[::-1]
  np.testing.assert_array_equal(store_lib.find(store, ids), expected)


@pytest.mark.parametrize('kind', [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_name_larger_than_any_is_not_read(kind, tmp_path):
  path = tmp_path / 'a.tar'
  header = tarfile.TarInfo('x')
  header.type, header.size = kind, 2**40
  path.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
  with pytest.raises(errors.InputError, match='a name of'):
    tars.open_tars(path)
