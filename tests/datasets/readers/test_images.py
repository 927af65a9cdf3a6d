"""Folders, zips, tars and TFRecords of images, read in place."""

import concurrent.futures
import io
import shutil
import tarfile
import zipfile

import numpy as np
import pytest
from tensorflow_federated.python.simulation.datasets import vision_datasets_utils

from datasets import examples as examples_lib, photographs
from datasets.readers import decode, images as store_lib, packed, record_features
from datasets.splits import deal
from tests.datasets import imagenet21k_on_disk as imagenet21k, images_on_disk
from tff_xc import errors

LONG = 'a' * 90 + '/' + 'b' * 120 + '/é ü.PNG'
NAMES = ['dog/2.jpg', 'cat/1.jpg', 'cat/deep/er/1.jpeg', LONG, 'top.png']


SYNSETS = sorted(imagenet21k.NAMES)


def everything(store):
  names = list(store.names)
  return dict(zip(names, map(store.read, range(len(names))), strict=True))


def refused(path, match, *features):
  with pytest.raises(errors.InputError, match=match):
    store_lib.open_store(path, *features)


@pytest.mark.parametrize(
  'pack',
  [
    lambda folder, _: folder,
    lambda folder, path: images_on_disk.tarred(folder, path, tarfile.GNU_FORMAT),
    images_on_disk.tarred,
    images_on_disk.zipped,
  ],
)
def test_every_form_has_the_same_images(tmp_path, pack):
  # Files that operating systems leave in folders are not images.
  left = 'cat/._1.jpg', '__MACOSX/cat/1.jpg', '.trash/9.jpg', 'cat/Thumbs.db'
  folder = images_on_disk.write(tmp_path / 'photos', [*NAMES, *left])
  suffix = '.zip' if pack is images_on_disk.zipped else '.tar'
  store = store_lib.open_store(pack(folder, tmp_path / f'archive{suffix}'))
  found = everything(store)
  assert list(found) == sorted(NAMES)
  assert found == {n: images_on_disk.photograph(i) for i, n in enumerate(NAMES)}
  assert store.where(0).endswith(LONG)


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
  store = store_lib.open_store(images_on_disk.write(tmp_path, names))
  ids = examples_lib.texts([[write(n) for n in [*names, 'cat/absent.jpg']]])
  assert store_lib.find(store, ids).tolist() == [2, 0, 1, -1]


def test_an_ambiguous_id_is_refused(tmp_path):
  store = store_lib.open_store(images_on_disk.write(tmp_path, ['a/1.jpg', 'b/1.jpg']))
  with pytest.raises(errors.InputError, match=r"'1.jpg' may be .*a/1.jpg"):
    store_lib.find(store, examples_lib.texts([['1.jpg']]))


def test_links_lead_to_images_and_not_in_circles(tmp_path):
  folder = images_on_disk.write(tmp_path / 'photos', ['cat/1.jpg', 'dog/2.jpg'])
  (folder / 'alias').symlink_to(folder / 'cat')
  (folder / 'cat' / 'friends').symlink_to(folder / 'dog')
  (folder / 'dog' / 'friends').symlink_to(folder / 'cat')
  (folder / 'dog' / 'again').symlink_to(folder)
  (folder / 'emu').symlink_to(images_on_disk.write(tmp_path / 'other', ['3.jpg']))
  # A folder with two links counts twice.
  assert list(everything(store_lib.open_store(folder))) == [
    'alias/1.jpg',
    'alias/friends/2.jpg',
    'cat/1.jpg',
    'cat/friends/2.jpg',
    'dog/2.jpg',
    'dog/friends/1.jpg',
    'emu/3.jpg',
  ]


@pytest.mark.parametrize('form', ['tar', 'zip'])
def test_odd_members_of_archives(tmp_path, form):
  data, last = images_on_disk.photograph(0), images_on_disk.photograph(1)
  path = tmp_path / f'a.{form}'
  is_zip = form == 'zip'
  with (zipfile.ZipFile if is_zip else tarfile.open)(path, 'w') as archive:
    for name, content in (
      ('/cat/1.jpg', data),
      ('.//cat/./2.jpg', data),
      ('cat/../../3.jpg', data),
      ('cat/1.jpg', last),
      ('dog.jpg/', b''),
    ):
      if is_zip:
        archive.writestr(name, content)
        continue
      member = tarfile.TarInfo(name)
      member.size = len(content)
      member.type = tarfile.REGTYPE if content else tarfile.DIRTYPE
      archive.addfile(member, io.BytesIO(content))
  found = everything(store_lib.open_store(path))
  assert found == {'cat/1.jpg': last, 'cat/2.jpg': data}


def test_what_cannot_be_read_in_place_is_refused(tmp_path):
  folder = images_on_disk.write(tmp_path / 'photos', ['cat/1.jpg', 'cat/2.jpg'])
  (tmp_path / 'empty').mkdir()
  (tmp_path / 'no.zip').write_bytes(b'PK no')
  zipped = images_on_disk.zipped(folder, tmp_path / 'a.zip')
  for name in ('a.tar.gz', 'a.tar', 'c.zip'):
    with tarfile.open(tmp_path / name, 'w:gz') as archive:
      archive.add(folder, '.')
  shutil.copy(zipped, tmp_path / 'b.tar')
  cut = images_on_disk.tarred(folder, tmp_path / 'cut.tar')
  cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 4])
  for name, said in (
    ('absent', 'absent'),
    ('empty', r'no images \(\.jpg'),
    ('a.tar.gz', 'unpack'),
    ('cut.tar', 'damaged'),
    ('no.zip', 'zip file'),
    # The content of these archives does not fit their suffix.
    *((name, name) for name in ('a.tar', 'b.tar', 'c.zip')),
  ):
    refused(tmp_path / name, said)


@pytest.mark.parametrize('link', ['symlink_to', 'hardlink_to'])
def test_a_tar_with_links_is_refused(tmp_path, link):
  folder = images_on_disk.write(tmp_path / 'photos', ['a.jpg'])
  getattr(folder / 'b.jpg', link)(folder / 'a.jpg')
  refused(images_on_disk.tarred(folder, tmp_path / 'links.tar'), '--dereference')


# Tars of tars and folders of tars are read like folders of folders.


@pytest.mark.parametrize('write', [imagenet21k.tars, imagenet21k.tar_of_tars])
def test_tars_are_read_in_place_as_from_folders(tmp_path, write, monkeypatch):
  monkeypatch.setattr(packed, '_OPEN', 2)
  path = write(tmp_path)
  expected = everything(store_lib.open_store(tmp_path / 'folders'))
  assert list(expected) == SYNSETS
  assert everything(store_lib.open_store(path)) == expected
  monkeypatch.setattr(tarfile, 'open', None)  # A second reading uses the stored index.
  store = store_lib.open_store(path)
  assert everything(store) == expected
  with concurrent.futures.ThreadPoolExecutor(8) as threads:
    read = list(threads.map(store.read, list(range(len(SYNSETS))) * 25))
  assert read == list(expected.values()) * 25


def test_a_tar_that_was_cut_after_its_index_is_named(tmp_path):
  path = imagenet21k.tars(tmp_path)
  store = store_lib.open_store(path)
  last = path / 'n00000100.tar'
  last.write_bytes(last.read_bytes()[:1100])
  with pytest.raises(EOFError, match=r'n00000100\.tar'):
    store.read(len(store.names) - 1)
  refused(path, r'n00000100\.tar')


@pytest.mark.parametrize(
  'damage',
  [
    lambda data: data[:1024],  # The file ends after the first image.
    lambda data: data[:1300],  # The file ends within the second header.
    lambda data: data[:1024] + b'x' * 100 + data[1124:],
  ],
)
def test_a_damaged_header_is_not_the_end(tmp_path, damage):
  with tarfile.open(tmp_path / 'a.tar', 'w') as tar:
    for name in ('cat/1.png', 'dog/1.png', 'dog/2.png'):
      member = tarfile.TarInfo(name)
      member.size = 9
      tar.addfile(member, io.BytesIO(b'a' * 9))
  (tmp_path / 'a.tar').write_bytes(damage((tmp_path / 'a.tar').read_bytes()))
  refused(tmp_path / 'a.tar', 'at byte 1,024')


@pytest.mark.parametrize('pack', [images_on_disk.tarred, images_on_disk.zipped])
def test_an_archive_beside_images_is_no_class(tmp_path, pack):
  folder = images_on_disk.write(tmp_path / 'photos', ['cat/1.jpg', 'dog/1.jpg'])
  images_on_disk.tarred(folder, tmp_path / 'backup.tar').rename(folder / 'backup.tar')
  suffix = '.zip' if pack is images_on_disk.zipped else '.tar'
  found = store_lib.read(pack(folder, tmp_path / f'a{suffix}'))
  assert found.class_names == ['cat', 'dog'] and len(found) == 2


def test_ids_may_leave_out_the_outer_folder(tmp_path):
  outer = tmp_path / 'outer' / 'winter21_whole'
  outer.mkdir(parents=True)
  imagenet21k.tars(tmp_path).rename(outer)
  images_on_disk.tarred(tmp_path / 'outer', tmp_path / 'w.tar')
  store = store_lib.open_store(tmp_path / 'w.tar')
  assert all(name.startswith('winter21_whole/n000') for name in store.names)
  found = store_lib.find(store, examples_lib.texts([SYNSETS[::-1]]))
  np.testing.assert_array_equal(found, np.arange(len(SYNSETS))[::-1])


# TFRecords: TFF's layout and other layouts, damaged files, and the user's own feature names.


def load(path, split='', **more):
  return photographs.load(path, deal.Choice(split), side=16, **more)


def test_tffs_layout_has_its_users_and_its_test(tmp_path):
  path = images_on_disk.of_tff(tmp_path / 'gld23k')
  (path / 'train' / 'Thumbs.db').write_bytes(b'\xd0\xcf')
  dataset = load(path)
  assert dataset.train.client_ids == ['user0', 'user1', 'user2']
  assert dataset.num_classes == 4

  # In TFF 0.87, `load_data_from_cache` fails, because it does not pass an argument.
  def read(file):
    return sorted(
      int(e['class'][0]) for e in vision_datasets_utils.load_tfrecord(str(path / file), '')
    )

  for user in dataset.train.client_ids:
    assert sorted(dataset.train.labels(user)) == read(f'train/{user}')
  assert sorted(dataset.test.labels) == read('test.tfRecord')
  for image, label in zip(*dataset.train.examples('user1'), strict=True):
    photograph = images_on_disk.photograph(10 + (label - 1) % 4)
    np.testing.assert_array_equal(image, decode.square(photograph, 16))
  store = store_lib.open_store(path)
  ids = list(store.names)
  assert ids[:2] == ['test/0/test-000000.jpg', 'test/1/test-000001.jpg']
  assert 'train/0/user0/train-user0-000000.jpg' in ids
  assert store.read(0) == images_on_disk.photograph(50)


def test_a_user_of_tffs_layout_may_be_named_like_the_test(tmp_path):
  path = images_on_disk.of_tff(tmp_path / 'gld23k')
  (path / 'train' / 'user1').rename(path / 'train' / 'dev-1')
  dataset = load(path)
  assert dataset.train.client_ids == ['dev-1', 'user0', 'user2']
  assert len(dataset.test) == 4


@pytest.mark.parametrize('one_file', ['mine.TFRecord', 'mine.record', ''])
def test_shards_with_usual_features(tmp_path, one_file):
  made = [
    images_on_disk.example(
      image__encoded=images_on_disk.photograph(i),
      image__class__label=i % 3,
      image__filename=f'folder/photo{i}.png' if i else 'first',
      image__height=16,
    )
    for i in range(8)
  ]
  if one_file:
    path = images_on_disk.write_records(tmp_path / one_file, made)
  else:
    path = tmp_path / 'shards'
    for shard in range(2):
      file = path / f'a.tfrecord-0000{shard}-of-00002'
      images_on_disk.write_records(file, made[shard::2])
  assert load(path, 'class').train.partition.sizes.tolist() == [3, 3, 2]
  ids = set(store_lib.open_store(path).names)
  assert {'train/0/first.jpg', 'train/1/photo1.png'} <= ids
  if one_file:
    split = tmp_path / 'split.csv'
    lines = ['user_id,image_id,class', 'a,photo1,x', 'b,photo2,y', 'b,first,x']
    split.write_text('\n'.join([*lines, '']))
    dataset = load(path, str(split))
    assert dataset.train.client_ids == ['a', 'b']
    assert dataset.class_names == ['x', 'y']


def test_features_of_other_names(tmp_path):
  made = [
    images_on_disk.example(
      photo=images_on_disk.photograph(i), kind=f'é/{i % 2}', who=f'é%/{i % 3}', key=i
    )
    for i in range(6)
  ]
  path = images_on_disk.write_records(tmp_path / 'mine.tfrecord', made)
  given = record_features.parse('image=photo,class=kind, user=who,id=key')
  assert load(path, features=given).train.client_ids == ['é%/0', 'é%/1', 'é%/2']
  found = store_lib.open_store(path, given)
  assert next(iter(found.names)) == 'train/é%2F0/é%25%2F0/0.jpg'
  refused(path, 'it has key, kind, photo, who')
  refused(path, r'no user \(nobody', {**given, 'user': 'nobody'})
  for text in ('photo', 'picture=a', 'image=', 'id=a,id=b'):
    with pytest.raises(errors.InputError, match='image=NAME'):
      record_features.parse(text)


def test_damaged_and_ambiguous_files_are_refused(tmp_path):
  image, path = images_on_disk.photograph(0), tmp_path / 'mine.tfrecord'
  one = images_on_disk.example(image=image, label=1)
  for examples, change, message in (
    ([one], lambda data: data[:-20], 'TFRecord'),
    ([one], lambda d: d[:3] + bytes([d[3] ^ 1]) + d[4:], 'TFRecord'),
    ([one], lambda data: b'', 'no images'),
    ([b'\xff\xff'], bytes, r'file of tf\.train\.Example'),
    ([images_on_disk.example(image=image, id=1)] * 2, bytes, 'two images'),
    ([one, images_on_disk.example(image=image, label=1, user='a')], bytes, 'a user and without'),
  ):
    images_on_disk.write_records(path, examples)
    path.write_bytes(change(path.read_bytes()))
    refused(path, message)
