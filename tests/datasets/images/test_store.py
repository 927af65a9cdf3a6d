"""Folders, tars and zips of images, read in place."""

import concurrent.futures
import io
import shutil
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest

from datasets import examples as examples_lib
from datasets import parsed_cache
from datasets.images import store as store_lib
from tests.datasets.images import on_disk
from tff_xc import errors

LONG = 'a' * 90 + '/' + 'b' * 120 + '/é ü.PNG'
NAMES = ['dog/2.jpg', 'cat/1.jpg', 'cat/deep/er/1.jpeg', LONG, 'top.png']


def everything(store):
  return dict(
    zip(
      store.names.take(np.arange(len(store.names))),
      map(store.read, range(len(store.names))),
      strict=True,
    )
  )


def pax(folder, path):
  return on_disk.tarred(folder, path.with_suffix('.tar'))


def gnu(folder, path):
  return on_disk.tarred(folder, path.with_suffix('.tar'), tarfile.GNU_FORMAT)


def plain(folder, path):
  del path
  return folder


@pytest.mark.parametrize('pack', [plain, pax, gnu, on_disk.zipped])
def test_every_form_has_the_same_images(tmp_path, pack):
  folder = on_disk.write(tmp_path / 'photos', NAMES)
  # What people's computers leave there.
  on_disk.write(
    folder,
    ['cat/._1.jpg', '__MACOSX/cat/1.jpg', '.trash/9.jpg', 'cat/Thumbs.db'],
  )
  on_disk.write(folder, NAMES)
  store = store_lib.open_store(pack(folder, tmp_path / 'archive'))
  found = everything(store)
  assert list(found) == sorted(NAMES)
  assert found == {n: on_disk.photograph(i) for i, n in enumerate(NAMES)}
  assert store.where(0).endswith(LONG)


def test_a_tar_is_indexed_once_and_read_by_many_threads(tmp_path, monkeypatch):
  folder = on_disk.write(tmp_path / 'photos', [f'{i}.jpg' for i in range(40)])
  path = on_disk.tarred(folder, tmp_path / 'photos.tar')
  first = everything(store_lib.open_store(path))
  monkeypatch.setattr(tarfile, 'open', None)  # It must not be read again.
  store = store_lib.open_store(path)
  numbers = list(range(40)) * 25
  with concurrent.futures.ThreadPoolExecutor(8) as threads:
    read = list(threads.map(store.read, numbers))
  assert read == [list(first.values())[i] for i in numbers]
  monkeypatch.undo()
  on_disk.write(folder, ['41.jpg'])
  on_disk.tarred(folder, path)
  assert len(store_lib.open_store(path).names) == 41


def test_of_equal_names_in_a_tar_the_last_one_counts(tmp_path):
  a = on_disk.write(tmp_path / 'a', ['x.jpg', '1.jpg'])
  b = on_disk.write(tmp_path / 'b', ['1.jpg'])
  with tarfile.open(tmp_path / 'ab.tar', 'w') as archive:
    archive.add(a, '.')
    archive.add(b, '.')
  found = everything(store_lib.open_store(tmp_path / 'ab.tar'))
  assert found['1.jpg'] == on_disk.photograph(0)
  assert list(found) == ['1.jpg', 'x.jpg']


def test_an_index_takes_little_memory(tmp_path):
  path = tmp_path / 'many.tar'
  with tarfile.open(path, 'w', format=tarfile.USTAR_FORMAT) as archive:
    for number in range(5_000):
      archive.addfile(tarfile.TarInfo(f'class{number % 50}/{number}.jpg'))
  tracemalloc.start()
  store = store_lib.open_store(path)
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert len(store.names) == 5_000
  assert peak / 5_000 < 400  # Python's header of a member takes 1 kB.


@pytest.mark.parametrize(
  'write',
  [
    lambda id_: id_,
    lambda id_: id_.rpartition('.')[0],
    lambda id_: id_.rpartition('/')[2],
    lambda id_: id_.rpartition('/')[2].rpartition('.')[0],
  ],
)
def test_ids_are_paths_or_names_with_or_without_suffix(tmp_path, write):
  names = ['dog/2.jpg', 'cat/1.b.jpg', 'cat/deep/3.png']
  store = store_lib.open_store(on_disk.write(tmp_path, names))
  ids = examples_lib.texts([[write(name) for name in names]])
  assert store_lib.find(store, ids).tolist() == [2, 0, 1]
  ids = examples_lib.texts([[write(n) for n in [*names, 'cat/absent.jpg']]])
  assert store_lib.find(store, ids).tolist() == [2, 0, 1, -1]


def test_an_ambiguous_id_is_refused(tmp_path):
  store = store_lib.open_store(on_disk.write(tmp_path, ['a/1.jpg', 'b/1.jpg']))
  with pytest.raises(errors.InputError, match=r"'1.jpg' may be .*a/1.jpg"):
    store_lib.find(store, examples_lib.texts([['1.jpg']]))


def test_links_lead_to_images_and_not_in_circles(tmp_path):
  folder = on_disk.write(tmp_path / 'photos', ['cat/1.jpg'])
  (folder / 'cat' / 'again').symlink_to(folder)
  outside = on_disk.write(tmp_path / 'other', ['2.jpg'])
  (folder / 'dog').symlink_to(outside)
  assert list(everything(store_lib.open_store(folder))) == [
    'cat/1.jpg',
    'dog/2.jpg',
  ]


def test_folders_that_are_linked_twice_are_there_twice(tmp_path):
  folder = on_disk.write(tmp_path / 'photos', ['cat/1.jpg', 'dog/2.jpg'])
  (folder / 'alias').symlink_to(folder / 'cat')
  (folder / 'cat' / 'friends').symlink_to(folder / 'dog')
  (folder / 'dog' / 'friends').symlink_to(folder / 'cat')
  assert list(everything(store_lib.open_store(folder))) == [
    'alias/1.jpg',
    'alias/friends/2.jpg',
    'cat/1.jpg',
    'cat/friends/2.jpg',
    'dog/2.jpg',
    'dog/friends/1.jpg',
  ]


@pytest.mark.parametrize('form', ['tar', 'zip'])
def test_odd_members_of_archives(tmp_path, form):
  data, last = on_disk.photograph(0), on_disk.photograph(1)
  members = [
    ('/cat/1.jpg', data),
    ('.//cat/./2.jpg', data),
    ('cat/../../3.jpg', data),
    ('cat/1.jpg', last),
    ('dog.jpg/', b''),
  ]
  path = tmp_path / f'a.{form}'
  if form == 'zip':
    with zipfile.ZipFile(path, 'w') as archive:
      for name, content in members:
        archive.writestr(name, content)
  else:
    with tarfile.open(path, 'w') as archive:
      for name, content in members:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        if name.endswith('/'):
          member.type = tarfile.DIRTYPE
        archive.addfile(member, io.BytesIO(content))
  found = everything(store_lib.open_store(path))
  assert found == {'cat/1.jpg': last, 'cat/2.jpg': data}


def test_what_cannot_be_read_in_place_is_refused(tmp_path):
  folder = on_disk.write(tmp_path / 'photos', ['cat/1.jpg', 'cat/2.jpg'])
  with pytest.raises(errors.InputError, match='absent does not exist'):
    store_lib.open_store(tmp_path / 'absent')
  (tmp_path / 'empty').mkdir()
  with pytest.raises(errors.InputError, match=r'has no images \(\.jpg'):
    store_lib.open_store(tmp_path / 'empty')
  with tarfile.open(tmp_path / 'a.tar.gz', 'w:gz') as archive:
    archive.add(folder, '.')
  with pytest.raises(errors.InputError, match='unpack a compressed one'):
    store_lib.open_store(tmp_path / 'a.tar.gz')
  path = on_disk.tarred(folder, tmp_path / 'cut.tar')
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 4])
  with pytest.raises(errors.InputError, match='get a damaged one again'):
    store_lib.open_store(path)
  (tmp_path / 'no.zip').write_bytes(b'PK no')
  with pytest.raises(errors.InputError, match='not a zip file'):
    store_lib.open_store(tmp_path / 'no.zip')


def test_archives_of_other_kinds_are_named(tmp_path):
  folder = on_disk.write(tmp_path / 'photos', ['cat/1.jpg'])
  path = on_disk.zipped(folder, tmp_path / 'a.zip')
  for at, value, why in ((8, 1, 'password'), (10, 9, 'deflate64')):
    data = bytearray(path.read_bytes())
    data[data.rindex(b'PK\1\2') + at] = value  # Of the list at the end.
    (tmp_path / 'b.zip').write_bytes(data)
    with pytest.raises(errors.InputError, match=f"'cat/1.jpg'.*{why}.*unpack"):
      store_lib.open_store(tmp_path / 'b.zip')
  with tarfile.open(tmp_path / 'a.tar', 'w:gz') as archive:
    archive.add(folder, '.')
  shutil.copy(tmp_path / 'a.tar', tmp_path / 'c.zip')
  shutil.copy(path, tmp_path / 'b.tar')
  for name, kind in (('a.tar', 'gzip'), ('b.tar', 'zip'), ('c.zip', 'gzip')):
    with pytest.raises(errors.InputError, match=f'{name}.*it is {kind}'):
      store_lib.open_store(tmp_path / name)


@pytest.mark.parametrize('link', ['symlink_to', 'hardlink_to'])
def test_a_tar_with_links_is_refused(tmp_path, link):
  folder = on_disk.write(tmp_path / 'photos', ['a.jpg'])
  getattr(folder / 'b.jpg', link)(folder / 'a.jpg')
  path = on_disk.tarred(folder, tmp_path / 'links.tar')
  with pytest.raises(errors.InputError, match=r'is a link, to .*--dereference'):
    store_lib.open_store(path)


def test_an_index_that_cannot_be_kept_is_made_in_memory(tmp_path, monkeypatch):
  monkeypatch.setattr(parsed_cache, '_save', lambda *_: None)
  folder = on_disk.write(tmp_path / 'photos', ['a.jpg', 'b.jpg'])
  store = store_lib.open_store(on_disk.tarred(folder, tmp_path / 'photos.tar'))
  assert list(everything(store)) == ['a.jpg', 'b.jpg']
