"""The user's own photographs as federated data."""

import types

import numpy as np
import pytest

from datasets import photographs
from datasets.readers import decode, images as store_lib
from datasets.splits import deal
from tests.datasets import images_on_disk
from tff_xc import errors
from tff_xc.data import fingerprint


def load(path, split='class', *, test_file='', test_fraction=0.0, seed=0, **more):
  choice = deal.Choice(str(split), str(test_file), test_fraction, seed)
  return photographs.load(path, choice, **{'side': 16, **more})


def write(path, *lines, header='user_id,image_id,class'):
  path.parent.mkdir(exist_ok=True)
  path.write_text('\n'.join([header, *lines, '']), encoding='utf-8')
  return path


def split_files(folder):
  """Writes files like `launch.make_splits`: user, image and class, and class names."""
  rows = ('ann,cat/0.jpg,0', 'bob,dog/1.jpg,1', 'ann,dog/0.jpg,1', '9,emu/0.jpg,2')
  write(folder / 'federated_train.csv', *rows)
  held_out(folder / 'test.csv', 'emu/1.jpg,2', 'cat/2.jpg,0')
  classes(folder, '0,cat', '1,dog', '2,emu')
  return folder


def held_out(path, *lines):
  return write(path, *lines, header='image_id,class')


def classes(folder, *lines):
  write(folder / 'classes.csv', *lines, header='class,name')


@pytest.mark.parametrize('pack', [False, True])
def test_a_folder_for_each_class(tmp_path, pack):
  path = images_on_disk.classes(tmp_path / 'photos')
  if pack:
    path = images_on_disk.tarred(path, tmp_path / 'photos.tar')
  dataset = load(path)
  assert dataset.class_names == ['cat', 'dog', 'emu']
  assert dataset.train.client_ids == ['class/0', 'class/1', 'class/2']
  assert dataset.test is None
  x, y = dataset.train.examples('class/1')
  assert x.shape == (5, 16, 16, 3)
  assert set(y) == {1}
  np.testing.assert_array_equal(x[0], decode.square(images_on_disk.photograph(6), 16))


@pytest.mark.parametrize('form', ['folder', 'files', 'without suffix'])
def test_a_split_names_clients_classes_and_test(tmp_path, form):
  path = images_on_disk.classes(tmp_path / 'photos')
  split = split_files(tmp_path / 'splits')
  if form == 'without suffix':
    for file in ('federated_train.csv', 'test.csv'):
      text = (split / file).read_text().replace('.jpg', '')
      (split / file).write_text(text)
  if form == 'files':
    train = split / 'federated_train.csv'
    dataset = load(path, train, test_file=split / 'test.csv')
    assert load(path, train).test is None
  else:
    dataset = load(path, split)
  assert dataset.train.client_ids == ['9', 'ann', 'bob']
  assert dataset.class_names == ['cat', 'dog', 'emu']
  x, y = dataset.train.examples('ann')
  assert y.tolist() == [0, 1]
  np.testing.assert_array_equal(x[0], decode.square(images_on_disk.photograph(0), 16))
  assert dataset.test.labels.tolist() == [2, 0]
  x, _ = dataset.test.examples(np.array([0]))
  np.testing.assert_array_equal(x[0], decode.square(images_on_disk.photograph(12), 16))


def test_a_split_needs_no_class_folders(tmp_path):
  names = ['a1.jpg', 'b/2.jpg', 'b/c/3.jpg', '4.png']
  path = images_on_disk.write(tmp_path / 'photos', names)
  rows = [f'{c},{n},u{c},x' for c, n in zip((10, 9, 10, 300), names, strict=True)]
  split = write(tmp_path / 's.csv', *rows, header='class,image_id,user_id,note')
  dataset = load(path, split)
  assert dataset.class_names == ['9', '10', '300']
  assert dataset.train.client_ids == ['u10', 'u300', 'u9']
  assert sorted(dataset.train.pool.labels.tolist()) == [0, 1, 1, 2]


@pytest.mark.parametrize('pack', [False, True])
def test_ids_in_another_normal_form(tmp_path, pack):
  path = images_on_disk.write(tmp_path / 'p', ['cafe\u0301/u\u0308.jpg', 'dog/1.jpg'])
  if pack:
    path = images_on_disk.tarred(path, tmp_path / 'p.tar')
  row = 'caf\u00e9/\u00fc.jpg,caf\u00e9'
  split = write(tmp_path / 's.csv', f'ann,{row}', 'bob,dog/1.jpg,dog')
  assert len(load(path, split, corrupt='fail').train.partition.numbers) == 2
  test = held_out(tmp_path / 't.csv', row)
  assert load(path, 'class', test_file=test).test.labels.tolist() == [0]


def test_folders_in_another_normal_form_are_classes_of_a_model(tmp_path):
  path = images_on_disk.write(tmp_path / 'p', ['cafe\u0301/1.jpg'])
  description = types.SimpleNamespace(shape=(8, 8, 3), preprocessing={})
  [(_, block)] = photographs.blocks(store_lib.open_store(path), description, 4)
  assert 'caf\u00e9' in block.labels[0]
  assert block.folders == ['caf\u00e9']


def damage(path):
  cut = (path / 'cat/0.jpg').read_bytes()[:200]
  (path / 'cat/0.jpg').write_bytes(cut)
  (path / 'emu/3.jpg').write_bytes(b'')


def test_damaged_images_are_counted_and_left_out(tmp_path, capsys, monkeypatch):
  path = images_on_disk.classes(tmp_path / 'photos')
  damage(path)
  dataset = load(path)
  said = capsys.readouterr().err
  assert '2 of 18 images' in said
  assert "first 'cat/0.jpg'" in said
  assert dataset.train.partition.sizes.tolist() == [5, 5, 6]
  for client in dataset.train.client_ids:
    dataset.train.examples(client)
  # The next run decodes only the damaged images, to see whether they are still damaged.
  decoded, square = [], decode.square
  monkeypatch.setattr(decode, 'square', lambda *a: decoded.append(0) or square(*a))
  assert load(path).train.partition.sizes.tolist() == [5, 5, 6]
  assert len(decoded) == 2
  (path / 'emu/3.jpg').write_bytes(images_on_disk.photograph(3))  # Repair the image.
  assert load(path).train.partition.sizes.tolist() == [5, 5, 7]


def test_damaged_images_may_be_left_out_or_an_error(tmp_path):
  path = images_on_disk.classes(tmp_path / 'photos')
  damage(path)
  dataset = load(path, corrupt='fail')  # No image is decoded yet.
  dataset.train.examples('class/1')
  with pytest.raises(errors.InputError, match=r'cat/0\.jpg .*--corrupt=skip'):
    dataset.train.examples('class/0')
  test = held_out(tmp_path / 't.csv', 'cat/0.jpg,cat', 'dog/0.jpg,dog')
  dataset = load(path, 'iid:3', test_file=test)
  assert dataset.test.labels.tolist() == [1]
  assert sum(dataset.train.partition.sizes) == 15
  # A file that cannot be opened.
  (path / 'cat/9.jpg').symlink_to(path / 'absent.jpg')
  assert load(path).train.partition.sizes.tolist() == [5, 5, 6]
  with pytest.raises(errors.InputError, match=r'cat/9\.jpg .*--corrupt=skip'):
    load(path, corrupt='fail')


def test_each_image_of_a_tfrecord_is_checked(tmp_path):
  made = []
  for i in range(4):
    image = images_on_disk.photograph(i)
    made.append(images_on_disk.example(a=image, b=image if i else b'no', label=i % 2))
  path = images_on_disk.write_records(tmp_path / 'mine.tfrecord', made)
  for feature, sizes in (('a', [2, 2]), ('b', [1, 2])):
    found = load(path, features={'image': feature})
    assert found.train.partition.sizes.tolist() == sizes


@pytest.mark.parametrize('part', ['test', 'training'])
def test_a_part_of_which_nothing_is_left_is_an_error(tmp_path, part):
  path = images_on_disk.classes(tmp_path / 'photos')
  split = split_files(tmp_path / 'splits')
  damaged = ['emu/1', 'cat/2']
  if part == 'training':
    damaged = ['cat/0', 'dog/1', 'dog/0', 'emu/0']
  for name in damaged:
    (path / f'{name}.jpg').write_bytes(b'')
  with pytest.raises(errors.InputError, match=f'{part} images .*{damaged[0]}'):
    load(path, split)
  for name in damaged:
    (path / f'{name}.jpg').unlink()
  with pytest.raises(errors.InputError, match=f'{part} images'):
    load(path, split)


def test_missing_images(tmp_path, capsys):
  path = images_on_disk.classes(tmp_path / 'photos')
  split = split_files(tmp_path / 'splits')
  (path / 'cat/0.jpg').unlink()
  dataset = load(path, split)
  assert '1 of 6 images' in capsys.readouterr().err
  assert dataset.train.labels('ann').tolist() == [1]
  with pytest.raises(errors.InputError, match='1 of 6'):
    load(path, split, corrupt='fail')
  other = images_on_disk.write(tmp_path / 'other', ['x.jpg', 'y.jpg'])
  with pytest.raises(errors.InputError, match=r'6 of 6 .*x\.jpg'):
    load(other, split)


def test_bad_input_is_one_sentence(tmp_path):
  path = images_on_disk.classes(tmp_path / 'photos')
  split = split_files(tmp_path / 'splits')

  def refused(match, path=path, split=split):
    with pytest.raises(errors.InputError, match=match):
      load(path, split)

  classes(split, '0,cat', '1,dog')
  refused("class '2'")
  classes(split, '0,cat', '1,cat', '2,emu')
  refused('two classes')
  (split / 'classes.csv').unlink()
  held_out(split / 'test.csv', 'cat/0.jpg,0')
  refused(r'cat/0\.jpg .*twice')
  write(split / 'federated_train.csv', 'ann,cat/0.jpg', header='user_id,image_id')
  refused('class')
  one = images_on_disk.classes(tmp_path / 'one', {'cat': 3})
  for split in ('class', 'iid:2'):
    refused('one class only; put', one, split)
  for file in one.glob('*/*'):
    file.write_bytes(images_on_disk.encoded(images_on_disk.quarters())[:60])
  refused(r'cat/0\.jpg', one, 'class')


def test_other_images_or_classes_are_other_data_and_a_tar_is_the_same(tmp_path):
  path = images_on_disk.classes(tmp_path / 'photos')

  def of(p):
    return fingerprint.fingerprint(load(p, 'iid:3', test_fraction=0.2))

  first = of(path)
  assert of(images_on_disk.tarred(path, tmp_path / 'p.tar')) == first
  (path / 'dog/1.jpg').write_bytes(images_on_disk.photograph(99))
  second = of(path)
  assert [n for n in first if first[n] != second[n]] == ['source_checksum']
  (path / 'dog').rename(path / 'dodo')
  assert first['names_checksum'] != of(path)['names_checksum']
  split = write(tmp_path / 's.csv', 'ann,cat/0.jpg,0', 'ann,emu/0.jpg,1')
  found = set()
  for label in '01':
    test = held_out(tmp_path / 't.csv', f'cat/1.jpg,{label}')
    found.add(load(path, split, test_file=test).source_checksum)
  assert len(found) == 2


def test_only_images_that_are_unknown_are_decoded(tmp_path, monkeypatch):
  monkeypatch.setattr(photographs, '_BLOCK', 4)
  path = images_on_disk.classes(tmp_path / 'photos')
  asked = []

  def check(numbers, most=10**9):
    if len(asked) >= most:
      raise KeyboardInterrupt
    asked.extend(numbers.tolist())
    return numbers != 7  # Image 7 is damaged.

  def find(check=check):
    asked.clear()
    return photographs.readable(store_lib.open_store(path), np.arange(18), check).tolist()

  with pytest.raises(KeyboardInterrupt):
    find(lambda numbers: check(numbers, 12))
  assert asked == list(range(12))
  assert find() == [i != 7 for i in range(18)]
  assert asked == [7, *range(12, 18)]
  (path / 'cat/0.jpg').write_bytes(images_on_disk.photograph(40))
  find()
  assert asked == [0, 7]
